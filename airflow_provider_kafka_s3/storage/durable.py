"""Operations on single objects whose result is certain, whatever happens in the network.

An :class:`~airflow_provider_kafka_s3.storage.port.ObjectStore` sends one request. This module repeats what is safe to
repeat. After a response that an earlier, lost write of the same caller may have caused, it reads the object instead of
reporting a failure: see "Outcomes" in ``docs/design/commit-protocol.md``. The caller decides what
a Complete achieved, because only the caller can compare a HEAD with a manifest.
"""

from __future__ import annotations

import enum
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

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

__all__ = ["LATER", "CompleteResult", "DurableStore", "Kind"]

log = logging.getLogger(__name__)

LATER: Final = 4
"""Number of the retry whose wait comes before the second look for an object that is to be given up."""

_PAGE: Final = 1_000
"""Objects of a listing that are read together; S3 has as many in a page."""


Kind = Literal["HEAD", "GET", "LIST"]
"""A kind of request that shows whether an object exists."""


class CompleteResult(enum.Enum):
    """Result of a CompleteMultipartUpload request. Only a HEAD request shows whether the object exists."""

    DONE = "done"
    """2xx. Some stores return it for a repetition, too, or although the object was deleted in between."""
    GONE = "gone"
    """No such upload: completed, aborted or expired."""
    EXISTS = "exists"
    """The key exists; the upload stays pending until it is aborted."""
    REFUSED = "refused"
    """The store does not accept the parts, or the request was corrupted in transit; the upload stays pending."""
    UNKNOWN = "unknown"
    """No usable response, or a concurrent change: send a HEAD request, wait, and complete again."""


class DurableStore:
    """An object store with retries. Safe for any number of threads if the store is.

    Every method but :meth:`abort_uploads` may raise the store's terminal errors (``AccessDeniedError``,
    ``BucketNotFoundError``, ``ConfigurationError``) at once, and a ``TransientError`` when the retry policy is
    exhausted; nothing is undone then.
    """

    def __init__(self, store: ObjectStore, retrier: Retrier) -> None:
        """Wrap ``store``; nothing but ``retrier`` repeats its requests."""
        self.store = store
        self.retrier = retrier

    def url(self, key: str) -> str:
        """The URL of a key: ``s3://bucket/key``."""
        return self.store.url(key)

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """Read a key, or its bytes ``[start, end)``; None if it does not exist."""
        return self.retrier.call(lambda: self.store.get(key, start=start, end=end), what=f"GET {self.url(key)}")

    def head(self, key: str) -> ObjectInfo | None:
        """The attributes of an object, without its body; None if it does not exist."""
        return self.retrier.call(lambda: self.store.head(key), what=f"HEAD {self.url(key)}")

    def list(self, prefix: str) -> Sequence[ObjectInfo]:
        """All objects below a prefix, in the order of their keys; see :meth:`walk` for those of a long listing."""
        return tuple(self.walk(prefix))

    def walk(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects below a prefix in the order of their keys, as the iterator advances: one page is in memory.

        If a page fails, the listing goes on behind the last key before it.

        Args:
            prefix: of the keys.
            after: only keys that are greater; empty: all.
        """
        listing: Iterator[ObjectInfo] | None = None

        def next_page() -> Sequence[ObjectInfo]:
            nonlocal listing
            if listing is None:
                listing = self.store.list(prefix, after=after)
            try:
                return tuple(itertools.islice(listing, _PAGE))
            except BaseException:
                # It has ended, and what it has read of this page is lost.
                listing = None
                raise

        while page := self.retrier.call(next_page, what=f"LIST {self.url(prefix)}"):
            yield from page
            after = page[-1].key

    def require_gone(self, key: str, *, by: Kind) -> None:
        """Look again for an object by other kinds of requests, before it is given up.

        A store may answer some kinds of requests from a state that is minutes old: of a cache, an index, another site.

        Args:
            key: of the object.
            by: kind of the request that did not find it.

        Raises:
            UnknownOutcomeError: another kind finds it.
        """
        looks: dict[Kind, Callable[[], bool]] = {
            "HEAD": lambda: self.head(key) is not None,
            "GET": lambda: self.get(key, start=0, end=1) is not None,
            "LIST": lambda: any(info.key == key for info in itertools.islice(self.walk(key), 1)),
        }
        for kind, finds in looks.items():
            if kind != by and finds():
                raise UnknownOutcomeError(
                    f"the store contradicts itself: a {by} request does not find an object, and a {kind} request finds "
                    f"it. It answers one of them from an older state. Nothing was given up; try again in some minutes: "
                    f"{self.url(key)}"
                )

    def settle(self, key: str) -> None:
        """Wait until a GET request finds what others find, for an object that it did not find and that should exist.

        Raises:
            UnknownOutcomeError: it does not, after the last try.
        """

        def attempt() -> None:
            if self.store.get(key, start=0, end=1) is None:
                self.require_gone(key, by="GET")

        self.retrier.pause(LATER)
        self.retrier.call(attempt, what=f"GET {self.url(key)}")

    def create(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> bytes:
        """Create an object unless its key exists, and return the stored bytes: the given ones or another writer's.

        A second writer gets what the first one stored, and so does a writer whose response was lost. While the key is
        absent, the request is repeated.

        Raises:
            TransientError: the key was still absent, or could not be read, after the last try. The write may still be
                applied later, so the caller must not act as if it had failed.
        """

        def attempt() -> bytes:
            try:
                self.store.put_new(key, body, metadata=metadata)
            except (PreconditionFailed, ConditionalConflict) as response:
                stored = self.store.get(key)
                if stored is None:
                    raise UnknownOutcomeError(
                        f"a key was refused as existing or changing, yet it is absent: PUT {self.url(key)}"
                    ) from response
            except TransientError:
                stored = self.store.get(key)
                if stored is None:
                    raise
            else:
                return body
            return stored.body

        return self.retrier.call(attempt, what=f"PUT {self.url(key)} (create only)")

    def create_object(
        self, key: str, body: bytes, metadata: Mapping[str, str], tags: Mapping[str, str] | None = None
    ) -> None:
        """Create an object unless its key exists; only a HEAD request shows which object is there then.

        Like :meth:`create`, without reading the stored object, which may be any object of any size.

        Raises:
            TransientError: the key was still absent, or a HEAD request failed, after the last try.
        """

        def attempt() -> None:
            try:
                self.store.put_new(key, body, metadata=metadata, tags=tags)
            except (PreconditionFailed, ConditionalConflict) as response:
                if self.store.head(key) is None:
                    raise UnknownOutcomeError(
                        f"a key was refused as existing or changing, yet it is absent: PUT {self.url(key)}"
                    ) from response
            except TransientError:
                if self.store.head(key) is None:
                    raise

        self.retrier.call(attempt, what=f"PUT {self.url(key)} (create only)")

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Replace an object if its ETag is still ``etag``.

        The request is repeated only when it is throttled. Any other uncertain response ends the attempt: only a read of
        the object can show whether the write of this or of another caller was applied.

        Returns:
            True if the store confirmed the write. False if the ETag may be another one by now: read the object again.
            It may be the one that this call wrote.
        """

        def attempt() -> bool:
            try:
                self.store.put_if_match(key, body, etag=etag)
            except (PreconditionFailed, ConditionalConflict, UnknownOutcomeError):
                return False
            return True

        return self.retrier.call(attempt, what=f"PUT {self.url(key)} (if match)")

    def put_tags(self, key: str, tags: Mapping[str, str]) -> bool:
        """Replace all tags of an object; False if it does not exist."""
        return self.retrier.call(lambda: self.store.put_tags(key, tags), what=f"PutObjectTagging {self.url(key)}")

    def create_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """Begin a multipart upload and return its ID. A lost response leaves a pending upload to the lifecycle rule."""
        return self.retrier.call(
            lambda: self.store.create_upload(key, metadata=metadata, tags=tags),
            what=f"CreateMultipartUpload {self.url(key)}",
        )

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """Upload one part; the same number again replaces it.

        Raises:
            UploadGone: the upload was completed, aborted or expired.
        """
        return self.retrier.call(
            lambda: self.store.upload_part(key, upload_id, number, body), what=f"UploadPart {number} {self.url(key)}"
        )

    def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> CompleteResult:
        """Complete an upload; the request is repeated only when it is throttled. See :class:`CompleteResult`."""

        def attempt() -> CompleteResult:
            try:
                self.store.complete_upload(key, upload_id, parts)
            except UploadGone:
                return CompleteResult.GONE
            except PreconditionFailed:
                return CompleteResult.EXISTS
            except UploadRefused as response:
                log.warning("%s", response)
                return CompleteResult.REFUSED
            except (ConditionalConflict, UnknownOutcomeError):
                return CompleteResult.UNKNOWN
            return CompleteResult.DONE

        return self.retrier.call(attempt, what=f"CompleteMultipartUpload {self.url(key)}")

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Abort a pending upload; no error if it is gone already."""
        self.retrier.call(lambda: self.store.abort_upload(key, upload_id), what=f"AbortMultipartUpload {self.url(key)}")

    def abort_uploads(self, pairs: Iterable[tuple[str, str]], *, threads: int = 16) -> None:
        """Abort uploads as far as possible: one that cannot be aborted is logged and left to the lifecycle rule.

        Args:
            pairs: key and upload ID of each.
            threads: requests at the same time; 1: one after another, in the caller's thread.
        """

        def abort(pair: tuple[str, str]) -> None:
            key, upload_id = pair
            try:
                self.abort_upload(key, upload_id)
            except KafkaS3Error as e:
                log.warning("upload %s of %s stays pending: %s", upload_id, self.url(key), e)

        uploads = list(pairs)
        if len(uploads) <= 1 or threads <= 1:
            for pair in uploads:
                abort(pair)
            return
        with ThreadPoolExecutor(min(threads, len(uploads)), thread_name_prefix="abort") as pool:
            list(pool.map(abort, uploads))

    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Delete up to a thousand objects; returns why the store keeps some of them, by their keys."""
        return self.retrier.call(
            lambda: self.store.delete_objects(keys), what=f"DeleteObjects {self.url(keys[0])} and others"
        )

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """Whether the upload is still pending."""
        return self.retrier.call(lambda: self.store.upload_exists(key, upload_id), what=f"ListParts {self.url(key)}")

    def pending_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        """All pending uploads below a prefix. If a page fails, the listing begins again."""
        return self.retrier.call(
            lambda: tuple(self.store.pending_uploads(prefix)), what=f"ListMultipartUploads {self.url(prefix)}"
        )
