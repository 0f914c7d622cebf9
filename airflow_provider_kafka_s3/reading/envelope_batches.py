"""Reads envelopes, and values alone, from Arrow batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, bounds, contents, number_values, valid_rows
from airflow_provider_kafka_s3.reading.envelopes import ENVELOPE_FIELDS, EnvelopeColumns, slices, spread

__all__ = ["batch_rows", "envelope_rows"]


def batch_rows(batch: pa.RecordBatch) -> list[Any]:
    """The rows of a batch; those of a single column are its values, text as UTF-8."""
    columns = [_column(column) for column in batch.columns]
    return [*(columns[0] if len(columns) == 1 else zip(*columns, strict=True))]


def envelope_rows(batch: pa.RecordBatch) -> EnvelopeColumns | list[Any]:
    """The envelopes of a batch: columns, or tuples if some have headers."""
    fields: list[Array] = [batch.column(name) for name in ENVELOPE_FIELDS]
    key, value, headers, partition, offset, timestamp = fields
    has_numbers = not (partition.null_count or offset.null_count)
    if not (has_numbers and _is_bytes(key) and _is_bytes(value) and _is_empty(headers)):
        return [*zip(*map(_column, fields), strict=True)]
    return EnvelopeColumns(
        _bytes(key),
        _bytes(value),
        number_values(partition, np.int32).astype(np.int64),
        number_values(offset, np.int64),
        _times(timestamp),
    )


def _column(column: Array) -> Iterable[Any]:
    """The values of a column; timestamps as numbers, and headers only if a record has some."""
    if pa.types.is_timestamp(column.type):
        return _times(column)
    if _is_bytes(column):
        return _bytes(column)
    return itertools.repeat((), len(column)) if _is_empty(column) else column.to_pylist()


def _is_bytes(column: Array) -> bool:
    kind = column.type
    return pa.types.is_binary(kind) or pa.types.is_string(kind)


def _is_empty(column: Array) -> bool:
    return isinstance(column, pa.ListArray) and not len(column.flatten())


def _bytes(column: Array) -> list[bytes | None]:
    """The bytes of each value, without a Python call for each."""
    ends = bounds(column) - bounds(column)[0]
    if not column.null_count:
        return [*slices(bytes(contents(column)), ends[:-1], ends[1:])]
    rows = np.flatnonzero(valid_rows(column))
    return spread(slices(bytes(contents(column)), ends[rows], ends[rows + 1]), rows, len(column))


def _times(column: Array) -> list[int | None]:
    times: list[int | None] = number_values(column, np.int64).tolist()
    if column.null_count:
        for row in np.flatnonzero(~valid_rows(column)).tolist():
            times[row] = None
    return times
