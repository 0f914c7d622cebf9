"""Reads Avro object container files, datum by datum."""

from __future__ import annotations

import bz2
import datetime as dt
import functools
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from airflow_provider_kafka_s3.schemas.avro import logical_type, parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Node
from airflow_provider_kafka_s3.times import EPOCH

__all__ = ["PIECE", "AvroBlock", "AvroFile", "datums", "file_schema"]

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
PIECE: Final = 1024 * 1024
"""Bytes of the blocks that are decoded at once."""


def _snappy(block: bytes) -> bytes:
    size, shift, position = 0, 0, 0
    while True:
        size |= (block[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if block[position - 1] < 0x80:
            break
    return pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda block: zlib.decompress(block, -15),
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "snappy": _snappy,
    "zstandard": lambda block: pa.CompressedInputStream(pa.BufferReader(block), "zstd").read(),
}


def file_schema(body: bytes | io.BufferedReader) -> Node:
    """The schema of a file; only its beginning is read.

    Args:
        body: its bytes, or the file.

    Raises:
        ValueError: it is no Avro file.
    """
    return parse_schema(_metadata(_opened(body))["avro.schema"].decode())


def datums(body: bytes | io.BufferedReader, *, logical: bool = True, piece: int = PIECE) -> Iterator[list[Any]]:
    """The datums of a file as Python values, some at a time; those of unions without their type.

    Args:
        body: its bytes, or the file, of which about a megabyte is in memory.
        logical: whether values of logical types are decimals, dates and times; False: numbers and bytes.
        piece: bytes of the blocks that are decoded at once, about.

    Raises:
        ValueError: it is no Avro file.
    """
    file = AvroFile(body, logical=logical)
    for blocks in file.blocks(piece):
        yield file.decode(blocks)


@dataclass(frozen=True)
class AvroBlock:
    """A block of a file.

    Attributes:
        count: number of its datums.
        data: their bytes, decompressed.
    """

    count: int
    data: bytes


class AvroFile:
    """A file that is read from its beginning to its end.

    Args:
        body: its bytes, or the file.
        logical: as of :func:`datums`.

    Attributes:
        schema: of its datums, as it is in the file.

    Raises:
        ValueError: it is no Avro file.
    """

    def __init__(self, body: bytes | io.BufferedReader, *, logical: bool = True) -> None:
        self._file = _opened(body)
        about = _metadata(self._file)
        self._sync, self._expand = self._file.take(_SYNC), _CODECS[about.get("avro.codec", b"null").decode()]
        self.schema: Any = msgspec.json.decode(about["avro.schema"])
        self._logical = logical

    def blocks(self, piece: int = PIECE) -> Iterator[list[AvroBlock]]:
        """The blocks, some at a time.

        Args:
            piece: as of :func:`datums`.

        Raises:
            ValueError: a block is damaged.
        """
        while not self._file.is_at_end:
            blocks, size = [], 0
            while size < piece and not self._file.is_at_end:
                count = self._file.long()
                blocks.append(AvroBlock(count, self._expand(self._file.take(self._file.long()))))
                size += len(blocks[-1].data)
                if self._file.take(_SYNC) != self._sync:
                    raise ValueError("a block is damaged")
            yield blocks

    @functools.cached_property
    def _beginning(self) -> bytes:
        """A file without datums and codec: for each codec fastavro needs a library."""
        import fastavro

        fastavro.read.LOGICAL_READERS.update(_LOGICAL_READERS)
        beginning = io.BytesIO()
        try:
            fastavro.writer(beginning, _with_our_types(self.schema, logical=self._logical), [], sync_marker=self._sync)
        except Exception as e:
            raise ValueError(f"its schema is damaged: {str(e) or type(e).__name__}") from e
        return beginning.getvalue()

    def decode(self, blocks: Sequence[AvroBlock]) -> list[Any]:
        """The datums of blocks, see :func:`datums`.

        Raises:
            ValueError: a block is damaged.
        """
        import fastavro

        parts = ((_long(block.count), _long(len(block.data)), block.data, self._sync) for block in blocks)
        plain = io.BytesIO(b"".join([self._beginning, *itertools.chain.from_iterable(parts)]))
        try:
            return [*fastavro.reader(plain)]
        except Exception as e:
            raise ValueError(f"a block is damaged: {str(e) or type(e).__name__}") from e


def _opened(body: bytes | io.BufferedReader) -> _Bytes:
    return _Bytes(body) if isinstance(body, bytes) else _Stream(body)


def _metadata(file: _Bytes) -> dict[str, bytes]:
    if file.take(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin as one")
    about: dict[str, bytes] = {}
    while count := file.long():
        if count < 0:
            file.long()
        for _ in range(abs(count)):
            name = file.text()
            about[name] = file.take(file.long())
    return about


def _long(number: int) -> bytes:
    """A positive number, as Avro writes it."""
    encoded, number = bytearray(), number << 1
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _with_our_types(schema: Any, *, logical: bool) -> Any:
    """The schema with logical types that only :data:`_LOGICAL_READERS` reads, where a logical type is a valid one."""
    if isinstance(schema, list):
        return [_with_our_types(branch, logical=logical) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("type"), dict | list):
        return _with_our_types(schema["type"], logical=logical)
    adapted = {name: part for name, part in schema.items() if name not in ("default", "logicalType")}
    for name in ("items", "values"):
        if name in schema:
            adapted[name] = _with_our_types(schema[name], logical=logical)
    if "fields" in schema:
        adapted["fields"] = [
            {"name": one["name"], "type": _with_our_types(one["type"], logical=logical)} for one in schema["fields"]
        ]
    if logical and logical_type(schema) is not None:
        adapted["logicalType"] = _OURS + schema["logicalType"]
    return adapted


class _Bytes:
    """Bytes that are read from their beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if count < 0 or len(taken) != count:
            raise ValueError("it ends too early")
        self._at += count
        return taken

    def long(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            if shift > 63:
                raise ValueError("a number is too long")

    def text(self) -> str:
        return self.take(self.long()).decode()


class _Stream(_Bytes):
    """Bytes of a file."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(b"")
        self._file = file

    @property
    def is_at_end(self) -> bool:
        return not self._file.peek(1)

    def take(self, count: int) -> bytes:
        taken = self._file.read(count) if count >= 0 else b""
        if len(taken) != count:
            raise ValueError("it ends too early")
        return taken


def _logical_reader(convert: Callable[[Any, Mapping[str, Any]], Any]) -> Callable[[Any, Any, Any], Any]:
    def read(value: Any, schema: Mapping[str, Any], _: object) -> Any:
        try:
            return convert(value, schema)
        except OverflowError:
            return value  # Python has no such time: the number is shown

    return read


def _decimal(value: bytes, schema: Mapping[str, Any]) -> Decimal:
    return Decimal(f"{int.from_bytes(value, 'big', signed=True)}E-{schema.get('scale', 0)}")


_OURS: Final = "kafka-s3-"
_LOGICAL_READERS: Final = {
    f"{physical}-{_OURS}{name}": _logical_reader(convert)
    for physical, name, convert in (
        ("bytes", "decimal", _decimal),
        ("fixed", "decimal", _decimal),
        ("int", "date", lambda value, _: (EPOCH + dt.timedelta(days=value)).date()),
        ("long", "timestamp-millis", lambda value, _: EPOCH + dt.timedelta(milliseconds=value)),
        ("long", "timestamp-micros", lambda value, _: EPOCH + dt.timedelta(microseconds=value)),
        (
            "long",
            "local-timestamp-millis",
            lambda value, _: (EPOCH + dt.timedelta(milliseconds=value)).replace(tzinfo=None),
        ),
        (
            "long",
            "local-timestamp-micros",
            lambda value, _: (EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=None),
        ),
    )
}
"""By the name that fastavro makes of a type and a logical type of :func:`_with_our_types`."""
