"""The document of a table of a topic: up to which batch it owns the objects, and may delete them."""

from __future__ import annotations

from airflow_provider_kafka_s3.documents.codec import MAX_BATCH, Document

__all__ = ["OwningTable"]


class OwningTable(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a topic, whose engines may delete the objects that it owns.

    Attributes:
        topic: the Kafka topic.
        table: name of the table, without its catalog.
        last: the objects of values of the batches up to this number are given to it; 0: none are, or not yet.
    """

    topic: str
    table: str
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.last <= MAX_BATCH:
            raise ValueError(f"batch {self.last} is out of range")
