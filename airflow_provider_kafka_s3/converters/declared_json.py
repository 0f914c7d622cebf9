"""The converter of JSON values by a schema that the layout declares."""

from __future__ import annotations

import numpy as np

from airflow_provider_kafka_s3.arrays import Array, int64_array
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.schemas.avro import parse_schema, schema_text

__all__ = ["DeclaredJsonConverter"]

_REMEDY = "correct the declared schema or the producer, or use errors='dead_letter' to set such records aside"


class DeclaredJsonConverter:
    """JSON values with the declared schema.

    Args:
        text: the schema, as Avro's JSON.

    Raises:
        ConfigurationError: it is no Avro schema, is recursive, or has a default that does not fit its type.
    """

    def __init__(self, text: str) -> None:
        node = parse_schema(text)
        self.schemas = (ValueSchema("the declared schema", node, schema_text(text)),)
        self._node = node
        self._decoder = JsonDecoder(node)

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        decoded = self._decoder.decode(values)
        invalid = [
            Invalid(row, f"the value does not have the declared schema ({reason})", _REMEDY)
            for row, reason in sorted(decoded.reasons.items())
        ]
        rows = np.flatnonzero(~decoded.bad)
        if not len(rows):
            return TypedValues((), invalid)
        column = decoded.values if not invalid else decoded.values.take(int64_array(rows))
        return TypedValues((TypedGroup(0, rows, column, lambda: encode_datums(column, self._node)),), invalid)
