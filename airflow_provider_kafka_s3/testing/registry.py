"""A schema registry in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_kafka_s3.exceptions import SchemaNotFoundError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaReference, SchemaType

__all__ = ["SimulatedRegistry"]


class SimulatedRegistry:
    """Schemas by the ids that they are registered under, from 1."""

    def __init__(self) -> None:
        self._schemas: list[RegisteredSchema] = []
        self.requests = 0
        """Number of schemas that were looked up."""

    def register(
        self,
        text: str,
        *,
        type: SchemaType = "AVRO",  # noqa: A002 - the name in the registry's API
        references: Sequence[SchemaReference] = (),
        versions: Mapping[str, int] | None = None,
    ) -> int:
        """Register a schema and return its id.

        Args:
            text: of the schema.
            type: of the schema.
            references: all schemas that it refers to.
            versions: its version per subject; None: the next one of the only subject.
        """
        number = len(self._schemas) + 1
        schema = RegisteredSchema(
            id=number,
            type=type,
            text=text,
            references=tuple(references),
            versions={"value": number} if versions is None else dict(versions),
        )
        self._schemas.append(schema)
        return number

    def frame(self, schema_id: int, datum: bytes) -> bytes:
        """A value as serializers write it: a zero byte, the id, the datum."""
        return b"\0" + schema_id.to_bytes(4, "big") + datum

    def schema(self, schema_id: int) -> RegisteredSchema:
        """See :class:`~airflow_provider_kafka_s3.registry.schemas.SchemaSource`."""
        self.requests += 1
        if not 0 < schema_id <= len(self._schemas):
            raise SchemaNotFoundError(f"the registry has no schema {schema_id}; register it")
        return self._schemas[schema_id - 1]

    def address(self, schema_id: int) -> str:
        """See :class:`~airflow_provider_kafka_s3.registry.schemas.SchemaSource`."""
        return f"http://registry/schemas/ids/{schema_id}"
