"""The bucket of the simulation: strict, fast, with callbacks at every write, and with expiring uploads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_kafka_s3.exceptions import PreconditionFailed, UnknownOutcomeError, UploadGone, UploadRefused
from airflow_provider_kafka_s3.storage.port import ObjectInfo, Part, PendingUpload, StoredObject

__all__ = ["Bucket"]

_LEFT_OVER: Final = 23
"""One in this many uploads stays pending next to its object."""


@dataclass
class _Upload:
    key: str
    metadata: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


class Bucket:
    """An ``ObjectStore``; every request is atomic.

    Attributes:
        objects: visible objects.
        uploads: pending uploads, by id.
        doomed: uploads whose Complete will return 200 and leave no object (the key was deleted since Create).
        refusing: number of times that Complete of an upload will still be refused, although its parts are valid.
        left_over: uploads that the first Complete leaves pending next to their object, without an answer: the server
            stopped between the two.
        assemble_slowly: the next Complete gets no answer; its upload is gone at once and its object appears later.
        conditional_complete: whether Complete honours If-None-Match; safety must not depend on it.
    """

    def __init__(
        self,
        on_write: Callable[[str, StoredObject | None, StoredObject], None],
        on_abort: Callable[[str, str], None],
        on_delete: Callable[[StoredObject], None],
        *,
        conditional_complete: bool,
    ) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.uploads: dict[str, _Upload] = {}
        self.doomed: set[str] = set()
        self.refusing: dict[str, int] = {}
        self.left_over: set[str] = set()
        self.assemble_slowly: list[Callable[[], object]] | None = None
        self.conditional_complete = conditional_complete
        self._completed: dict[str, str] = {}
        self._on_write = on_write
        self._on_abort = on_abort
        self._on_delete = on_delete
        self._numbers = itertools.count(1)

    def url(self, key: str) -> str:
        return f"s3://simulated/{key}"

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        stored = self.objects.get(key)
        if stored is None or (start is None and end is None):
            return stored
        return StoredObject(key, stored.body[start:end], stored.etag, stored.metadata)

    def head(self, key: str) -> ObjectInfo | None:
        stored = self.objects.get(key)
        return None if stored is None else ObjectInfo(key, len(stored.body), stored.etag, stored.metadata)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        found = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return iter([ObjectInfo(key, len(self.objects[key].body), self.objects[key].etag) for key in found])

    def put_new(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        if key in self.objects:
            raise PreconditionFailed(f"{key} exists")
        return self._put(key, body, metadata or {})

    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        if key not in self.objects or self.objects[key].etag != etag:
            raise PreconditionFailed(f"{key} has not ETag {etag}")
        return self._put(key, body, {})

    def put_tags(self, key: str, tags: Mapping[str, str]) -> bool:
        return key in self.objects

    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        for key in keys:
            if (stored := self.objects.pop(key, None)) is not None:
                self._on_delete(stored)
        return {}

    def create_upload(
        self, key: str, *, metadata: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        number = next(self._numbers)
        upload_id = f"upload-{number:06d}"
        self.uploads[upload_id] = _Upload(key, metadata or {})
        # By number, not at random: the seeds that catch mutants keep their events.
        if number % _LEFT_OVER == 0:
            self.left_over.add(upload_id)
        return upload_id

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        self._pending(upload_id).parts[number] = bytes(body)
        return Part(number, f'"{number}"', "")

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        if upload_id in self._completed and self._completed[upload_id] in self.objects and len(self.objects) % 3 == 0:
            return  # some stores answer 200 to a repeat, others 404
        upload = self._pending(upload_id)
        if self.refusing.get(upload_id, 0):
            self.refusing[upload_id] -= 1
            raise UploadRefused(f"the parts of {upload_id} are invalid")
        if self.conditional_complete and key in self.objects:
            raise PreconditionFailed(f"{key} exists")
        if upload_id in self.left_over:
            self.left_over.discard(upload_id)
            self._put(key, b"".join(upload.parts[part.number] for part in parts), upload.metadata)
            raise UnknownOutcomeError(f"complete {key}: no answer, the server stopped before the upload was removed")
        del self.uploads[upload_id]
        if upload_id in self.doomed:
            return
        self._completed[upload_id] = key
        body = b"".join(upload.parts[part.number] for part in parts)
        if self.assemble_slowly is not None:
            self.assemble_slowly.append(lambda: self._put_late(key, body, upload.metadata))
            raise UnknownOutcomeError(f"complete {key}: no answer, the object is still being assembled")
        self._put(key, body, upload.metadata)

    def abort_upload(self, key: str, upload_id: str) -> None:
        if upload_id in self.uploads:
            self._on_abort(key, upload_id)
        self.expire_upload(upload_id)

    def expire_upload(self, upload_id: str) -> None:
        """Remove an upload, as a lifecycle rule does."""
        self.uploads.pop(upload_id, None)

    def upload_exists(self, key: str, upload_id: str) -> bool:
        return upload_id in self.uploads

    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        return iter([PendingUpload(u.key, i, 0.0) for i, u in self.uploads.items() if u.key.startswith(prefix)])

    def _pending(self, upload_id: str) -> _Upload:
        if upload_id not in self.uploads:
            raise UploadGone(f"upload {upload_id} was completed, aborted or expired")
        return self.uploads[upload_id]

    def _put_late(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        if not (self.conditional_complete and key in self.objects):
            self._put(key, body, metadata)

    def _put(self, key: str, body: bytes, metadata: Mapping[str, Any]) -> str:
        before = self.objects.get(key)
        self.objects[key] = StoredObject(key, body, f'"{next(self._numbers)}"', metadata)
        self._on_write(key, before, self.objects[key])
        return self.objects[key].etag
