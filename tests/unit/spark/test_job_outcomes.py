"""The driver's result for a failed topic: the reason and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, RawBytes
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    RecordError,
    SparkTimestampError,
    TerminalError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark.job import Job
from airflow_provider_kafka_s3.spark.rows import Row, error_row
from airflow_provider_kafka_s3.spark.spec import JobSpec, PlanRef, TopicOutcome
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.unit.spark.test_task_rows import slice_rows

JSON = Layout(format=JsonLines())
DAILY = Layout(format=RawBytes(), partitioner=Daily())
BYTES = Layout(format=RawBytes())

Read = Callable[[Sequence[Plan]], list[Row]]


class JobHarness:
    """A topic with three records, and a job whose Spark is a function."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic("flights")
        for value in (b"1", b"{", b"3"):
            self.kafka.append("flights", 0, value, timestamp=0)
        self.store = DurableStore(MemoryStore(), Retrier(sleep=lambda _: None))
        self._patch = monkeypatch

    def committer(self) -> Committer:
        """The committer of the topic."""
        return self.pipeline().committer

    def pipeline(self) -> TopicPipeline:
        """The pipeline of the topic."""
        return TopicPipeline(self.store, self.kafka, topics_dir="topics", pipeline="lake", topic="flights")

    def plan(self, layout: Layout) -> Plan:
        """The next batch to execute."""
        request = RunRequest(run="run", offsets="incremental", layout=layout, starting="earliest")
        step = self.pipeline().run(request).advance()
        assert isinstance(step, Plan)
        return step

    def job(self, plan: Plan, read: Read) -> TopicOutcome:
        """Execute a plan."""
        self._patch.setattr(Job, "_read", lambda _job, _spark, topics, _tasks: read([topic.plan for topic in topics]))
        ref = PlanRef(topics_dir="topics", pipeline="lake", topic="flights", batch=plan.batch)
        options = ("--kafka-conn-id", "broker")
        spec = JobSpec(
            run="run", plans=(ref,), kafka={}, bucket="lake", result_path="unused", connection_options=options
        )
        spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        result = Job(spec, lambda: spark, source=self.kafka, store=self.store).run()  # type: ignore[arg-type,return-value]
        return result.topics[0]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> JobHarness:
    """A new topic, store and job."""
    return JobHarness(monkeypatch)


def ends_with(error: TerminalError) -> Read:
    """A task with a terminal error."""
    return lambda _: [error_row(0, 0, "attempt", error)]


@pytest.mark.parametrize("error", [RecordError("offset 1 is no JSON"), ConfigurationError("the key is too long")])
def test_the_error_of_an_impossible_plan_has_a_command_that_works(harness: JobHarness, error: TerminalError) -> None:
    """The plan would always fail; abandoned with the command in the message, its offsets are planned again."""
    outcome = harness.job(harness.plan(JSON), ends_with(error))
    assert outcome.kind == error.kind
    assert str(outcome.message).startswith(f"{error}; batch 1 keeps its planned offsets and layout.")
    options = "--topics-dir topics --pipeline lake --topic flights --batch 1 --release debt`"
    assert f"`kafka-s3 abandon --kafka-conn-id broker --bucket memory {options}" in str(outcome.message)

    assert harness.plan(BYTES).layout == JSON
    abandon(harness.committer(), 1, release="debt", reason="no JSON", operator="test")
    again = harness.plan(BYTES)
    assert (again.batch, again.layout) == (2, BYTES)
    assert again.read == harness.committer().log.require_plan(1)[0].read


def test_uploads_of_a_topic_that_has_failed_are_not_left_in_the_bucket(harness: JobHarness) -> None:
    """Only the driver has their ids; nothing else would end them before they expire."""
    entries = slice_rows(0, 3, objects=2).objects
    uploads = [harness.store.create_upload(entry.key, {}) for entry in entries]
    rows = [
        Row(0, 0, "attempt", "object", msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(e, upload_id=upload))))
        for e, upload in zip(entries, uploads, strict=True)
    ]
    failed = error_row(0, 0, "attempt", RecordError("offset 1 is no JSON"))
    assert harness.job(harness.plan(JSON), lambda _: [*rows, failed]).kind == "record"
    assert [upload.key for upload in harness.store.pending_uploads("")] == []


def test_errors_unrelated_to_the_plan_do_not_suggest_to_abandon_it(harness: JobHarness) -> None:
    """Credentials can be corrected, and the batch continues."""
    outcome = harness.job(harness.plan(JSON), ends_with(AccessDeniedError("PutObject on lake")))
    assert (outcome.kind, outcome.message) == ("access_denied", "PutObject on lake")


def test_more_rows_than_the_driver_accepts_are_terminal_for_the_topic(harness: JobHarness) -> None:
    """A retry would have as many."""

    def read(_: Sequence[Plan]) -> list[Row]:
        raise RuntimeError(
            "Job aborted: Total size of serialized results of 9 tasks is bigger than spark.driver.maxResultSize 1 GiB."
        )

    outcome = harness.job(harness.plan(JSON), read)
    assert outcome.kind == "terminal"
    assert "Raise spark.driver.maxResultSize" in str(outcome.message)
    assert "--batch 1 --release debt`" in str(outcome.message)


def test_notes_of_the_error_of_a_task_are_in_the_outcome(harness: JobHarness) -> None:
    """The executor returns them to the driver in the row of the task."""
    error = AccessDeniedError("PutObject on lake")
    error.add_note("the session of the role has ended")
    outcome = harness.job(harness.plan(JSON), ends_with(error))
    assert outcome.message == "PutObject on lake; the session of the role has ended"


def test_notes_of_an_error_are_in_its_message(harness: JobHarness) -> None:
    """How often a request was tried is a note of its error."""

    def read(_: Sequence[Plan]) -> list[Row]:
        error = UnknownOutcomeError("503 of s3://lake/key")
        error.add_note("gave up: GET, 4 tries in 1.0 s")
        raise error

    outcome = harness.job(harness.plan(JSON), read)
    assert outcome.message == "503 of s3://lake/key; gave up: GET, 4 tries in 1.0 s"


def test_the_error_of_deleted_offsets_has_the_command(harness: JobHarness) -> None:
    """The policy may stay: a person can abandon this batch alone."""
    plan = harness.plan(JSON)
    harness.kafka.delete_records("flights", 0, 2)

    def read(_: Sequence[Plan]) -> list[Row]:
        raise RuntimeError("KAFKA_DATA_LOSS")

    outcome = harness.job(plan, read)
    assert outcome.kind == "data_loss"
    assert str(outcome.message).startswith("offsets are gone from Kafka: topic 'flights', 0: [0, 2) of batch 1 ")
    assert "--topic flights --on-data-loss skip`" in str(outcome.message)
    assert "--batch 1 --release lost`" in str(outcome.message)


@pytest.mark.parametrize("in_a_task", [True, False])
def test_a_timestamp_that_spark_cannot_represent_is_read_without_spark(harness: JobHarness, in_a_task: bool) -> None:
    """Whether the task detected it or Spark failed: the driver lands the batch under the same plan."""
    plan = harness.plan(DAILY)

    def read(_: Sequence[Plan]) -> list[Row]:
        raise RuntimeError("java.lang.ArithmeticException: long overflow")

    outcome = harness.job(plan, ends_with(SparkTimestampError("before 1900")) if in_a_task else read)
    assert (outcome.status, outcome.message) == ("decided", None)
    manifest = harness.committer().log.read_manifest(1)
    assert manifest is not None
    assert [(o.key, o.records) for o in manifest.objects] == [
        ("topics/flights/year=1970/month=01/day=01/flights+0+0000000000.bin", 3)
    ]
    assert harness.committer().log.require_marker()[0].is_resolved(1)


def test_the_error_of_a_record_without_a_time_read_by_the_driver_has_the_command(harness: JobHarness) -> None:
    """The error is that of the record, exact, and it is terminal."""
    harness.kafka.append("flights", 0, b"4", timestamp=2**63 - 1)
    outcome = harness.job(harness.plan(DAILY), ends_with(SparkTimestampError("too large")))
    assert outcome.kind == "record"
    assert f"offset 3: the record's timestamp {2**63 - 1} " in str(outcome.message)
    assert "on_bad_timestamp=" in str(outcome.message)
    assert "--batch 1 --release debt`" in str(outcome.message)


NOTHING = [Row(-1, -1, attempt, "empty") for attempt in ("one", "another")]
"""The rows of two tasks without records."""


def test_small_slices_that_spark_has_not_read_are_not_taken_for_empty(harness: JobHarness) -> None:
    """Their tasks have returned no record of them, and Kafka has some: nothing is decided."""
    harness.kafka.add_partitions("flights", 2)
    harness.kafka.append("flights", 1, b"4", timestamp=0)
    outcome = harness.job(harness.plan(JSON), lambda _: NOTHING)
    assert outcome.kind == "spark_job"
    assert str(outcome.message).startswith(
        "topic 'flights': Spark has returned no record of partition 0, [0, 3), and Kafka has some"
    )
    assert harness.committer().log.read_manifest(1) is None


def test_small_slices_without_records_are_committed(harness: JobHarness) -> None:
    """Kafka has none either: an aborted transaction, or what compaction has left."""
    harness.kafka.add_partitions("flights", 2)
    for partition, offset in ((0, 0), (0, 1), (0, 2), (1, 0)):
        if partition:
            harness.kafka.append("flights", 1, b"4", timestamp=0)
        harness.kafka.compact("flights", partition, offset)
    outcome = harness.job(harness.plan(JSON), lambda _: NOTHING)
    assert (outcome.status, outcome.message) == ("decided", None)
    manifest = harness.committer().log.read_manifest(1)
    assert manifest is not None
    assert (manifest.status, manifest.records, len(manifest.slices)) == ("commit", 0, 2)


def test_a_small_slice_of_which_nothing_is_known_fails_its_topic(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not respond to the driver: a retry may help, and nothing is decided."""
    harness.kafka.add_partitions("flights", 2)
    harness.kafka.append("flights", 1, b"4", timestamp=0)
    plan = harness.plan(JSON)

    def read(*_: object, **__: object) -> object:
        raise UnknownOutcomeError("no response")

    monkeypatch.setattr(harness.kafka, "read", read)
    outcome = harness.job(plan, lambda _: NOTHING)
    assert outcome.message == "no response"
    harness.kafka.delete_records("flights", 0, 3)
    harness.kafka.delete_records("flights", 1, 1)
    monkeypatch.undo()
    outcome = harness.job(plan, lambda _: NOTHING)
    assert outcome.kind == "spark_job"
    assert "and now they are gone from Kafka. Nothing was decided; try again" in str(outcome.message)
    assert harness.committer().log.read_manifest(1) is None


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_topic_that_is_created_again_decides_nothing(harness: JobHarness, when: str) -> None:
    """Offsets of its plan mean others now, whatever Spark has read or failed with."""
    plan, reads = harness.plan(JSON), list[Plan]()

    def create_again() -> None:
        harness.kafka.create_topic("flights")
        harness.kafka.append("flights", 0, b"new", timestamp=0)

    def read(plans: Sequence[Plan]) -> list[Row]:
        reads.extend(plans)
        create_again()
        raise RuntimeError("whatever it is")

    if when == "before":
        create_again()
    assert harness.job(plan, read).kind == "topic_recreated"
    assert len(reads) == (when == "during")
    assert harness.committer().log.read_manifest(1) is None
