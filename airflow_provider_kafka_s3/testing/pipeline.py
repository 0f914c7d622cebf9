"""A pipeline in memory: Kafka, the bucket and Spark are simulated, all other code is the package's own.

For tests of DAGs::

    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1}, {"id": 2})
        dag.test()
        assert simulated.records("orders") == [{"id": 1}, {"id": 2}]
        simulated.check()
"""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

import msgspec

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import DeviantArtNaming, JsonLines, Layout, default_partitioner
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TopicNotFoundError
from airflow_provider_kafka_s3.inspect.topics import owned_topics
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.pipeline import TopicPipeline, open_topic
from airflow_provider_kafka_s3.reading.source_by_log import SourceByLog
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.decompress import decompress
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, RecordDecoder, check_bucket, decode_lines
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.spark.spec import JobSpec
    from airflow_provider_kafka_s3.submit.job import JobOutcome
    from airflow_provider_kafka_s3.submit.target import SparkTarget

__all__ = ["SimulatedPipeline"]

_PACKAGE = "airflow_provider_kafka_s3"


class SimulatedPipeline:
    """Kafka and a bucket in memory, used by every operator and sensor of this package inside the ``with`` block.

    Airflow connections are not looked up. Spark jobs are executed by this process: names and bytes of objects are those
    that Spark would write. Tables get no partitions (``partitions_in``).

    Attributes:
        kafka: the cluster. Its methods create topics, delete records, and so on.
        bucket: the objects.
        registry: schemas of values with ``value_converter="avro"``, ``"protobuf"`` or ``"json_schema"``.
    """

    def __init__(self) -> None:
        """Make an empty cluster and an empty bucket."""
        self.kafka = SimulatedKafka()
        self.bucket = MemoryStore()
        self.registry = SimulatedRegistry()
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Redirect operators and sensors to the simulation."""
        for target, replacement in {
            # By name: importing them would import Airflow, which may not be installed.
            f"{_PACKAGE}.storage.bucket.open_bucket": self._open_bucket,
            f"{_PACKAGE}.kafka.source.KafkaSource": lambda *_, **__: self.kafka,
            f"{_PACKAGE}.airflow.connections.kafka_config": lambda _: {"bootstrap.servers": "simulated:9092"},
            f"{_PACKAGE}.airflow.connections.s3_access": _s3_access,
            f"{_PACKAGE}.airflow.connections.registry_access": lambda _: None,
            f"{_PACKAGE}.registry.client.RegistryClient": lambda *_, **__: self.registry,
            f"{_PACKAGE}.airflow.connections.spark_target": _spark_target,
            f"{_PACKAGE}.operators.kafka_to_s3.add_partitions": lambda *_: None,
            f"{_PACKAGE}.operators.kafka_to_s3.require_spark": lambda *_: None,
            f"{_PACKAGE}.operators.kafka_to_s3.KafkaToS3Operator._make_job": lambda *_: _SimulatedJob(self),
        }.items():
            self._patches.enter_context(mock.patch(target, replacement))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo the redirection; landed objects stay readable."""
        self._patches.close()

    def append(self, topic: str, *values: Any, partition: int = 0, at: datetime | None = None) -> None:
        """Append records to a topic, which is created with one partition if it does not exist.

        Args:
            topic: name of the topic.
            values: of the records: bytes as they are, None for a tombstone, anything else as JSON.
            partition: number of the partition.
            at: timestamp of the records, with a time zone; None: now.
        """
        try:
            self.kafka.partition_count(topic)
        except TopicNotFoundError:
            self.kafka.create_topic(topic)
        timestamp = int((at or datetime.now(UTC)).timestamp() * 1000)
        for value in values:
            encoded = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self.kafka.append(topic, partition, encoded, timestamp)

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """Landed objects: key -> bytes, without control documents.

        Args:
            prefix: of the keys, such as ``"topics/orders/"``.
        """
        objects = {}
        for info in self.bucket.list(prefix):
            stored = self.bucket.get(info.key)
            if stored is not None and "_kafka_s3/" not in info.key:
                objects[info.key] = stored.body
        return objects

    def records(self, topic: str, *, topics_dir: str = "topics") -> list[Any]:
        """The JSON records of a topic, in the order of the keys of their objects.

        Args:
            topic: name of the topic.
            topics_dir: of the pipeline.
        """
        naming, below = DeviantArtNaming(), keys.below(topics_dir)
        layout = Layout(
            topics_dir=topics_dir, format=JsonLines(), naming=naming, partitioner=default_partitioner(naming)
        )
        by_day = keys.named_object_parser(layout, topic)
        bodies = [
            body_of
            for body_of in sorted(self.objects(below).items())
            if body_of[0].startswith(f"{below}{topic}/")
            or ((named := by_day(body_of[0])) is not None and named.ending != ".index.json")
        ]
        return [json.loads(line) for key, body in bodies for line in decompress(key, body).splitlines()]

    def topic_pipeline(self, pipeline: str, topic: str, *, topics_dir: str = "topics") -> TopicPipeline:
        """One topic of a pipeline, for its status, or for the operations of the command line ``kafka-s3``."""
        store, address = self._open_bucket(), TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=topic)
        return open_topic(store, address, SourceByLog(self.kafka, TopicLog(store, address)), registry=self.registry)

    def check(self, *, topics_dir: str = "topics", decoder: RecordDecoder = decode_lines) -> dict[str, BucketSummary]:
        """Compare every landed topic with Kafka, record by record: landed once, nothing lost, nothing left open.

        Args:
            topics_dir: of the pipelines.
            decoder: (key, bytes) -> values in the object.

        Returns:
            Counts per topic.

        Raises:
            InvariantViolation: a record is lost or landed twice, or an object differs from its manifest.
        """
        return {
            address.topic: check_bucket(
                self.bucket,
                **msgspec.structs.asdict(address),
                source=self.kafka.all_records(),
                recovered=True,
                decoder=decoder,
            )
            for address in owned_topics(self._open_bucket(), topics_dir=topics_dir)
        }

    def _open_bucket(self, *_: object, retrier: Retrier | None = None) -> DurableStore:
        return DurableStore(self.bucket, retrier or Retrier())


def _s3_access(_: str | None) -> SimpleNamespace:
    from airflow_provider_kafka_s3.storage.s3 import S3Settings

    return SimpleNamespace(settings=S3Settings(), credentials=None)


def _spark_target(_: str) -> SparkTarget:
    from airflow_provider_kafka_s3.submit.target import SparkTarget

    return SparkTarget(master="local", deploy_mode=None, spark_binary=None)


class _SimulatedJob:
    """A :class:`~airflow_provider_kafka_s3.submit.job.SparkJob` that this process executes."""

    def __init__(self, simulated: SimulatedPipeline) -> None:
        self._simulated = simulated

    def run(self, spec: JobSpec) -> JobOutcome:
        """See :class:`~airflow_provider_kafka_s3.submit.job.SparkJob`."""
        from airflow_provider_kafka_s3.spark.spec import JobResult, TopicOutcome
        from airflow_provider_kafka_s3.submit.job import JobOutcome

        outcomes = []
        for ref in spec.plans:
            pipeline = self._simulated.topic_pipeline(ref.pipeline, ref.topic, topics_dir=ref.topics_dir)
            try:
                plan, _ = pipeline.log.require_plan(ref.batch)
                pipeline.execute(
                    plan, run=spec.run, on_data_loss=spec.on_data_loss, max_dead_letters=spec.dead_letter_limit(ref)
                )
            except KafkaS3Error as e:
                outcomes.append(TopicOutcome.failed(ref.topic, e))
            else:
                outcomes.append(TopicOutcome(topic=ref.topic, status="decided"))
        return JobOutcome(JobResult(topics=tuple(outcomes)), "")

    def kill(self) -> None:
        """Nothing to end: the job is this process."""
