"""Compression of whole objects as a stream; the output does not depend on the sizes of the writes."""

from __future__ import annotations

import bz2
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
from isal import isal_zlib

from airflow_provider_kafka_s3.config import KIB, CompressionName, GzipEncoder, default_level
from airflow_provider_kafka_s3.formats.port import Buffer

__all__ = [
    "BLOCK_SIZE",
    "BZIP2_BLOCK_SIZE",
    "LIBDEFLATE_BLOCK_SIZE",
    "ZSTD_BLOCK_SIZE",
    "Bzip2",
    "Compression",
    "Compressor",
    "Gzip",
    "Libdeflate",
    "Plain",
    "Zstd",
    "make_compression",
]

BLOCK_SIZE: Final = 64 * KIB
"""Bytes of one call of the deflate encoder; the bytes of a compressed object depend on it."""
LIBDEFLATE_BLOCK_SIZE: Final = 256 * KIB
"""Bytes of one gzip member of libdeflate before compression."""
ZSTD_BLOCK_SIZE: Final = 256 * KIB
"""Bytes of one Zstandard frame before compression."""
BZIP2_BLOCK_SIZE: Final = 99_000
"""Bytes of one bzip2 stream before compression, for each level."""

# RFC 1952: magic, deflate, no flags, no time, no extra flags, unknown system: independent of machine and clock.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE: Final = -15
# Levels of gzip above are libdeflate's.
_ISAL_LEVELS: Final = 3


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


def make_compression(name: CompressionName, level: int | None = None) -> Compression:
    """The compression of a name.

    Args:
        name: of the compression.
        level: 0 to 9 for gzip (to 3 ISA-L's, above libdeflate's), 1 to 19 for zstd, 1 to 9 for bzip2; None: the default
            of the compression.
    """
    level = default_level(name) if level is None else level
    match name:
        case "gzip":
            return partial(Gzip if level <= _ISAL_LEVELS else Libdeflate, level)
        case "zstd":
            return partial(Zstd, level)
        case "bzip2":
            return partial(Bzip2, level)
        case "none":
            return Plain


class Plain:
    """No compression; the bytes are not copied."""

    def write(self, data: memoryview) -> Iterator[Buffer]:
        """Yield the bytes."""
        if data.nbytes:
            yield data

    def close(self) -> Iterator[Buffer]:
        """Yield nothing: there is no buffer."""
        return iter(())


class _Blockwise(ABC):
    """Cuts the bytes of an object into blocks of one size, so that the output does not depend on the sizes of writes.

    An encoder's output may depend on the sizes of its input, so every call gets exactly ``block_size`` bytes, counted
    from the object's beginning. Only the last block may be shorter.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._pending = bytearray()

    def write(self, data: memoryview) -> Iterator[Buffer]:
        """Compress whole blocks; the rest stays in the buffer."""
        position = 0
        if self._pending:
            position = min(self._block_size - len(self._pending), data.nbytes)
            self._pending += data[:position]
            if len(self._pending) < self._block_size:
                return
            block, self._pending = self._pending, bytearray()
            yield from self._compress(block)
        end = data.nbytes - (data.nbytes - position) % self._block_size
        for start in range(position, end, self._block_size):
            yield from self._compress(data[start : start + self._block_size])
        self._pending += data[end:]

    def close(self) -> Iterator[Buffer]:
        """Compress the rest, and end the object."""
        block, self._pending = self._pending, bytearray()
        yield from self._finish(block)

    @abstractmethod
    def _compress(self, block: bytearray | memoryview) -> Iterator[Buffer]:
        """Compress a block."""

    @abstractmethod
    def _finish(self, block: bytearray) -> Iterator[Buffer]:
        """Compress the last block, which may be empty."""


class Gzip(_Blockwise):
    """One gzip member.

    Until the first block is full, it needs memory for its own bytes only; then for one block and the encoder's state,
    together about 370 KiB at level 2 of ISA-L.

    Args:
        level: of the encoder: 0 to 3 of ISA-L, 1 to 9 of zlib.
        encoder: ISA-L, or zlib.
    """

    def __init__(self, level: int, encoder: GzipEncoder = "isal") -> None:
        super().__init__(BLOCK_SIZE)
        self._level = level
        self._encoder = encoder
        self._deflate: Any = None
        self._crc = 0
        self._size = 0

    def write(self, data: memoryview) -> Iterator[Buffer]:
        """Compress whole blocks; the rest stays in the buffer."""
        self._crc = isal_zlib.crc32(data, self._crc)
        self._size += data.nbytes
        yield from super().write(data)

    def _compress(self, block: bytearray | memoryview) -> Iterator[Buffer]:
        if self._deflate is None:
            library = isal_zlib if self._encoder == "isal" else zlib
            self._deflate = library.compressobj(self._level, library.DEFLATED, _RAW_DEFLATE)
            yield _GZIP_HEADER
        if out := self._deflate.compress(block):
            yield out

    def _finish(self, block: bytearray) -> Iterator[Buffer]:
        yield from self._compress(block)
        yield self._deflate.flush() + struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF)


class _Concatenated(_Blockwise):
    """Compresses each block by itself; a file of the format may be a sequence of such parts.

    Nothing of the encoder stays in memory between two blocks, so an open object needs memory for one block only.
    """

    def __init__(self, block_size: int, compress: Callable[[bytearray | memoryview], Buffer]) -> None:
        super().__init__(block_size)
        self._part = compress
        self._empty = True

    def _compress(self, block: bytearray | memoryview) -> Iterator[Buffer]:
        self._empty = False
        yield self._part(block)

    def _finish(self, block: bytearray) -> Iterator[Buffer]:
        if block or self._empty:
            yield from self._compress(block)


class Libdeflate(_Concatenated):
    """gzip members (RFC 1952), one for every 256 KiB: smaller than those of ISA-L and of zlib, for three times the CPU.

    libdeflate compresses only what is in memory as a whole.
    """

    def __init__(self, level: int) -> None:
        # Executors need the library for these levels only.
        from deflate import gzip_compress

        super().__init__(LIBDEFLATE_BLOCK_SIZE, lambda block: memoryview(gzip_compress(block, level)))


class Zstd(_Concatenated):
    """Zstandard frames (RFC 8878), one for every 256 KiB.

    An encoder for a stream of unknown length needs several MiB at the same levels for as long as its object is open,
    and pyarrow has one for level 1 only. The frames of an object have content sizes and no checksums. The bytes depend
    on the Zstandard library in pyarrow.
    """

    def __init__(self, level: int) -> None:
        codec = pa.Codec("zstd", compression_level=level)
        super().__init__(ZSTD_BLOCK_SIZE, lambda block: codec.compress(block, asbytes=True))


class Bzip2(_Concatenated):
    """bzip2 streams of one block each.

    An encoder that stays open needs nearly 8 MB at level 9. So an open object needs only its block, 100 kB for each
    level; 1 % of that is room for runs of four equal bytes, which take five in a block.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level * BZIP2_BLOCK_SIZE, lambda block: bz2.compress(block, level))
