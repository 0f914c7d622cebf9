"""The simulated Kafka and the faulty store behave as documented."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_kafka_s3.arrays import RECORD_SCHEMA
from airflow_provider_kafka_s3.exceptions import (
    ConditionalConflict,
    DataLossError,
    PreconditionFailed,
    ThrottledError,
    TopicNotFoundError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash

# -- Kafka ------------------------------------------------------------------------------------------------------------


def cluster(records: int = 6, *, records_per_poll: int = 2) -> SimulatedKafka:
    """One topic of one partition."""
    kafka = SimulatedKafka(records_per_poll=records_per_poll)
    kafka.create_topic("t")
    for i in range(records):
        kafka.append("t", 0, b"%d" % i, timestamp=10 * i)
    return kafka


def offsets(kafka: SimulatedKafka, start: int, end: int) -> list[int]:
    """The records of a read."""
    batches = list(kafka.read("t", 0, start, end, "read_committed"))
    assert all(batch.schema == RECORD_SCHEMA for batch in batches)
    return [o for batch in batches for o in batch.column("offset").to_pylist()]


def test_a_read_returns_the_visible_records_of_its_range() -> None:
    """Markers and compacted records leave holes."""
    kafka = cluster()
    kafka.append_marker("t", 0)
    kafka.append("t", 0, None)
    kafka.compact("t", 0, 2)
    assert offsets(kafka, 1, 8) == [1, 3, 4, 5, 7]
    assert [kafka.is_optional(kafka.topic_id("t"), 0, o) for o in (1, 2, 6)] == [False, True, True]


def test_a_read_of_deleted_or_future_offsets_is_an_error() -> None:
    """Never fewer records."""
    kafka = cluster()
    kafka.delete_records("t", 0, 2)
    for start, end in ((0, 4), (1, 2), (4, 7)):
        with pytest.raises(DataLossError, match="cannot be read"):
            offsets(kafka, start, end)
    assert kafka.earliest("t", [0]) == {0: 2}


def test_retention_in_the_middle_of_a_read_is_noticed() -> None:
    """A reader reads poll by poll."""
    kafka = cluster()
    reader = kafka.read("t", 0, 0, 6, "read_committed")
    next(reader)
    kafka.delete_records("t", 0, 4)
    with pytest.raises(DataLossError):
        next(reader)


def test_an_open_transaction_is_the_end_for_read_committed() -> None:
    """Until it is committed; its marker takes an offset."""
    kafka = cluster()
    kafka.open_transaction("t", 0)
    kafka.append("t", 0, b"x")
    assert kafka.ends("t", [0], "read_committed") == {0: 6}
    assert kafka.ends("t", [0], "read_uncommitted") == {0: 7}
    kafka.commit_transaction("t", 0)
    assert kafka.ends("t", [0], "read_committed") == {0: 8}


def test_offsets_by_timestamp_are_the_first_that_is_not_older() -> None:
    """None where all records are older; records deleted by retention do not count."""
    kafka = cluster()
    kafka.append("t", 0, b"late", timestamp=5)
    found = [kafka.at_timestamp("t", [0], t)[0] for t in (0, 15, 50, 51)]
    assert found == [(0, 0), (2, 20), (5, 50), None]
    kafka.delete_records("t", 0, 3)
    assert kafka.at_timestamp("t", [0], 0) == {0: (3, 30)}


def test_a_recreated_topic_has_another_id_and_the_old_records_are_remembered() -> None:
    """So that a bucket can be compared with both."""
    kafka = cluster(2)
    old = kafka.topic_id("t")
    new = kafka.create_topic("t", 2)
    kafka.append("t", 1, b"x")
    assert old != new
    assert kafka.describe("t").topic_id == new
    assert kafka.all_records() == {old: {0: {0: b"0", 1: b"1"}}, new: {0: {}, 1: {0: b"x"}}}


def test_topics_and_partitions_come_and_go() -> None:
    """Added partitions are described, deleted topics are not found."""
    kafka = cluster()
    kafka.add_partitions("t", 2)
    assert kafka.describe("t").partitions == (0, 1, 2)
    kafka.delete_topic("t")
    with pytest.raises(TopicNotFoundError):
        kafka.describe("t")


# -- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "applied"),
    [
        (Fault.THROTTLED, ThrottledError, False),
        (Fault.TOO_MANY_REQUESTS, ThrottledError, False),
        (Fault.THROTTLED_AFTER_APPLY, ThrottledError, True),
        (Fault.SERVER_ERROR, UnknownOutcomeError, False),
        (Fault.TIMEOUT, UnknownOutcomeError, False),
        (Fault.LOST_RESPONSE, UnknownOutcomeError, True),
        (Fault.SENT_TWICE, PreconditionFailed, True),
        (Fault.LATE, UnknownOutcomeError, False),
        (Fault.CONFLICT, ConditionalConflict, False),
        (Fault.CRASH_BEFORE, SimulatedCrash, False),
        (Fault.CRASH_AFTER, SimulatedCrash, True),
    ],
    ids=lambda v: v.name.lower() if isinstance(v, Fault) else "",
)
def test_a_fault_has_its_documented_effect(fault: Fault, error: type[BaseException], applied: bool) -> None:
    """Which error the caller sees, and whether the request took effect."""
    bucket = MemoryStore()
    store = FaultyStore(bucket)
    store.inject(fault)
    with pytest.raises(error):
        store.put_new("k", b"v")
    assert (bucket.get("k") is not None) == applied
    assert [(r.number, r.operation, r.key, r.writes) for r in store.requests] == [(1, "put_new", "k", True)]


def test_faults_hit_the_requests_they_are_meant_for() -> None:
    """By operation, key pattern, count and number of times; the rest passes."""
    store = FaultyStore(MemoryStore())
    store.inject(Fault.THROTTLED, operation="get", key="a/*", nth=2, times=2)
    outcomes = []
    for key in ("a/x", "b/x", "a/x", "a/y/z", "a/x"):
        try:
            store.get(key)
            outcomes.append("ok")
        except ThrottledError:
            outcomes.append("503")
    store.head("a/x")
    assert outcomes == ["ok", "ok", "503", "503", "ok"]


def test_late_requests_are_applied_in_order_if_they_still_can_be() -> None:
    """A create that comes too late is refused, as by a real store; reads are just lost."""
    bucket = MemoryStore()
    store = FaultyStore(bucket)
    store.inject(Fault.LATE, times=3)
    for request in (lambda: store.put_new("a", b"1"), lambda: store.put_new("b", b"1"), lambda: store.get("a")):
        with pytest.raises(UnknownOutcomeError):
            request()
    bucket.put_new("b", b"2")
    assert store.apply_late() == 1
    assert [store.get(k).body for k in ("a", "b")] == [b"1", b"2"]  # type: ignore[union-attr]


def test_a_conflict_affects_conditional_requests_only() -> None:
    """A store answers 409 to conditional requests only."""
    store = FaultyStore(MemoryStore())
    store.inject(Fault.CONFLICT)
    assert store.get("k") is None


def test_held_requests_wait_for_their_release() -> None:
    """Two processes can be held at the same point and continued together."""
    bucket = MemoryStore()
    store = FaultyStore(bucket)
    store.inject(Fault.HOLD, operation="put_new", times=2)
    threads = [threading.Thread(target=store.put_new, args=(key, b"v")) for key in ("a", "b")]
    for thread in threads:
        thread.start()
    store.wait_until_held(2)
    assert list(bucket.list("")) == []
    with pytest.raises(TimeoutError):
        store.wait_until_held(timeout=0.0)
    store.release()
    for thread in threads:
        thread.join()
    assert [i.key for i in bucket.list("")] == ["a", "b"]


def test_every_operation_of_the_port_is_forwarded() -> None:
    """Without faults the wrapped store answers."""
    store = FaultyStore(MemoryStore())
    etag = store.put_new("a", b"1", metadata={"m": "1"})
    store.put_if_match("a", b"12", etag=etag)
    upload = store.create_upload("b")
    part = store.upload_part("b", upload, 1, memoryview(b"xy"))
    assert store.upload_exists("b", upload)
    assert [u.upload_id for u in store.pending_uploads("")] == [upload]
    store.complete_upload("b", upload, [part])
    store.abort_upload("c", store.create_upload("c"))
    assert [(i.key, i.size) for i in store.list("")] == [("a", 2), ("b", 2)]
    assert store.get("b", start=1, end=2).body == b"y"  # type: ignore[union-attr]
    assert store.head("c") is None
    assert store.url("a") == "s3://memory/a"
    assert len(store.writes()) == 7
