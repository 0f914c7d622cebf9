"""The converter of JSON values by a schema that the layout declares."""

from __future__ import annotations

import numpy as np

from airflow_provider_kafka_s3.arrays import Array, Int64Array, int64_array
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.json_decode import DecodedJson, JsonDecoder
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.schemas.avro import parse_schema, schema_text
from airflow_provider_kafka_s3.schemas.nodes import Node

__all__ = ["DeclaredJsonConverter", "decoded_group"]

_REMEDY = "correct the declared schema or the producer, or use errors='dead_letter' to set such records aside"


class DeclaredJsonConverter:
    """JSON values with the declared schema.

    Args:
        text: the schema, as Avro's JSON.
        decimal_format: what strings are where the schema has a decimal.

    Raises:
        ConfigurationError: it is no Avro schema, is recursive, or has a default that does not fit its type.
    """

    def __init__(self, text: str, decimal_format: DecimalFormat = "NUMERIC") -> None:
        node = parse_schema(text)
        self.schemas = (ValueSchema("the declared schema", node, schema_text(text)),)
        self._node = node
        self._decoder = JsonDecoder(node, decimal_format=decimal_format)

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        decoded = self._decoder.decode(values)
        invalid = [
            Invalid(row, f"the value does not have the declared schema ({reason})", _REMEDY)
            for row, reason in sorted(decoded.reasons.items())
        ]
        groups = decoded_group(0, self._node, np.arange(len(values)), decoded)
        return TypedValues(groups, invalid)


def decoded_group(schema: int, node: Node, rows: Int64Array, decoded: DecodedJson) -> list[TypedGroup]:
    """The group of the values of a schema that could be decoded; none if there are none.

    Args:
        schema: its index.
        node: the schema.
        rows: of the decoded values in the batch.
        decoded: the values, and which of them are bad.
    """
    good = np.flatnonzero(~decoded.bad)
    if not len(good):
        return []
    values = decoded.values if len(good) == len(rows) else decoded.values.take(int64_array(good))
    return [TypedGroup(schema, rows[good], values, lambda: encode_datums(values, node))]
