"""Objects that a topic has given to a table may be gone; all others that are gone are missing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.batch.given_away import begin_table, give_to_table, owning_tables
from airflow_provider_kafka_s3.config import JsonConverter, Layout, Parquet
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.owning_table import OwningTable
from airflow_provider_kafka_s3.exceptions import CorruptControlError, MissingObjectError, UnknownOutcomeError
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.arrow import arrow_batches
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.parquet_dataset import arrow_dataset
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from tests.unit.batch.simulated_topic import Topic

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'
LAYOUT = Layout(topics_dir="lake", format=Parquet(), value_converter=JsonConverter(schema=SCHEMA), errors="dead_letter")


def landed(batches: int = 2) -> Topic:
    """A topic whose batches have an object of values and one of dead letters each."""
    topic = Topic(LAYOUT)
    for number in range(batches):
        topic.append(f'{{"n": {number}}}'.encode(), b"no JSON")
        topic.land(f"run-{number + 1}")
    return topic


def delete(topic: Topic, *batches: int, dead_letters: bool = False) -> list[str]:
    """Delete the object of values of each batch, or that of its dead letters; their keys."""
    kept = {key: ("/_dead_letters/" in key) for key in topic.objects()}
    gone = [key for key, is_dead in sorted(kept.items()) if is_dead == dead_letters]
    for batch in batches:
        topic.bucket.delete(gone[batch - 1])
    return [gone[batch - 1] for batch in batches]


def inspect(pipeline: TopicPipeline, topic: Topic, action: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a run of verify or restore has found given away, and has written again."""
    result = pipeline.run(topic.request("inspected", action=action)).advance()
    verification = getattr(result, "verification", None)
    assert verification is not None
    return verification.given, verification.restored


def values(key: str, body: bytes) -> list[bytes]:
    """The values of an object in Kafka."""
    assert key.endswith(".parquet")
    return [json.dumps(row).encode() for row in pq.read_table(pa.BufferReader(body)).to_pylist()]


def test_an_object_that_was_given_to_a_table_is_neither_missing_nor_restored() -> None:
    """Verify and restore report it; a rerun of its batch succeeds; nothing is written."""
    topic = landed()
    give_to_table(topic.pipeline.log, "lake.orders", 1)
    (gone,) = delete(topic, 1)
    for action in ("verify", "restore"):
        assert inspect(topic.pipeline, topic, action) == ((gone,), ())
    for on_missing in ("fail", "restore"):
        assert topic.land("run-1", on_missing=on_missing).status == "ok"
    assert gone not in topic.objects()
    # Of batch 2, and the dead letters of both.
    assert topic.check(values) == 3


def test_an_object_that_was_given_and_is_there_has_to_be_right() -> None:
    """And a table has no batch that is not resolved."""
    topic = landed()
    first, second = sorted(key for key in topic.objects() if "/_dead_letters/" not in key)
    give_to_table(topic.pipeline.log, "lake.orders", 3)
    other = topic.bucket.get(second)
    assert other is not None
    topic.bucket.delete(first)
    topic.bucket.put_new(first, other.body, metadata=other.metadata)
    with pytest.raises(InvariantViolation) as raised:
        topic.check(values)
    assert any(text.startswith(f"I3 object {first} has other bytes") for text in raised.value.findings)
    assert "I11 table lake.orders has batches up to 3, and [3] are not resolved" in raised.value.findings


@pytest.mark.parametrize(
    ("batch", "dead_letters"),
    [pytest.param(2, False, id="behind the last one that was given"), pytest.param(1, True, id="dead letters")],
)
def test_what_no_table_has_is_missing(batch: int, dead_letters: bool) -> None:
    """A table has objects of values only, and of no later batch."""
    topic = landed()
    give_to_table(topic.pipeline.log, "lake.orders", 1)
    (gone,) = delete(topic, batch, dead_letters=dead_letters)
    with pytest.raises(
        InvariantViolation, match=f"1 findings:\n  I4 object {re.escape(gone)} of resolved batch {batch}"
    ):
        topic.check(values)
    with pytest.raises(MissingObjectError, match=re.escape(gone)):
        inspect(topic.pipeline, topic, "verify")
    with pytest.raises(MissingObjectError, match=re.escape(gone)):
        topic.land(f"run-{batch}")
    assert inspect(topic.pipeline, topic, "restore") == ((), (gone,))


def test_objects_that_were_given_away_are_written_again_on_demand_alone() -> None:
    """A person says so."""
    topic = landed()
    give_to_table(topic.pipeline.log, "lake.orders", 2)
    before = topic.objects()
    gone = delete(topic, 1, 2)
    pipeline = TopicPipeline(
        DurableStore(topic.bucket, Retrier()),
        topic.kafka,
        topics_dir="lake",
        pipeline="orders-to-lake",
        topic="orders",
        unsafe_given_objects=True,
    )
    of_tables, restored = inspect(pipeline, topic, "restore")
    assert (of_tables, sorted(restored)) == ((), gone)
    assert topic.objects() == before


def test_a_marker_is_built_again_without_objects_that_were_given_away() -> None:
    """Their batches are complete: a table has them."""
    topic = landed()
    give_to_table(topic.pipeline.log, "lake.orders", 1)
    delete(topic, 1)
    topic.bucket.delete(addresses.marker_key(topic.pipeline.log.prefix))
    topic.pipeline.repair(start={0: 0})
    assert topic.pipeline.log.require_marker()[0].resolved == ((1, 3),)


def _values(snapshot: Snapshot) -> object:
    return [*arrow_batches(snapshot.log.store, snapshot.objects(), snapshot.schema())]


def _bytes(snapshot: Snapshot) -> object:
    plan, decision, _ = next(snapshot.documents([1]))
    return CommittedObjects(snapshot.log, plan, decision).get(snapshot.objects()[0].entry)


READERS: dict[str, Callable[[Snapshot], object]] = {
    "columns": lambda snapshot: snapshot.schema(),
    "dataset": lambda snapshot: arrow_dataset(snapshot, schema=pa.schema([("n", pa.int64())])).to_table(),
    "bytes": _bytes,
    "batches": _values,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=[*READERS])
def test_readers_name_the_table_that_has_the_rows(reader: Callable[[Snapshot], object]) -> None:
    """In place of a way to write the object again."""
    topic = landed()
    give_to_table(topic.pipeline.log, "lake.orders", 2)
    delete(topic, 1, 2)
    with pytest.raises(MissingObjectError, match=r"was given to table lake\.orders, .* Read its rows from this table"):
        reader(Snapshot(topic.pipeline.log))


def test_a_late_process_takes_nothing_back() -> None:
    """The number never falls, but when another table of the name is made."""
    topic = landed()
    log = topic.pipeline.log
    give_to_table(log, "lake.orders", 2)
    give_to_table(log, "lake.orders", 1)
    give_to_table(log, "other", 1)
    assert [(owner.table, owner.last) for owner in owning_tables(log)] == [("lake.orders", 2), ("other", 1)]
    assert (status := topic.pipeline.status()) is not None
    assert status.tables == {"lake.orders": 2, "other": 1}
    begin_table(log, "lake.orders")
    begin_table(log, "third")
    tables = [(owner.table, owner.last) for owner in owning_tables(log)]
    assert tables == [("lake.orders", 0), ("other", 1), ("third", 0)]
    assert (status := topic.pipeline.status()) is not None
    assert status.tables == {"other": 1}


def test_a_document_of_another_table_is_refused() -> None:
    """Objects of a document that cannot be trusted count as given to nobody."""
    topic = landed()
    log = topic.pipeline.log
    give_to_table(log, "a", 2)
    stored = topic.bucket.get(addresses.table_key(log.prefix, "a"))
    assert stored is not None
    topic.bucket.put_new(addresses.table_key(log.prefix, "b"), stored.body)
    delete(topic, 1)
    with pytest.raises(CorruptControlError, match="it is of table 'a'"):
        inspect(topic.pipeline, topic, "verify")


def test_a_document_that_others_replace_all_the_time_is_a_transient_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not written without a look."""
    log = landed().pipeline.log
    give_to_table(log, "a", 1)
    monkeypatch.setattr(DurableStore, "replace", lambda *_: False)
    with pytest.raises(UnknownOutcomeError, match="the document of table a could not be replaced"):
        give_to_table(log, "a", 2)


@pytest.mark.parametrize("last", [-1, 10**10])
def test_a_number_that_no_batch_has_is_refused(last: int) -> None:
    """Also when a document is read."""
    with pytest.raises(ValueError, match="is out of range"):
        OwningTable(topic="orders", table="t", last=last)
