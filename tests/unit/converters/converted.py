"""Values of a schema registry that are converted, with the checks of every conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.port import TypedValues, ValueConverter
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from tests.avro_values import column_values

__all__ = ["convert"]


def convert(
    converter: ValueConverter,
    *values: bytes,
    large: bool = False,
    comparable: Callable[[Any], Any] = column_values,
) -> TypedValues:
    """Convert values; every row is in one place, and columns and datums are valid and equal.

    Args:
        converter: of the values.
        values: with the header of the registry.
        large: whether the array has offsets of 64 bits.
        comparable: an array -> what is equal for columns and datums.
    """
    typed = converter.convert(pa.array(values, pa.large_binary() if large else pa.binary()), decode=True)
    rows = sorted([int(row) for group in typed.groups for row in group.rows] + [i.row for i in typed.invalid])
    assert rows == list(range(len(values)))
    for group in typed.groups:
        assert group.values is not None
        group.values.validate(full=True)
        decoded = AvroDecoder(parse_schema(converter.schemas[group.schema].text)).decode(group.datums())
        assert not decoded.bad.any()
        assert repr(comparable(decoded.values)) == repr(comparable(group.values))
    return typed
