"""Bytes of each row of columns, as estimate for splitting rows: by records alone, not by the batches they came in."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, valid_rows

__all__ = ["row_sizes"]


def row_sizes(batch: pa.RecordBatch) -> Int64Array:
    """Bytes that the values of each row take in Arrow's buffers, without validity; a null value takes none.

    Args:
        batch: columns of any types but unions and views.

    Returns:
        One size per row. It depends on the values of that row alone.
    """
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _sizes(column)
    return sizes


def _sizes(array: Array) -> Int64Array:
    sizes = _sizes_if_valid(array)
    if array.null_count == 0 or pa.types.is_null(array.type):
        return sizes
    # What a null value has in the other buffers is undefined, and may differ between copies of an array.
    return cast("Int64Array", np.where(valid_rows(array), sizes, 0))


def _sizes_if_valid(array: Array) -> Int64Array:
    kind: Any = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        sizes = np.zeros(len(array), np.int64)
        for i in range(kind.num_fields):
            sizes += _sizes(cast("Any", array).field(i))
        return sizes
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items = cast("Any", array).values.slice(array.offset * size, len(array) * size)
        return cast("Int64Array", _sizes(items).reshape(len(array), size).sum(axis=1))
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_list(kind)
    width = 8 if large else 4
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or (large and not pa.types.is_large_list(kind)):
        return np.diff(_offsets(array, width)) + width
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = _offsets(array, width)
        ends = np.zeros(offsets[-1] - offsets[0] + 1, np.int64)
        np.cumsum(_sizes(cast("Any", array).values.slice(offsets[0], offsets[-1] - offsets[0])), out=ends[1:])
        return cast("Int64Array", np.diff(ends[offsets - offsets[0]]) + width)
    return np.full(len(array), max(1, kind.bit_width // 8), np.int64)


def _offsets(array: Array, width: int) -> Int64Array:
    """The first item of each value, and the end of the last one."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array) + 1, np.int64)
    whole = np.frombuffer(memoryview(buffer).toreadonly(), np.dtype(f"<i{width}"))
    return whole[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)
