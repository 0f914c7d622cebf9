"""A pipeline over another one: a fault at any request, races, and sources that change."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
import time
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from airflow_provider_kafka_s3.batch import execute
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import (
    BytesConverter,
    Daily,
    Hourly,
    JsonLines,
    Landed,
    Layout,
    Limits,
    RawBytes,
    Rotation,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    KafkaS3Error,
    MissingObjectError,
    RecordError,
    TerminalError,
    TopicRecreatedError,
    TransientError,
)
from airflow_provider_kafka_s3.maintenance.expire import expire
from airflow_provider_kafka_s3.maintenance.expiry_rule import ExpiryRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading import landed_source, snapshot
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, Request, SimulatedCrash
from tests.protocol.engine import in_turn
from tests.unit.batch.simulated_topic import Topic

FAULTS = [
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.LOST_RESPONSE,
    Fault.LATE,
    Fault.TIMEOUT,
    Fault.THROTTLED_AFTER_APPLY,
]
HOUR = 3_600_000
RAW = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly())
DAILY = Layout(topics_dir="compacted", format=JsonLines(), partitioner=Daily())


def raw(batches: int = 3) -> Topic:
    """A topic of two partitions that is landed batch by batch; its records have numbers."""
    topic = Topic(RAW, 2)
    for batch in range(batches):
        land_raw(topic, batch)
    return topic


def land_raw(topic: Topic, batch: int) -> None:
    """Land the next four records of the topic, an hour apart."""
    for n in range(batch * 4, batch * 4 + 4):
        topic.append(b'{"n":%d}' % n, partition=n % 2, timestamp=n * HOUR)
    topic.land(f"raw {batch}")


def process(topic: Topic, store: ObjectStore | None = None) -> TopicPipeline:
    """A process of the pipeline that reads the landed topic."""
    durable = DurableStore(store or topic.bucket, Retrier(sleep=lambda _: None))
    return TopicPipeline(
        durable,
        LandedSource(durable, Landed(pipeline="orders-to-lake", topics_dir="lake")),
        topics_dir="compacted",
        pipeline="by-day",
        topic="orders",
        sleep=lambda _: None,
    )


def request(run: str, **settings: Any) -> RunRequest:
    """An incremental run."""
    return RunRequest(
        **{"run": run, "offsets": "incremental", "layout": DAILY, "starting": "earliest", "adopt_wait": 0.0, **settings}
    )


def land(topic: Topic, run: str, store: ObjectStore | None = None, **settings: Any) -> TopicResult:
    """Run to the end."""
    return process(topic, store).land(request(run, **settings))


def landed(topic: Topic) -> list[int]:
    """The numbers of all rows of the second pipeline, after its invariants are checked."""
    check_bucket(topic.bucket, topics_dir="compacted", pipeline="by-day", topic="orders")
    bodies = [topic.bucket.get(info.key) for info in topic.bucket.list("compacted/orders/")]
    return sorted(json.loads(line)["n"] for stored in bodies if stored for line in stored.body.splitlines())


@pytest.fixture
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests in an order that is the same each time."""
    for module in (execute, landed_source, snapshot):
        monkeypatch.setattr(module, "in_threads", in_turn)


@pytest.mark.usefixtures("_in_turn")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_after_a_fault_at_any_request_the_next_run_lands_every_record_once(fault: Fault) -> None:
    """Also at requests to the log and the objects of the source: nothing is lost, twice or stray."""
    number, limits, source = 0, Limits(records_per_slice=4), raw(2)
    while True:
        number += 1
        topic = copy.copy(source)
        topic.bucket = source.bucket.copy()

        def choose(sent: Request, number: int = number) -> Fault | None:
            return fault if sent.number == number else None

        store = FaultyStore(topic.bucket, choose=choose)
        with contextlib.suppress(SimulatedCrash, TerminalError, TransientError):
            land(topic, "first", store, limits=limits)
        land(topic, "other" if number % 2 else "first", limits=limits)
        store.apply_late()
        land(topic, "rest", offsets="recover")
        assert landed(topic) == [*range(8)]
        assert land(topic, "nothing new").status == "empty"
        if len(store.requests) < number:
            break
    assert number > 40


def test_processes_that_race_land_every_record_once() -> None:
    """While the source lands more: four at a time, and each a few times."""
    topic, failed = raw(), list[BaseException]()

    def race(number: int) -> None:
        for attempt in range(4):
            try:
                land(topic, f"run {number} {attempt}", limits=Limits(records_per_batch=4))
            except KafkaS3Error as e:
                failed.append(e)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for batch in range(3, 8):
        land_raw(topic, batch)
    for thread in threads:
        thread.join()
    land(topic, "rest")
    land(topic, "recovery", offsets="recover")
    assert [e for e in failed if not isinstance(e, TransientError)] == []
    assert landed(topic) == [*range(32)]


@pytest.mark.parametrize(
    "settings",
    [
        {"offsets": "data_interval", "window": (0, 12 * HOUR), "starting": None},
        {"limits": Limits(records_per_run=7)},
    ],
    ids=["a window", "records_per_run"],
)
def test_a_run_over_offsets_that_another_one_has_planned_completes_its_batch(settings: dict[str, Any]) -> None:
    """They are claimed as whole ranges of the source, so no range is divided."""
    topic = raw()
    plan = process(topic).run(request("killed", limits=Limits(records_per_batch=4))).advance()
    assert not isinstance(plan, TopicResult)
    assert land(topic, "second", **settings).status == "ok"
    assert land(topic, "rest").status in ("ok", "empty")
    assert landed(topic) == [*range(12)]


def test_a_gap_of_the_source_is_landed_when_it_is_filled() -> None:
    """Below what is landed: a batch that was abandoned, and landed later by `recover`."""
    topic = raw(1)
    plan = topic.pipeline.run(topic.request("open"))
    for n in range(4, 8):
        topic.append(b'{"n":%d}' % n, partition=n % 2, timestamp=n * HOUR)
    plan = topic.pipeline.run(topic.request("open")).advance()
    topic.pipeline.abandon(2, release="debt", reason="stuck", operator="me")
    for n in range(8, 12):
        topic.append(b'{"n":%d}' % n, partition=n % 2, timestamp=n * HOUR)
    claimed = Offsets({p: [(4, 6)] for p in range(2)})
    window = dict.fromkeys(claimed, (4, 6))
    topic.pipeline.land(
        RunRequest(run="behind", offsets="data_interval", layout=RAW, starting="earliest", window=window)
    )
    assert plan is not None
    land(topic, "1")
    before = landed(topic)
    topic.pipeline.recover(operator="me")
    land(topic, "2")
    assert landed(topic) == [*range(12)]
    assert len(before) < 12


def test_a_window_over_a_gap_of_the_source_has_the_offsets_that_are_landed() -> None:
    """The source has landed two windows, and not what is between them: neither has the run that is repeated."""
    topic = Topic(RAW)
    topic.append(*(b'{"n":%d}' % n for n in range(8)), timestamp=HOUR)
    for window in ((4, 8), (0, 3)):
        settings: dict[str, Any] = {"offsets": "data_interval", "starting": "latest", "window": {0: window}}
        topic.pipeline.land(RunRequest(run=f"from {window[0]}", layout=RAW, **settings))
    land(topic, "all")
    again = land(topic, "window", offsets="data_interval", window={0: (0, 8)})
    assert again.status == "ok"
    assert again.target == Offsets({0: [(0, 3), (4, 8)]})
    assert landed(topic) == [0, 1, 2, 4, 5, 6, 7]


def test_what_expires_behind_the_plan_is_recorded_as_a_gap_once() -> None:
    """The run has looked at the source before; it plans nothing that it cannot read a second time."""
    topic = raw()
    rule = ExpiryRule(older_than=0.0, least_age=0.0, grace=0.0, operator="ann@desk")
    left = [lambda: expire(topic.pipeline.committer, rule, landed_in=pytest.fail, now=time.time() + 60)]

    def choose(request: Request) -> None:
        if left and request.operation == "get" and request.key.startswith("lake/orders/"):
            left.pop()()
        assert "0000000004.plan" not in request.key, "offsets that are gone are planned again and again"

    result = land(topic, "skips", FaultyStore(topic.bucket, choose=choose), on_data_loss="skip")
    assert result.skipped == Offsets({p: [(0, 6)] for p in range(2)})
    assert landed(topic) == []


def test_what_the_source_accepts_as_lost_is_left_out_and_what_is_gone_is_an_error() -> None:
    """An object that is gone stops the run, and names the command that writes it again; a loss does not."""
    topic = raw()
    key = next(info.key for info in topic.bucket.list("lake/orders/"))
    number = json.loads((topic.bucket.get(key) or pytest.fail(key)).body)["n"]
    topic.bucket.delete(key)
    with pytest.raises(MissingObjectError, match=r"kafka-s3 verify .*--restore"):
        land(topic, "1")
    topic.kafka.delete_records("orders", 0, 100)
    topic.kafka.delete_records("orders", 1, 100)
    assert topic.pipeline.accept_deleted(1, reason="deleted", operator="me") == (key,)
    land(topic, "1")
    assert landed(topic) == [n for n in range(12) if n != number]


def test_of_what_the_source_has_lost_two_runs_record_parts() -> None:
    """The first one has planned its part and stopped; the second one completes that batch, and records the rest."""
    topic = raw(1)
    land(topic, "1")
    topic.append(*(b'{"n":%d}' % n for n in range(20)), timestamp=HOUR)
    topic.pipeline.run(topic.request("stuck")).advance()
    topic.pipeline.abandon(2, release="lost", reason="stuck", operator="me")
    plan = process(topic).run(request("2", limits=Limits(records_per_run=3))).advance()
    assert getattr(plan, "claim", None) == Offsets({0: [(2, 5)]})
    assert land(topic, "3", limits=Limits(records_per_run=7)).target == Offsets({0: [(2, 9)]})
    assert land(topic, "4").target == Offsets({0: [(9, 22)]})
    assert landed(topic) == [*range(4)]


def test_a_source_whose_topic_was_created_again_is_not_read_as_the_same() -> None:
    """Nothing is landed until the pipeline is reset, too; then the new topic is landed from its beginning."""
    topic = raw()
    land(topic, "1")
    topic.kafka.create_topic("orders", 2)
    topic.pipeline.reset(operator="me")
    topic.append(b'{"n":100}', timestamp=HOUR)
    topic.land("new")
    with pytest.raises(TopicRecreatedError):
        land(topic, "2")
    process(topic).reset(operator="me")
    land(topic, "3")
    assert Counter(landed(topic)) == Counter([*range(12), 100])


@pytest.mark.parametrize("settings", [{}, {"offsets": "data_interval", "window": {0: (0, 20)}}])
def test_a_source_that_is_reset_while_a_run_looks_at_it_is_not_read_as_the_same(settings: dict[str, Any]) -> None:
    """The run has looked at the old topic before, and finds offsets of the new one: it pins and plans nothing."""
    topic, looks = raw(), 0
    land(topic, "1")

    def choose(request: Request) -> None:
        nonlocal looks
        looks += request.operation == "get" and request.key == "lake/_kafka_s3/orders-to-lake/orders/marker.json"
        if looks == 2:
            looks += 1
            topic.kafka.create_topic("orders", 2)
            topic.pipeline.reset(operator="me")
            topic.append(*(b'{"n":%d}' % n for n in range(100, 120)), timestamp=HOUR)
            topic.land("new")

    before = process(topic).log.read_marker()
    with pytest.raises(TopicRecreatedError):
        land(topic, "2", FaultyStore(topic.bucket, choose=choose), **settings)
    assert looks > 2
    assert process(topic).log.read_marker() == before
    assert process(topic).log.read_plan(2) is None
    process(topic).reset(operator="me")
    land(topic, "3")
    assert Counter(landed(topic)) == Counter([*range(12), *range(100, 120)])


def test_a_record_from_the_future_ends_no_window_without_a_word() -> None:
    """As from Kafka: the window is refused with the record's time, or read to the end."""
    topic = Topic(RAW)
    topic.append(b'{"n":0}', timestamp=HOUR)
    topic.append(b'{"n":1}', timestamp=4_000_000_000_000)
    topic.land("1")
    topic.append(b'{"n":2}', timestamp=2 * HOUR)
    topic.land("2")
    settings: dict[str, Any] = {"offsets": "data_interval", "window": (HOUR, 3 * HOUR), "starting": None}
    with pytest.raises(RecordError, match="from the future"):
        land(topic, "fails", **settings)
    land(topic, "reads", on_future_timestamp="read_to_end", **settings)
    assert landed(topic) == [0, 1, 2]


def test_what_came_from_another_source_is_not_landed_again() -> None:
    """A range of the new source that has landed offsets is refused; nothing is planned."""
    topic = Topic(RAW)
    topic.append(*(b'{"n":%d}' % n for n in range(4)), timestamp=HOUR)
    from_kafka = TopicPipeline(
        DurableStore(topic.bucket, Retrier()), topic.kafka, topics_dir="compacted", pipeline="by-day", topic="orders"
    )
    from_kafka.land(request("kafka"))
    topic.append(*(b'{"n":%d}' % n for n in range(4, 8)), timestamp=HOUR)
    topic.land("1")
    with pytest.raises(ConfigurationError, match="are landed or claimed already"):
        land(topic, "2")
    assert landed(topic) == [*range(4)]


@pytest.mark.parametrize("max_bytes", [2**30, 30])
def test_each_lost_object_of_several_partitions_is_written_again(max_bytes: int) -> None:
    """With its bytes, wherever in its group it begins; and when the topic of the source was created again, too."""
    topic = raw()
    layout = Layout(
        topics_dir="compacted",
        format=JsonLines(),
        partitioner=Daily(),
        rotation=Rotation(merge_partitions=True, max_bytes=max_bytes),
    )
    land(topic, "1", layout=layout)
    objects = {info.key: topic.bucket.get(info.key) for info in topic.bucket.list("compacted/orders/")}
    assert len(objects) == 1 if max_bytes > 30 else len(objects) > 2
    topic.kafka.create_topic("orders", 2)
    topic.pipeline.reset(operator="me")
    for key, stored in objects.items():
        topic.bucket.delete(key)
        process(topic).run(request("1", layout=layout, action="restore")).advance()
        again = topic.bucket.get(key)
        assert stored is not None
        assert again is not None
        assert again.body == stored.body


def test_an_object_whose_source_is_gone_is_not_lost() -> None:
    """The error says what to write again first, and another object is written."""
    topic = raw()
    land(topic, "1", limits=Limits(records_per_slice=1))
    keys = [info.key for info in topic.bucket.list("compacted/orders/")]
    source = next(info.key for info in topic.bucket.list("lake/orders/"))
    for key in (source, *keys):
        topic.bucket.delete(key)
    with pytest.raises(BatchLossError, match="lake/orders"):
        process(topic).run(request("1", action="restore")).advance()
    written = {info.key for info in topic.bucket.list("compacted/orders/")}
    assert len(written) == len(keys) - 1


def test_texts_that_are_no_documents_are_not_taken_for_lines() -> None:
    """Values that the source has as texts are checked again where documents are written."""
    texts = Layout(topics_dir="lake", format=JsonLines(), value_converter=BytesConverter(), partitioner=Hourly())
    topic = Topic(texts)
    topic.append(b"hello", timestamp=HOUR)
    topic.land()
    with pytest.raises(RecordError, match="is not a JSON document"):
        land(topic, "1")


def test_null_values_of_two_days_share_a_folder() -> None:
    """Their objects have keys only and no day, so they are read whatever their times are."""
    content = SiblingObjects(keys=RawBytes())
    settings: dict[str, Any] = {"format": JsonLines(on_null="write"), "content": content}
    topic = Topic(Layout(topics_dir="lake", partitioner=Hourly(), **settings))
    topic.append(None, timestamp=HOUR, key=b"a")
    topic.append(None, timestamp=30 * HOUR, key=b"b")
    topic.land()
    result = land(topic, "1", layout=Layout(topics_dir="compacted", partitioner=Daily(), **settings))
    assert sum(batch.tombstones for batch in result.batches) == 2


def test_a_null_value_that_is_left_out_may_be_the_last_one() -> None:
    """The bounds of an object are those of its source then."""
    topic = Topic(Layout(topics_dir="lake", format=RawBytes(separator="\n"), partitioner=Hourly()))
    for value in (b'{"n":0}', b'{"n":1}', b""):
        topic.append(value, timestamp=HOUR)
        topic.kafka.append_marker("orders", 0)
    topic.land()
    land(topic, "1", layout=replace(DAILY, format=JsonLines(on_null="ignore")))
    assert landed(topic) == [0, 1]
