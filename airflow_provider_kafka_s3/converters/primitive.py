"""The converters of values without fields: bytes, and text."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents, int64_array
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.nodes import Primitive

__all__ = ["BytesValueConverter", "StringValueConverter", "invalid_text"]

_REMEDY: Final = "use the converter 'bytes', or errors='dead_letter' to set such records aside"


class BytesValueConverter:
    """Values as bytes."""

    def __init__(self) -> None:
        self.schemas = (_schema("bytes"),)

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding costs nothing
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        return TypedValues(_groups(self.schemas[0], np.arange(len(values)), values.cast(pa.binary())), ())


class StringValueConverter:
    """Values as text; those that are not UTF-8 are invalid."""

    def __init__(self) -> None:
        self.schemas = (_schema("string"),)

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        bad = invalid_text(values)
        invalid = [Invalid(row, f"the value is not text in UTF-8 (byte {at})", _REMEDY) for row, at in bad]
        if not bad:
            return TypedValues(_groups(self.schemas[0], np.arange(len(values)), values.cast(pa.string())), ())
        rows = np.delete(np.arange(len(values)), [row for row, _ in bad])
        return TypedValues(_groups(self.schemas[0], rows, values.take(int64_array(rows)).cast(pa.string())), invalid)


def invalid_text(values: Array) -> list[tuple[int, int]]:
    """The rows of a binary or large_binary array without nulls that are not UTF-8, and the first wrong byte of each."""
    try:
        values.cast(pa.large_string() if pa.types.is_large_binary(values.type) else pa.string())
    except pa.ArrowInvalid:
        pass
    else:
        return []
    ends, data, bad = bounds(values), contents(values), []
    for row in range(len(values)):
        try:
            str(data[ends[row] - ends[0] : ends[row + 1] - ends[0]], "utf-8")
        except UnicodeDecodeError as e:
            bad.append((row, e.start))
    return bad


def _schema(name: str) -> ValueSchema:
    node = Primitive(name)
    return ValueSchema(name, node, node_text(node))


def _groups(schema: ValueSchema, rows: Int64Array, values: Array) -> list[TypedGroup]:
    return [TypedGroup(0, rows, values, lambda: encode_datums(values, schema.node))] if len(rows) else []
