"""What converters make of the schemas of a registry, each schema once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from airflow_provider_kafka_s3.arrays import Int64Array
from airflow_provider_kafka_s3.converters.port import Invalid
from airflow_provider_kafka_s3.converters.registry_header import REMEDY
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource, SchemaType

__all__ = ["MadeOfSchemas", "Unusable"]

_T = TypeVar("_T")
_NAMES: Final[dict[SchemaType, str]] = {"AVRO": "of Avro", "JSON": "a JSON Schema", "PROTOBUF": "of Protobuf"}

_OF_EIGHT_BYTES: Final = (
    "Registries give no id 0: the header may have an id of eight bytes, as serializers of Apicurio before version 3 "
    "write it; set apicurio.registry.as-confluent=true in the producer, so that it has four"
)


@dataclass(frozen=True)
class Unusable:
    """A schema whose records are invalid.

    Attributes:
        reason: the cause. Dead letters have it, so it is the same wherever the schema is stored.
        remedy: what the user can do.
    """

    reason: str
    remedy: str = REMEDY

    def records(self, rows: Int64Array) -> list[Invalid]:
        """Its records, by their rows."""
        return [Invalid(int(row), self.reason, self.remedy) for row in rows]


class MadeOfSchemas(Generic[_T]):
    """What is made of schemas of one type, or why their records are invalid.

    Args:
        schemas: by id.
        kind: type that the schemas need to have.
        make: makes something of a schema; raises ConfigurationError for one that cannot be used.
    """

    def __init__(self, schemas: SchemaSource, kind: SchemaType, make: Callable[[RegisteredSchema], _T]) -> None:
        self._schemas = schemas
        self._kind = kind
        self._make = make
        self._made: dict[int, _T | Unusable] = {}

    def of(self, schema_id: int) -> _T | Unusable:
        """What is made of a schema, or why its records are invalid.

        Raises:
            TransientError: the registry, or the bucket with the pinned schemas, cannot be read.
        """
        if schema_id not in self._made:
            self._made[schema_id] = self._new(schema_id)
        return self._made[schema_id]

    def address(self, schema_id: int) -> str:
        """Where a schema comes from, for errors."""
        return self._schemas.address(schema_id)

    def _new(self, schema_id: int) -> _T | Unusable:
        try:
            registered = self._schemas.schema(schema_id)
        except RecordError as e:
            return Unusable(str(e) if schema_id else f"{e}. {_OF_EIGHT_BYTES}")
        remedy = f"{REMEDY}; the schema is that of {self.address(schema_id)}"
        if registered.type != self._kind:
            reason = f"schema {schema_id} of the registry is one of {registered.type}, not {_NAMES[self._kind]}"
            return Unusable(reason, remedy)
        try:
            return self._make(registered)
        except ConfigurationError as e:
            return Unusable(f"schema {schema_id} of the registry cannot be used: {e}", remedy)
