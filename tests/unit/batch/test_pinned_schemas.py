"""Pinned schemas: records with one id are decoded with one schema for ever, whatever becomes of the registry."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.pinned_schemas import PinnedSchemas
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode, write_stamp
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.pinned_schema import PinnedSchema
from airflow_provider_kafka_s3.exceptions import (
    CorruptControlError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    UnsupportedFormatError,
)
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaReference
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.topic_state import TopicState

PREFIX = addresses.control_prefix("topics", "pipeline", "events")
KEY = f"{PREFIX}schemas/7.json"
SCHEMA = RegisteredSchema(
    id=7,
    type="PROTOBUF",
    text='syntax = "proto3"; // ü "\n',
    references=(SchemaReference(name="a/b.proto", subject="b", version=3, text="message B {}"),),
    versions={"events-value": 2, "other": 1},
)


class Registry:
    """Schemas by id.

    Attributes:
        schemas: what it has.
        requests: ids that were asked for.
        error: raised instead of an answer.
    """

    def __init__(self, *schemas: RegisteredSchema) -> None:
        self.schemas = {schema.id: schema for schema in schemas}
        self.requests: list[int] = []
        self.error: Exception | None = None

    def schema(self, schema_id: int) -> RegisteredSchema:
        """See SchemaSource."""
        self.requests.append(schema_id)
        if self.error is not None:
            raise self.error
        if schema_id not in self.schemas:
            raise SchemaNotFoundError(f"schema {schema_id} is not in the registry")
        return self.schemas[schema_id]

    def address(self, schema_id: int) -> str:
        """See SchemaSource."""
        return f"http://registry/{schema_id}"


@pytest.fixture
def store() -> DurableStore:
    """An empty bucket."""
    return DurableStore(MemoryStore(), Retrier(RetryPolicy(max_retries=0)))


def stored(store: DurableStore, key: str = KEY) -> bytes:
    """The bytes of a document."""
    found = store.get(key)
    assert found is not None
    return found.body


def test_the_first_who_meets_an_id_stores_its_schema(store: DurableStore) -> None:
    """Whole, beside the batches, as a control document; others need no registry for it."""
    assert PinnedSchemas(store, PREFIX, Registry(SCHEMA)).schema(7) == SCHEMA
    assert [info.key for info in store.list("")] == [KEY]
    other = Registry()
    assert PinnedSchemas(store, PREFIX, other).schema(7) == SCHEMA
    assert other.requests == []
    TopicState("events").add(KEY.removeprefix(PREFIX), stored(store))


def test_a_schema_never_changes_once_it_is_stored(store: DurableStore) -> None:
    """Neither its text nor its version, though the registry was restored and the id names another schema."""
    PinnedSchemas(store, PREFIX, Registry(SCHEMA)).schema(7)
    before = stored(store)
    changed = RegisteredSchema(id=7, type="AVRO", text='"string"', versions={"events-value": 9})
    assert PinnedSchemas(store, PREFIX, Registry(changed)).schema(7) == SCHEMA
    assert stored(store) == before


def test_of_two_who_meet_an_id_at_once_both_use_what_is_stored(store: DurableStore) -> None:
    """The second one's request for the schema got another answer."""
    changed = RegisteredSchema(id=7, type="AVRO", text='"string"')

    class Slow(Registry):
        def schema(self, schema_id: int) -> RegisteredSchema:
            assert PinnedSchemas(store, PREFIX, Registry(SCHEMA)).schema(7) == SCHEMA
            return super().schema(schema_id)

    late = PinnedSchemas(store, PREFIX, Slow(changed))
    assert late.schema(7) == SCHEMA
    assert late.schema(7) == SCHEMA


def test_each_schema_is_read_once(store: DurableStore) -> None:
    """After that it is in memory: not even the store gets a request."""
    registry = Registry(SCHEMA)
    pinned = PinnedSchemas(store, PREFIX, registry)
    first = pinned.schema(7)
    assert isinstance(store.store, MemoryStore)
    store.store.put_if_match(KEY, b"other", etag=store.head(KEY).etag)  # type: ignore[union-attr]
    assert pinned.schema(7) is first
    assert registry.requests == [7]


def test_an_id_without_a_schema_is_remembered_and_not_stored(store: DurableStore) -> None:
    """Many records with it cost one request; a schema may still be registered for the next task."""
    registry = Registry()
    pinned = PinnedSchemas(store, PREFIX, registry)
    for _ in range(3):
        with pytest.raises(SchemaNotFoundError, match="schema 7 is not in the registry"):
            pinned.schema(7)
    assert (registry.requests, store.list("")) == ([7], ())
    registry.schemas[7] = SCHEMA
    assert PinnedSchemas(store, PREFIX, registry).schema(7) == SCHEMA


def test_a_registry_that_is_down_is_asked_again(store: DurableStore) -> None:
    """Nothing is remembered of it."""
    registry = Registry(SCHEMA)
    pinned = PinnedSchemas(store, PREFIX, registry)
    registry.error = RegistryUnavailableError("down")
    with pytest.raises(RegistryUnavailableError):
        pinned.schema(7)
    assert store.list("") == ()
    registry.error = None
    assert pinned.schema(7) == SCHEMA


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'"string"',
        encode(PinnedSchema(schema=SCHEMA), write_stamp()).replace(b"message B", b"message C"),
        encode(PinnedSchema(schema=RegisteredSchema(id=8, type="AVRO", text="")), write_stamp()),
        encode(Owner(pipeline="pipeline", topic="events"), write_stamp()),
    ],
)
def test_a_document_that_was_changed_is_not_used(store: DurableStore, body: bytes) -> None:
    """Nor replaced by what the registry has: objects were made with what it held."""
    store.create(KEY, body)
    registry = Registry(SCHEMA)
    with pytest.raises(CorruptControlError, match=KEY):
        PinnedSchemas(store, PREFIX, registry).schema(7)
    assert (stored(store), registry.requests) == (body, [])


def test_a_document_of_a_later_version_is_told_from_a_corrupt_one(store: DurableStore) -> None:
    """A type that this version does not have."""
    later = RegisteredSchema(id=7, type="XML", text="")  # type: ignore[arg-type]
    store.create(KEY, encode(PinnedSchema(schema=later), {**write_stamp(), "version": "999"}))
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        PinnedSchemas(store, PREFIX, Registry()).schema(7)
