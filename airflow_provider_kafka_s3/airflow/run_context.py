"""State of one try of a task: the runs of its topics, the store, and the connections of its Spark jobs."""

from __future__ import annotations

import dataclasses
import logging
import platform
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_kafka_s3.airflow import compat, connections, parameters
from airflow_provider_kafka_s3.config import stored_options
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import KafkaS3Error
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.spark.spec import ConnectServer, JobSpec, PlanRef
from airflow_provider_kafka_s3.storage import bucket as s3_bucket
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.run_settings import RunSettings
    from airflow_provider_kafka_s3.airflow.run_window import RunWindow
    from airflow_provider_kafka_s3.batch.log import TopicLog
    from airflow_provider_kafka_s3.batch.source import Source
    from airflow_provider_kafka_s3.documents.plan import Plan
    from airflow_provider_kafka_s3.documents.planner import PlannerTask, TaskHasEnded
    from airflow_provider_kafka_s3.pipeline import Run
    from airflow_provider_kafka_s3.registry.settings import RegistrySettings

__all__ = ["RunContext", "prepare_run"]

log = logging.getLogger(__name__)

_ONE_MORE: Final = RetryPolicy(max_retries=1)
"""Tries of a registry before a job: two of ten seconds each if it is silent."""


@dataclass
class RunContext:
    """One try of a task; its repr shows nothing secret.

    Attributes:
        settings: parameters of the operator, rendered.
        run: key of the run.
        runs: run of each topic.
        store: the bucket, shared by all topics.
        bucket: name of the bucket.
        access: current access to the store; renewed after a Spark job.
        kafka: settings of librdkafka.
        registry: access to the schema registry; None: there is none.
    """

    settings: RunSettings
    run: str
    runs: dict[str, Run]
    store: DurableStore
    bucket: str
    access: connections.S3Access
    kafka: dict[str, Any] = field(repr=False)
    registry: RegistrySettings | None = None

    def job(self, plans: Mapping[str, Plan], *, result_path: str, connect: ConnectServer | None = None) -> JobSpec:
        """Describe the Spark job that executes one plan per topic; the description contains secrets.

        Args:
            plans: per topic.
            result_path: where the driver writes the result of the job.
            connect: the Spark Connect server; None: the job is run by ``spark-submit``.
        """
        settings = self.settings
        return JobSpec(
            run=self.run,
            plans=tuple(
                PlanRef(
                    **msgspec.structs.asdict(self.runs[topic].log.address),
                    batch=plan.batch,
                    dead_letters=self.runs[topic].dead_letters,
                    offsets=plan.read.count,
                )
                for topic, plan in plans.items()
            ),
            kafka=self.kafka,
            kafka_overrides=settings.kafka_options,
            bucket=self.bucket,
            s3=self.access.settings.for_upload(settings.upload),
            credentials=self.access.credentials,
            retry=settings.request_retry,
            upload=settings.upload,
            on_data_loss=settings.on_data_loss,
            registry=self.registry,
            max_dead_letters=settings.max_dead_letters,
            connection_options=_connection_options(settings),
            result_path=result_path,
            connect=connect,
        )

    def registry_errors(self, plans: Mapping[str, Plan]) -> dict[str, KafkaS3Error]:
        """The error of each topic that cannot be landed, since the schema registry does not answer.

        A topic that has schemas in the bucket may need no other one.

        Args:
            plans: to be executed next, per topic.
        """
        needing = [
            topic
            for topic, plan in plans.items()
            if plan.layout is not None and plan.layout.needs_registry and not _has_schemas(self.runs[topic].log)
        ]
        if self.registry is None or not needing:
            return {}
        from airflow_provider_kafka_s3.registry.client import RegistryClient

        try:
            RegistryClient(self.registry, Retrier(_ONE_MORE)).require_answer()
        except KafkaS3Error as e:
            return dict.fromkeys(needing, e)
        return {}

    def renew(self, access: connections.S3Access) -> None:
        """Replace the credentials for the store: those of a role may expire during a Spark job."""
        if access != self.access:
            self.access = access
            stored = access.settings.for_upload(self.settings.upload)
            self.store.store = s3_bucket.open_bucket(self.bucket, stored, access.credentials).store


def prepare_run(settings: RunSettings, context: Context, resolved: RunWindow) -> RunContext:
    """Check the rendered parameters and the connections of a task, and create the runs of its topics.

    Nothing is read from or written to the store or Kafka yet.

    Args:
        settings: parameters of the operator, rendered.
        context: of the task.
        resolved: window and action of the run.

    Raises:
        ConfigurationError: a connection, a rendered template or a setting is wrong.
        TransientError: STS did not answer.
    """
    from airflow_provider_kafka_s3.documents.planner import PlannerTask
    from airflow_provider_kafka_s3.kafka.options import spark_options
    from airflow_provider_kafka_s3.kafka.source import KafkaSource
    from airflow_provider_kafka_s3.layout.zones import zone_database_version
    from airflow_provider_kafka_s3.pipeline import open_topic
    from airflow_provider_kafka_s3.reading.landed_source import LandedSource
    from airflow_provider_kafka_s3.registry.client import RegistryClient

    kafka = connections.kafka_config(settings.kafka_conn_id) if settings.source is None else {}
    connections.mask_options(settings.kafka_options)
    access = connections.s3_access(settings.aws_conn_id)
    stored = access.settings.for_upload(settings.upload)
    topics = parameters.parse_topics(settings.topics)
    pipeline = addresses.validate_pipeline(settings.pipeline)
    bucket = parameters.require_bucket(settings.bucket)
    topics_dir = parameters.require_topics_dir(settings.topics_dir)
    layout = parameters.usable_layout(
        parameters.require_layout(settings.layout(topics_dir, zone_database_version(), stored.encryption_name)), topics
    )
    window_of = {topic: resolved.of_topic(topic) for topic in topics}
    retrier = Retrier(settings.request_retry)
    store = s3_bucket.open_bucket(bucket, stored, access.credentials, retrier=retrier)
    connection_options = _connection_options(settings)
    source: Source
    if settings.source is None:
        # Settings that Spark does not accept are refused before anything is planned.
        spark_options(kafka, isolation=settings.isolation, overrides=settings.kafka_options)
        source = KafkaSource(kafka, retrier=retrier, connection=connections.kafka_name(settings.kafka_conn_id))
    else:
        parameters.require_other_prefix(settings.source, topics_dir)
        source = LandedSource(store, settings.source, connection_options=connection_options)
    starting = parameters.parse_starting_offsets(settings.starting_offsets)
    registry = None if settings.registry_conn_id is None else connections.registry_access(settings.registry_conn_id)
    ti = context["ti"]
    map_index = -1 if ti.map_index is None else ti.map_index
    planner = PlannerTask(dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=map_index)
    run = addresses.run_name(**msgspec.structs.asdict(planner))
    has_ended = _task_has_ended(ti)
    runs = {}
    for topic, window in window_of.items():
        if isinstance(window, Mapping) and not window:
            log.info("topic %s: left out by %s", topic, resolved.source)
            continue
        request = settings.request(
            layout,
            parameters.starting_of(starting, topic, topics),
            run=run,
            window=window,
            action=resolved.action,
            attempt=f"try {ti.try_number} on {platform.node()}",
        )
        runs[topic] = open_topic(
            store,
            addresses.TopicAddress(topics_dir=layout.topics_dir, pipeline=pipeline, topic=topic),
            source,
            connection_options=connection_options,
            upload=settings.upload,
            registry=None if registry is None else RegistryClient(registry, retrier),
        ).run(dataclasses.replace(request, task=planner), task_has_ended=has_ended)
    return RunContext(
        settings=settings, run=run, runs=runs, store=store, bucket=bucket, access=access, kafka=kafka, registry=registry
    )


def _has_schemas(log: TopicLog) -> bool:
    return next(log.store.walk(addresses.schemas_prefix(log.prefix)), None) is not None


def _connection_options(settings: RunSettings) -> tuple[str, ...]:
    """Options with which ``kafka-s3`` uses the connections of a task."""
    return (
        *connections.connection_options(
            settings.kafka_conn_id if settings.source is None else None, settings.aws_conn_id, settings.registry_conn_id
        ),
        *stored_options(settings.upload),
    )


def _task_has_ended(ti: Any) -> TaskHasEnded:
    """A function that requests the state of another task instance from Airflow, one request at a time.

    It returns None if Airflow does not answer.
    """
    one_by_one = threading.Lock()

    def has_ended(task: PlannerTask) -> bool | None:
        try:
            with one_by_one:
                running = compat.task_is_running(ti, **msgspec.structs.asdict(task))
        except Exception as e:  # noqa: BLE001 - on any error, the run waits for the batch
            log.debug("Airflow does not return the state of %s: %r", task, e)
            return None
        return None if running is None else not running

    return has_ended
