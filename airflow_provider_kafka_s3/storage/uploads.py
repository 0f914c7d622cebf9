"""Multipart uploads of many objects at the same time, in bounded memory, while their bytes are produced.

The boundaries of the parts depend on the bytes alone, so the same bytes make the same parts in every run. When the
buffers of all objects together exceed the budget, the largest are written to one temporary file, and read back when
their part is sent. Nothing here completes an upload: the commit of the batch does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from isal import isal_zlib

from airflow_provider_kafka_s3.config import MAX_PARTS, MIB, MIN_PART_SIZE
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TransientError, UploadGone
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import Part
from airflow_provider_kafka_s3.storage.spill_file import SpillFile

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["FinishedUpload", "ObjectUpload", "UploadPool"]


@dataclass(frozen=True)
class FinishedUpload:
    """An upload whose parts are all stored, and which is not completed.

    Attributes:
        key: of the object.
        upload_id: of the multipart upload.
        parts: all parts in order; at least one.
        size: bytes of the object.
        crc32: CRC-32 of the object's bytes.
    """

    key: str
    upload_id: str
    parts: tuple[Part, ...]
    size: int
    crc32: int


class ObjectUpload:
    """The upload of one object; only the thread that opened it may use it."""

    def __init__(self, pool: UploadPool, key: str, metadata: Mapping[str, str]) -> None:
        """Called by :meth:`UploadPool.open`."""
        self.key = key
        self._pool = pool
        self._metadata = metadata
        self._buffer = bytearray()
        self._slot: int | None = None
        self._spilled = 0
        self._size = 0
        self._crc32 = 0
        self._parts: list[Future[Part]] = []
        self._sealed = False
        self._upload_id: str | None = None
        self._id_lock = threading.Lock()

    def write(self, data: ReadableBuffer) -> None:
        """Append any bytes-like object; it is copied. Blocks while too many parts are queued.

        Raises:
            KafkaS3Error: a part of this or another upload of the pool failed.
            ConfigurationError: the object needs more parts than an upload can have.
        """
        if self._sealed:
            raise ValueError(f"the upload of {self.key} is sealed: nothing can be appended")
        self._pool.check()
        with memoryview(data) as view, view.cast("B") as octets:
            self._crc32 = isal_zlib.crc32(octets, self._crc32)
            self._size += len(octets)
            start = 0
            while start < len(octets):
                room = self._pool.part_size - self._spilled - len(self._buffer)
                piece = octets[start : start + room]
                self._buffer += piece
                self._pool.grew(self, len(piece))
                start += len(piece)
                if len(piece) == room:
                    self._send()
        self._pool.shrink()

    def seal(self) -> None:
        """End the object and queue its last part, without waiting for it. Sealing again does nothing.

        To let the requests of many objects overlap, seal all of them first, then :meth:`finish` each.

        Raises:
            KafkaS3Error: a part of this or another upload of the pool failed.
        """
        if self._sealed:
            return
        self._pool.check()
        self._sealed = True
        if self._spilled or self._buffer or not self._parts:
            self._send()

    def finish(self) -> FinishedUpload:
        """Seal, wait until all parts are stored, and return them. The upload is not completed.

        Raises:
            KafkaS3Error: a part of this or another upload of the pool failed.
        """
        self.seal()
        self._pool.check()
        parts = tuple(part.result() for part in self._parts)
        assert self._upload_id is not None
        return FinishedUpload(self.key, self._upload_id, parts, self._size, self._crc32)

    @property
    def upload_id(self) -> str | None:
        """ID of the multipart upload; None until it is created."""
        return self._upload_id

    @property
    def buffered(self) -> int:
        """Bytes of this object in memory."""
        return len(self._buffer)

    def spill(self, spool: SpillFile) -> int:
        """Move the buffer to the file; returns the number of bytes that were freed. Called by the pool."""
        if self._slot is None:
            self._slot = spool.take_slot()
        spool.write(self._slot, self._spilled, self._buffer)
        freed = len(self._buffer)
        self._spilled += freed
        self._buffer = bytearray()
        return freed

    def _send(self) -> None:
        number = len(self._parts) + 1
        if number > MAX_PARTS:
            raise ConfigurationError(
                f"an object needs more than {MAX_PARTS} parts of {self._pool.part_size} bytes: use a larger part_size "
                f"or a smaller max_bytes. The object: {self._pool.store.url(self.key)}"
            )
        self._parts.append(self._pool.submit(lambda body: self._upload_part(number, body), self._take))

    def _take(self) -> bytearray:
        """Remove the bytes of the next part from the file and the buffer."""
        buffer, self._buffer = self._buffer, bytearray()
        self._pool.emptied(self, len(buffer))
        if self._slot is None:
            return buffer
        body = self._pool.spool.read(self._slot, self._spilled)
        body += buffer
        self._pool.spool.give_back(self._slot)
        self._slot, self._spilled = None, 0
        return body

    def _upload_part(self, number: int, body: bytearray) -> Part:
        store = self._pool.store
        with self._id_lock:  # The first part that is sent creates the upload; the others wait for it.
            if self._upload_id is None:
                self._upload_id = store.create_upload(self.key, self._metadata, self._pool.tags)
        try:
            return store.upload_part(self.key, self._upload_id, number, body)
        except UploadGone as e:
            # Its ID is known to this process only, so it cannot have been completed.
            raise TransientError(
                f"an upload was aborted while its parts were sent, by a user or by a lifecycle rule that does not wait "
                f"for days. Nothing is lost; try again: {e}"
            ) from e


class UploadPool:
    """Uploads of one task: threads that send parts, and one memory budget for the bytes that are not sent yet.

    One thread opens, writes and finishes; the threads of the pool only send. Memory is at most ``memory`` plus
    ``2 * threads + 1`` parts. As a context manager it is closed at the end, without aborting anything: a manifest may
    list its uploads.
    """

    def __init__(
        self,
        store: DurableStore,
        *,
        part_size: int,
        threads: int = 2,
        memory: int = 64 * MIB,
        spill_dir: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Make a pool.

        Args:
            store: receives the parts.
            part_size: bytes of every part but the last, 5 MiB at least.
            threads: requests at the same time.
            memory: bytes of all open objects together in memory.
            spill_dir: folder of the temporary file; None: the system's.
            tags: of every object.

        Raises:
            ConfigurationError: a number is out of range.
        """
        if part_size < MIN_PART_SIZE:
            raise ConfigurationError(f"part_size={part_size} is below S3's minimum of 5 MiB ({MIN_PART_SIZE})")
        if threads < 1 or memory < 1:
            raise ConfigurationError(f"threads={threads} and memory={memory} must be positive")
        self.store = store
        self.part_size = part_size
        self.tags = dict(tags or {})
        self.spool = SpillFile(part_size, spill_dir)
        self._memory = memory
        self._held = 0
        self._in_memory: dict[int, ObjectUpload] = {}
        """The uploads with bytes in memory, by their identity; of thousands, these may be few."""
        self._all: list[ObjectUpload] = []
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="upload")
        self._room = threading.BoundedSemaphore(2 * threads)
        self._error: BaseException | None = None
        self._aborted = False

    def open(self, key: str, metadata: Mapping[str, str] | None = None) -> ObjectUpload:
        """Begin an object. Nothing is sent until its first part is full, or it is sealed.

        Args:
            key: of the object.
            metadata: user metadata of the object.
        """
        self.check()
        upload = ObjectUpload(self, key, dict(metadata or {}))
        self._all.append(upload)
        return upload

    @property
    def buffered(self) -> int:
        """Bytes of all open objects in memory."""
        return self._held

    def abort_all(self) -> None:
        """Abort every upload of the pool, finished ones too, as far as possible; the pool cannot be used afterwards.

        Only for uploads that were not reported to the driver: a manifest may list the others. An upload that cannot be
        aborted is logged and left to the bucket's lifecycle rule.
        """
        self._stop()
        self.store.abort_uploads((upload.key, upload.upload_id) for upload in self._all if upload.upload_id is not None)

    def close(self) -> None:
        """Discard unsent bytes, end the threads, remove the temporary file. Uploads stay pending. May be repeated."""
        self._stop()
        self._in_memory.clear()
        self.spool.close()

    def __enter__(self) -> Self:
        """The pool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def check(self) -> None:
        """Raise the error of a part, in the thread of the caller. Called by uploads."""
        if self._error is not None:
            raise self._error
        if self._aborted:
            raise ValueError("the upload pool is closed")

    def submit(self, send: Callable[[bytearray], Part], take: Callable[[], bytearray]) -> Future[Part]:
        """Queue a part; blocks while the queue is full. Called by uploads."""
        # The bytes leave the buffers only when there is room, so that a waiting part is not in memory twice.
        self._room.acquire()
        try:
            future = self._threads.submit(self._run, send, take())
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def grew(self, upload: ObjectUpload, size: int) -> None:
        """Add to the number of bytes in memory. Called by uploads."""
        self._held += size
        self._in_memory[id(upload)] = upload

    def emptied(self, upload: ObjectUpload, size: int) -> None:
        """An upload has no bytes in memory any more; it had so many. Called by uploads."""
        self._held -= size
        self._in_memory.pop(id(upload), None)

    def shrink(self) -> None:
        """Spill buffers to the file while memory exceeds its budget. Called by uploads."""
        if self._held <= self._memory:
            return
        # Down to half, and the largest first, so that sorting is rare and writes are long.
        for upload in sorted(self._in_memory.values(), key=lambda u: u.buffered, reverse=True):
            self.emptied(upload, upload.spill(self.spool))
            if self._held <= self._memory // 2:
                return

    def _run(self, send: Callable[[bytearray], Part], body: bytearray) -> Part:
        self.check()
        try:
            return send(body)
        except BaseException as e:
            self._error = self._error or e
            raise

    def _stop(self) -> None:
        self._aborted = True
        self._threads.shutdown(wait=True, cancel_futures=True)
