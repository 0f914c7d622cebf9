"""Records of a real broker between two offsets: all of them, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.arrays import RECORD_SCHEMA
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    DataLossError,
    KafkaUnavailableError,
    TopicNotFoundError,
)
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka.records import read_records
from dev.kafka_broker import KafkaBroker, Message
from dev.waiting import wait_until

MakeTopic = Callable[..., str]
Read = Callable[..., list[tuple[int, bytes | None]]]


@pytest.fixture
def read(kafka_config: dict[str, object]) -> Read:
    """Read a range of partition 0: ``[(offset, value), ...]``."""

    def read(topic: str, start: int, end: int, **settings: Any) -> list[tuple[int, bytes | None]]:
        arguments = {"isolation": "read_committed", "timeout": 20.0, **settings}
        batches = list(read_records(kafka_config, topic, 0, start, end, **arguments))
        assert all(b.num_rows and b.schema == RECORD_SCHEMA for b in batches)
        table = pa.Table.from_batches(batches, RECORD_SCHEMA)
        return list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))

    return read


def messages(*values: str) -> list[Message]:
    """Records of partition 0."""
    return [Message(v.encode(), partition=0) for v in values]


def test_a_range_gives_its_records_and_no_others(kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read) -> None:
    """From start to end, end not included."""
    topic = make_topic()
    kafka_broker.produce(topic, messages(*"abcdef"))

    assert read(topic, 0, 6) == list(enumerate([b"a", b"b", b"c", b"d", b"e", b"f"]))
    assert read(topic, 2, 4) == [(2, b"c"), (3, b"d")]
    assert read(topic, 3, 3) == []


def test_timestamps_and_nulls_pass_unchanged(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, kafka_config: dict[str, object]
) -> None:
    """Milliseconds as produced; a tombstone is null, an empty value is empty; no timestamp is -1."""
    topic = make_topic()
    kafka_broker.produce(
        topic,
        [Message(None, partition=0, timestamp=1), Message(b"", partition=0, timestamp=1_700_000_000_000)],
    )

    (batch,) = read_records(kafka_config, topic, 0, 0, 2, isolation="read_committed")

    assert batch.to_pydict() == {"offset": [0, 1], "timestamp": [1, 1_700_000_000_000], "value": [None, b""]}


def test_a_large_range_comes_in_bounded_batches(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, kafka_config: dict[str, object]
) -> None:
    """No batch is much larger than 8 MiB plus one fetch, whatever the size of the records; all offsets in order."""
    topic = make_topic()
    kafka_broker.produce(topic, (Message(b"x" * 100_000, partition=0) for _ in range(300)))

    batches = list(read_records(kafka_config, topic, 0, 0, 300, isolation="read_committed"))

    assert [o for b in batches for o in b.column("offset").to_pylist()] == list(range(300))
    assert max(b.nbytes for b in batches) < 24 * 1024 * 1024


def test_only_committed_records_are_read(kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read) -> None:
    """Vector V-T1: 10 of 15 records, though the range holds 18 offsets; all 15 uncommitted."""
    topic = make_topic()
    for commit in (True, False, True):
        kafka_broker.produce_transaction(topic, messages(*"abcde"), commit=commit)

    committed = read(topic, 0, 18)

    assert [o for o, _ in committed] == [0, 1, 2, 3, 4, 12, 13, 14, 15, 16]
    assert len(read(topic, 0, 18, isolation="read_uncommitted")) == 15


def test_a_range_that_ends_in_markers_is_complete(kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read) -> None:
    """At the end of the partition, before other records, and a range of nothing but a marker."""
    topic = make_topic()
    kafka_broker.produce_transaction(topic, messages("a", "b"))
    kafka_broker.produce_transaction(topic, messages("never"), commit=False)

    assert read(topic, 0, 5) == [(0, b"a"), (1, b"b")]
    assert read(topic, 2, 3) == []
    assert read(topic, 2, 5) == []

    kafka_broker.produce(topic, messages("c"))

    assert read(topic, 0, 5) == [(0, b"a"), (1, b"b")]
    assert read(topic, 2, 6) == [(5, b"c")]


def test_a_range_beyond_an_open_transaction_is_refused_and_not_shortened(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read
) -> None:
    """Transient, since the transaction will end; read uncommitted it is all there."""
    topic = make_topic()
    kafka_broker.produce(topic, messages("a"))

    with kafka_broker.open_transaction(topic, messages("b", "c")) as transaction:
        with pytest.raises(KafkaUnavailableError, match="open transaction"):
            read(topic, 0, 3, timeout=1.0)
        assert len(read(topic, 0, 3, isolation="read_uncommitted")) == 3
        assert read(topic, 0, 1) == [(0, b"a")]
        transaction.commit_transaction()

    assert len(read(topic, 0, 3)) == 3


def test_deleted_records_are_a_data_loss_that_names_them(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read
) -> None:
    """Topic, partition, the missing offsets and what there is; that can be read."""
    topic = make_topic()
    kafka_broker.produce(topic, messages(*"abcdef"))
    kafka_broker.delete_records(topic, {0: 4})

    with pytest.raises(DataLossError, match=rf"{topic}' partition 0: offsets \[1, 4\).*has \[4, 6\)"):
        read(topic, 1, 6)
    assert read(topic, 4, 6) == [(4, b"e"), (5, b"f")]


def test_records_deleted_while_they_are_read_are_a_data_loss(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, kafka_config: dict[str, object]
) -> None:
    """A range is never silently continued after a gap that retention made during the read."""
    topic = make_topic()
    kafka_broker.produce(topic, (Message(b"x" * 50_000, partition=0) for _ in range(1000)))
    # A small buffer, so that most of the range is still in the broker when its records go.
    small = {**kafka_config, "queued.max.messages.kbytes": 1024, "fetch.message.max.bytes": 100_000}
    batches = read_records(small, topic, 0, 0, 1000, isolation="read_committed")
    got = next(batches).num_rows

    kafka_broker.delete_records(topic, {0: 990})

    with pytest.raises(DataLossError, match=r"990\)"):
        got += sum(b.num_rows for b in batches)
    assert got < 990


def test_offsets_beyond_the_end_are_a_data_loss(kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read) -> None:
    """Planned offsets that the log does not have any more: it was truncated, or the topic created again."""
    topic = make_topic()
    kafka_broker.produce(topic, messages(*"abc"))

    with pytest.raises(DataLossError, match=r"offsets \[3, 9\).*created again"):
        read(topic, 0, 9, timeout=1.0)
    with pytest.raises(DataLossError, match=r"offsets \[5, 9\)"):
        read(topic, 5, 9, timeout=1.0)


def test_compacted_records_are_no_loss(kafka_broker: KafkaBroker, make_topic: MakeTopic, read: Read) -> None:
    """Compaction leaves holes at the start, in the middle and at the end of a range: it is complete all the same."""
    eager = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    topic = make_topic(1, eager)
    for n in range(6):
        kafka_broker.produce(topic, [Message(b"old %d" % n, key=b"k", partition=0)])
    kafka_broker.produce(topic, [Message(b"other", key=b"other", partition=0)])

    def compacted() -> bool:
        # A segment is rolled, and then compacted, only when another record comes after its time.
        kafka_broker.produce(topic, [Message(b"new", key=b"k", partition=0)])
        return read(topic, 0, 7) == [(6, b"other")]

    wait_until(compacted, f"the compaction of {topic}")

    assert read(topic, 0, 6) == []
    assert read(topic, 3, 7) == [(6, b"other")]


def test_a_missing_topic_is_an_error(kafka_config: dict[str, object], make_topic: MakeTopic) -> None:
    """As is a missing partition; never an empty range."""
    for topic, partition in (("no-such-topic", 0), (make_topic(1), 7)):
        with pytest.raises(TopicNotFoundError, match=rf"topic '{topic}' \(partition {partition}\)"):
            list(read_records(kafka_config, topic, partition, 0, 1, isolation="read_committed", timeout=0.5))


def test_a_wrong_password_ends_a_read_at_once(sasl_config: dict[str, object]) -> None:
    """Terminal, long before the timeout."""
    config = {**sasl_config, "sasl.password": "wrong"}

    with pytest.raises(AccessDeniedError, match="Authentication failed"):
        list(read_records(config, "t", 0, 0, 1, isolation="read_committed", timeout=300))


def test_reading_changes_nothing_on_the_cluster(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, kafka_config: dict[str, object]
) -> None:
    """No committed offsets, no group, no topic."""
    topic = make_topic()
    kafka_broker.produce(topic, messages("a"))

    def state() -> tuple[set[str], set[str]]:
        admin = kafka_broker.admin
        groups = {group.group_id for group in admin.list_consumer_groups().result().valid}
        return groups, set(admin.list_topics(timeout=30).topics)

    before = state()
    list(read_records({**kafka_config, "group.id": "mine"}, topic, 0, 0, 1, isolation="read_committed"))
    KafkaCluster(kafka_config).describe(topic)

    assert state() == before


def test_no_range_is_a_programming_error(kafka_config: dict[str, object]) -> None:
    """An end before the start would otherwise read as an empty range."""
    with pytest.raises(ValueError, match=r"\[2, 1\)"):
        list(read_records(kafka_config, "t", 0, 2, 1, isolation="read_committed"))
