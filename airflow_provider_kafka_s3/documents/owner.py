"""The owner document: the pipeline that lands a topic under one ``topics_dir``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import Document, corrupt, decode
from airflow_provider_kafka_s3.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["Owner", "decode_owner", "read_owner"]


class Owner(Document, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The pipeline that a topic belongs to under one ``topics_dir``.

    Attributes:
        pipeline: its name.
        topic: the Kafka topic.
        released: whether the pipeline has landed nothing and never will: any other pipeline may take the topic.
    """

    pipeline: str
    topic: str
    released: bool = False


def decode_owner(stored: bytes, key: str, where: str, *, topics_dir: str) -> Owner:
    """Decode an owner document.

    Args:
        stored: bytes of the document.
        key: of the document.
        where: its address, for errors.
        topics_dir: of the document.

    Raises:
        CorruptControlError: it is of another topic, or holds an invalid name of a pipeline or topic.
    """
    owner, _ = decode(Owner, stored, where)
    try:
        addresses.validate_pipeline(owner.pipeline)
        if addresses.owner_key(topics_dir, owner.topic) != key:
            raise corrupt(where, f"it is of topic {owner.topic!r}")
    except ConfigurationError as e:
        raise corrupt(where, str(e)) from e
    return owner


def read_owner(store: DurableStore, key: str, *, topics_dir: str) -> tuple[Owner, str] | None:
    """An owner document and its ETag; None if there is none.

    Args:
        store: of the document.
        key: of the document.
        topics_dir: of the document.

    Raises:
        CorruptControlError: see :func:`decode_owner`.
    """
    stored = store.get(key)
    if stored is None:
        return None
    return decode_owner(stored.body, key, store.url(key), topics_dir=topics_dir), stored.etag
