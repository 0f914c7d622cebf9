"""Compression of whole objects as a stream; the output does not depend on the sizes of the writes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from isal import isal_zlib

from airflow_provider_kafka_s3.config import KIB, CompressionName
from airflow_provider_kafka_s3.formats.port import Buffer

__all__ = ["BLOCK_SIZE", "Compression", "Compressor", "Gzip", "Plain", "make_compression"]

BLOCK_SIZE: Final = 64 * KIB
"""Bytes of one call of the deflate encoder; the bytes of a compressed object depend on it."""

# RFC 1952: magic, deflate, no flags, no time, no extra flags, unknown system: independent of machine and clock.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE: Final = -15


class Compressor(Protocol):
    """Compresses the bytes of one object."""

    def write(self, data: memoryview) -> Iterator[Buffer]:
        """Compress bytes; yields the output so far, and must be consumed to its end."""
        ...

    def close(self) -> Iterator[Buffer]:
        """Yield the rest of the output."""
        ...


Compression: TypeAlias = Callable[[], Compressor]
"""Makes the compressor of one object."""


def make_compression(name: CompressionName, level: int) -> Compression:
    """The compression of a name; ``level`` is ISA-L's, 0 to 3."""
    return partial(Gzip, level) if name == "gzip" else Plain


class Plain:
    """No compression; the bytes are not copied."""

    def write(self, data: memoryview) -> Iterator[Buffer]:
        """Yield the bytes."""
        if data.nbytes:
            yield data

    def close(self) -> Iterator[Buffer]:
        """Yield nothing: there is no buffer."""
        return iter(())


class Gzip:
    """One gzip member per object.

    An encoder's output may depend on the sizes of its input, so every call gets exactly ``BLOCK_SIZE`` bytes, counted
    from the object's beginning. Until the first block is full, the object needs memory for its own bytes only; then for
    one block and the encoder's state, together about 320 KiB at level 1.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self._deflate: Any = None
        self._pending = bytearray()
        self._crc = 0
        self._size = 0

    def write(self, data: memoryview) -> Iterator[Buffer]:
        """Compress whole blocks; the rest stays in the buffer."""
        self._crc = isal_zlib.crc32(data, self._crc)
        self._size += data.nbytes
        position = 0
        if self._pending:
            position = min(BLOCK_SIZE - len(self._pending), data.nbytes)
            self._pending += data[:position]
            if len(self._pending) < BLOCK_SIZE:
                return
            block, self._pending = self._pending, bytearray()
            yield from self._compress(block)
        end = data.nbytes - (data.nbytes - position) % BLOCK_SIZE
        for start in range(position, end, BLOCK_SIZE):
            yield from self._compress(data[start : start + BLOCK_SIZE])
        self._pending += data[end:]

    def close(self) -> Iterator[Buffer]:
        """Compress the buffer, and end the member with checksum and size."""
        yield from self._compress(self._pending)
        self._pending = bytearray()
        yield self._deflate.flush() + struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF)

    def _compress(self, block: bytearray | memoryview) -> Iterator[Buffer]:
        if self._deflate is None:
            self._deflate = isal_zlib.compressobj(self._level, isal_zlib.DEFLATED, _RAW_DEFLATE)
            yield _GZIP_HEADER
        if out := self._deflate.compress(block):
            yield out
