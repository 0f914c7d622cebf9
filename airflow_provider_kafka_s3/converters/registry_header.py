"""The header of values whose schemas are in a registry: a zero byte, the schema's id in four bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents, int64_array
from airflow_provider_kafka_s3.converters.port import Invalid

__all__ = ["HEADER_SIZE", "REMEDY", "other_header", "rows_by_schema", "schema_id", "without_header"]

HEADER_SIZE: Final = 5
REMEDY: Final = "correct the producer, or use errors='dead_letter' to set such records aside"
_MAGIC: Final = 0
_MAGIC_OF_GUID, _WITH_GUID = 1, 17
_MAGIC_OF_GLUE, _COMPRESSIONS_OF_GLUE, _LONGEST = 3, (0, 5), 18


def rows_by_schema(values: Array) -> tuple[Iterator[tuple[int, Int64Array]], list[Invalid]]:
    """Rows by the id of their schema, in the order of the first row of each; and the rows without a header.

    Args:
        values: binary or large_binary, none of them null.
    """
    ids, has_header = _schema_ids(values)
    invalid = [
        Invalid(
            int(row),
            "the value does not begin with the header of a schema registry: a zero byte and the id of a schema"
            + other_header(bytes(contents(values.slice(row, 1))[:_LONGEST])),
            REMEDY,
        )
        for row in np.flatnonzero(~has_header).tolist()
    ]
    return _rows_by_id(ids, has_header), invalid


def schema_id(value: bytes) -> int | None:
    """The id in the header of a value; None: it has no header."""
    if len(value) < HEADER_SIZE or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_SIZE], "big")


def other_header(value: bytes) -> str:
    """What a value seems to begin with, for a reason; empty if that is not known.

    Args:
        value: at least its first 18 bytes, if it has so many.
    """
    beginning = value[:_LONGEST]
    if len(beginning) == _LONGEST and beginning[0] == _MAGIC_OF_GLUE and beginning[1] in _COMPRESSIONS_OF_GLUE:
        return ". It seems to have the header of AWS Glue, whose registry is not supported"
    if len(beginning) >= _WITH_GUID and beginning[0] == _MAGIC_OF_GUID:
        return ". It seems to have the id of its schema as a GUID: let the producer write the id of four bytes"
    return ""


def _schema_ids(values: Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """The id in each header, and whether there is a header."""
    offsets = bounds(values)
    ids = np.zeros(len(values), np.int64)
    has_header = np.diff(offsets) >= HEADER_SIZE
    if not has_header.any():
        return ids, np.zeros(len(values), np.bool_)
    body = np.frombuffer(contents(values), np.uint8)
    starts = offsets[:-1][has_header] - offsets[0]
    # The number that begins at each byte.
    numbers = np.ndarray((len(body) - 3,), ">u4", body.data, strides=(1,))
    ids[has_header] = numbers[starts + 1]
    has_header[has_header] = body[starts] == _MAGIC
    return ids, has_header


def _rows_by_id(ids: Int64Array, has_header: npt.NDArray[np.bool_]) -> Iterator[tuple[int, Int64Array]]:
    """Rows by the id of their schema, in the order of the first row of each."""
    if has_header.all() and len(ids) and (ids == ids[0]).all():
        yield int(ids[0]), np.arange(len(ids))
        return
    rows = np.flatnonzero(has_header)
    distinct, first = np.unique(ids[rows], return_index=True)
    for schema_id in distinct[np.argsort(first)]:
        yield int(schema_id), rows[ids[rows] == schema_id]


def without_header(values: Array) -> Array:
    """What follows the headers of values, as array of the same type.

    Args:
        values: binary or large_binary, each with a header.
    """
    offsets, rows = bounds(values), len(values)
    # Headers and the rest by turns, as values of one array: their selection copies each rest at once.
    large = pa.types.is_large_binary(values.type)
    parts = np.empty(2 * rows + 1, np.int64 if large else np.int32)
    parts[::2] = offsets
    parts[1::2] = offsets[:-1] + HEADER_SIZE
    buffers = [None, pa.py_buffer(parts.data), values.buffers()[2]]
    both = cast("Array", pa.Array.from_buffers(values.type, 2 * rows, buffers))
    return both.take(int64_array(np.arange(1, 2 * rows, 2, dtype=np.int64)))
