"""The interface to an object store: the requests of the commit protocol to S3, and nothing else.

Every method sends one request, once. Only reads may be repeated below this interface, by a client that cannot do
otherwise. The type of an error is the kind of response or failure:

* ``PreconditionFailed``, ``ConditionalConflict``, ``UploadGone``, ``UploadRefused``: responses that the commit protocol
  handles.
* ``ThrottledError``: 503, 429 or SlowDown. Like the next one, it does not prove that a write was not applied.
* ``UnknownOutcomeError``: a timeout, a reset, a 5xx, a TLS failure, a 200 with an error in its body.
* ``TransientError``: other failures that a repetition may cure, such as an expired token.
* ``AccessDeniedError``, ``BucketNotFoundError``, ``ConfigurationError``: a repetition cannot help.

Missing keys are not errors: ``get`` and ``head`` return ``None``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from airflow_provider_kafka_s3.exceptions import ConfigurationError, CorruptControlError

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_WHOLE",
    "ObjectInfo",
    "ObjectStore",
    "Part",
    "PendingUpload",
    "StoredObject",
    "check_key",
    "refuse_whole",
]

MAX_KEY_BYTES: Final = 1_024
"""Bytes of a key in UTF-8 at most (S3 user guide, naming objects)."""

MAX_WHOLE: Final = 128 * 1024 * 1024
"""Bytes of an object that is read whole at most, so that no object at a key of the protocol can fill the memory."""


def check_key(key: str, *, spare: int = 0) -> str:
    """Return a key if S3 accepts it. Some stores accept other keys as well, but such objects cannot be copied to S3.

    Args:
        key: of an object, or a prefix of keys.
        spare: bytes to reserve for what is appended to the key.

    Raises:
        ConfigurationError: the key is empty, or longer than ``MAX_KEY_BYTES`` with what is appended.
    """
    # Lone surrogates are counted here, and refused where keys are made.
    size, limit = len(key.encode("utf-8", "surrogatepass")), MAX_KEY_BYTES - spare
    if not 0 < size <= limit:
        raise ConfigurationError(
            f"object key {key[:80]!r}… has {size} bytes where 1 to {limit} are possible: use a shorter topics_dir, "
            "path_format or topic"
        )
    return key


def refuse_whole(url: str, size: int) -> None:
    """Raise CorruptControlError if an object is too large to be read whole."""
    if size > MAX_WHOLE:
        raise CorruptControlError(
            f"a control document cannot be trusted: it has {size:,} bytes, and this package writes at most "
            f"{MAX_WHOLE:,}. It was not read, and nothing was changed. Restore the object's earlier version (bucket "
            f"versioning): {url}"
        )


@dataclass(frozen=True)
class Part:
    """An uploaded part: ``number`` from 1, ``etag`` of the response with its quotes, ``checksum`` as base64 CRC32."""

    number: int
    etag: str
    checksum: str


@dataclass(frozen=True)
class ObjectInfo:
    """Result of a HEAD request, or an entry of a listing.

    Attributes:
        key: of the object.
        size: in bytes.
        etag: with its quotes.
        metadata: user metadata with lower-case names.
        modified: time of the write by the store's clock, in epoch seconds; None if the response does not contain it.
    """

    key: str
    size: int
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    modified: float | None = None


@dataclass(frozen=True)
class StoredObject:
    """Result of a GET request.

    Attributes:
        key: of the object.
        body: of the object, or of the requested range.
        etag: of the whole object, for a conditional write.
        metadata: user metadata with lower-case names.
    """

    key: str
    body: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PendingUpload:
    """A multipart upload that is neither completed nor aborted; ``initiated`` in epoch seconds by the store's clock."""

    key: str
    upload_id: str
    initiated: float


class ObjectStore(Protocol):
    """One bucket."""

    def url(self, key: str) -> str:
        """The URL of a key: ``s3://bucket/key``."""
        ...

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """Read a key, or its bytes ``[start, end)``; None if it does not exist.

        A range ends with the object, like a slice: behind the end it is empty.

        Raises:
            CorruptControlError: the object has more than ``MAX_WHOLE`` bytes, and no range is given: only control
                documents are read whole.
        """
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """The attributes of an object, without its body; None if it does not exist."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects below a prefix in the order of their keys, without metadata. The protocol bases no decision on it.

        Pages are read as the iterator advances.

        Args:
            prefix: of the keys.
            after: only keys that are greater; empty: all.
        """
        ...

    def put_new(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """PUT If-None-Match: ``*``. Returns the ETag; raises PreconditionFailed if the key exists.

        Args:
            key: of the object.
            body: its bytes.
            metadata: of a data object; None: it is a control document, without the storage class of data objects.
            tags: of a data object.
        """
        ...

    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        """PUT If-Match. Returns the new ETag; raises PreconditionFailed if the key is absent or has another ETag."""
        ...

    def put_tags(self, key: str, tags: Mapping[str, str]) -> bool:
        """PutObjectTagging: replace all tags of an object; False if it does not exist."""
        ...

    def create_upload(
        self, key: str, *, metadata: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """CreateMultipartUpload. Returns the upload ID; the object is not visible until the upload is completed.

        Metadata and tags are as in :meth:`put_new`.
        """
        ...

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """UploadPart with its CRC32 in the header; raises UploadGone."""
        ...

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """CompleteMultipartUpload If-None-Match: ``*``; raises UploadGone, PreconditionFailed, ConditionalConflict.

        The condition is left out where the store does not implement it: no decision of the protocol depends on it.
        UploadRefused: the store does not accept the list of parts. Neither a return nor an exception proves what is in
        the bucket: the caller has to send a ``head`` request.
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """AbortMultipartUpload; no error if the upload is gone already."""
        ...

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """ListParts: whether the upload is still pending."""
        ...

    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        """DeleteObjects: delete up to a thousand objects; no error for one that is gone already.

        In a bucket that keeps versions, the objects get a marker, and their bytes stay.

        Returns:
            Why the store keeps some of them, by their keys.
        """
        ...

    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """ListMultipartUploads below a prefix. The protocol bases no decision on it."""
        ...
