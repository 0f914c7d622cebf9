"""Arrow arrays to Avro datums, all records of a batch at once.

Each field yields a piece of every record: how many bytes it has, and the bytes of all records after each other. The
pieces are put together in the end.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import Array, Int64Array, binary_array, valid_rows, validity_buffer
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Enum,
    Fixed,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    branch_names,
    only_branch,
)

__all__ = ["encode_datums"]

_LARGEST: Final = 2**31 - 1


def encode_datums(values: Array, node: Node) -> Array:
    """The Avro datum of each value.

    An array is written as one block without its size in bytes, a decimal of bytes with as few bytes as it needs.

    Args:
        values: of the Arrow type of the schema. Types that Arrow casts to it without loss are cast.
        node: the schema.

    Returns:
        binary; large_binary if the datums have more than 2 GiB. A null is null, unless the schema is a union with null.

    Raises:
        ConfigurationError: the schema is recursive.
        ValueError: a value does not fit its schema: a null or a symbol that it does not have, a decimal too large for
            its fixed, or a type that cannot be cast.
    """
    arrow_type(node)
    if isinstance(node, Union) or node == NULL or not values.null_count:
        return _binary(*_encoded(node, values), None)
    valid = _valid(values)
    valid_lengths, data = _encoded(node, values.filter(_boolean(valid)))
    lengths = np.zeros(len(values), np.int64)
    lengths[valid] = valid_lengths
    return _binary(lengths, data, valid)


def _encoded(node: Node, values: Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    pieces = _Pieces(len(values))
    _encode(node, values, None, pieces, "the value")
    return pieces.joined()


class _Pieces:
    """What the records consist of, in its order."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: list[tuple[Int64Array, npt.NDArray[np.uint8]]] = []

    def add(self, rows: Int64Array | None, lengths: Int64Array | int, data: npt.NDArray[np.uint8]) -> None:
        """Add a piece.

        Args:
            rows: that have it, ascending; None: all.
            lengths: of the piece of each of these rows.
            data: of these rows, after each other.
        """
        every = np.zeros(self._count, np.int64)
        every[slice(None) if rows is None else rows] = lengths
        self._pieces.append((every, data))

    def joined(self) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
        """Length of each record, and the bytes of all."""
        totals = np.zeros(self._count, np.int64)
        for lengths, _ in self._pieces:
            totals += lengths
        position = np.cumsum(totals) - totals
        joined = np.empty(int(totals.sum()), np.uint8)
        for lengths, data in self._pieces:
            if len(data) == self._count and (lengths == 1).all():
                joined[position] = data
            else:
                starts = np.cumsum(lengths) - lengths
                joined[np.repeat(position - starts, lengths) + np.arange(len(data))] = data
            position += lengths
        return totals, joined


def _encode(node: Node, values: Array, rows: Int64Array | None, pieces: _Pieces, path: str) -> None:
    """Add the pieces of a type.

    Args:
        node: the type.
        values: of the rows.
        rows: that have such a value; None: all.
        pieces: of the records.
        path: of the field, for errors.
    """
    if isinstance(node, Union):
        _encode_union(node, values, rows, pieces, path)
        return
    if node == NULL:
        return
    if values.null_count:
        raise ValueError(f"{path} is null in {values.null_count} of {len(values)} values, but its schema has no null")
    match node:
        case Record(fields=fields):
            _expect(isinstance(values, pa.StructArray) and values.type.num_fields == len(fields), values, node, path)
            for part, column in zip(fields, cast("pa.StructArray", values).flatten(), strict=True):
                _encode(part.type, column, rows, pieces, f"{path}.{part.name}")
        case ArrayOf(items=items):
            _expect(isinstance(values, pa.ListArray), values, node, path)
            children = [(items, cast("Any", values).values, f"{path}[]")]
            _encode_items(children, cast("pa.ListArray[Any]", values), rows, pieces)
        case MapOf(values=inner, keys=keys):
            _expect(isinstance(values, pa.MapArray), values, node, path)
            entries = cast("Any", values)
            children = [(keys, entries.keys, f"{path}{{key}}"), (inner, entries.items, f"{path}{{}}")]
            _encode_items(children, entries, rows, pieces)
        case _:
            _encode_leaf(node, values, rows, pieces, path)


def _expect(fits: bool, values: Array, node: Node, path: str) -> None:
    if not fits:
        raise ValueError(f"{path} has the type {values.type}, but its schema needs {arrow_type(node)}")


def _encode_union(node: Union, values: Array, rows: Int64Array | None, pieces: _Pieces, path: str) -> None:
    null = node.branches.index(NULL) if NULL in node.branches else None
    chosen = np.full(len(values), -1 if null is None else null, np.int64)
    single = only_branch(node)
    branches: list[tuple[Node, Array, npt.NDArray[np.bool_]]] = []
    if single is not None:
        branches.append((single, values, _valid(values)))
    elif len(node.branches) > 1 or null is None:
        others = [branch for branch in node.branches if branch != NULL]
        _expect(isinstance(values, pa.StructArray) and values.type.num_fields == len(others), values, node, path)
        columns = cast("pa.StructArray", values).flatten()
        branches = [(b, c, _valid(c)) for b, c in zip(others, columns, strict=True)]
    several = np.zeros(len(values), np.int64)
    for branch, _, valid in branches:
        chosen[valid] = node.branches.index(branch)
        several += valid
    if (several > 1).any() or (chosen < 0).any():
        raise ValueError(f"{path} has not exactly one of {', '.join(branch_names(node))[:200]}")
    pieces.add(rows, *_varints(chosen))
    for branch, column, valid in branches:
        if valid.all():
            _encode(branch, column, rows, pieces, path)
        elif valid.any():
            branch_rows = np.flatnonzero(valid) if rows is None else rows[valid]
            _encode(branch, column.filter(_boolean(valid)), branch_rows, pieces, path)


def _encode_items(
    children: list[tuple[Node, Array, str]], values: pa.ListArray[Any], rows: Int64Array | None, pieces: _Pieces
) -> None:
    """One block of items, if there are any, and the empty block at the end."""
    offsets = np.zeros(1, np.int64)
    if len(values):
        offsets = _numbers(values.offsets, np.int32).astype(np.int64)
    counts = np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    items = _Pieces(last - first)
    for node, child, path in children:
        _encode(node, child.slice(first, last - first), None, items, path)
    lengths, data = items.joined()
    ends = np.concatenate([[0], np.cumsum(lengths)])
    has_items = counts > 0
    pieces.add(rows, *_varints(counts))
    pieces.add(rows, np.diff(ends[offsets - first]), data)
    pieces.add(rows, has_items.astype(np.int64), np.zeros(int(has_items.sum()), np.uint8))


def _encode_leaf(node: Node, values: Array, rows: Int64Array | None, pieces: _Pieces, path: str) -> None:
    kind = arrow_type(node)
    if values.type != kind:
        try:
            values = cast("Array", values.cast(kind))
        except pa.ArrowException as e:
            raise ValueError(f"{path} has the type {values.type}, but its schema needs {kind}: {e}") from None
    match node:
        case Primitive(logical=Decimal()):
            lengths, digits = _digits(values)
            _add_sized(rows, lengths, digits, pieces)
        case Fixed(size=size, logical=Decimal()):
            pieces.add(rows, size, _fixed_digits(values, size, path))
        case Fixed(size=size):
            data = _bytes(values)[values.offset * size : (values.offset + len(values)) * size]
            pieces.add(rows, size, data)
        case Enum(symbols=symbols):
            texts = cast("Array", binary_array([s.encode() for s in symbols], large=False).cast(pa.string()))
            indices = cast("Array", pc.index_in(values, value_set=texts))
            if indices.null_count:
                raise ValueError(f"{path} has {indices.null_count} values that are no symbols of the enum {node.name}")
            pieces.add(rows, *_varints(_numbers(indices, np.int32).astype(np.int64)))
        case Primitive(name="boolean"):
            pieces.add(rows, 1, _numbers(cast("Array", values.cast(pa.uint8())), np.uint8))
        case Primitive(name=("int" | "long") as name):
            numbers = _numbers(values, np.int32 if name == "int" else np.int64)
            pieces.add(rows, *_varints(numbers.astype(np.int64)))
        case Primitive(name=("float" | "double") as name):
            size = 4 if name == "float" else 8
            pieces.add(rows, size, _numbers(values, np.uint32 if size == 4 else np.uint64).view(np.uint8))
        case _:
            offsets = np.zeros(1, np.int64)
            if len(values):
                whole = np.frombuffer(memoryview(cast("Any", values.buffers()[1])), np.int32)
                offsets = whole[values.offset : values.offset + len(values) + 1].astype(np.int64)
            data = _bytes(values, 2)[int(offsets[0]) : int(offsets[-1])]
            _add_sized(rows, np.diff(offsets), data, pieces)


def _add_sized(rows: Int64Array | None, lengths: Int64Array, data: npt.NDArray[np.uint8], pieces: _Pieces) -> None:
    pieces.add(rows, *_varints(lengths))
    pieces.add(rows, lengths, data)


def _varints(values: Int64Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Lengths and bytes of longs."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(len(values), np.int64)
    largest = int(zigzag.max(initial=0))
    if largest < 0x80:
        return lengths, zigzag.astype(np.uint8)
    width = -(-largest.bit_length() // 7)
    for place in range(1, width):
        lengths += zigzag >= np.uint64(1 << 7 * place)
    places = np.arange(width)
    septets = (zigzag[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    septets |= np.where(places < lengths[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return lengths, septets[places < lengths[:, None]]


def _digits(values: Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Lengths and bytes of decimals, the highest byte first and no more than needed."""
    digits, fill = _all_digits(values)
    width = digits.shape[1]
    differs = digits != fill[:, None]
    highest = np.where(differs.any(axis=1), np.argmax(differs, axis=1), width - 1)
    top = np.take_along_axis(digits, highest[:, None], axis=1)[:, 0]
    lengths = np.minimum(width - highest + ((top ^ fill) >= 0x80), width)
    return lengths, digits[np.arange(width) >= width - lengths[:, None]]


def _fixed_digits(values: Array, size: int, path: str) -> npt.NDArray[np.uint8]:
    digits, fill = _all_digits(values)
    width = digits.shape[1]
    if size and (_digits(values)[0] > size).any():
        raise ValueError(f"{path} has decimals of more than {size} bytes, the size of its fixed")
    out = np.empty((len(values), size), np.uint8)
    out[:] = fill[:, None]
    kept = min(size, width)
    out[:, size - kept :] = digits[:, width - kept :]
    return out.reshape(-1)


def _all_digits(values: Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Bytes of decimals, the highest first, and the byte of each that continues its sign."""
    width = values.type.bit_width // 8
    data = _bytes(values)[values.offset * width : (values.offset + len(values)) * width]
    digits = data.reshape(-1, width)[:, ::-1]
    return digits, np.where(digits[:, 0] >= 0x80, np.uint8(255), np.uint8(0))


def _bytes(values: Array, number: int = 1) -> npt.NDArray[np.uint8]:
    """A buffer of an array; empty if there is none."""
    buffer = values.buffers()[number]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(memoryview(buffer), np.uint8)


def _numbers(values: Array, kind: type[Any]) -> npt.NDArray[Any]:
    """The numbers of an array without nulls."""
    size = np.dtype(kind).itemsize
    return _bytes(values)[values.offset * size : (values.offset + len(values)) * size].view(kind)


def _valid(values: Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.bool_)
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    return valid_rows(values)


def _boolean(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    bits = validity_buffer(values)
    return cast("pa.BooleanArray", pa.Array.from_buffers(pa.bool_(), len(values), [None, bits]))


def _binary(lengths: Int64Array, data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_] | None) -> Array:
    large = len(data) > _LARGEST
    offsets = np.zeros(len(lengths) + 1, np.int64 if large else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    bits = None if valid is None else validity_buffer(valid)
    kind = pa.large_binary() if large else pa.binary()
    buffers = [bits, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return cast("Array", pa.Array.from_buffers(kind, len(lengths), cast("Any", buffers)))
