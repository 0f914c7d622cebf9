"""The summary of a topic: one request shows what its whole log has, and nothing depends on it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.derived import topic_summaries
from airflow_provider_kafka_s3.batch.derived.registry import follow_run
from airflow_provider_kafka_s3.batch.topic_summary import current_summary, new_summary, read_summary
from airflow_provider_kafka_s3.documents import addresses, topic_summary
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.documents.topic_summary import HourOfRecords, TopicSummary
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_deleted
from airflow_provider_kafka_s3.maintenance.repair import GoneRule, repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket, check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import ADDRESS, CONTROL, PIPELINE, SUMMARY, TOPIC, TOPICS_DIR, Engine, crash_after, in_turn

HOUR = 3_600_000


class Pipeline:
    """A topic, and the bucket that it is landed in."""

    def __init__(self) -> None:
        self.kafka, self.bucket = SimulatedKafka(), MemoryStore()
        self.kafka.create_topic(TOPIC)

    def append(self, records: int, *, at: int = 0) -> None:
        """Append records of one time, in milliseconds."""
        for _ in range(records):
            self.kafka.append(TOPIC, 0, b"x", timestamp=at)

    def lands(self, run: str, records: int = 2, *, at: int = 0, **settings: Any) -> None:
        """Append records and land them."""
        self.append(records, at=at)
        Engine(self.bucket, self.kafka).run(run, **settings)

    @property
    def engine(self) -> Engine:
        """A new process."""
        return Engine(self.bucket, self.kafka)

    @property
    def summary(self) -> TopicSummary:
        """What is stored, which is right."""
        check_bucket(self.bucket, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC)
        stored = read_summary(self.engine.store, ADDRESS)
        assert stored is not None
        return stored

    def objects(self, batch: int) -> list[str]:
        """Keys of the objects of a batch."""
        decision = self.engine.log.read_manifest(batch)
        assert decision is not None
        return [entry.key for entry in decision.objects]

    def is_current(self) -> bool:
        """Whether it is that of the marker, made from the whole log."""
        log = self.engine.log
        return self.summary == new_summary(log, log.require_marker()[0], None)


@pytest.fixture
def pipeline() -> Pipeline:
    """See the class."""
    return Pipeline()


def test_it_has_the_sums_of_all_batches_and_the_last_one(pipeline: Pipeline) -> None:
    """The sums that were added up run by run are those of the whole log."""
    for number in range(1, 4):
        pipeline.lands(f"r{number}", number)
    activity, last = pipeline.summary.activity, pipeline.summary.last
    assert (activity.batches, activity.records, activity.size) == (3, 6, 12)
    assert last is not None
    assert (last.batch, last.claimed) == (3, 3)
    assert pipeline.is_current()


def test_it_has_the_newest_hours_with_records(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit, in whichever order they were landed; a record from the future hides no other hour."""
    monkeypatch.setattr(topic_summary, "_HOURS", 3)
    for number, hour in enumerate((100, 52, 53, 101, 100, 9_000_000)):
        pipeline.lands(f"r{number}", 1, at=hour * HOUR)
    assert pipeline.summary.activity.hours == (
        HourOfRecords(hour=100, records=2, size=4),
        HourOfRecords(hour=101, records=1, size=2),
        HourOfRecords(hour=9_000_000, records=1, size=2),
    )
    assert pipeline.summary.activity.since(100 * HOUR) == (2, 4)
    assert pipeline.is_current()


def test_an_abandoned_batch_and_a_reset_are_in_it_at_once(pipeline: Pipeline) -> None:
    """No run has to follow before lists show them."""
    pipeline.lands("first")
    pipeline.append(2)
    crash_after("*.plan.json", pipeline.bucket, pipeline.kafka, "died")
    abandon(pipeline.engine.committer, 2, release="debt", reason="bad", operator="me")
    assert pipeline.summary.marker.debt
    pipeline.kafka.create_topic(TOPIC)
    reset(pipeline.engine.committer, operator="me")
    assert pipeline.summary.marker.generation == 1
    assert pipeline.is_current()


@pytest.mark.parametrize("body", [None, b"{", b"\xff"])
def test_a_missing_or_damaged_one_is_written_by_the_next_run(pipeline: Pipeline, body: bytes | None) -> None:
    """Meanwhile it is made from the log, in memory."""
    pipeline.lands("first")
    pipeline.bucket.delete(SUMMARY)
    if body is not None:
        pipeline.bucket.put_new(SUMMARY, body)
    log = pipeline.engine.log
    assert current_summary(log, log.require_marker()[0]).activity.batches == 1
    pipeline.lands("second")
    assert pipeline.summary.activity.batches == 2
    assert pipeline.is_current()


def test_a_process_that_ended_before_it_wrote_the_summary_costs_nothing(pipeline: Pipeline) -> None:
    """The next run adds the batches of both."""
    pipeline.lands("first")
    pipeline.append(2)
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_if_match", key="*/marker.json")
    with pytest.raises(SimulatedCrash):
        Engine(store, pipeline.kafka).run("died")
    assert pipeline.summary.activity.batches == 1
    pipeline.lands("third")
    assert pipeline.summary.activity.batches == 3
    assert pipeline.is_current()


def test_it_names_the_batches_with_accepted_losses(pipeline: Pipeline) -> None:
    """At once, so that a table of thousands of batches finds them without a listing; and if it is made anew."""
    for number in range(3):
        pipeline.lands(f"r{number}")
    (lost,) = pipeline.objects(2)
    pipeline.bucket.delete(lost)
    assert accept_deleted(pipeline.engine.committer, 2, reason="gone", operator="me") == (lost,)
    assert pipeline.summary.amended == ((2, 3),)
    pipeline.lands("later")
    assert pipeline.summary.amended == ((2, 3),)
    store = FaultyStore(pipeline.bucket)
    assert Snapshot(Engine(store, pipeline.kafka).log).losses(4).urls() == {pipeline.engine.store.url(lost)}
    assert "list" not in {request.operation for request in store.requests}
    assert pipeline.is_current()
    pipeline.bucket.delete(SUMMARY)
    assert Snapshot(pipeline.engine.log).losses(4).urls() == {pipeline.engine.store.url(lost)}


def test_a_loss_whose_command_ended_before_the_summary_is_in_it_after_another_call(pipeline: Pipeline) -> None:
    """The command fails, and says nothing else than what it was."""
    pipeline.lands("first")
    (lost,) = pipeline.objects(1)
    pipeline.bucket.delete(lost)
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.CRASH_BEFORE, operation="put_if_match", key=SUMMARY)
    with pytest.raises(SimulatedCrash):
        accept_deleted(Engine(store, pipeline.kafka).committer, 1, reason="gone", operator="me")
    assert pipeline.summary.amended == ()
    assert accept_deleted(pipeline.engine.committer, 1, reason="gone", operator="me") == ()
    assert pipeline.summary.amended == ((1, 2),)


class Between(MemoryStore):
    """A bucket in which something happens before the first write of a summary."""

    def __init__(self, bucket: MemoryStore, happens: Callable[[], object]) -> None:
        self.__dict__ = bucket.__dict__
        self.happens: Callable[[], object] | None = happens

    def put_new(self, key: str, body: bytes, **options: Any) -> str:
        """See the class."""
        if key == SUMMARY and (happens := self.happens) is not None:
            self.happens = None
            happens()
        return super().put_new(key, body, **options)


def test_a_loss_that_is_accepted_while_a_repair_writes_the_first_summary_is_in_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair has listed the losses before; also of a log that is too long for a run."""
    monkeypatch.setattr(topic_summaries, "_FIRST_BATCHES", 0)
    pipeline.lands("first")
    assert pipeline.bucket.get(SUMMARY) is None
    (lost,) = pipeline.objects(1)
    pipeline.bucket.delete(lost)
    calls: list[int] = []

    def accept() -> None:
        calls.append(1)
        accept_deleted(pipeline.engine.committer, 1, reason="gone", operator="me")

    repair(Engine(Between(pipeline.bucket, accept), pipeline.kafka).committer, start={0: 0})
    assert calls == [1]
    assert pipeline.summary.amended == ((1, 2),)


def test_a_repair_of_a_lost_marker_records_losses_without_a_summary(pipeline: Pipeline) -> None:
    """It writes the marker first, and then the summary with these."""
    pipeline.lands("first")
    (lost,) = pipeline.objects(1)
    for key in (lost, SUMMARY, addresses.marker_key(CONTROL)):
        pipeline.bucket.delete(key)
    done = repair(pipeline.engine.committer, start={0: 0}, rule=GoneRule(before=time.time() + 5))
    assert [gone.batch for gone in done.recorded] == [1]
    assert pipeline.summary.amended == ((1, 2),)


def test_a_summary_of_a_newer_version_stays_and_fails_no_repair(pipeline: Pipeline) -> None:
    """The result names it."""
    pipeline.lands("first")
    stored = pipeline.bucket.get(SUMMARY)
    assert stored is not None
    body = json.loads(stored.body) | {"format": 99}
    del body["sha256"]
    pipeline.bucket.delete(SUMMARY)
    pipeline.bucket.put_new(SUMMARY, canonical(body | {"sha256": digest(body)}))
    before = snapshot(pipeline.bucket)
    done = repair(pipeline.engine.committer, start={0: 0})
    assert "99" in str(done.derived["summaries of topics"].skipped)
    check_unchanged(before, snapshot(pipeline.bucket))


def test_losses_of_another_log_are_not_taken_from_a_summary(pipeline: Pipeline) -> None:
    """Of a log that was deleted by hand, or in a copy of the bucket: the amends are listed."""
    pipeline.lands("first")
    (lost,) = pipeline.objects(1)
    stored = pipeline.bucket.get(SUMMARY)
    assert stored is not None
    pipeline.bucket.delete(lost)
    accept_deleted(pipeline.engine.committer, 1, reason="gone", operator="me")
    body = json.loads(stored.body)
    body["last"]["plan_sha256"] = "0" * 64
    del body["sha256"]
    pipeline.bucket.delete(SUMMARY)
    pipeline.bucket.put_new(SUMMARY, canonical(body | {"sha256": digest(body)}))
    assert Snapshot(pipeline.engine.log).losses(1).urls() == {pipeline.engine.store.url(lost)}


def test_a_loss_that_is_accepted_beside_the_first_summary_is_in_it(pipeline: Pipeline) -> None:
    """The run that writes it may have listed the losses before."""
    pipeline.lands("first")
    pipeline.bucket.delete(SUMMARY)
    (lost,) = pipeline.objects(1)
    pipeline.bucket.delete(lost)
    accept_deleted(pipeline.engine.committer, 1, reason="gone", operator="me")
    assert pipeline.summary.amended == ((1, 2),)


def test_a_rerun_writes_nothing(pipeline: Pipeline) -> None:
    """It is the one of the marker already."""
    pipeline.lands("first")
    before = snapshot(pipeline.bucket)
    pipeline.engine.run("first")
    check_unchanged(before, snapshot(pipeline.bucket))


def test_a_store_that_refuses_it_fails_no_run(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the command that writes it."""
    pipeline.append(2)
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.SERVER_ERROR, operation="put_new", key="*/_summaries/*", times=1_000)
    with caplog.at_level(logging.WARNING):
        assert Engine(store, pipeline.kafka).run("first").status == "ok"
    assert "the summaries of topics may be behind the log" in caplog.text
    assert pipeline.bucket.get(SUMMARY) is None
    repair(pipeline.engine.committer, start={0: 0})
    assert pipeline.is_current()


def test_repair_of_every_document_finds_wrong_sums(pipeline: Pipeline) -> None:
    """A log that was deleted by hand and begun again may look like a later state of the old one."""
    pipeline.lands("first", 1)
    stale = pipeline.bucket.get(SUMMARY)
    assert stale is not None
    for info in [*pipeline.bucket.list(CONTROL), *pipeline.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]:
        pipeline.bucket.delete(info.key)
    pipeline.append(3)
    Engine(pipeline.bucket, pipeline.kafka).run("again", limits={"records_per_batch": 2})
    repair(pipeline.engine.committer, start={0: 0}, every_document=True)
    assert pipeline.summary.activity.records == 4
    assert pipeline.is_current()


def test_a_summary_of_a_longer_log_that_was_deleted_is_replaced(pipeline: Pipeline) -> None:
    """Its last batch has another plan."""
    for number in range(3):
        pipeline.lands(f"r{number}")
    for info in [*pipeline.bucket.list(CONTROL), *pipeline.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]:
        pipeline.bucket.delete(info.key)
    pipeline.lands("again", 1)
    assert pipeline.summary.activity.batches == 1
    assert pipeline.is_current()


def test_a_summary_of_a_later_state_stays(pipeline: Pipeline) -> None:
    """A process that is late with its own writes nothing over it."""
    pipeline.lands("first")
    early, _ = pipeline.engine.log.require_marker()
    pipeline.lands("second")
    before = snapshot(pipeline.bucket)
    follow_run(pipeline.engine.log, early, None, in_turn)
    check_unchanged(before, snapshot(pipeline.bucket))


def test_a_long_log_without_one_is_left_to_a_repair(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reads a bounded number of earlier batches for it."""
    monkeypatch.setattr(topic_summaries, "_FIRST_BATCHES", 1)
    pipeline.lands("first")
    pipeline.lands("second")
    pipeline.bucket.delete(SUMMARY)
    pipeline.lands("third")
    assert pipeline.bucket.get(SUMMARY) is None
    repair(pipeline.engine.committer, start={0: 0})
    assert pipeline.is_current()


def test_its_key_is_of_no_pipeline() -> None:
    """Nor of a topic."""
    assert addresses.summaries_prefix(TOPICS_DIR) == "topics/_kafka_s3/_summaries/"
    assert SUMMARY == "topics/_kafka_s3/_summaries/pipeline/events.json"
