"""The converter of Avro values with the header of a schema registry."""

from __future__ import annotations

from functools import partial

import numpy as np

from airflow_provider_kafka_s3.arrays import Array, int64_array
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.converters.registry_header import HEADER_SIZE, REMEDY, rows_by_schema, without_header
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.schemas.avro import is_recursive, parse_schema, schema_text

__all__ = ["AvroRegistryConverter"]


class AvroRegistryConverter:
    """Avro values whose schemas are in a registry.

    Args:
        schemas: by id.
    """

    def __init__(self, schemas: SchemaSource) -> None:
        self.schemas: list[ValueSchema] = []
        self._source = schemas
        self._decoders: dict[int, tuple[int, AvroDecoder] | str] = {}

    def convert(self, values: Array, *, decode: bool) -> TypedValues:
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        by_schema, invalid = rows_by_schema(values)
        groups = []
        for schema_id, rows in by_schema:
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                invalid += [Invalid(int(row), decoder, REMEDY) for row in rows]
                continue
            index, avro = decoder
            every = len(rows) == len(values)
            part = values if every else values.take(int64_array(rows))
            if decode and is_recursive(self.schemas[index].node):
                raise ConfigurationError(
                    f"{self.schemas[index].name} is recursive, so its values have no columns; use format='avro'"
                )
            decoded = avro.decode(part, HEADER_SIZE) if decode else None
            bad = decoded.bad if decoded is not None else avro.check(part, HEADER_SIZE)
            column = None if decoded is None else decoded.values
            if not bad.any():
                groups.append(TypedGroup(index, rows, column, partial(without_header, part)))
                continue
            reason = f"the value is not Avro of {self.schemas[index].name}"
            invalid += [Invalid(int(row), reason, REMEDY) for row in rows[bad]]
            if not bad.all():
                good = int64_array(np.flatnonzero(~bad))
                rest = None if column is None else column.take(good)
                groups.append(TypedGroup(index, rows[~bad], rest, partial(without_header, part.take(good))))
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _decoder(self, schema_id: int) -> tuple[int, AvroDecoder] | str:
        """Index of the schema and its decoder; or why its records are invalid."""
        found = self._decoders.get(schema_id)
        if found is None:
            try:
                found = self._make_decoder(schema_id)
            except RecordError as e:
                found = str(e)
            self._decoders[schema_id] = found
        return found

    def _make_decoder(self, schema_id: int) -> tuple[int, AvroDecoder] | str:
        registered = self._source.schema(schema_id)
        if registered.type != "AVRO":
            return f"schema {schema_id} of the registry is one of {registered.type}, not of Avro"
        references = [reference.text for reference in registered.references]
        try:
            node = parse_schema(registered.text, references)
            text = schema_text(registered.text, references)
        except ConfigurationError as e:
            return f"schema {schema_id} of the registry cannot be used: {e}"
        self.schemas.append(ValueSchema(f"schema {schema_id}", node, text, registered.versions))
        return len(self.schemas) - 1, AvroDecoder(node)
