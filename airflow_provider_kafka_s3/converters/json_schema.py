"""The converter of JSON values with the header of a schema registry, which has their JSON Schemas."""

from __future__ import annotations

from airflow_provider_kafka_s3.arrays import Array, int64_array
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.declared_json import decoded_group
from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.converters.json_schema_nodes import json_schema_node
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.converters.registered import MadeOfSchemas, Unusable
from airflow_provider_kafka_s3.converters.registry_header import REMEDY, rows_by_schema, without_header
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource
from airflow_provider_kafka_s3.schemas.avro_text import node_text

__all__ = ["JsonSchemaRegistryConverter"]


class JsonSchemaRegistryConverter:
    """JSON values whose schemas are in a registry.

    Args:
        schemas: by id.
        decimal_format: what strings are where a schema has a decimal.
    """

    def __init__(self, schemas: SchemaSource, decimal_format: DecimalFormat = "BASE64") -> None:
        self.schemas: list[ValueSchema] = []
        self._format = decimal_format
        self._decoders = MadeOfSchemas(schemas, "JSON", self._make_decoder)

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        by_schema, invalid = rows_by_schema(values)
        groups: list[TypedGroup] = []
        for schema_id, rows in by_schema:
            indexed_decoder = self._decoders.of(schema_id)
            if isinstance(indexed_decoder, Unusable):
                invalid += indexed_decoder.records(rows)
                continue
            index, decoder = indexed_decoder
            schema = self.schemas[index]
            part = values if len(rows) == len(values) else values.take(int64_array(rows))
            decoded = decoder.decode(without_header(part))
            invalid += [
                Invalid(int(rows[row]), f"the value does not have {schema.name} of the registry ({reason})", REMEDY)
                for row, reason in decoded.reasons.items()
            ]
            groups += decoded_group(index, schema.node, rows, decoded)
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _make_decoder(self, registered: RegisteredSchema) -> tuple[int, JsonDecoder]:
        """Index of a schema, and its decoder."""
        node = json_schema_node(registered.text, registered.references, decimal_format=self._format)
        decoder = JsonDecoder(node, decimal_format=self._format, null_is_default=True)
        self.schemas.append(ValueSchema(f"schema {registered.id}", node, node_text(node), registered.versions))
        return len(self.schemas) - 1, decoder
