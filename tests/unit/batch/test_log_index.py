"""The index of the log: what it has, who writes it, and what a missing or damaged one costs."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.derived.log_indexes import build_index, write_missing
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import summaries
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest, encode
from airflow_provider_kafka_s3.documents.log_index import MAX_RANGES, IndexedBatch, LogIndex
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.exceptions import CorruptControlError
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import read_state
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore
from airflow_provider_kafka_s3.testing.topic_state import check_documents
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, Engine, check_landed, in_turn
from tests.protocol.history import documents_of

SIZES = (10, 50)


class History:
    """Batches of two records each, whose indexes have few batches."""

    def __init__(self, batches: int) -> None:
        self.kafka = SimulatedKafka()
        topic_id = self.kafka.create_topic(TOPIC)
        for _ in range(2 * batches):
            self.kafka.append(TOPIC, 0, b"x")
        self.bucket = MemoryStore()
        where = {"prefix": CONTROL, "topics_dir": TOPICS_DIR, "pipeline": PIPELINE}
        for key, body, metadata in documents_of(batches, topic=TOPIC, topic_id=topic_id, **where):
            self.bucket.put_new(key, body, metadata=metadata)

    def log(self, sizes: tuple[int, ...] = SIZES) -> tuple[TopicLog, Marker, FaultyStore]:
        """A new process: its log, the marker, and its requests."""
        store = FaultyStore(self.bucket)
        log = Engine(store, self.kafka).log
        log.index_sizes = sizes
        marker, _ = log.require_marker()
        store.requests.clear()
        return log, marker, store

    def index(self) -> None:
        """Write all indexes."""
        log, marker, _ = self.log()
        write_missing(log, marker, most=None, parallel=in_turn)


@pytest.fixture
def history() -> History:
    """123 batches: twelve full tens, two full fifties."""
    return History(123)


def counts(store: FaultyStore) -> dict[str, int]:
    """Requests by operation."""
    return dict(Counter(request.operation for request in store.requests))


def of_all(log: TopicLog, marker: Marker, *args: Any) -> list[IndexedBatch]:
    """All summaries, without the reference that has a meaning in an index only."""
    found = summaries(log, marker, *args, parallel=in_turn)
    return [msgspec.structs.replace(one, same_layout_as=None if one.type == "reset" else 1) for one in found]


def indexes_of(bucket: MemoryStore) -> list[str]:
    """Names of the indexes."""
    prefix = addresses.indexes_prefix(CONTROL)
    return sorted(info.key.removeprefix(prefix) for info in bucket.list(prefix))


def test_summaries_are_the_same_with_and_without_an_index(history: History) -> None:
    """With an index they take one LIST, two GETs per fifty or ten, and two for each batch behind the last ten."""
    log, marker, store = history.log()
    without = of_all(log, marker)
    assert [one.batch for one in without] == list(range(1, 124))
    assert counts(store) == {"list": 1, "get": 2 * 123}
    history.index()
    log, marker, store = history.log()
    assert of_all(log, marker) == without
    assert counts(store) == {"list": 1, "get": 2 * (2 + 2 + 3)}
    assert (without[0].objects, without[0].records, without[0].size, without[0].claim) == (
        1,
        2,
        4,
        Offsets({0: [(0, 2)]}),
    )


def test_summaries_of_a_few_batches_read_only_their_indexes(history: History) -> None:
    """Those of the range, cut to it; without a full ten there is no LIST."""
    history.index()
    for first, last, expected in ((3, 5, {"list": 1, "get": 2}), (98, 112, {"list": 1, "get": 6})):
        log, marker, store = history.log()
        assert [one.batch for one in summaries(log, marker, first, last)] == list(range(first, last + 1))
        assert counts(store) == expected
    log, marker, store = history.log()
    assert [one.batch for one in summaries(log, marker, 121)] == [121, 122, 123]
    assert counts(store) == {"get": 6}
    assert list(summaries(log, marker, 124)) == list(summaries(log, marker, 5, 4)) == []


def test_an_older_marker_gives_the_batches_that_it_has(history: History) -> None:
    """An index of later batches is not read for it, and one that it has in part is not used."""
    history.index()
    log, marker, _ = history.log()
    older = msgspec.structs.replace(marker, resolved=((1, 16), (18, 31)))
    found = [one.batch for one in summaries(log, older)]
    assert found == [*range(1, 16), *range(18, 31)]


def test_all_indexes_are_what_the_documents_say(history: History) -> None:
    """Whoever builds one, from smaller ones or from plans and manifests, has the same document."""
    history.index()
    state = read_state(history.bucket, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC)
    assert sorted(state.indexes) == sorted([(n, n + 9) for n in range(1, 112, 10)] + [(1, 50), (51, 100)])
    assert [finding for finding in check_documents(state) if "I9" in finding] == []
    log, marker, _ = history.log()
    for (first, last), index in state.indexes.items():
        numbers = range(first, last + 1)
        assert build_index(log, marker, numbers) == build_index(log, marker, numbers, from_documents=True) == index
    assert write_missing(log, marker, most=None) == 0


def test_a_store_that_refuses_an_index_is_not_asked_to_take_the_others(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """It would refuse them, too, and a run waits for each; the next run tries again."""
    log, marker, store = history.log()
    store.inject(Fault.SERVER_ERROR, operation="put_new", key="*/index/*", times=1_000)
    assert write_missing(log, marker, most=None, parallel=in_turn) == 0
    assert len({request.key for request in store.writes()}) == 1
    assert "the index of batches 111 to 120 was not written" in caplog.text
    assert write_missing(*history.log()[:2], most=None, parallel=in_turn) == 14


def test_an_index_is_written_when_the_last_of_its_batches_is_resolved() -> None:
    """By the run that resolves it, and by no other; the next run writes nothing more."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC)
    for n in range(6):
        kafka.append(TOPIC, 0, b"x")
        engine = Engine(bucket, kafka)
        engine.log.index_sizes = (2, 6)
        engine.run(f"run {n}")
        assert len(indexes_of(bucket)) == (n + 1) // 2 + (n == 5)
    assert indexes_of(bucket)[-1] == "0000000005-0000000006.json"
    check_landed(bucket, kafka)


def test_an_error_while_an_index_is_written_is_not_one_of_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch is resolved, a warning has the command, and the next run that ends a hundred writes both indexes."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC)
    caplog.set_level(logging.WARNING)
    for n in range(4):
        kafka.append(TOPIC, 0, b"x")
        engine = Engine(bucket, kafka)
        engine.log.index_sizes = (2,)
        with monkeypatch.context() as patch:
            if n == 1:

                def refuse(index: LogIndex) -> int:
                    raise CorruptControlError("no")

                patch.setattr(engine.log, "create_index", refuse)
            assert engine.run(f"run {n}").status == "ok"
        assert indexes_of(bucket) == ([] if n < 3 else ["0000000001-0000000002.json", "0000000003-0000000004.json"])
    assert "index of batches 1 to 2 was not written: no" in caplog.text
    assert "kafka-s3 repair" in caplog.text


def damaged(bucket: MemoryStore, name: str) -> Iterator[bytes]:
    """Bodies that are not that index."""
    stored = bucket.get(addresses.indexes_prefix(CONTROL) + name)
    assert stored is not None
    yield b"{"
    yield stored.body.replace(b'"records":2', b'"records":3', 1)
    body = json.loads(stored.body)
    for change in ({"topic": "other"}, {"first": 11}, {"batches": body["batches"][:5]}, {"future": 1}, {"format": 2}):
        changed = {**body, **change}
        del changed["sha256"]
        yield canonical({**changed, "sha256": digest(changed)})


def test_a_damaged_index_is_not_used_and_a_warning_has_the_remedy(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """Invalid, of another topic or other batches, or from a newer version: plans and manifests are read instead."""
    log, marker, _ = history.log((10,))
    write_missing(log, marker, most=1)
    (name,) = indexes_of(history.bucket)
    expected = of_all(*history.log((10,))[:2])
    for body in damaged(history.bucket, name):
        history.bucket.delete(addresses.indexes_prefix(CONTROL) + name)
        history.bucket.put_new(addresses.indexes_prefix(CONTROL) + name, body)
        caplog.clear()
        log, marker, store = history.log((10,))
        assert of_all(log, marker) == expected
        assert "the index of batches 111 to 120 is not used" in caplog.text
        # A newer version need not write it again.
        assert ("kafka-s3 repair" in caplog.text) != ("upgrade airflow-provider-kafka-s3" in caplog.text)
        assert counts(store)["list"] == 1
        assert counts(store)["get"] in (2 * 123 + 1, 2 * 123 + 2)


def test_files_that_are_not_indexes_are_not_read(history: History) -> None:
    """Other names, other sizes, batches that do not begin a ten."""
    for name in ("x.json", "0000000002-0000000011.json", "0000000001-0000000012.json", "0000000000-0000000009.json"):
        history.bucket.put_new(addresses.indexes_prefix(CONTROL) + name, b"no index")
    log, marker, store = history.log()
    assert len(of_all(log, marker)) == 123
    assert counts(store) == {"list": 1, "get": 2 * 123}


def entry(**changes: Any) -> IndexedBatch:
    """A committed batch."""
    fields: dict[str, Any] = {
        "batch": 1,
        "type": "data",
        "status": "commit",
        "generation": 0,
        "topic_id": "id",
        "run": "r",
        "decided_by": "r",
        "claim": Offsets({0: [(0, 5)]}),
        "skipped": NO_OFFSETS,
        "plan_sha256": "0" * 64,
        "manifest_sha256": "0" * 64,
        "same_layout_as": 1,
    }
    return IndexedBatch(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 0},
        {"generation": -1},
        {"records": -1},
        {"status": "abandoned"},
        {"status": "abandoned", "release": "debt", "objects": 1},
        {"status": "reset"},
        {"type": "reset", "new_topic_id": "x"},
        {"claim": NO_OFFSETS},
        {"skipped": Offsets({0: [(5, 6)]})},
        {"claim": None, "skipped": Offsets({0: [(5, 6)]})},
        {"min_timestamp": 5},
        {"min_timestamp": 5, "max_timestamp": 4},
        {"plan_sha256": "x"},
        {"manifest_sha256": ""},
        {"same_layout_as": None},
    ],
)
def test_an_impossible_entry_is_refused(changes: dict[str, Any]) -> None:
    """A document with a valid checksum is not trusted either."""
    assert entry().covers
    with pytest.raises(ValueError, match=r"batch -?\d+"):
        entry(**changes)


@pytest.mark.parametrize(
    "fields",
    [
        {"batches": ()},
        {"first": 2},
        {"batches": (entry(batch=2),)},
        {"batches": (entry(), entry(batch=2, same_layout_as=3))},
        {"batches": (entry(), entry(batch=2), entry(batch=3, same_layout_as=2))},
        {"batches": (entry(), entry())},
        {"first": 2, "batches": (entry(batch=2, same_layout_as=2), entry(batch=3, same_layout_as=2))},
        {"batches": (entry(claim=Offsets({0: [(3 * n, 3 * n + 1) for n in range(MAX_RANGES + 1)]})),)},
    ],
)
def test_an_impossible_index_is_refused(fields: dict[str, Any]) -> None:
    """Batches that are not consecutive, or refer to others for their layout."""
    LogIndex(topic=TOPIC, first=1, batches=(entry(), entry(batch=2)))
    with pytest.raises(ValueError, match="batch"):
        LogIndex(**({"topic": TOPIC, "first": 1, "batches": (entry(),)} | fields))


def test_a_batch_with_many_ranges_keeps_the_index_small_and_its_claim_is_that_of_the_plan() -> None:
    """A hundred of the largest entries fit into a few megabytes; the claim of a larger one is read from its plan."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC, 3)
    for _ in range(4):
        for partition in range(3):
            kafka.append(TOPIC, partition, b"x")
    engine = Engine(bucket, kafka)
    engine.log.index_sizes = (2,)
    engine.run("one", "data_interval", window={0: (2, 3), 1: (1, 2), 2: (3, 4)}, starting={0: 2, 1: 1, 2: 3})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider_kafka_s3.batch.derived.log_indexes.MAX_RANGES", 2)
        engine.run("two", "data_interval", window={0: (3, 4)})
        log = Engine(bucket, kafka).log
        log.index_sizes = (2,)
        stored = log.read_index(range(1, 3))
        assert stored is not None
        assert [batch.claim for batch in stored.batches] == [None, Offsets({0: [(3, 4)]})]
        first, second = summaries(log, log.require_marker()[0])
    assert first.claim == Offsets({0: [(2, 3)], 1: [(1, 2)], 2: [(3, 4)]})
    assert second.claim == Offsets({0: [(3, 4)]})
    large = Offsets({p: [(2**62 + 3 * p, 2**62 + 3 * p + 1)] for p in range(MAX_RANGES)})
    batches = tuple(entry(batch=n, claim=large) for n in range(1, 101))
    assert len(encode(LogIndex(topic=TOPIC, first=1, batches=batches), {})) < 8_000_000
