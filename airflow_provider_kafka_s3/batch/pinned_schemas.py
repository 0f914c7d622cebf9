"""Schemas that never change once a record of the topic was decoded with them.

A registry may be rolled back, restored or replaced, and the same id then names another schema; the version of a schema
may change, too. Objects have to come out the same whenever a slice is read again. So the first process that meets an id
stores its schema beside the batches, create-only, and from then on only the stored one is used.
"""

from __future__ import annotations

from typing import Final

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode, write_stamp
from airflow_provider_kafka_s3.documents.pinned_schema import PinnedSchema, decode_pinned_schema
from airflow_provider_kafka_s3.exceptions import ConfigurationError, SchemaNotFoundError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["NoRegistry", "PinnedSchemas"]

_REMEMBERED: Final = 10_000
"""Ids without a schema that are remembered. The first bytes of records that no serializer wrote can be any number."""


class NoRegistry:
    """A source without schemas, for processes that read only what is pinned already."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Refuse.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"schema {schema_id} is not stored beside the batches yet, and no schema registry is given; name the "
            f"connection of the registry by registry_conn_id (--registry-conn-id)"
        )

    def address(self, schema_id: int) -> str:  # noqa: ARG002 - there is none
        """See SchemaSource."""
        return "no registry"


class PinnedSchemas:
    """The schemas of one topic of a pipeline. Each is read once from the store, or pinned, and then kept in memory.

    An id that the registry does not have is not stored: a schema may still be registered under it. This object only
    remembers it, so that many records with such an id cost one request.

    Any number of threads may share it.
    """

    def __init__(self, store: DurableStore, prefix: str, registry: SchemaSource) -> None:
        """Create a handle; nothing is read or written yet.

        Args:
            store: the bucket.
            prefix: of the topic's control documents, see :func:`~.documents.addresses.control_prefix`.
            registry: gets a request for each id that is not stored yet.
        """
        self._store = store
        self._prefix = prefix
        self._registry = registry
        self._known: dict[int, RegisteredSchema] = {}
        self._absent: dict[int, str] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema that records with this id are decoded with.

        Raises:
            SchemaNotFoundError: it is not stored, and the registry does not have it.
            RecordError: records cannot be decoded with it.
            CorruptControlError: the stored document is invalid.
            AccessDeniedError: the registry or the store refuses the login.
            TransientError: the registry or the store gave no usable answer.
        """
        registered = self._known.get(schema_id)
        if registered is None:
            if schema_id in self._absent:
                raise SchemaNotFoundError(self._absent[schema_id])
            registered = self._known[schema_id] = self._read_or_pin(schema_id)
        return registered

    def address(self, schema_id: int) -> str:
        """URL of the stored schema."""
        return self._store.url(addresses.schema_key(self._prefix, schema_id))

    def _read_or_pin(self, schema_id: int) -> RegisteredSchema:
        key = addresses.schema_key(self._prefix, schema_id)
        stored = self._store.get(key)
        if stored is not None:
            body = stored.body
        else:
            try:
                registered = self._registry.schema(schema_id)
            except SchemaNotFoundError as e:
                if len(self._absent) >= _REMEMBERED:
                    self._absent.clear()
                self._absent[schema_id] = str(e)
                raise
            body = self._store.create(key, encode(PinnedSchema(schema=registered), write_stamp()))
        return decode_pinned_schema(body, schema_id, self._store.url(key))
