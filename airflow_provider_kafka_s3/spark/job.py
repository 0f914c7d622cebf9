"""The driver: execute the plans of a job file, decide each batch, carry out the decisions.

One Spark action reads all topics of a submit. They share nothing else: each is decided separately, and the failure of
one does not affect another. The driver gets the rows of tasks only, never records.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import shutil
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.incarnation import require_topic_id, topic_id_of
from airflow_provider_kafka_s3.batch.no_kafka import NoKafka
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.documents.manifest import SliceRows
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    KafkaS3Error,
    RecordError,
    SparkJobError,
    SparkTimestampError,
    TerminalError,
    message_of,
)
from airflow_provider_kafka_s3.kafka.options import spark_options
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import TopicPipeline, open_topic
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark.conf import APPLICATION_FILE, start_conf, with_job_conf
from airflow_provider_kafka_s3.spark.failures import explain
from airflow_provider_kafka_s3.spark.frames import read_directly, record_frame
from airflow_provider_kafka_s3.spark.progress import Progress, action_of, counts_line, parallelism_of
from airflow_provider_kafka_s3.spark.pyspark_start import (
    drop_numpy_converters,
    import_installed_pyspark,
    leave_accumulators,
    leave_out_pandas,
)
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.spark.registration import registration
from airflow_provider_kafka_s3.spark.rows import ROW_DDL, Row, gather, silent_slices, uploads_of
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec, PlanRef, TopicOutcome
from airflow_provider_kafka_s3.spark.task import LandedTask, SliceTask
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Job", "execute", "log_to_stderr", "main"]

log = logging.getLogger(__name__)

_TOPIC_THREADS: Final = 16


@dataclass(frozen=True)
class _Topic:
    """A topic whose plan has to be executed."""

    plan: Plan
    pipeline: TopicPipeline
    max_dead_letters: DeadLetterLimit | None

    @property
    def committer(self) -> Committer:
        """Of the topic."""
        return self.pipeline.committer


class Job:
    """One submit.

    Args:
        spec: the plans and the settings.
        spark: makes the session; called only if a plan has to be read.
        source: Kafka; None: that of the spec.
        store: the bucket; None: that of the spec.
    """

    def __init__(
        self,
        spec: JobSpec,
        spark: Callable[[], SparkSession],
        *,
        source: Source | None = None,
        store: DurableStore | None = None,
    ) -> None:
        self._spec = spec
        self._spark = spark
        self._source = source or (KafkaSource(spec.kafka) if spec.kafka else NoKafka("the job has no connection to it"))
        self._store = store or open_bucket(spec.bucket, spec.s3, spec.credentials, retrier=Retrier(spec.retry))
        self._registry = None if spec.registry is None else RegistryClient(spec.registry, Retrier(spec.retry))

    def run(self) -> JobResult:
        """Execute all plans. Errors of topics are in the result, none is raised."""
        log.info("looking up the plans of %s in the bucket, and in Kafka", count(len(self._spec.plans), "topic"))
        outcomes: dict[str, TopicOutcome] = {}
        topics: list[_Topic] = []
        for ref, prepared in zip(
            self._spec.plans, in_threads(self._prepare, self._spec.plans, threads=_TOPIC_THREADS), strict=True
        ):
            if isinstance(prepared, TopicOutcome):
                outcomes[ref.topic] = prepared
            else:
                topics.append(prepared)
        log.info("%s to be read, %d without a read", count(len(topics), "topic"), len(outcomes))
        if topics:
            # Spark 4.2 checks the version of pandas although the job does not use pandas.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            try:
                spark = self._spark()
            except Exception as e:  # noqa: BLE001 - whatever it is, the topics above are decided
                failed = functools.partial(_raise, explain(e))
                outcomes |= {topic.plan.topic: _outcome(topic.plan.topic, failed) for topic in topics}
            else:
                outcomes |= self._execute(spark, topics)
        return JobResult(topics=tuple(outcomes[ref.topic] for ref in self._spec.plans))

    # -- before the action --------------------------------------------------------------------------------------------

    def _prepare(self, ref: PlanRef) -> _Topic | TopicOutcome:
        """The plan to execute, or the outcome of a topic that has already ended."""
        prepared: list[_Topic] = []

        def look() -> None:
            pipeline = self._open(ref, self._source)
            planned, _ = pipeline.log.require_plan(ref.batch)
            if planned.source is not UNSET:
                pipeline = self._open(ref, LandedSource(self._store, planned.source.landed))
            committer = pipeline.committer
            topic_log = committer.log
            plan, _ = topic_log.require_plan(ref.batch)
            decision = topic_log.read_manifest(ref.batch)
            if decision is not None:
                committer.carry_out(plan, decision)
                return
            if plan.layout is None:
                raise ConfigurationError(
                    f"batch {ref.batch} of topic {ref.topic!r} is a reset: there is nothing to read. Run the pipeline, "
                    f"it completes resets"
                )
            require_topic_id(committer.source, topic_log, topic_id_of(committer.log, plan))
            prepared.append(_Topic(plan, pipeline, self._spec.dead_letter_limit(ref)))

        outcome = _outcome(ref.topic, look)
        return prepared[0] if prepared else outcome

    def _open(self, ref: PlanRef, source: Source) -> TopicPipeline:
        return open_topic(
            self._store,
            ref.address,
            source,
            connection_options=self._spec.connection_options,
            upload=self._spec.upload,
            registry=self._registry,
        )

    # -- the action ---------------------------------------------------------------------------------------------------

    def _execute(self, spark: SparkSession, topics: Sequence[_Topic]) -> dict[str, TopicOutcome]:
        try:
            tasks = ReadTasks([topic.plan for topic in topics], parallelism=parallelism_of(spark))
            rows = self._read(spark, topics, tasks)
            results = self._checked(tasks, gather(tasks, rows), rows)
        except Exception as e:  # noqa: BLE001 - py4j raises what it likes
            error = explain(e)
            if len(topics) > 1 and type(error) is not ConfigurationError:
                log.warning("%s; reading each of %s by itself", error, count(len(topics), "topic"))
                return {name: outcome for topic in topics for name, outcome in self._execute(spark, [topic]).items()}
            return {t.plan.topic: _outcome(t.plan.topic, functools.partial(self._fail, t, error)) for t in topics}

        def settle(index: int) -> TopicOutcome:
            topic, result = topics[index], results[index]
            if isinstance(result, KafkaS3Error):
                # Only this process has the ids of the topic's uploads.
                self._store.abort_uploads(uploads_of(index, rows))
            return _outcome(topic.plan.topic, lambda: self._settle(topic, result))

        outcomes = in_threads(settle, range(len(topics)), threads=_TOPIC_THREADS)
        return {outcome.topic: outcome for outcome in outcomes}

    def _read(self, spark: SparkSession, topics: Sequence[_Topic], tasks: ReadTasks) -> list[Row]:
        spec, plans = self._spec, tasks.plans
        if not any(plan.slices for plan in plans):
            return []
        action = action_of(spark)
        options = {
            isolation: spark_options(spec.kafka, isolation=isolation, overrides=spec.kafka_overrides)
            for isolation in {plan.isolation for plan in plans if plan.source is UNSET}
        }
        task = SliceTask(
            plans,
            bucket=spec.bucket,
            s3=spec.s3,
            credentials=spec.credentials,
            retry=spec.retry,
            upload=spec.upload,
            registry=spec.registry,
            prefixes=[topic.committer.log.prefix for topic in topics],
            max_dead_letters=[topic.max_dead_letters for topic in topics],
            written=action.written,
        )
        log.info("Spark plans the read of %s", count(sum(len(plan.slices) for plan in plans), "slice"))
        # Rows only: one per object and one per slice.
        frames = []
        if tasks.of_kafka:
            read_directly(spark)
            frames.append(record_frame(spark, tasks, options).mapInArrow(task, ROW_DDL))
        if number := len(tasks.landed):
            # A task for each number.
            frames.append(spark.range(0, number, 1, number).mapInArrow(LandedTask(task, tasks.landed), ROW_DDL))
        frame = functools.reduce(lambda one, other: one.unionByName(other), frames)
        with Progress(action, tasks):
            rows = action.rows(frame)
        for python, number in Counter(row.python for row in rows if row.python).most_common():
            log.info("%s ran in %s", count(number, "task"), python)
        return rows

    def _checked(
        self, tasks: ReadTasks, results: Sequence[list[SliceRows] | KafkaS3Error], rows: Sequence[Row]
    ) -> list[list[SliceRows] | KafkaS3Error]:
        """The results; an error for each plan with a slice that Spark has not read, and Kafka has records of."""
        silent = [(n, s) for n, s in silent_slices(tasks, rows) if isinstance(results[n], list)]
        if silent:
            log.info("%s without a record: looking for some in Kafka", count(len(silent), "slice"))
        errors = in_threads(lambda one: self._unread(tasks.plans[one[0]], one[1]), silent, threads=_TOPIC_THREADS)
        checked = [*results]
        for (number, _), error in zip(silent, errors, strict=True):
            if error is not None and isinstance(checked[number], list):
                checked[number] = error
        return checked

    def _unread(self, plan: Plan, s: Slice) -> KafkaS3Error | None:
        """Why a slice of which Spark has returned nothing is not to be taken for empty; None: it is empty."""
        problem = f"topic {plan.topic!r}: Spark has returned no record of partition {s.partition}, [{s.start}, {s.end})"
        try:
            batches = self._source.read(plan.topic, s.partition, s.start, s.end, plan.isolation)
            if not any(batch.num_rows for batch in batches):
                return None
        except DataLossError as e:
            # Another read meets it, and then on_data_loss decides.
            return SparkJobError(f"{problem}, and now they are gone from Kafka. Nothing was decided; try again. {e}")
        except KafkaS3Error as e:
            return e
        return SparkJobError(f"{problem}, and Kafka has some. Nothing was decided; try again")

    # -- after the action ---------------------------------------------------------------------------------------------

    def _settle(self, topic: _Topic, found: list[SliceRows] | KafkaS3Error) -> None:
        plan = topic.plan
        if isinstance(found, SparkTimestampError):
            self._read_here(topic, found)
            return
        if isinstance(found, KafkaS3Error):
            # Not for subclasses such as AccessDeniedError, whose causes are outside the plan.
            if type(found) in (RecordError, ConfigurationError):
                found.add_note(topic.committer.log.remedies.abandon_or_leave_out(plan.batch))
            raise found
        decision = topic.committer.decide(plan, found, run=self._spec.run, max_dead_letters=topic.max_dead_letters)
        topic.committer.carry_out(plan, decision)
        log.info(
            "topic %s: batch %d is %s: %s",
            plan.topic,
            plan.batch,
            "committed" if decision.status == "commit" else decision.status,
            counts_line(decision),
        )

    def _read_here(self, topic: _Topic, error: SparkTimestampError) -> None:
        """Execute a plan in this process: librdkafka returns unchanged timestamps."""
        log.warning(
            "topic %s: batch %d: %s; its %s are read by the driver, without Spark, which takes longer",
            topic.plan.topic,
            topic.plan.batch,
            error,
            count(topic.plan.read.count, "offset"),
        )
        topic.pipeline.execute(
            topic.plan,
            run=self._spec.run,
            on_data_loss=self._spec.on_data_loss,
            max_dead_letters=topic.max_dead_letters,
        )

    def _fail(self, topic: _Topic, error: KafkaS3Error) -> None:
        """Raise the error for a topic's failed action, or abandon the batch if that is the policy."""
        plan = topic.plan
        # A deleted or recreated topic may cause any error, so it is checked first.
        source = topic.committer.source
        require_topic_id(source, topic.committer.log, topic_id_of(topic.committer.log, plan))
        if isinstance(error, SparkTimestampError):
            self._read_here(topic, error)
            return
        if not isinstance(error, DataLossError):
            if type(error) is TerminalError:  # the rows of the batch exceed the driver's limit
                error.add_note(topic.committer.log.remedies.abandon_or_leave_out(plan.batch))
            raise error
        partitions = tuple(plan.read)
        earliest = source.earliest(plan.topic, partitions)
        ends = source.ends(plan.topic, partitions, plan.isolation)
        gone = plan.read - Offsets({p: [(earliest.get(p, 0), ends.get(p, 0))] for p in partitions})
        if not gone:
            raise SparkJobError(
                f"topic {plan.topic!r}: Spark could not read all offsets of batch {plan.batch}, yet Kafka has them "
                f"now. Nothing was decided; try again. Spark's error: {error}"
            )
        loss = f"offsets are gone from Kafka: topic {plan.topic!r}, {gone} of batch {plan.batch}"
        if self._spec.on_data_loss == "fail":
            raise DataLossError(
                f"{loss} (retention, deletion of records, or a truncated log). Nothing was decided. "
                f"{topic.committer.log.remedies.skip_gap(plan.batch)}"
            )
        log.warning("%s; the batch is abandoned and the rest of it planned again (on_data_loss='skip')", loss)
        decision = topic.committer.abandon(
            plan, release="debt", reason=loss, operator="on_data_loss=skip", run=self._spec.run
        )
        topic.committer.carry_out(plan, decision)


def _outcome(topic: str, step: Callable[[], None]) -> TopicOutcome:
    try:
        step()
    except KafkaS3Error as e:
        log.error("topic %s: %s: %s", topic, type(e).__name__, message_of(e))
        return TopicOutcome.failed(topic, e)
    except Exception as e:
        log.exception("topic %s: unexpected error", topic)
        unexpected = SparkJobError(f"an unexpected {type(e).__name__} in the driver: {message_of(e)}")
        return TopicOutcome.failed(topic, unexpected)
    return TopicOutcome(topic=topic, status="decided")


def _raise(error: KafkaS3Error) -> None:
    raise error


def _connect_to_jvm(*, ignore_errors: bool = False) -> None:
    """Import pyspark and connect to the JVM that started this process; harmless when repeated."""
    with contextlib.suppress(*[Exception] if ignore_errors else []):
        from pyspark import SparkContext

        drop_numpy_converters()
        SparkContext._ensure_initialized()


def _session(connecting: threading.Thread, *, offsets: int) -> SparkSession:
    """The session of the process.

    Args:
        connecting: runs :func:`_connect_to_jvm`.
        offsets: that the job reads.
    """
    # Without the JVM a SparkConf is empty, and our settings would replace those that the user gave to spark-submit.
    connecting.join()
    _connect_to_jvm()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf()
    settings = dict(conf.getAll())
    master = settings.get("spark.master", "")
    wanted = {**start_conf(master, offsets=offsets, installed=_is_installed()), **with_job_conf(settings)}
    ours = {name: value for name, value in wanted.items() if settings.get(name) != value}
    log.info("starting Spark at master %s", master)
    leave_out_pandas()
    began = time.monotonic()
    with registration(SparkContext._gateway, master):
        context = SparkContext.getOrCreate(conf.setAll(list(ours.items())))
        if APPLICATION_FILE in settings:
            Path(settings[APPLICATION_FILE]).write_text(context.applicationId)
        log.info("Spark %s is up after %.1f s: application %s", context.version, _since(began), context.applicationId)
        builder = SparkSession.builder
        for name, value in ours.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    log.info("Spark's session is ready after %.1f s", _since(began))
    return session


def _is_installed() -> bool:
    """Whether Python workers of this machine have this package without a file of the job: it is in their Python."""
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    return shutil.which(python) == sys.executable and Path(__file__).is_file()


def _since(began: float) -> float:
    """Seconds."""
    return time.monotonic() - began


def main(argv: Sequence[str] | None = None) -> int:
    """Run one submit.

    Args:
        argv: ``--job-file PATH``: a :class:`~airflow_provider_kafka_s3.spark.spec.JobSpec`; None: of the process.

    Returns:
        0 if every topic's batch is decided and carried out, else 1; details are in the spec's ``result_path``.
    """
    parser = argparse.ArgumentParser(prog="kafka_to_s3", description="Execute planned batches of Kafka topics.")
    parser.add_argument("--job-file", required=True, help="description of the job; removed as soon as it is read")
    path: str = parser.parse_args(argv).job_file
    log_to_stderr()
    import_installed_pyspark()
    try:
        spec = JobSpec.read(path)
    except TerminalError as e:
        log.error("%s", e)
        return 1
    # It takes a second, in which the plans are looked up.
    connecting = threading.Thread(target=_connect_to_jvm, kwargs={"ignore_errors": True}, name="connect-to-jvm")
    connecting.start()
    try:
        result = execute(spec, functools.partial(_session, connecting, offsets=spec.offsets))
    finally:
        connecting.join()
        _stop()
    result.write(spec.result_path)
    return 0 if result.succeeded else 1


def log_to_stderr() -> None:
    """Log to stderr, which the caller copies to the log of the task; there each line gets its time."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    for chatty in ("botocore", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def execute(spec: JobSpec, session: Callable[[], SparkSession]) -> JobResult:
    """Execute a job file; errors are in the result.

    Args:
        spec: the plans and the settings.
        session: makes the session.
    """
    try:
        return Job(spec, session).run()
    except Exception as e:  # noqa: BLE001 - the caller reads the result file, not tracebacks
        error = explain(e)
        log.error("%s: %s", type(error).__name__, message_of(error))
        return JobResult(topics=tuple(TopicOutcome.failed(ref.topic, error) for ref in spec.plans))


def _stop() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        leave_accumulators(session)
        session.stop()
