"""Readers of a log whose index or marker is wrong: nothing is hidden, however long the log is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import decode, encode
from airflow_provider_kafka_s3.documents.log_index import LogIndex
from airflow_provider_kafka_s3.documents.marker import Marker, PartitionState
from airflow_provider_kafka_s3.reading import summarized_batches
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from tests.protocol.history import documents_of

PREFIX = addresses.control_prefix("topics", "lake", "events")
HIDDEN = {"status": "abandoned", "release": "debt", "objects": 0, "records": 0, "size": 0}
"""What an index has of a committed batch that it hides."""


@pytest.fixture(params=[3, 10_000], ids=["long", "short"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A log of two hundred batches of two records each, which is a long one or not."""
    monkeypatch.setattr(summarized_batches, "_KEPT", request.param)
    memory = MemoryStore()
    documents = documents_of(
        200, prefix=PREFIX, topics_dir="topics", pipeline="lake", topic="events", topic_id="id", indexed=True
    )
    for key, body, metadata in documents:
        memory.put_new(key, body, metadata=metadata)
    return memory


def snapshot(store: MemoryStore) -> Snapshot:
    """A new one, which has read nothing."""
    log = TopicLog(DurableStore(store, Retrier()), TopicAddress(topics_dir="topics", pipeline="lake", topic="events"))
    return Snapshot(log)


def batches(of: Snapshot, **selection: Any) -> list[int]:
    """The batches of the selected objects."""
    return [one.batch for one in of.objects(**selection)]


def replace(store: MemoryStore, key: str, body: bytes) -> None:
    """Write an object again, as an administrator can."""
    store.delete(key)
    store.put_new(key, body)


def falsify_index(store: MemoryStore, batch: int, **changes: Any) -> None:
    """Change what the index of a hundred batches has of one."""
    first = (batch - 1) // 100 * 100 + 1
    key = addresses.index_key(PREFIX, first, 100)
    stored = store.get(key)
    assert stored is not None
    index = decode(LogIndex, stored.body, key)[0]
    changed = [msgspec.structs.replace(one, **changes) if one.batch == batch else one for one in index.batches]
    replace(store, key, encode(msgspec.structs.replace(index, batches=tuple(changed)), {}))


def falsify_marker(store: MemoryStore, *covered: tuple[int, int]) -> None:
    """Change the offsets that the marker has as landed."""
    key = addresses.marker_key(PREFIX)
    stored = store.get(key)
    assert stored is not None
    marker = decode(Marker, stored.body, key)[0]
    replace(store, key, encode(msgspec.structs.replace(marker, partitions={0: PartitionState(covered=covered)}), {}))


def test_a_named_batch_is_not_hidden_by_the_index(store: MemoryStore) -> None:
    """Asked for alone, and after the snapshot has found its index wrong."""
    falsify_index(store, 50, **HIDDEN)
    assert batches(snapshot(store), batches=[50]) == [50]
    whole = snapshot(store)
    assert batches(whole) == [*range(1, 201)]
    assert batches(whole, batches=[49, 50]) == [49, 50]


def test_the_generation_is_not_that_of_a_wrong_index(store: MemoryStore) -> None:
    """Else records of the present topic would be looked for in another one."""
    falsify_index(store, 200, generation=1)
    one = snapshot(store)
    assert (one.generation, batches(one, offsets={0: (0, 6)})) == (0, [1, 2, 3])
    assert (one.records, one.generation) == (400, 0)


def test_offsets_that_the_marker_lacks_are_not_hidden(store: MemoryStore) -> None:
    """All batches are compared with the marker, which names the repair."""
    falsify_marker(store, (0, 2), (4, 400))
    assert batches(snapshot(store), offsets={0: (0, 6)}) == [1, 2, 3]


def test_offsets_that_only_the_marker_has_are_no_error(store: MemoryStore) -> None:
    """The objects are there; a warning names the repair."""
    falsify_marker(store, (0, 500))
    assert batches(snapshot(store), offsets={0: (390, 450)}) == [196, 197, 198, 199, 200]


@pytest.mark.parametrize("body", [None, b"{}"], ids=["gone", "damaged"])
def test_a_document_of_another_batch_does_not_matter(store: MemoryStore, body: bytes | None) -> None:
    """Readers of old offsets need none of a late batch."""
    key = addresses.plan_key(PREFIX, 197)
    store.delete(key)
    if body is not None:
        store.put_new(key, body)
    assert batches(snapshot(store), offsets={0: (0, 6)}) == [1, 2, 3]


def test_a_generation_that_never_was_has_no_objects(store: MemoryStore) -> None:
    """Below the first one, and above the last one."""
    for generation in (-1, 1):
        assert batches(snapshot(store), offsets={0: (0, 6)}, generation=generation) == []
