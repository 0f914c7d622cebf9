"""The converter of JSON values with the header of a schema registry, which has their JSON Schemas."""

from __future__ import annotations

from airflow_provider_kafka_s3.arrays import Array, int64_array
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.declared_json import decoded_group
from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.converters.json_schema_nodes import json_schema_node
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.converters.registry_header import REMEDY, rows_by_schema, without_header
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.schemas.avro import node_text

__all__ = ["JsonSchemaRegistryConverter"]


class JsonSchemaRegistryConverter:
    """JSON values whose schemas are in a registry.

    Args:
        schemas: by id.
        decimal_format: what strings are where a schema has a decimal.
    """

    def __init__(self, schemas: SchemaSource, decimal_format: DecimalFormat = "BASE64") -> None:
        self.schemas: list[ValueSchema] = []
        self._source = schemas
        self._format = decimal_format
        self._decoders: dict[int, tuple[int, JsonDecoder] | str] = {}

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        by_schema, invalid = rows_by_schema(values)
        groups: list[TypedGroup] = []
        for schema_id, rows in by_schema:
            found = self._decoder(schema_id)
            if isinstance(found, str):
                invalid += [Invalid(int(row), found, REMEDY) for row in rows]
                continue
            index, decoder = found
            schema = self.schemas[index]
            part = values if len(rows) == len(values) else values.take(int64_array(rows))
            decoded = decoder.decode(without_header(part))
            invalid += [
                Invalid(int(rows[row]), f"the value does not have {schema.name} of the registry ({reason})", REMEDY)
                for row, reason in decoded.reasons.items()
            ]
            groups += decoded_group(index, schema.node, rows, decoded)
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _decoder(self, schema_id: int) -> tuple[int, JsonDecoder] | str:
        """Index of the schema and its decoder; or why its records are invalid."""
        found = self._decoders.get(schema_id)
        if found is None:
            try:
                found = self._make_decoder(schema_id)
            except RecordError as e:
                found = str(e)
            self._decoders[schema_id] = found
        return found

    def _make_decoder(self, schema_id: int) -> tuple[int, JsonDecoder] | str:
        registered = self._source.schema(schema_id)
        if registered.type != "JSON":
            return f"schema {schema_id} of the registry is one of {registered.type}, not a JSON Schema"
        try:
            node = json_schema_node(registered.text, registered.references, decimal_format=self._format)
            decoder = JsonDecoder(node, decimal_format=self._format, null_is_default=True)
        except ConfigurationError as e:
            return f"schema {schema_id} of the registry cannot be used: {e}"
        self.schemas.append(ValueSchema(f"schema {schema_id}", node, node_text(node), registered.versions))
        return len(self.schemas) - 1, decoder
