"""The port to an object store: what the commit protocol needs of S3, and nothing else.

Every method is one request, sent once, without a retry below it, or (for a client that cannot help retrying reads) a
read. Answers and failures are told apart by type:

* ``PreconditionFailed``, ``ConditionalConflict``, ``UploadGone``: the store answered; what it means the protocol says.
* ``ThrottledError``: 503, 429 or SlowDown; it no more proves that a write was not applied than the next one does.
* ``UnknownOutcomeError``: a timeout, a reset, a 5xx, a TLS failure, a 200 that carries an error.
* ``TransientError``: other failures that a repeat may cure (expired token).
* ``AccessDeniedError``, ``BucketNotFoundError``, ``ConfigurationError``: a repeat cannot help.

Missing keys are not errors: ``get`` and ``head`` answer ``None``.
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
"""Bytes of an object that is read whole at most: whatever somebody put at a key, it must not fill the memory."""


def check_key(key: str, *, spare: int = 0) -> str:
    """Return a key if S3 would take it; not every store refuses the others, but then they cannot move.

    Args:
        key: of an object, or what keys begin with.
        spare: bytes that have to be left for what is appended to it.

    Raises:
        ConfigurationError: the key is empty, or longer than ``MAX_KEY_BYTES`` with what is appended.
    """
    # Lone surrogates only count here; that keys hold none is checked where keys are made.
    size, limit = len(key.encode("utf-8", "surrogatepass")), MAX_KEY_BYTES - spare
    if not 0 < size <= limit:
        raise ConfigurationError(
            f"object key {key[:80]!r}… has {size} bytes where 1 to {limit} are possible: use a shorter topics_dir, "
            "path_format or topic"
        )
    return key


def refuse_whole(url: str, size: int) -> None:
    """Raise CorruptControlError if an object that is about to be read whole has too many bytes for that."""
    if size > MAX_WHOLE:
        raise CorruptControlError(
            f"a control document cannot be trusted: it has {size:,} bytes, and this package writes {MAX_WHOLE:,} at "
            f"most. It was not read, and nothing was changed. Restore the object's earlier version (bucket "
            f"versioning): {url}"
        )


@dataclass(frozen=True)
class Part:
    """One uploaded part: ``number`` from 1, ``etag`` as the store gave it (quotes kept), ``checksum`` base64 CRC32."""

    number: int
    etag: str
    checksum: str


@dataclass(frozen=True)
class ObjectInfo:
    """What HEAD tells: ``size`` in bytes, ``etag`` with its quotes, user ``metadata`` with lower-case names.

    ``modified`` is when it was written, by the store's clock, in epoch seconds; None: the store does not say.
    """

    key: str
    size: int
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    modified: float | None = None


@dataclass(frozen=True)
class StoredObject:
    """What GET tells: the ``body`` (of the range, if one was asked for) and the ``etag`` to compare-and-swap with."""

    key: str
    body: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PendingUpload:
    """A multipart upload that was neither completed nor aborted; ``initiated`` is the store's time, epoch seconds."""

    key: str
    upload_id: str
    initiated: float


class ObjectStore(Protocol):
    """One bucket (and nothing outside it)."""

    def url(self, key: str) -> str:
        """The address a person would use: ``s3://bucket/key``."""
        ...

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """Read a key, or its bytes ``[start, end)``; None if it does not exist.

        A range reaches no further than the object, as a slice does: past the end it is empty. An object of more than
        ``MAX_WHOLE`` bytes is only read in ranges: as a whole it is a CorruptControlError, since only control documents
        are read so.
        """
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Look at a key without its body; None if it does not exist."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Keys below a prefix in order (metadata is left empty). No decision of the protocol uses it."""
        ...

    def put_new(self, key: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> str:
        """PUT If-None-Match: ``*``. Returns the ETag; raises PreconditionFailed if the key exists."""
        ...

    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        """PUT If-Match. Returns the new ETag; raises PreconditionFailed if the key is absent or has another ETag."""
        ...

    def create_upload(self, key: str, *, metadata: Mapping[str, str] | None = None) -> str:
        """CreateMultipartUpload. Returns the upload id; nothing is visible until it is completed."""
        ...

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """UploadPart with its CRC32 in the header; raises UploadGone."""
        ...

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """CompleteMultipartUpload If-None-Match: ``*``; raises UploadGone, PreconditionFailed, ConditionalConflict.

        The condition is dropped where the store does not implement it: no decision of the protocol needs it.
        UploadRefused tells that the store does not accept the parts as they are named.
        Neither a return nor an exception proves what is in the bucket: the caller looks with ``head``.
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """AbortMultipartUpload; an upload that is already gone is fine."""
        ...

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """ListParts: whether the upload is still pending."""
        ...

    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """ListMultipartUploads below a prefix. No decision of the protocol uses it."""
        ...
