"""Columns of Avro values that have no other values inside, such as numbers and strings.

A reader moves the cursor of a batch behind one value of each row; see
:mod:`~airflow_provider_kafka_s3.converters.avro_decode`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, binary_array
from airflow_provider_kafka_s3.converters.avro_cursor import LARGEST_BATCH, Bytes, Cursor, Rows
from airflow_provider_kafka_s3.converters.avro_scalar import INT_BYTES, LONG_BYTES, TIMES_OF_DAY
from airflow_provider_kafka_s3.converters.columns import Column, buffer
from airflow_provider_kafka_s3.schemas.nodes import Decimal, Enum, Fixed, Primitive

__all__ = ["Reader", "built", "mask", "scalar_reader"]


def built(column: Column | None) -> Column:
    """What a reader returned that had to build a column."""
    assert column is not None
    return column


def mask(count: int, rows: Int64Array) -> Bools:
    """Whether each of so many rows is one of ``rows``."""
    marked = np.zeros(count, np.bool_)
    marked[rows] = True
    return marked


def _spread(values: npt.NDArray[Any], rows: Rows, count: int) -> npt.NDArray[Any]:
    """Values of some rows as values of all: zero elsewhere."""
    if rows is None:
        return values
    spread = np.zeros((count, *values.shape[1:]), values.dtype)
    spread[rows] = values
    return spread


class Reader(ABC):
    """Reads values of one type.

    Attributes:
        least: bytes of the shortest value.
        size: bytes of every value; None if they differ.
        skip_checks: whether :meth:`skip` notices every fault.
        flat: whether there are no arrays and no maps in the values.
        varint: whether each value is one varint.
    """

    least: int
    size: int | None
    skip_checks: bool
    flat = True
    varint = False

    @abstractmethod
    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Move behind the values. They need not be checked."""

    @abstractmethod
    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        """Move behind the values, and mark the bad ones.

        Returns:
            With ``build``, values of all rows of the cursor; those not in ``rows`` are zero or empty.
        """


class _Null(Reader):
    least, size, skip_checks = 0, 0, True

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        pass

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        del rows, build
        return Column(pa.null(), cursor.count)


class _Boolean(Reader):
    least, size, skip_checks = 1, 1, False

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        cursor.move(rows, cursor.at(rows) + 1)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        start = cursor.at(rows)
        cursor.move(rows, start + 1)
        byte = cursor.data.take(start, mode="clip")
        cursor.mark(rows, byte > 1)
        if not build:
            return None
        bits = np.packbits(_spread(byte == 1, rows, cursor.count), bitorder="little")
        return Column(pa.bool_(), cursor.count, [buffer(bits)])


class _Varint(Reader):
    """int and long."""

    least, size = 1, None
    varint = True

    def __init__(self, node: Primitive, kind: pa.DataType) -> None:
        self._type = kind
        self._stored: type[np.int32 | np.int64] = np.int32 if node.name == "int" else np.int64
        self._most_bytes = INT_BYTES if node.name == "int" else LONG_BYTES
        self._times = TIMES_OF_DAY.get(node.logical) if isinstance(node.logical, str) else None
        self.skip_checks = node.name == "long" and self._times is None

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        cursor.longs(rows)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        values = cursor.longs(rows, self._most_bytes)
        if self._times is not None:
            wrong = values.view(np.uint64) >= np.uint64(self._times)
            if cursor.mark(rows, wrong):
                values[wrong] = 0
        stored = values.astype(self._stored, copy=False)
        if self._stored is np.int32:
            cursor.mark(rows, stored != values)
        if not build:
            return None
        return Column(self._type, cursor.count, [buffer(_spread(stored, rows, cursor.count))])


class _Fixed(Reader):
    """float, double, fixed."""

    skip_checks = True

    def __init__(self, size: int, kind: pa.DataType) -> None:
        self.size = self.least = size
        self._type = kind

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        if self.size:
            cursor.move(rows, cursor.at(rows) + self.size)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        if not self.size:
            return Column(self._type, cursor.count, [pa.py_buffer(b"")]) if build else None
        start = cursor.at(rows)
        cursor.move(rows, start + self.size)
        if not build:
            return None
        end = cursor.end if rows is None else cursor.end[rows]
        if rows is not None or (start + self.size > end).any():
            inside = np.flatnonzero(start + self.size <= end)
            start, rows = start[inside], inside if rows is None else rows[inside]
        if self.size in (4, 8):
            # A word for each row takes less than half the time of its bytes.
            taken: npt.NDArray[Any] = cursor.words[start].astype("<u4" if self.size == 4 else "<u8", copy=False)
        elif len(cursor.data) < self.size:
            taken = np.zeros((0, self.size), np.uint8)
        else:
            shape = (len(cursor.data) - self.size + 1, self.size)
            taken = np.lib.stride_tricks.as_strided(cursor.data, shape, (1, 1), writeable=False)[start]
        return Column(self._type, cursor.count, [buffer(_spread(taken, rows, cursor.count))])


class _Varying(Reader):
    """bytes and string."""

    least, size = 1, None

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._text = pa.types.is_string(kind)
        self.skip_checks = not self._text

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        length = cursor.lengths(rows)
        cursor.move(rows, cursor.at(rows) + length)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        length = cursor.lengths(rows)
        start = cursor.at(rows)
        end = start + length
        cursor.move(rows, end)
        if not (self._text or build):
            return None
        limit = cursor.end if rows is None else cursor.end[rows]
        begins, ends = np.minimum(start, limit), np.minimum(end, limit)
        if self._text:
            self._check(cursor, rows, begins, ends)
        if not build:
            return None
        if rows is not None:
            some_begins, some_ends = begins, ends
            begins = np.minimum(cursor.pos, cursor.end)
            begins[rows] = some_begins
            ends = begins.copy()
            ends[rows] = some_ends
        spans = _spans(cursor, self._type, begins, ends)
        taken = spans.take(_int32_array(np.arange(0, 2 * cursor.count, 2, dtype=np.int32)))
        return Column(self._type, cursor.count, taken.buffers()[1:])

    @staticmethod
    def _check(cursor: Cursor, rows: Rows, begins: Int64Array, ends: Int64Array) -> None:
        """Mark the rows that are not UTF-8, and make their spans empty."""
        kind = pa.string() if len(cursor.data) <= LARGEST_BATCH else pa.large_string()
        try:
            _spans(cursor, kind, begins, ends, hide=True).validate(full=True)
        except pa.ArrowInvalid:
            for index, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
                try:
                    cursor.data[begin:end].tobytes().decode()
                except UnicodeDecodeError:
                    cursor.bad[index if rows is None else rows[index]] = True
                    ends[index] = begin


def _int32_array(values: npt.NDArray[np.int32]) -> Array:
    return cast("Array", pa.Array.from_buffers(pa.int32(), len(values), [None, buffer(values)]))


def _spans(cursor: Cursor, kind: pa.DataType, begins: Int64Array, ends: Int64Array, *, hide: bool = False) -> Array:
    """An array over the data of the cursor: spans at even indices, and what is between them at odd ones.

    Args:
        cursor: of the data.
        kind: of the array.
        begins: of the spans, ascending.
        ends: of the spans; none behind the begin of the next one.
        hide: make what is between them null.
    """
    count = 2 * len(begins)
    offsets = np.empty(count + 1, np.int64 if pa.types.is_large_string(kind) else np.int32)
    offsets[0:-1:2] = begins
    offsets[1::2] = ends
    offsets[-1] = len(cursor.data)
    bits = pa.py_buffer(b"\x55" * ((count + 7) // 8)) if hide else None
    buffers = [bits, buffer(offsets), pa.py_buffer(cursor.data.data)]
    return cast("Array", pa.Array.from_buffers(kind, count, cast("Any", buffers)))


class _Decimal(Reader):
    """decimal of bytes or of a fixed."""

    skip_checks = False

    def __init__(self, decimal: Decimal, size: int | None, kind: pa.DataType) -> None:
        self.size = size
        self.least = 1 if size is None else size
        self._type = kind
        self._bound = 10**decimal.precision
        self._width = 16 if pa.types.is_decimal128(kind) else 32

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        length = cursor.lengths(rows) if self.size is None else self.size
        cursor.move(rows, cursor.at(rows) + length)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        length = cursor.lengths(rows) if self.size is None else np.full(len(cursor.at(rows)), self.size, np.int64)
        start = cursor.at(rows)
        end = start + length
        cursor.move(rows, end)
        length = np.where(end <= (cursor.end if rows is None else cursor.end[rows]), length, 0)
        widest = int(length.max(initial=0))
        if not build and not self._exceeds(widest):
            return None
        values, wrong = self._values(cursor.data, end, length, min(widest, self._width))
        cursor.mark(rows, wrong)
        if not build:
            return None
        return Column(self._type, cursor.count, [buffer(_spread(values, rows, cursor.count))])

    def _exceeds(self, widest: int) -> bool:
        """Whether numbers of so many bytes can be out of range."""
        return widest > self._width or 1 << max(8 * widest - 1, 0) >= self._bound

    def _values(self, data: Bytes, end: Int64Array, length: Int64Array, widest: int) -> tuple[Bytes, Bools]:
        """Little-endian numbers, and which are out of range; those are 0."""
        negative = (data.take(end - length, mode="clip") >= 0x80) & (length > 0)
        fill = np.where(negative, np.uint8(255), np.uint8(0))
        values = np.empty((len(end), self._width), np.uint8)
        values[:, widest:] = fill[:, None]
        for place in range(widest):
            byte = data.take(end - 1 - place, mode="clip")
            values[:, place] = np.where(length > place, byte, fill)
        wrong = np.zeros(len(end), np.bool_)
        if self._exceeds(widest):
            limbs = values.view("<u8")
            wrong = ~(_less(limbs, self._bound) & _less(~limbs, self._bound - 1))
        for row in np.flatnonzero(length > self._width).tolist():
            number = int.from_bytes(data[end[row] - length[row] : end[row]].tobytes(), signed=True)
            wrong[row] = not -self._bound < number < self._bound
        values[wrong] = 0
        return values, wrong


def _less(limbs: npt.NDArray[np.uint64], bound: int) -> Bools:
    """Whether numbers in two's complement, lowest limb first, are less than a bound that is not negative."""
    result = np.zeros(len(limbs), np.bool_)
    for place in range(limbs.shape[1]):
        limb = np.uint64(bound >> 64 * place & 0xFFFFFFFFFFFFFFFF)
        result = (limbs[:, place] < limb) | ((limbs[:, place] == limb) & result)
    return result | (limbs[:, -1] >= np.uint64(1 << 63))


class _Enum(Reader):
    least, size, skip_checks = 1, None, False
    varint = True

    def __init__(self, node: Enum) -> None:
        self._count = len(node.symbols)
        texts = binary_array([*(s.encode() for s in node.symbols), b""], large=False)
        self._symbols = cast("Array", texts.cast(pa.string()))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        cursor.longs(rows)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        values = cursor.ints(rows)
        wrong = values.view(np.uint64) >= np.uint64(self._count)
        if cursor.mark(rows, wrong):
            values[wrong] = self._count
        if not build:
            return None
        indices = np.full(cursor.count, self._count, np.int32)
        indices[slice(None) if rows is None else rows] = values
        return Column(pa.string(), cursor.count, self._symbols.take(_int32_array(indices)).buffers()[1:])


def scalar_reader(node: Primitive | Fixed | Enum, kind: pa.DataType) -> Reader:
    """The reader of values of a type; ``kind`` is that of its column."""
    match node:
        case Primitive(logical=Decimal() as decimal):
            return _Decimal(decimal, None, kind)
        case Fixed(size=size, logical=Decimal() as decimal):
            return _Decimal(decimal, size, kind)
        case Fixed(size=size):
            return _Fixed(size, kind)
        case Enum():
            return _Enum(node)
        case Primitive(name="null"):
            return _Null()
        case Primitive(name="boolean"):
            return _Boolean()
        case Primitive(name="int" | "long"):
            return _Varint(node, kind)
        case Primitive(name="float" | "double" as name):
            return _Fixed(4 if name == "float" else 8, kind)
    return _Varying(kind)
