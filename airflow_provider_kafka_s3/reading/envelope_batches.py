"""Reads envelopes, and values alone, from Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, bounds, contents, number_values, valid_rows
from airflow_provider_kafka_s3.reading.envelopes import (
    ENVELOPE_FIELDS,
    EnvelopeColumns,
    headers_of,
    parsed_headers,
    slices,
    spread,
)
from airflow_provider_kafka_s3.reading.record import Headers

__all__ = ["batch_rows", "envelope_rows"]


def batch_rows(batch: pa.RecordBatch) -> list[Any]:
    """The rows of a batch; those of a single column are its values, text as UTF-8."""
    columns = [_column(column) for column in batch.columns]
    return [*(columns[0] if len(columns) == 1 else zip(*columns, strict=True))]


def envelope_rows(batch: pa.RecordBatch) -> EnvelopeColumns | list[Any]:
    """The envelopes of a batch: columns, or tuples if some have another form."""
    fields: list[Array] = [batch.column(name) for name in ENVELOPE_FIELDS]
    key, value, headers, partition, offset, timestamp = fields
    has_numbers = not (partition.null_count or offset.null_count)
    if not (has_numbers and _is_bytes(key) and _is_bytes(value) and _has_headers(headers)):
        numbers = map(_column, (partition, offset, timestamp))
        return [*zip(_column(key), _column(value), map(parsed_headers, headers.to_pylist()), *numbers, strict=True)]
    return EnvelopeColumns(
        _bytes(key),
        _bytes(value),
        number_values(partition, np.int32).astype(np.int64),
        number_values(offset, np.int64),
        _times(timestamp),
        _headers(headers),
    )


def _column(column: Array) -> Iterable[Any]:
    """The values of a column; timestamps as numbers."""
    if pa.types.is_timestamp(column.type):
        return _times(column)
    return _bytes(column) if _is_bytes(column) else column.to_pylist()


def _is_bytes(column: Array) -> bool:
    kind = column.type
    return pa.types.is_binary(kind) or pa.types.is_string(kind)


def _has_headers(column: Array) -> bool:
    """Whether it has headers as they are written, whose names are not null."""
    if not (isinstance(column, pa.ListArray) and isinstance(items := column.flatten(), pa.StructArray)):
        return False
    if [field.name for field in items.type.fields] != ["key", "value"]:
        return False
    names, values = items.flatten()
    return not names.null_count and pa.types.is_string(names.type) and pa.types.is_binary(values.type)


def _headers(column: Any) -> list[Headers] | None:
    """The headers of each record; None: no record has some."""
    items = column.flatten()
    if not len(items):
        return None
    names, values = items.flatten()
    # Few names are different.
    names = names.dictionary_encode()
    texts = np.array(names.dictionary.to_pylist(), np.object_)[number_values(names.indices, np.int32)].tolist()
    counts = number_values(column.value_lengths().fill_null(0), np.int32).astype(np.int64)
    return headers_of(tuple(zip(texts, _bytes(values), strict=True)), counts)


def _bytes(column: Array) -> list[Any]:
    """The bytes of each value, or None, without a Python call for each."""
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
