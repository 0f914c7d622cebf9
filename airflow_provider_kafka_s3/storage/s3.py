"""The port over a boto3 client: raw requests with conditions, each sent once.

botocore's own retries are off. It would repeat a conditional write whose response was lost, and then report our own
write as somebody else's; and two layers of retries multiply. Bodies are sent unsigned with a CRC32 computed beforehand,
which costs a third of the CPU of signing them; the store checks the sum, and TLS protects the way.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from isal import isal_zlib

from airflow_provider_kafka_s3.exceptions import (
    KafkaS3Error,
    KeyAbsent,
    RangeBeyondEnd,
    UnknownOutcomeError,
    UnsupportedStoreError,
    UploadGone,
)
from airflow_provider_kafka_s3.storage.clients import S3Settings, make_client
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.port import (
    ObjectInfo,
    Part,
    PendingUpload,
    StoredObject,
    check_key,
    refuse_whole,
)
from airflow_provider_kafka_s3.storage.s3_errors import Kind, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Credentials", "S3Settings", "S3Store", "make_client"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class S3Store:
    """One bucket of an S3 store, as an :class:`~airflow_provider_kafka_s3.storage.port.ObjectStore`.

    Any number of threads may share it. Requests wait for one another when the client has no connection free.
    """

    def __init__(self, client: S3Client, bucket: str) -> None:
        """Use ``client`` (see :func:`make_client`) for ``bucket``; nothing is sent yet."""
        self._client = client
        self._bucket = bucket
        self._lock = threading.Lock()
        # With more requests at once the client would open connections, drop them afterwards, and warn of each.
        config: Any = client.meta.config
        self._connections = threading.BoundedSemaphore(config.max_pool_connections)
        self._conditional_complete = True

    def url(self, key: str) -> str:
        """See the port."""
        return f"s3://{self._bucket}/{key}"

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """See the port. The body is checked against its length and, where the store has one, its checksum."""
        first = start or 0
        try:
            if start is None and end is None:
                return self._send("get", "GetObject", key, lambda: self._read(key, ChecksumMode="ENABLED"))
            if end is None or end > first:
                last = "" if end is None else str(end - 1)
                return self._send("get", "GetObject", key, lambda: self._read(key, Range=f"bytes={first}-{last}"))
        except KeyAbsent:
            return None
        except RangeBeyondEnd:
            pass
        # S3 has no empty ranges.
        found = self.head(key)
        return None if found is None else StoredObject(key, b"", found.etag, found.metadata)

    def head(self, key: str) -> ObjectInfo | None:
        """See the port. HEAD answers a missing bucket exactly as a missing key: None, too."""
        try:
            answer = self._send(
                "head",
                "HeadObject",
                key,
                lambda: self._client.head_object(Bucket=self._bucket, Key=key),
                needs=("ContentLength", "ETag"),
            )
        except KeyAbsent:
            return None
        # Not every store says when.
        modified = cast("dict[str, Any]", answer).get("LastModified")
        return ObjectInfo(
            key,
            answer["ContentLength"],
            answer["ETag"],
            _lowered(answer["Metadata"]),
            None if modified is None else modified.timestamp(),
        )

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See the port."""
        position: dict[str, Any] = {}
        while True:
            page = self._send(
                "other",
                "ListObjectsV2",
                prefix,
                lambda: self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **position),  # noqa: B023
                needs=("IsTruncated",),
            )
            found = page.get("Contents", [])
            for entry in found:
                yield ObjectInfo(entry["Key"], entry["Size"], entry["ETag"])
            if not page["IsTruncated"]:
                return
            # Some stores leave out where the next page begins: behind what was seen last.
            following: dict[str, Any] = {}
            if token := page.get("NextContinuationToken"):
                following = {"ContinuationToken": token}
            elif found:
                following = {"StartAfter": found[-1]["Key"]}
            position = self._next_page("ListObjectsV2", prefix, position, following)

    def put_new(self, key: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> str:
        """See the port."""
        return self._put("create", key, body, IfNoneMatch="*", Metadata=dict(metadata or {}))

    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        """See the port."""
        return self._put("replace", key, body, IfMatch=etag)

    def create_upload(self, key: str, *, metadata: Mapping[str, str] | None = None) -> str:
        """See the port."""
        check_key(key)
        return self._send(
            "other",
            "CreateMultipartUpload",
            key,
            # Without the algorithm AWS expects no checksums, and refuses the parts that bear one.
            lambda: self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, Metadata=dict(metadata or {}), ChecksumAlgorithm="CRC32"
            ),
            needs=("UploadId",),
        )["UploadId"]

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """See the port."""
        # botocore takes a bytearray as it is, though its stubs do not say so; a memoryview has to be copied.
        data = bytes(body) if isinstance(body, memoryview) else cast("bytes", body)
        checksum = _crc32(data)
        answer = self._send(
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
            ),
            needs=("ETag",),
        )
        return Part(number, answer["ETag"], checksum)

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """See the port. A store that does not implement the condition of this request is asked without it."""
        if self._conditional_complete:
            try:
                self._complete(key, upload_id, parts, IfNoneMatch="*")
            except UnsupportedStoreError:
                self._give_up_conditional_complete()
            else:
                return
        self._complete(key, upload_id, parts)

    def abort_upload(self, key: str, upload_id: str) -> None:
        """See the port."""
        # An upload that is gone is what the caller wants.
        with contextlib.suppress(UploadGone):
            self._send(
                "part",
                "AbortMultipartUpload",
                key,
                lambda: self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id),
            )

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """See the port."""
        try:
            self._send(
                "part",
                "ListParts",
                key,
                lambda: self._client.list_parts(Bucket=self._bucket, Key=key, UploadId=upload_id, MaxParts=1),
                needs=("UploadId",),
            )
        except UploadGone:
            return False
        return True

    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """See the port."""
        position: dict[str, Any] = {}
        while True:
            page = self._send(
                "other",
                "ListMultipartUploads",
                prefix,
                lambda: self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix, **position),  # noqa: B023
                needs=("IsTruncated",),
            )
            found = page.get("Uploads", [])
            for entry in found:
                yield PendingUpload(entry["Key"], entry["UploadId"], entry["Initiated"].timestamp())
            if not page["IsTruncated"]:
                return
            # As above. A key without an upload id would skip all other uploads of that key.
            last = found[-1] if found else {"Key": None, "UploadId": None}
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
                f"the store answered that a listing has more entries, and not where they begin, so nobody can read all "
                f"of it. Nothing was changed. Use a store that gives NextContinuationToken, NextKeyMarker and "
                f"NextUploadIdMarker; see {action} of {self.url(prefix)}"
            )
        return following

    def _complete(self, key: str, upload_id: str, parts: Sequence[Part], **how: Any) -> None:
        self._send(
            "complete",
            "CompleteMultipartUpload",
            key,
            lambda: self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={
                    "Parts": [{"PartNumber": p.number, "ETag": p.etag, "ChecksumCRC32": p.checksum} for p in parts]
                },
                **how,
            ),
        )

    def _give_up_conditional_complete(self) -> None:
        with self._lock:
            first, self._conditional_complete = self._conditional_complete, False
        if first:
            log.warning(
                "the store of %s does not implement If-None-Match on CompleteMultipartUpload, so uploads are completed "
                "without it. Runs stay safe from one another, but an object that something else put at a key of a "
                "batch would be overwritten",
                self.url(""),
            )

    def _read(self, key: str, **how: Any) -> StoredObject:
        answer = self._client.get_object(Bucket=self._bucket, Key=key, **how)
        with contextlib.closing(answer["Body"]) as stream:
            if not how:
                refuse_whole(self.url(key), answer.get("ContentLength", 0))
            body = stream.read()
        what = f"GetObject {self.url(key)}"
        # The end of an answer in chunks the client has seen itself.
        chunked = "chunked" in answer["ResponseMetadata"]["HTTPHeaders"].get("transfer-encoding", "")
        _require(answer, ("ETag",) if chunked else ("ETag", "ContentLength"), what)
        if not chunked and len(body) != answer["ContentLength"]:
            raise UnknownOutcomeError(f"{what}: {len(body)} bytes came of {answer['ContentLength']} announced")
        return StoredObject(key, body, answer["ETag"], _lowered(answer["Metadata"]))

    def _put(self, kind: Kind, key: str, body: bytes, **how: Any) -> str:
        check_key(key)
        answer = self._send(
            kind,
            "PutObject",
            key,
            lambda: self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ChecksumAlgorithm="CRC32", ChecksumCRC32=_crc32(body), **how
            ),
            needs=("ETag",),
        )
        return answer["ETag"]

    def _send(self, kind: Kind, action: str, key: str, request: Callable[[], T], *, needs: Sequence[str] = ()) -> T:
        try:
            with self._connections:
                answer = request()
        except KafkaS3Error:
            raise
        except Exception as e:
            error = translate(e, kind=kind, action=action, where=self.url(key))
            if error is None:
                raise
            raise error from e
        _require(answer, needs, f"{action} {self.url(key)}")
        return answer


def _require(answer: object, needs: Sequence[str], what: str) -> None:
    """An answer that broke off in its head looks whole to the client: it only lacks what S3 always says."""
    for name in needs:
        if name not in cast("Mapping[str, object]", answer):
            raise UnknownOutcomeError(f"{what}: the answer has no {name}, so it was cut off")


def _lowered(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """User metadata by lower-case names: some stores and proxies answer ``X-Amz-Meta-Some-Name``, as HTTP lets them."""
    return {name.lower(): value for name, value in metadata.items()}


def _crc32(body: bytes) -> str:
    return base64.b64encode(isal_zlib.crc32(body).to_bytes(4, "big")).decode()
