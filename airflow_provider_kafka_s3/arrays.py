"""Arrow batches of records, and arrays between Arrow and NumPy.

Arrays share their buffers here. ``pyarrow.array``, ``pyarrow.scalar`` and ``pyarrow.Array.to_numpy`` import pandas
where it is installed, which costs a Python worker more than a second and 50 MB.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ARE_LINES",
    "BOUNDS",
    "DIVISIBLE",
    "FAITHFUL_FROM",
    "NO_TIMESTAMP",
    "RECORD_SCHEMA",
    "WHOLE_RECORD_SCHEMA",
    "Array",
    "Bools",
    "Int64Array",
    "Scattered",
    "binary_array",
    "bounds",
    "contents",
    "int64_array",
    "int64_values",
    "join",
    "number_values",
    "one_batch",
    "parts_of_bytes",
    "time_bounds",
    "true_rows",
    "valid_rows",
    "validity_buffer",
]

N = TypeVar("N", bound=np.generic)

Array: TypeAlias = "pa.Array[Any]"
Bools: TypeAlias = npt.NDArray[np.bool_]
Int64Array: TypeAlias = npt.NDArray[np.int64]

NO_TIMESTAMP: Final = -1
"""Timestamp of a record that has none."""

FAITHFUL_FROM: Final = -2_208_988_800_000
"""The year 1900 in milliseconds. Spark interprets an older timestamp in the Julian calendar, in the time zone of the
JVM, and shifts it by seconds up to months."""

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.int64(), nullable=False),
    pa.field("value", pa.binary()),
]
RECORD_SCHEMA: Final = pa.schema(_FIELDS)
"""Of a batch of records of one Kafka partition: ``offset``, strictly increasing; ``timestamp``, in milliseconds since
the epoch, or :data:`NO_TIMESTAMP`; ``value``, null for a tombstone."""

_HEADER: Final[list[pa.Field[Any]]] = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_WHOLE: Final[list[pa.Field[Any]]] = [
    *_FIELDS,
    pa.field("key", pa.binary()),
    pa.field("headers", pa.list_(pa.field("element", pa.struct(_HEADER)))),
]
WHOLE_RECORD_SCHEMA: Final = pa.schema(_WHOLE)
"""Of a batch of whole records: those of :data:`RECORD_SCHEMA`, ``key``, and ``headers``, in their order; null for
none."""

DIVISIBLE: Final = "divisible"
"""Name of a column that batches of landed records have whose offsets or timestamps are unknown: whether an object may
end behind the record. The records of a batch are those of one object, and :data:`BOUNDS` has what is known of it."""

BOUNDS: Final = b"kafka_s3.bounds"
"""Name in the metadata of batches with :data:`DIVISIBLE`: the lowest and the highest offset of the records, and their
lowest and highest timestamp, as a list of JSON. The column ``offset`` has the lowest one where they are unknown."""

ARE_LINES: Final = b"kafka_s3.lines"
"""Name in the metadata of batches of landed records whose values are JSON documents on one line each: they were checked
when they were landed."""


@dataclass(frozen=True)
class Scattered:
    """Rows of a batch that do not follow one another.

    All groups of rows of a batch share one ``order``, so the batch has to be put into this order only once: then each
    group is a piece of it.

    Attributes:
        order: rows of the batch; those of a group follow one another, in ascending order.
        start: where this group begins in ``order``.
        stop: where it ends.
    """

    order: Int64Array
    start: int
    stop: int

    @property
    def indices(self) -> Int64Array:
        """The rows of the group in the batch."""
        return self.order[self.start : self.stop]

    def piece(self, start: int, stop: int) -> Scattered:
        """Some of the rows, counted from the first one of the group."""
        return Scattered(self.order, self.start + start, self.start + stop)


def int64_values(column: Array) -> Int64Array:
    """The values of an int64 column without nulls as NumPy array: read-only, not copied."""
    return number_values(column, np.int64)


def time_bounds(times: Int64Array) -> tuple[int, int]:
    """The lowest and the highest of some timestamps; :data:`NO_TIMESTAMP` for both if they are unknown.

    Records without a timestamp do not count. One timestamp from before :data:`FAITHFUL_FROM` makes the bounds unknown.
    """
    low = int(times.min())
    if low < 0:
        times = times[times != NO_TIMESTAMP]
        if low < FAITHFUL_FROM or not times.size:
            return NO_TIMESTAMP, NO_TIMESTAMP
        low = int(times.min())
    return low, int(times.max())


def number_values(column: Array, kind: type[N]) -> npt.NDArray[N]:
    """The values of a column of numbers as NumPy array: read-only, not copied; those of nulls have no meaning."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(0, kind)
    whole = np.frombuffer(memoryview(buffer).toreadonly(), kind)
    return whole[column.offset : column.offset + len(column)]


def valid_rows(column: Array) -> Bools:
    """Whether each value of a column is not null."""
    bits = column.buffers()[0]
    return np.ones(len(column), np.bool_) if bits is None else _unpacked(bits, column)


def true_rows(column: Array) -> Bools:
    """Whether each value of a boolean column without nulls is true."""
    bits = column.buffers()[1]
    return np.zeros(0, np.bool_) if bits is None else _unpacked(bits, column)


def _unpacked(bits: pa.Buffer, column: Array) -> Bools:
    first = column.offset // 8
    bytes_ = np.frombuffer(memoryview(bits).toreadonly(), np.uint8)[first : (column.offset + len(column) + 7) // 8]
    skipped = column.offset - 8 * first
    return np.unpackbits(bytes_, bitorder="little")[skipped : skipped + len(column)].astype(np.bool_)


def validity_buffer(valid: Bools) -> pa.Buffer:
    """The buffer of an array for the values that are not null."""
    return pa.py_buffer(np.packbits(valid, bitorder="little").data)


def int64_array(values: Int64Array) -> pa.Int64Array:
    """Values as Arrow array; they are copied only if they are not contiguous."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values).data)]
    return cast("pa.Int64Array", pa.Array.from_buffers(pa.int64(), len(values), buffers))


def binary_array(values: Sequence[bytes | None], *, large: bool) -> Array:
    """Values as Arrow array; with ``large``, the offsets into its data have 64 bits."""
    validity = None
    if None in values:
        validity = validity_buffer(np.array([value is not None for value in values], np.bool_))
    texts = [value or b"" for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64 if large else np.int32)
    buffers = [validity, pa.py_buffer(ends.data), pa.py_buffer(b"".join(texts))]
    return cast("Array", pa.Array.from_buffers(pa.large_binary() if large else pa.binary(), len(values), buffers))


def bounds(values: Array) -> Int64Array:
    """The beginning of each value in the data of the array, and the end of the last one: one more than values.

    A slice shares the data of the whole array, so the first bound need not be 0.
    """
    buffer = values.buffers()[1]
    if len(values) == 0 or buffer is None:
        return np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    whole = np.frombuffer(memoryview(buffer).toreadonly(), dtype=np.dtype(width))
    return whole[values.offset : values.offset + len(values) + 1].astype(np.int64, copy=False)


def parts_of_bytes(values: Array, most: int) -> Iterator[tuple[int, int]]:
    """First row, and the row behind the last one, of consecutive parts of at most so many bytes, or of one value."""
    ends, start = bounds(values), 0
    while start < len(values):
        stop = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), len(values))
        yield start, stop
        start = stop


def contents(values: Array) -> memoryview:
    """The bytes of all values, one after another; not copied."""
    ends, data = bounds(values), values.buffers()[2]
    return memoryview(b"") if data is None else memoryview(data)[ends[0] : ends[-1]].cast("B")


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The records of one or more batches of the same schema, one after another."""
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def join(values: Array, separator: bytes) -> Array:
    """Append the separator to every value."""
    if not separator:
        return values
    empty, end = _scalars(separator, pa.types.is_large_binary(values.type))
    return cast("Array", pc.binary_join_element_wise(values, empty, end))


@functools.cache
def _scalars(separator: bytes, large: bool) -> tuple[Any, Any]:
    """No bytes, and the separator, as Arrow scalars; for small batches, making them takes as long as joining."""
    empty, end = binary_array([b"", separator], large=large)
    return empty, end
