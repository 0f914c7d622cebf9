"""The pinned schema: what all records of a topic with one schema id are decoded with."""

from __future__ import annotations

from airflow_provider_kafka_s3.documents.codec import Document, corrupt, decode
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema

__all__ = ["PinnedSchema", "decode_pinned_schema"]


class PinnedSchema(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema, as the registry had it when the topic's first record with its id was decoded.

    Attributes:
        schema: with the schemas that it refers to.
    """

    schema: RegisteredSchema


def decode_pinned_schema(stored: bytes, schema_id: int, where: str) -> RegisteredSchema:
    """Decode the document of a schema.

    Args:
        stored: bytes of the document.
        schema_id: that the document has to be of.
        where: its address, for errors.

    Raises:
        CorruptControlError: it is invalid, or of another schema.
    """
    document, _ = decode(PinnedSchema, stored, where)
    if document.schema.id != schema_id:
        raise corrupt(where, f"it is of schema {document.schema.id}")
    return document.schema
