"""The converter of Avro values with the header of a schema registry."""

from __future__ import annotations

from functools import partial

import numpy as np

from airflow_provider_kafka_s3.arrays import Array, contents, int64_array
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.converters.registered import MadeOfSchemas, Unusable
from airflow_provider_kafka_s3.converters.registry_header import HEADER_SIZE, REMEDY, rows_by_schema, without_header
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource
from airflow_provider_kafka_s3.schemas.avro import parse_schema, schema_text
from airflow_provider_kafka_s3.schemas.nodes import is_recursive

__all__ = ["AvroRegistryConverter"]


class AvroRegistryConverter:
    """Avro values whose schemas are in a registry.

    Args:
        schemas: by id.
    """

    def __init__(self, schemas: SchemaSource) -> None:
        self.schemas: list[ValueSchema] = []
        self._indices = MadeOfSchemas(schemas, "AVRO", self._add_schema)
        self._decoders: dict[int, AvroDecoder] = {}

    def convert(self, values: Array, *, decode: bool) -> TypedValues:
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        by_schema, invalid = rows_by_schema(values)
        groups = []
        for schema_id, rows in by_schema:
            index = self._indices.of(schema_id)
            if isinstance(index, Unusable):
                invalid += index.records(rows)
                continue
            avro = self._decoder(index)
            every = len(rows) == len(values)
            part = values if every else values.take(int64_array(rows))
            if decode and is_recursive(self.schemas[index].node):
                raise ConfigurationError(
                    f"{self.schemas[index].name} is recursive, so its values have no columns; use format='avro'. The "
                    f"schema is that of {self._indices.address(schema_id)}"
                )
            decoded = avro.decode(part, HEADER_SIZE) if decode else None
            bad = decoded.bad if decoded is not None else avro.check(part, HEADER_SIZE)
            column = None if decoded is None else decoded.values
            if not bad.any():
                groups.append(TypedGroup(index, rows, column, partial(without_header, part)))
                continue
            invalid += [
                Invalid(int(rows[place]), self._reason(index, part, int(place)), REMEDY)
                for place in np.flatnonzero(bad)
            ]
            if not bad.all():
                good = int64_array(np.flatnonzero(~bad))
                good_values = None if column is None else column.take(good)
                groups.append(TypedGroup(index, rows[~bad], good_values, partial(without_header, part.take(good))))
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _reason(self, index: int, values: Array, row: int) -> str:
        """Why a value of a schema is invalid."""
        fault = self._decoder(index).fault(bytes(contents(values.slice(row, 1)))[HEADER_SIZE:])
        name = self.schemas[index].name
        if fault is not None and fault.is_avro:
            return f"the value of {name} is out of range: {fault}"
        return f"the value is not Avro of {name}: {fault}"

    def _decoder(self, index: int) -> AvroDecoder:
        if index not in self._decoders:
            self._decoders[index] = AvroDecoder(self.schemas[index].node)
        return self._decoders[index]

    def _add_schema(self, registered: RegisteredSchema) -> int:
        """The index of a schema."""
        references = [reference.text for reference in registered.references]
        node = parse_schema(registered.text, references)
        text = schema_text(registered.text, references)
        self.schemas.append(ValueSchema(f"schema {registered.id}", node, text, registered.versions))
        return len(self.schemas) - 1
