"""What the driver says about a topic that ended with an error: the reason, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

JSON = Layout(format=JsonLines())
DAILY = Layout(format=RawBytes(), partitioner=Daily())
BYTES = Layout(format=RawBytes())

Read = Callable[[Sequence[Plan]], list[Row]]


class Landing:
    """A topic with three records, and a job whose Spark is a function."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic("flights")
        for value in (b"1", b"{", b"3"):
            self.kafka.append("flights", 0, value, timestamp=0)
        self.store = DurableStore(MemoryStore(), Retrier(sleep=lambda _: None))
        self._patch = monkeypatch

    def committer(self) -> Committer:
        """Of the topic."""
        return self.pipeline().committer

    def pipeline(self) -> TopicPipeline:
        """Of the topic."""
        return TopicPipeline(self.store, self.kafka, topics_dir="topics", pipeline="lake", topic="flights")

    def plan(self, layout: Layout) -> Plan:
        """The batch that has to be executed next."""
        request = RunRequest(run="run", offsets="incremental", layout=layout, starting="earliest")
        step = self.pipeline().run(request).advance()
        assert isinstance(step, Plan)
        return step

    def job(self, plan: Plan, read: Read) -> TopicOutcome:
        """Execute a plan."""
        self._patch.setattr(Job, "_read", lambda _job, _spark, plans: read(plans))
        ref = PlanRef(topics_dir="topics", pipeline="lake", topic="flights", batch=plan.batch)
        options = ("--kafka-conn-id", "broker")
        spec = JobSpec(
            run="run", plans=(ref,), kafka={}, bucket="lake", result_path="unused", connection_options=options
        )
        spark = object()
        result = Job(spec, lambda: spark, source=self.kafka, store=self.store).run()  # type: ignore[arg-type,return-value]
        return result.topics[0]


@pytest.fixture
def landing(monkeypatch: pytest.MonkeyPatch) -> Landing:
    """See the class."""
    return Landing(monkeypatch)


def ends_with(error: TerminalError) -> Read:
    """A task that met a terminal error."""
    return lambda _: [error_row(0, 0, "attempt", error)]


@pytest.mark.parametrize("error", [RecordError("offset 1 is no JSON"), ConfigurationError("the key is too long")])
def test_a_plan_that_cannot_be_executed_comes_with_the_way_out_and_that_works(
    landing: Landing, error: TerminalError
) -> None:
    """The plan would end the same way for ever; abandoned as the message says, its offsets are planned anew."""
    outcome = landing.job(landing.plan(JSON), ends_with(error))
    assert outcome.kind == error.kind
    assert str(outcome.message).startswith(f"{error}; batch 1 keeps its planned offsets and layout.")
    said = "--topics-dir topics --pipeline lake --topic flights --batch 1 --release debt`"
    assert f"`kafka-s3 abandon --kafka-conn-id broker --bucket memory {said}" in str(outcome.message)

    assert landing.plan(BYTES).layout == JSON
    abandon(landing.committer(), 1, release="debt", reason="no JSON", operator="test")
    again = landing.plan(BYTES)
    assert (again.batch, again.layout) == (2, BYTES)
    assert again.read == landing.committer().log.require_plan(1)[0].read


def test_what_the_plan_has_nothing_to_do_with_is_no_reason_to_abandon_it(landing: Landing) -> None:
    """Credentials can be mended, and the batch goes on."""
    outcome = landing.job(landing.plan(JSON), ends_with(AccessDeniedError("PutObject on lake")))
    assert (outcome.kind, outcome.message) == ("access_denied", "PutObject on lake")


def test_more_rows_than_the_driver_takes_end_the_topic(landing: Landing) -> None:
    """Trying again would bring as many."""

    def read(_: Sequence[Plan]) -> list[Row]:
        raise RuntimeError(
            "Job aborted: Total size of serialized results of 9 tasks is bigger than spark.driver.maxResultSize 1 GiB."
        )

    outcome = landing.job(landing.plan(JSON), read)
    assert outcome.kind == "terminal"
    assert "Raise spark.driver.maxResultSize" in str(outcome.message)
    assert "--batch 1 --release debt`" in str(outcome.message)


def test_notes_of_the_error_of_a_task_are_in_the_outcome(landing: Landing) -> None:
    """They cross from the executor to the driver with the row of the task."""
    error = AccessDeniedError("PutObject on lake")
    error.add_note("the session of the role has ended")
    outcome = landing.job(landing.plan(JSON), ends_with(error))
    assert outcome.message == "PutObject on lake; the session of the role has ended"


def test_notes_of_an_error_are_told(landing: Landing) -> None:
    """How often a request was tried is a note of its error."""

    def read(_: Sequence[Plan]) -> list[Row]:
        error = UnknownOutcomeError("503 of s3://lake/key")
        error.add_note("gave up: GET, 4 tries in 1.0 s")
        raise error

    outcome = landing.job(landing.plan(JSON), read)
    assert outcome.message == "503 of s3://lake/key; gave up: GET, 4 tries in 1.0 s"


def test_offsets_that_are_gone_come_with_the_way_out(landing: Landing) -> None:
    """The policy may stay as it is: a person can give up this one batch."""
    plan = landing.plan(JSON)
    landing.kafka.delete_records("flights", 0, 2)

    def read(_: Sequence[Plan]) -> list[Row]:
        raise RuntimeError("KAFKA_DATA_LOSS")

    outcome = landing.job(plan, read)
    assert outcome.kind == "data_loss"
    assert str(outcome.message).startswith("offsets are gone from Kafka: topic 'flights', 0: [0, 2) of batch 1 ")
    assert "--topic flights --on-data-loss skip`" in str(outcome.message)
    assert "--batch 1 --release lost`" in str(outcome.message)


@pytest.mark.parametrize("in_a_task", [True, False])
def test_a_timestamp_that_spark_cannot_tell_is_read_without_spark(landing: Landing, in_a_task: bool) -> None:
    """Whether the task noticed or Spark failed: the batch is landed by the driver, under the same plan."""
    plan = landing.plan(DAILY)

    def read(_: Sequence[Plan]) -> list[Row]:
        raise RuntimeError("java.lang.ArithmeticException: long overflow")

    outcome = landing.job(plan, ends_with(SparkTimestampError("before 1900")) if in_a_task else read)
    assert (outcome.status, outcome.message) == ("decided", None)
    manifest = landing.committer().log.read_manifest(1)
    assert manifest is not None
    assert [(o.key, o.records) for o in manifest.objects] == [
        ("topics/flights/year=1970/month=01/day=01/flights+0+0000000000.bin", 3)
    ]
    assert landing.committer().log.require_marker()[0].is_resolved(1)


def test_a_record_without_a_time_that_only_the_driver_could_read_comes_with_the_way_out(landing: Landing) -> None:
    """The error is that of the record, exact, and it is terminal."""
    landing.kafka.append("flights", 0, b"4", timestamp=2**63 - 1)
    outcome = landing.job(landing.plan(DAILY), ends_with(SparkTimestampError("too large")))
    assert outcome.kind == "record"
    assert f"offset 3: the record's timestamp {2**63 - 1} " in str(outcome.message)
    assert "on_bad_timestamp=" in str(outcome.message)
    assert "--batch 1 --release debt`" in str(outcome.message)
