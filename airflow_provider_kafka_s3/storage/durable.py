"""Single-object operations whose result is a fact, whatever the network did on the way.

The port reports what happened to one request. This module repeats what is safe to repeat and, after an answer that may
be about our own lost write, reads back instead of judging: the outcomes of protocol section 3 for one object. It never
deletes anything. What a Complete achieved is decided by the caller, who alone can match a HEAD with a manifest.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from airflow_provider_kafka_s3.exceptions import (
    ConditionalConflict,
    KafkaS3Error,
    PreconditionFailed,
    TransientError,
    UnknownOutcomeError,
    UploadGone,
    UploadRefused,
)
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.port import ObjectInfo, ObjectStore, Part, PendingUpload, StoredObject

__all__ = ["CompleteAnswer", "DurableStore"]

log = logging.getLogger(__name__)


class CompleteAnswer(enum.Enum):
    """What the store said to CompleteMultipartUpload. None of them proves what is in the bucket: HEAD tells."""

    DONE = "done"
    """2xx. Some stores say so again for a repeat, or although the object was deleted since."""
    GONE = "gone"
    """No such upload: completed, aborted or expired."""
    EXISTS = "exists"
    """The key exists; the upload stays pending until it is aborted."""
    REFUSED = "refused"
    """The store does not accept the parts, or the request was damaged on its way; the upload stays pending."""
    UNKNOWN = "unknown"
    """No usable answer, or a concurrent change: look, pause, and complete again."""


class DurableStore:
    """An object store behind the retry policy. Safe for any number of threads if the store is.

    Every method but :meth:`abort_uploads` may raise the store's terminal errors (``AccessDeniedError``,
    ``BucketNotFoundError``, ``ConfigurationError``) at once, and a ``TransientError`` after the policy is exhausted;
    nothing is undone then.
    """

    def __init__(self, store: ObjectStore, retrier: Retrier) -> None:
        """Wrap ``store``; ``retrier`` is the only thing that repeats its requests."""
        self.store = store
        self.retrier = retrier

    def url(self, key: str) -> str:
        """The address a person would use: ``s3://bucket/key``."""
        return self.store.url(key)

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """Read a key, or its bytes ``[start, end)``; None if it does not exist."""
        return self.retrier.call(lambda: self.store.get(key, start=start, end=end), what=f"GET {self.url(key)}")

    def head(self, key: str) -> ObjectInfo | None:
        """Look at a key without its body; None if it does not exist."""
        return self.retrier.call(lambda: self.store.head(key), what=f"HEAD {self.url(key)}")

    def list(self, prefix: str) -> Sequence[ObjectInfo]:
        """All keys below a prefix, in order. A failing page starts the listing again."""
        return self.retrier.call(lambda: tuple(self.store.list(prefix)), what=f"LIST {self.url(prefix)}")

    def create(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> bytes:
        """Create a key unless it exists, and return the bytes that are stored there: ours or another's.

        Whoever comes second gets what the first one stored, and so does a writer whose own response was lost. While the
        key is absent the same request is repeated.

        Raises:
            TransientError: the key was still absent, or could not be read, after the last try. The write may
                nevertheless be applied later, so the caller must not act as if it had failed.
        """

        def attempt() -> bytes:
            try:
                self.store.put_new(key, body, metadata=metadata)
            except (PreconditionFailed, ConditionalConflict) as answer:
                stored = self.store.get(key)
                if stored is None:
                    raise UnknownOutcomeError(
                        f"a key was refused as existing or changing, yet it is absent: PUT {self.url(key)}"
                    ) from answer
            except TransientError:
                stored = self.store.get(key)
                if stored is None:
                    raise
            else:
                return body
            return stored.body

        return self.retrier.call(attempt, what=f"PUT {self.url(key)} (create only)")

    def create_object(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        """Create a key unless it exists; whose object is there now, HEAD tells.

        As :meth:`create`, without reading what is stored: it may be anything, of any size.

        Raises:
            TransientError: the key was still absent, or could not be looked at, after the last try.
        """

        def attempt() -> None:
            try:
                self.store.put_new(key, body, metadata=metadata)
            except (PreconditionFailed, ConditionalConflict) as answer:
                if self.store.head(key) is None:
                    raise UnknownOutcomeError(
                        f"a key was refused as existing or changing, yet it is absent: PUT {self.url(key)}"
                    ) from answer
            except TransientError:
                if self.store.head(key) is None:
                    raise

        self.retrier.call(attempt, what=f"PUT {self.url(key)} (create only)")

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Replace a key if it still has ``etag``.

        Throttling is slept out; anything else that leaves doubt ends the attempt, because only a reader of the key can
        tell our own lost write from another's.

        Returns:
            True if the store confirmed the write. False if the key may not be at ``etag`` any more: read it again. It
            may hold our own write.
        """

        def attempt() -> bool:
            try:
                self.store.put_if_match(key, body, etag=etag)
            except (PreconditionFailed, ConditionalConflict, UnknownOutcomeError):
                return False
            return True

        return self.retrier.call(attempt, what=f"PUT {self.url(key)} (if match)")

    def create_upload(self, key: str, metadata: Mapping[str, str] | None = None) -> str:
        """Begin a multipart upload and return its id. A lost response leaves a pending upload to the lifecycle rule."""
        return self.retrier.call(
            lambda: self.store.create_upload(key, metadata=metadata), what=f"CreateMultipartUpload {self.url(key)}"
        )

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """Upload one part; the same number again replaces it.

        Raises:
            UploadGone: the upload was completed, aborted or expired.
        """
        return self.retrier.call(
            lambda: self.store.upload_part(key, upload_id, number, body), what=f"UploadPart {number} {self.url(key)}"
        )

    def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> CompleteAnswer:
        """Ask the store once to complete an upload; only throttling is slept out. See :class:`CompleteAnswer`."""

        def attempt() -> CompleteAnswer:
            try:
                self.store.complete_upload(key, upload_id, parts)
            except UploadGone:
                return CompleteAnswer.GONE
            except PreconditionFailed:
                return CompleteAnswer.EXISTS
            except UploadRefused as answer:
                log.warning("%s", answer)
                return CompleteAnswer.REFUSED
            except (ConditionalConflict, UnknownOutcomeError):
                return CompleteAnswer.UNKNOWN
            return CompleteAnswer.DONE

        return self.retrier.call(attempt, what=f"CompleteMultipartUpload {self.url(key)}")

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Give up a pending upload; one that is already gone is fine."""
        self.retrier.call(lambda: self.store.abort_upload(key, upload_id), what=f"AbortMultipartUpload {self.url(key)}")

    def abort_uploads(self, pairs: Iterable[tuple[str, str]], *, threads: int = 16) -> None:
        """Give up uploads as well as possible: what the store does not abort is logged and left to the lifecycle rule.

        Args:
            pairs: key and upload id of each.
            threads: requests at the same time; 1: all in the caller's thread, one after the other.
        """

        def abort(pair: tuple[str, str]) -> None:
            key, upload_id = pair
            try:
                self.abort_upload(key, upload_id)
            except KafkaS3Error as e:
                log.warning("upload %s of %s stays pending: %s", upload_id, self.url(key), e)

        found = list(pairs)
        if len(found) <= 1 or threads <= 1:
            for pair in found:
                abort(pair)
            return
        with ThreadPoolExecutor(min(threads, len(found)), thread_name_prefix="abort") as pool:
            list(pool.map(abort, found))

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """Whether the upload is still pending."""
        return self.retrier.call(lambda: self.store.upload_exists(key, upload_id), what=f"ListParts {self.url(key)}")

    def pending_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        """All pending uploads below a prefix. A failing page starts the listing again."""
        return self.retrier.call(
            lambda: tuple(self.store.pending_uploads(prefix)), what=f"ListMultipartUploads {self.url(prefix)}"
        )
