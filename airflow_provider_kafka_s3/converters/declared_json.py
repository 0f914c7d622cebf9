"""The converter of JSON values by a schema that the layout declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, int64_array
from airflow_provider_kafka_s3.config import RESCUED, DecimalFormat, OnUnknownFields
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.json_decode import DecodedJson, JsonDecoder
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.converters.surplus_decode import SurplusDecoder
from airflow_provider_kafka_s3.converters.unknown_fields import UnknownFieldCounter
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema, schema_text
from airflow_provider_kafka_s3.schemas.nodes import NULL, Field, Node, Primitive, Record, Union

__all__ = ["DeclaredJsonConverter", "declared_schema", "decoded_group"]

_REMEDY = "correct the declared schema or the producer, or use errors='dead_letter' to set such records aside"


class DeclaredJsonConverter:
    """JSON values with the declared schema.

    Args:
        text: the schema, as Avro's JSON.
        decimal_format: what strings are where the schema has a decimal.
        unknown_fields: what happens to fields that the schema does not have.
        counter: of values with such fields; None: they are not counted.

    Raises:
        ConfigurationError: it is no Avro schema, is recursive, or has a default that does not fit its type.
    """

    def __init__(
        self,
        text: str,
        decimal_format: DecimalFormat = "NUMERIC",
        unknown_fields: OnUnknownFields = "leave_out",
        counter: UnknownFieldCounter | None = None,
    ) -> None:
        node = parse_schema(text)
        landed, landed_text = declared_schema(text, unknown_fields)
        self.schemas = (ValueSchema("the declared schema", landed, landed_text),)
        self._node = landed
        self._rescues = unknown_fields == "rescue"
        self._decoder: JsonDecoder
        if unknown_fields == "leave_out" and counter is None:
            self._decoder = JsonDecoder(node, decimal_format=decimal_format)
        else:
            self._decoder = SurplusDecoder(
                node,
                decimal_format=decimal_format,
                unknown_fields=unknown_fields,
                counter=counter or UnknownFieldCounter(),
            )

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        decoded = self._decoder.decode(values)
        if self._rescues:
            assert isinstance(self._decoder, SurplusDecoder), "it rescues"
            decoded = replace(decoded, values=self._with_rescued(decoded.values, self._decoder.rescued))
        invalid = [
            Invalid(row, f"the value does not have the declared schema ({reason})", _REMEDY)
            for row, reason in sorted(decoded.reasons.items())
        ]
        groups = decoded_group(0, self._node, np.arange(len(values)), decoded)
        return TypedValues(groups, invalid)

    def _with_rescued(self, values: Array, rescued: Mapping[int, bytes]) -> Array:
        """Decoded values with the column of what was rescued."""
        texts: Array = pa.nulls(len(values), pa.string())
        if rescued:
            texts = pa.array([rescued.get(row) for row in range(len(values))], pa.string())
        record = cast("pa.StructArray", values)
        columns = [record.field(number) for number in range(record.type.num_fields)]
        kind = cast("pa.StructType", arrow_type(self._node))
        buffers = cast("Any", [record.buffers()[0]])
        return cast("Array", pa.Array.from_buffers(kind, len(values), buffers, children=[*columns, texts]))


def declared_schema(text: str, unknown_fields: OnUnknownFields) -> tuple[Node, str]:
    """The schema of the landed values, and its text: with ``rescue`` the declared one and the column of rescued fields.

    Raises:
        ConfigurationError: it is no Avro schema, or is no record that the column can be added to.
    """
    node = parse_schema(text)
    if unknown_fields != "rescue":
        return node, schema_text(text)
    declared = json.loads(text)
    if not isinstance(node, Record) or not isinstance(declared.get("fields"), list):
        raise ConfigurationError("unknown_fields='rescue' needs a declared schema of the type record")
    fields = [*declared["fields"], {"name": RESCUED, "type": ["null", "string"], "default": None}]
    landed = schema_text(json.dumps({**declared, "fields": fields}))
    rescued = Field(RESCUED, Union((NULL, Primitive("string"))), default=None, has_default=True)
    return Record(node.name, (*node.fields, rescued)), landed


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
