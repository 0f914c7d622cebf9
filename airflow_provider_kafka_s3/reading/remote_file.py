"""An object as a file, for libraries that read files."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import Any, Final

from airflow_provider_kafka_s3.batch.remedies import RESTORE_RUN
from airflow_provider_kafka_s3.exceptions import MissingObjectError
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["REQUEST", "RemoteFile", "open_object"]

REQUEST: Final = 4 * 1024 * 1024
"""Bytes of one request of a reader that reads an object from its beginning to its end."""


class RemoteFile(io.RawIOBase):
    """An object as a file. Each read is one ranged request; :class:`io.BufferedReader` makes few of many.

    Args:
        get: gives the bytes from one place to another one.
        size: of the object, in bytes.
        request: bytes of one request of a reader that reads it from its beginning to its end.

    Attributes:
        request: likewise.
        crc32: of all bytes, if they were read from the beginning to the end.
    """

    def __init__(self, get: Callable[[int, int], bytes], size: int, request: int = REQUEST) -> None:
        super().__init__()
        self._get = get
        self._size = size
        self.request = request
        self._at = 0
        self.crc32 = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def size(self) -> int:
        """Bytes of the object: pyarrow looks for this method."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Let the next read begin elsewhere; no request."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Bytes from here on: as many as asked for, if the object has them."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        piece = self._get(self._at, end)
        self._at += len(piece)
        self.crc32 = zlib.crc32(piece, self.crc32)
        return piece

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, by one request."""
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def open_object(
    store: DurableStore, key: str, size: int, *, missing: Callable[[], MissingObjectError] | None = None
) -> RemoteFile:
    """An object as a file; what is not needed of it is not read.

    Args:
        store: its bucket.
        key: of the object.
        size: bytes.
        missing: makes the error if it is gone; None: one that names the object.
    """

    def get(start: int, end: int) -> bytes:
        stored = store.get(key, start=start, end=end)
        if stored is None:
            if missing is not None:
                raise missing()
            raise MissingObjectError(f"object {store.url(key)} is gone. Write it again by {RESTORE_RUN}")
        return stored.body

    return RemoteFile(get, size)
