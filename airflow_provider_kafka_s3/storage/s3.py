"""The object store over a boto3 client: conditional requests, each sent once.

botocore's own retries are off. They would repeat a conditional write whose response was lost, and then report the first
write as that of another writer; and two layers of retries multiply. Bodies are not signed, but sent with a CRC32, which
needs a third of the CPU time; the store verifies the checksum, and TLS protects the connection.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from isal import isal_zlib

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    KeyAbsent,
    RangeBeyondEnd,
    ThrottledError,
    UnknownOutcomeError,
    UnsupportedStoreError,
    UploadGone,
)
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.storage.clients import S3Settings, make_client
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.port import (
    ObjectInfo,
    ObjectStore,
    Part,
    PendingUpload,
    StoredObject,
    check_key,
    refuse_whole,
)
from airflow_provider_kafka_s3.storage.s3_errors import RequestKind, may_be_wrong_key, may_succeed_later, translate
from airflow_provider_kafka_s3.storage.write_settings import WriteSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Credentials", "S3Settings", "S3Store", "make_client"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_DEFAULTS: Final = S3Settings()


class S3Store(ObjectStore):
    """One bucket of an S3 store, as an :class:`~airflow_provider_kafka_s3.storage.port.ObjectStore`.

    Any number of threads may share it. A request waits while all connections of the client are in use.
    """

    def __init__(self, client: S3Client, bucket: str, settings: S3Settings = _DEFAULTS) -> None:
        """Use a client for a bucket. Nothing is sent yet.

        Args:
            client: see :func:`make_client`.
            bucket: name of the bucket.
            settings: what objects are stored with.

        Raises:
            ConfigurationError: the bucket cannot be used with these settings.
        """
        if settings.accelerate and "." in bucket:
            raise ConfigurationError(
                f"use_accelerate_endpoint needs a bucket without '.' in its name, and the bucket is {bucket!r}; remove "
                f"it from the AWS connection"
            )
        self._client = client
        self._bucket = bucket
        self._writes = WriteSettings(settings)
        self._lock = threading.Lock()
        # With more requests at the same time, the client would open more connections, discard them afterwards, and log
        # a warning for each.
        config: Any = client.meta.config
        self._connections = threading.BoundedSemaphore(config.max_pool_connections)
        self._conditional_complete = True

    @override
    def url(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """See the protocol. The body is verified by its length and, if the store has one, its checksum."""
        first = start or 0
        try:
            if start is None and end is None:
                return self._read_with_keys(key, ChecksumMode="ENABLED")
            if end is None or end > first:
                last = "" if end is None else str(end - 1)
                return self._read_with_keys(key, Range=f"bytes={first}-{last}")
        except KeyAbsent:
            return None
        except RangeBeyondEnd:
            pass
        # S3 does not support empty ranges.
        info = self.head(key)
        return None if info is None else StoredObject(key, b"", info.etag, info.metadata)

    def head(self, key: str) -> ObjectInfo | None:
        """See the protocol. Also None if the bucket is missing: the response to HEAD is the same."""
        try:
            response = self._with_keys(
                lambda how: self._send(
                    "head",
                    "HeadObject",
                    key,
                    lambda: self._client.head_object(Bucket=self._bucket, Key=key, **how),
                    needs=("ContentLength", "ETag"),
                )
            )
        except KeyAbsent:
            return None
        # Not every store returns it.
        modified = cast("dict[str, Any]", response).get("LastModified")
        return ObjectInfo(
            key,
            response["ContentLength"],
            response["ETag"],
            _lowered(response["Metadata"]),
            None if modified is None else modified.timestamp(),
        )

    @override
    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        position: dict[str, Any] = {"StartAfter": after} if after else {}
        while True:
            page = self._send(
                "other",
                "ListObjectsV2",
                prefix,
                lambda: self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **position),  # noqa: B023
                needs=("IsTruncated",),
            )
            entries = page.get("Contents", [])
            for entry in entries:
                # Some stores ignore StartAfter.
                if entry["Key"] > after:
                    yield ObjectInfo(entry["Key"], entry["Size"], entry["ETag"])
            if not page["IsTruncated"]:
                return
            # Some stores leave the token out: the next page begins behind the last key.
            following: dict[str, Any] = {}
            if token := page.get("NextContinuationToken"):
                following = {"ContinuationToken": token}
            elif entries:
                following = {"StartAfter": entries[-1]["Key"]}
            position = self._next_page("ListObjectsV2", prefix, position, following)

    @override
    def put_new(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        how = self._writes.document() if metadata is None else self._writes.data(tags)
        return self._put("create", key, body, IfNoneMatch="*", Metadata=dict(metadata or {}), **how)

    @override
    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        return self._put("replace", key, body, IfMatch=etag, **self._writes.document())

    @override
    def put_tags(self, key: str, tags: Mapping[str, str]) -> bool:
        tagging: Any = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        try:
            self._send(
                "get",
                "PutObjectTagging",
                key,
                lambda: self._client.put_object_tagging(Bucket=self._bucket, Key=key, Tagging=tagging),
            )
        except KeyAbsent:
            return False
        return True

    @override
    def create_upload(
        self, key: str, *, metadata: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        check_key(key)
        how = self._writes.document() if metadata is None else self._writes.data(tags)
        return self._send(
            "other",
            "CreateMultipartUpload",
            key,
            # Without the algorithm AWS refuses parts with a checksum.
            lambda: self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, Metadata=dict(metadata or {}), ChecksumAlgorithm="CRC32", **how
            ),
            needs=("UploadId",),
        )["UploadId"]

    @override
    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        # botocore accepts a bytearray, though its stubs do not declare it; a memoryview has to be copied.
        data = bytes(body) if isinstance(body, memoryview) else cast("bytes", body)
        checksum = _crc32(data)
        response = self._send(
            "part",
            "UploadPart",
            key,
            lambda: self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=data,
                ChecksumCRC32=checksum,
                **self._writes.part,
            ),
            needs=("ETag",),
        )
        return Part(number, response["ETag"], checksum)

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """See the protocol. If the store does not implement the condition, requests are sent without it."""
        if self._conditional_complete:
            try:
                self._complete(key, upload_id, parts, IfNoneMatch="*")
            except UnsupportedStoreError:
                self._disable_conditional_complete()
            else:
                return
        self._complete(key, upload_id, parts)

    @override
    def abort_upload(self, key: str, upload_id: str) -> None:
        with contextlib.suppress(UploadGone):
            self._send(
                "part",
                "AbortMultipartUpload",
                key,
                lambda: self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id),
            )

    @override
    def upload_exists(self, key: str, upload_id: str) -> bool:
        try:
            self._with_keys(
                lambda how: self._send(
                    "part",
                    "ListParts",
                    key,
                    lambda: self._client.list_parts(
                        Bucket=self._bucket, Key=key, UploadId=upload_id, MaxParts=1, **how
                    ),
                    needs=("UploadId",),
                )
            )
        except UploadGone:
            return False
        return True

    @override
    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        response = self._send(
            "other",
            "DeleteObjects",
            keys[0],
            lambda: self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            ),
        )
        kept = {one["Key"]: (one.get("Code", ""), one.get("Message", "")) for one in response.get("Errors", [])}
        if later := next((key for key, (code, _) in kept.items() if may_succeed_later(code)), None):
            raise ThrottledError(f"DeleteObjects {self.url(later)}: {': '.join(kept[later])}")
        return {key: f"{code}: {message}" for key, (code, message) in kept.items()}

    @override
    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        position: dict[str, Any] = {}
        while True:
            page = self._send(
                "other",
                "ListMultipartUploads",
                prefix,
                lambda: self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix, **position),  # noqa: B023
                needs=("IsTruncated",),
            )
            uploads = page.get("Uploads", [])
            for entry in uploads:
                yield PendingUpload(entry["Key"], entry["UploadId"], entry["Initiated"].timestamp())
            if not page["IsTruncated"]:
                return
            # As above. A key marker without an upload ID marker would skip all other uploads of that key.
            last = uploads[-1] if uploads else {"Key": None, "UploadId": None}
            key = page.get("NextKeyMarker") or last["Key"]
            upload_id = page.get("NextUploadIdMarker") or (last["UploadId"] if key == last["Key"] else None)
            following = {"KeyMarker": key, "UploadIdMarker": upload_id}
            following = {name: value for name, value in following.items() if value}
            position = self._next_page("ListMultipartUploads", prefix, position, following)

    def _next_page(
        self, action: str, prefix: str, position: dict[str, Any], following: dict[str, Any]
    ) -> dict[str, Any]:
        if not following or following == position:
            raise UnsupportedStoreError(
                f"the store returned a truncated listing without the position of the next page, so the listing cannot "
                f"be read to its end. Nothing was changed. Use a store that returns NextContinuationToken, "
                f"NextKeyMarker and NextUploadIdMarker. The request: {action} of {self.url(prefix)}"
            )
        return following

    def _complete(self, key: str, upload_id: str, parts: Sequence[Part], **how: Any) -> None:
        listed: Any = {"Parts": [{"PartNumber": p.number, "ETag": p.etag, "ChecksumCRC32": p.checksum} for p in parts]}
        # The parts have checksums, so AWS needs the key that they are encrypted with.
        self._with_keys(
            lambda keyed: self._send(
                "complete",
                "CompleteMultipartUpload",
                key,
                lambda: self._client.complete_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload_id, MultipartUpload=listed, **how, **keyed
                ),
            )
        )

    def _disable_conditional_complete(self) -> None:
        with self._lock:
            first, self._conditional_complete = self._conditional_complete, False
        if first:
            log.warning(
                "the store of %s does not implement If-None-Match on CompleteMultipartUpload, so uploads are completed "
                "without it. Concurrent runs stay safe, but an object of another program at a key of a batch would be "
                "overwritten",
                self.url(""),
            )

    def _with_keys(self, request: Callable[[Mapping[str, Any]], T]) -> T:
        """Send a request for what another process may have written, with another key or without one.

        A store refuses a request with a wrong key, so nothing is applied, and the request may be sent again.
        """
        refusal: KafkaS3Error | None = None
        for how in self._writes.any_key:
            try:
                return request(how)
            except KafkaS3Error as e:
                if len(self._writes.any_key) == 1 or not may_be_wrong_key(e):
                    raise
                refusal = refusal or e
        assert refusal is not None
        refusal.add_note(
            f"the request was sent with each customer key of the AWS connection, and without one. The digests of the "
            f"keys: {self._writes.keys}. If the object has another one, add that to sse_customer_earlier_keys"
        )
        raise refusal

    def _read_with_keys(self, key: str, **how: Any) -> StoredObject:
        return self._with_keys(
            lambda keyed: self._send("get", "GetObject", key, lambda: self._read(key, **how, **keyed))
        )

    def _read(self, key: str, **how: Any) -> StoredObject:
        response = self._client.get_object(Bucket=self._bucket, Key=key, **how)
        with contextlib.closing(response["Body"]) as stream:
            if "Range" not in how:
                refuse_whole(self.url(key), response.get("ContentLength", 0))
            body = stream.read()
        request = f"GetObject {self.url(key)}"
        # With chunked transfer encoding, the HTTP client detects a missing end itself.
        chunked = "chunked" in response["ResponseMetadata"]["HTTPHeaders"].get("transfer-encoding", "")
        _require(response, ("ETag",) if chunked else ("ETag", "ContentLength"), request)
        if not chunked and len(body) != response["ContentLength"]:
            raise UnknownOutcomeError(
                f"{request}: the response ended after {len(body)} of {response['ContentLength']} bytes"
            )
        return StoredObject(key, body, response["ETag"], _lowered(response["Metadata"]))

    def _put(self, kind: RequestKind, key: str, body: bytes, **how: Any) -> str:
        check_key(key)
        response = self._send(
            kind,
            "PutObject",
            key,
            lambda: self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ChecksumAlgorithm="CRC32", ChecksumCRC32=_crc32(body), **how
            ),
            needs=("ETag",),
        )
        return response["ETag"]

    def _send(
        self, kind: RequestKind, action: str, key: str, request: Callable[[], T], *, needs: Sequence[str] = ()
    ) -> T:
        try:
            with self._connections:
                response = request()
        except KafkaS3Error:
            raise
        except Exception as e:
            error = translate(e, kind=kind, action=action, where=self.url(key))
            if error is None:
                raise
            keyed = self._writes.part and action in ("PutObject", "CreateMultipartUpload")
            if keyed and isinstance(error, AccessDeniedError):
                error.add_note(
                    "the request has a customer key (SSE-C), which new buckets of AWS refuse: see "
                    "BlockedEncryptionTypes of the bucket's encryption"
                )
            raise error from e
        _require(response, needs, f"{action} {self.url(key)}")
        return response


def _require(response: object, needs: Sequence[str], what: str) -> None:
    """Require headers that every response of S3 has: the client does not detect a response that ends in its headers."""
    for name in needs:
        if name not in cast("Mapping[str, object]", response):
            raise UnknownOutcomeError(f"{what}: the response has no {name}, so it is truncated")


def _lowered(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """User metadata with lower-case names: some stores and proxies return ``X-Amz-Meta-Some-Name``, as HTTP allows."""
    return {name.lower(): value for name, value in metadata.items()}


def _crc32(body: bytes) -> str:
    return base64.b64encode(isal_zlib.crc32(body).to_bytes(4, "big")).decode()
