"""Writes Avro object container files from encoded datums.

A block ends with the datum that reaches 64 KiB of data or 16,384 datums, counted from the beginning of the file. So the
bytes depend on datums, schema, codec and sync marker alone, and on the library of the codec: zlib, bzip2 and XZ Utils
of Python, Snappy and Zstandard of pyarrow.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, bounds, contents
from airflow_provider_kafka_s3.config import KIB, AvroCodec
from airflow_provider_kafka_s3.formats.port import Buffer, Payload

__all__ = ["BLOCK_DATUMS", "BLOCK_SIZE", "AvroWriter"]


BLOCK_SIZE: Final = 64 * KIB
"""Bytes of encoded datums at which a block ends; the bytes of a file depend on it."""
BLOCK_DATUMS: Final = 16 * 1024
"""Datums at which a block ends, since datums may be empty."""

_Data: TypeAlias = bytearray | memoryview
_MAGIC: Final = b"Obj\x01"
_SYNC_SIZE: Final = 16
_RAW_DEFLATE: Final = -15
# A dictionary of 8 MiB as of preset 6 alone would need nearly 100 MB for each block; few blocks are longer than 1 MiB.
_XZ_FILTERS: Final = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1024 * KIB}]


def _plain(data: _Data) -> Buffer:
    return memoryview(data)


def _deflate(data: _Data) -> Buffer:
    encoder = zlib.compressobj(6, zlib.DEFLATED, _RAW_DEFLATE)
    return encoder.compress(data) + encoder.flush()


def _snappy(data: _Data) -> Buffer:
    return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


def _bzip2(data: _Data) -> Buffer:
    return bz2.compress(data, 9)


def _xz(data: _Data) -> Buffer:
    return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=_XZ_FILTERS)


def _zstandard(data: _Data) -> Buffer:
    return pa.Codec("zstd", compression_level=3).compress(data, asbytes=True)


_CODECS: Final[Mapping[AvroCodec, Callable[[_Data], Buffer]]] = {
    "null": _plain,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstandard": _zstandard,
}


class AvroWriter:
    """Writes one file; between two writes it holds less than a block.

    Args:
        schema_text: the schema of the datums, as JSON in UTF-8; written as it is.
        codec: of blocks, each by itself.
        sync: 16 bytes, the marker after each block. Readers that split files search for it, so take bytes that datums
            do not hold by chance: a digest of what names the file. The same file needs the same marker every time.

    Raises:
        ValueError: ``sync`` has another length.
    """

    def __init__(self, schema_text: bytes, codec: AvroCodec, *, sync: bytes) -> None:
        if len(sync) != _SYNC_SIZE:
            raise ValueError(f"the sync marker of an Avro file has {_SYNC_SIZE} bytes, not {len(sync)}")
        self._sync = sync
        self._compress = _CODECS[codec]
        self._header: bytes | None = b"".join(
            (
                _MAGIC,
                _long(2),
                *(_long(len(text)) + text for text in (b"avro.schema", schema_text, b"avro.codec", codec.encode())),
                _long(0),
                sync,
            )
        )
        self._pending = bytearray()
        self._datums = 0

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Write whole blocks; the payload is a binary array of datums in Avro's binary encoding, without nulls."""
        datums = cast("Array", payload)
        yield from self._begin()
        data = contents(datums)
        offsets = bounds(datums) - bounds(datums)[0]
        count, start = len(datums), 0
        while start < count:
            # The first datum whose end is at or beyond the rest of the block; a block of one long datum is possible.
            by_bytes = int(np.searchsorted(offsets, offsets[start] + BLOCK_SIZE - len(self._pending)))
            by_count = start + BLOCK_DATUMS - self._datums
            end = min(count, by_bytes, by_count)
            piece = data[offsets[start] : offsets[end]]
            self._datums += end - start
            if end not in (by_bytes, by_count):
                self._pending += piece
            elif self._pending:
                self._pending += piece
                yield from self._write_block(self._pending)
            else:
                yield from self._write_block(piece)
            start = end

    def close(self) -> Iterable[Buffer]:
        """Write the last block."""
        yield from self._begin()
        if self._datums:
            yield from self._write_block(self._pending)

    def _begin(self) -> Iterator[Buffer]:
        header, self._header = self._header, None
        if header is not None:
            yield header

    def _write_block(self, data: _Data) -> Iterator[Buffer]:
        block = self._compress(data)
        yield _long(self._datums) + _long(len(block))
        yield block
        yield self._sync
        self._pending, self._datums = bytearray(), 0


def _long(value: int) -> bytes:
    """Avro's encoding of a number that is not negative: zigzag, 7 bits in each byte, the lowest first."""
    remainder = value << 1
    out = bytearray()
    while remainder > 0x7F:
        out.append(remainder & 0x7F | 0x80)
        remainder >>= 7
    out.append(remainder)
    return bytes(out)
