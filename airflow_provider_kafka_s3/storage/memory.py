"""An object store in memory, for tests and for the simulation of the protocol.

It behaves like a strict S3: requests are atomic, ETags have quotes, and it refuses parts that are too small, keys that
are too long and uploads that are gone. Where real stores differ, as for a second Complete, it returns the least helpful
response.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from isal import isal_zlib

from airflow_provider_kafka_s3.config import MAX_PARTS, MIN_PART_SIZE
from airflow_provider_kafka_s3.exceptions import ConfigurationError, PreconditionFailed, UploadGone, UploadRefused
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.storage.port import (
    ObjectInfo,
    ObjectStore,
    Part,
    PendingUpload,
    StoredObject,
    check_key,
    refuse_whole,
)

__all__ = ["MemoryStore"]

_MAX_METADATA_BYTES: Final = 2_048


@dataclass
class _Upload:
    key: str
    metadata: Mapping[str, str]
    tags: Mapping[str, str]
    initiated: float
    parts: dict[int, tuple[Part, bytes]] = field(default_factory=dict)


class MemoryStore(ObjectStore):
    """An :class:`~airflow_provider_kafka_s3.storage.port.ObjectStore` in memory, safe for any number of threads."""

    def __init__(self, bucket: str = "memory", *, clock: Callable[[], float] = time.time) -> None:
        """Make an empty bucket.

        Args:
            bucket: its name, for :meth:`url`.
            clock: the store's time in epoch seconds, for ``PendingUpload.initiated`` and ``ObjectInfo.modified``.
        """
        self._bucket = bucket
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, StoredObject] = {}
        self._modified: dict[str, float] = {}
        self._tags: dict[str, Mapping[str, str]] = {}
        self._uploads: dict[str, _Upload] = {}
        self._upload_count = 0

    @override
    def url(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    @override
    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        check_key(key)
        stored = self._objects.get(key)
        if stored is None:
            return None
        if start is None and end is None:
            refuse_whole(self.url(key), len(stored.body))
            return stored
        return StoredObject(key, stored.body[start:end], stored.etag, stored.metadata)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        check_key(key)
        stored = self._objects.get(key)
        if stored is None:
            return None
        return ObjectInfo(key, len(stored.body), stored.etag, stored.metadata, self._modified[key])

    @override
    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        with self._lock:
            listed = sorted(
                (key, stored) for key, stored in self._objects.items() if key.startswith(prefix) and key > after
            )
        return iter([ObjectInfo(key, len(stored.body), stored.etag) for key, stored in listed])

    @override
    def put_new(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        check_key(key)
        checked = _checked_metadata(metadata)
        with self._lock:
            self._require_absent(key)
            return self._put(key, body, f'"{_md5(body).hexdigest()}"', checked, tags or {})

    @override
    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        check_key(key)
        with self._lock:
            stored = self._objects.get(key)
            if stored is None or stored.etag != etag:
                actual = "no object" if stored is None else f"ETag {stored.etag}"
                raise PreconditionFailed(f"PUT {self.url(key)}: expected ETag {etag}, found {actual}")
            return self._put(key, body, f'"{_md5(body).hexdigest()}"', {}, {})

    @override
    def put_tags(self, key: str, tags: Mapping[str, str]) -> bool:
        with self._lock:
            if key not in self._objects:
                return False
            self._tags[key] = dict(tags)
        return True

    def tags(self, key: str) -> Mapping[str, str]:
        """The tags of an object, as a user of the bucket can read them."""
        return self._tags.get(key, {})

    @override
    def create_upload(
        self, key: str, *, metadata: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        check_key(key)
        checked = _checked_metadata(metadata)
        with self._lock:
            self._upload_count += 1
            upload_id = f"upload-{self._upload_count:08d}"
            self._uploads[upload_id] = _Upload(key, checked, dict(tags or {}), self._clock())
        return upload_id

    @override
    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        if not 1 <= number <= MAX_PARTS:
            raise ConfigurationError(f"part number {number} of {self.url(key)} must be 1 to {MAX_PARTS}")
        data = bytes(body)
        checksum = base64.b64encode(isal_zlib.crc32(data).to_bytes(4, "big")).decode()
        part = Part(number, f'"{_md5(data).hexdigest()}"', checksum)
        with self._lock:
            self._upload(key, upload_id).parts[number] = (part, data)
        return part

    @override
    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        with self._lock:
            upload = self._upload(key, upload_id)
            bodies = self._checked_parts(upload, parts)
            self._require_absent(key)
            digests = b"".join(bytes.fromhex(part.etag.strip('"')) for part in parts)
            etag = f'"{_md5(digests).hexdigest()}-{len(parts)}"'
            self._put(key, b"".join(bodies), etag, upload.metadata, upload.tags)
            del self._uploads[upload_id]

    @override
    def abort_upload(self, key: str, upload_id: str) -> None:
        with self._lock:
            upload = self._uploads.get(upload_id)
            if upload is not None and upload.key == key:
                del self._uploads[upload_id]

    @override
    def upload_exists(self, key: str, upload_id: str) -> bool:
        with self._lock:
            upload = self._uploads.get(upload_id)
        return upload is not None and upload.key == key

    @override
    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        with self._lock:
            pending = sorted((u.key, i, u.initiated) for i, u in self._uploads.items() if u.key.startswith(prefix))
        return iter([PendingUpload(key, upload_id, initiated) for key, upload_id, initiated in pending])

    @override
    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        for key in keys:
            self.delete(key)
        return {}

    def copy(self) -> MemoryStore:
        """Another bucket with the same objects and pending uploads."""
        other = MemoryStore(self._bucket, clock=self._clock)
        with self._lock:
            other._objects = dict(self._objects)
            other._modified = dict(self._modified)
            other._tags = dict(self._tags)
            other._uploads = {
                i: _Upload(u.key, u.metadata, u.tags, u.initiated, dict(u.parts)) for i, u in self._uploads.items()
            }
            other._upload_count = self._upload_count
        return other

    def delete(self, key: str) -> None:
        """Delete an object, as a user of the bucket may. No error if the key is missing."""
        with self._lock:
            self._objects.pop(key, None)
            self._tags.pop(key, None)

    def expire_uploads(self) -> None:
        """Abort every pending upload, as a lifecycle rule does."""
        with self._lock:
            self._uploads.clear()

    def _put(self, key: str, body: bytes, etag: str, metadata: Mapping[str, str], tags: Mapping[str, str]) -> str:
        # Entries are replaced, never modified, so readers need no lock.
        self._modified[key] = self._clock()
        self._tags[key] = dict(tags)
        self._objects[key] = StoredObject(key, bytes(body), etag, metadata)
        return etag

    def _require_absent(self, key: str) -> None:
        if key in self._objects:
            raise PreconditionFailed(f"{self.url(key)} exists already (ETag {self._objects[key].etag})")

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise UploadGone(f"upload {upload_id} of {self.url(key)} was completed, aborted or expired")
        return upload

    def _checked_parts(self, upload: _Upload, parts: Sequence[Part]) -> Sequence[bytes]:
        where = self.url(upload.key)
        if not parts:
            raise UploadRefused(f"complete {where}: no parts given")
        numbers = [part.number for part in parts]
        if any(a >= b for a, b in itertools.pairwise(numbers)):
            raise UploadRefused(f"complete {where}: part numbers {numbers} do not ascend")
        bodies = []
        for part in parts:
            stored = upload.parts.get(part.number)
            if stored is None or stored[0] != part:
                raise UploadRefused(f"complete {where}: part {part.number} was not uploaded as {part}")
            bodies.append(stored[1])
        for part, body in zip(parts[:-1], bodies, strict=False):
            if len(body) < MIN_PART_SIZE:
                raise UploadRefused(
                    f"complete {where}: part {part.number} has {len(body)} bytes, "
                    f"less than {MIN_PART_SIZE}, and is not the last"
                )
        return bodies


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)


def _checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    lowered = {name.lower(): value for name, value in (metadata or {}).items()}
    text = "".join(name + value for name, value in lowered.items())
    if not text.isascii() or len(text) > _MAX_METADATA_BYTES:
        raise ConfigurationError(
            f"object metadata {sorted(lowered)} must be ASCII and at most {_MAX_METADATA_BYTES} bytes together"
        )
    return lowered
