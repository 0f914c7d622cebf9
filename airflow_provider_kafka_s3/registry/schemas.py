"""Schemas, as a registry has them under their ids."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

__all__ = ["RegisteredSchema", "SchemaReference", "SchemaSource", "SchemaType"]

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


class SchemaReference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema that another one refers to.

    Attributes:
        name: that the other schema uses: a full name in Avro, a path of a file in Protobuf, a URL in JSON Schema.
        subject: of the schema.
        version: of the schema in its subject.
        text: of the schema.
    """

    name: str
    subject: str
    version: int
    text: str


class RegisteredSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema and everything that is needed to decode records with it.

    Attributes:
        id: that records name it by.
        type: of the schema.
        text: of the schema; of Protobuf either a ``.proto`` file, or a ``FileDescriptorProto`` in base64.
        references: all schemas that it refers to, directly or by way of others, each name once; a schema comes after
            those that it refers to.
        versions: highest version of the schema per subject. It is not a function of the id: a schema that is deleted
            and registered again keeps its id and gets another version.
    """

    id: int
    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()
    versions: dict[str, int] = {}


class SchemaSource(Protocol):
    """Schemas by their ids.

    Such as :class:`~airflow_provider_kafka_s3.registry.client.RegistryClient`, and
    :class:`~airflow_provider_kafka_s3.batch.pinned_schemas.PinnedSchemas`.
    """

    def schema(self, schema_id: int) -> RegisteredSchema:
        """A schema by its id.

        Raises:
            RecordError: there is no schema of this id that records can be decoded with.
        """
        ...

    def address(self, schema_id: int) -> str:
        """Where a schema comes from, for errors."""
        ...
