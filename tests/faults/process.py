"""One pipeline over HTTP: the product's engine, formats, retries and S3 client; only Kafka and time are simulated.

All shared state is in the bucket and in Kafka: a new :class:`Process` on the same bucket and topic is another process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import MIB, Layout, Limits
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.pipeline import Run, TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Store
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, check_bucket
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.kinds import KINDS, KindName, Landed, registry_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["LARGE", "SMALL", "Process", "Size", "Topic"]

TOPIC: Final = "events"
PIPELINE: Final = "lake"

Size = Literal["small", "large"]
SMALL: Final = "small"
LARGE: Final = "large"

_NUMBERS = itertools.count(1)


@dataclass
class Topic:
    """A topic, and the folder of the bucket in which it is landed.

    Attributes:
        kind: what it is landed as.
        size: ``small``: two slices a batch; ``large``: one, whose object of values takes two parts.
        records: that ever arrived, as far as the kind lands them.
        index_sizes: batches of an index of the log; None: those of the product.
    """

    kind: KindName = "bytes"
    size: Size = SMALL
    topics_dir: str = field(default_factory=lambda: f"t{next(_NUMBERS):05d}")
    kafka: SimulatedKafka = field(default_factory=SimulatedKafka)
    registry: SimulatedRegistry = field(default_factory=registry_of)
    records: list[Landed] = field(default_factory=list)
    index_sizes: tuple[int, ...] | None = None
    _batches: int = 0

    def __post_init__(self) -> None:
        self.kafka.create_topic(TOPIC)

    @property
    def layout(self) -> Layout:
        """Layout of its objects."""
        return KINDS[self.kind].layout(self.topics_dir)

    @property
    def control(self) -> str:
        """Prefix of its control documents."""
        return addresses.control_prefix(self.topics_dir, PIPELINE, TOPIC)

    @property
    def data(self) -> str:
        """Prefix of its objects."""
        return f"{self.topics_dir}/{TOPIC}/"

    def records_arrive(self) -> None:
        """Append the records of one more batch; those of a registry have a schema of their own."""
        kind = KINDS[self.kind]
        padding = 5 * MIB // 4 if self.size == LARGE else 2
        # A null or invalid value has no padding.
        count = 3 if self.size == SMALL else 7 if kind.nulls or kind.invalid else 5
        for number in range(count):
            at = self.kafka.bounds(TOPIC, 0)[1]
            record = {"at": at, "of": self.kafka.topic_id(TOPIC), "padding": (f"{at}." * padding)[:padding]}
            value = kind.value(number, record, version=self._batches)
            key, headers = f"key {at}", [("trace", f"{at}")] * (number % 2)
            sent = [(name, text.encode()) for name, text in headers]
            self.kafka.append(TOPIC, 0, value, timestamp=at, key=key.encode(), headers=sent)
            self.records.append(kind.landed(key, value, headers))
        self._batches += 1


class Process:
    """One process that lands a topic.

    Attributes:
        store: its store, with retries whose waits take no time.
        log: the topic's control documents.
        committer: of the topic.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        topic: Topic,
        *,
        source: SimulatedKafka | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        """Create a process; no request is sent yet."""
        clock = [0.0]

        def pass_time(seconds: float) -> None:
            clock[0] += seconds

        self.topic = topic
        self.sleep, self.monotonic = sleep or pass_time, lambda: clock[0]
        policy = RetryPolicy(throttle_deadline=4.0)
        self.store = DurableStore(
            S3Store(client, bucket), Retrier(policy, sleep=pass_time, monotonic=self.monotonic, rng=lambda: 1.0)
        )
        self.pipeline = TopicPipeline(
            self.store,
            source or topic.kafka,
            topics_dir=topic.topics_dir,
            pipeline=PIPELINE,
            topic=TOPIC,
            registry=topic.registry,
            sleep=self.sleep,
            monotonic=self.monotonic,
        )
        self.log = self.pipeline.log
        self.log.index_sizes = topic.index_sizes or self.log.index_sizes
        self.committer = self.pipeline.committer

    def attempt(self, run: str, **settings: Any) -> Run:
        """One attempt of a run."""
        defaults: Mapping[str, Any] = {
            "offsets": "incremental",
            "layout": self.topic.layout,
            "starting": "earliest",
            "limits": Limits(records_per_slice=2 if self.topic.size == SMALL else 100),
            "adopt_wait": 0.0,
        }
        request = RunRequest(run=run, **{**defaults, **settings})
        return self.pipeline.run(request)

    def run(self, run: str, **settings: Any) -> TopicResult:
        """One attempt of a run, from beginning to end."""
        attempt = self.attempt(run, **settings)
        while not isinstance(step := attempt.advance(), TopicResult):
            self.execute(step, run)
        return step

    def execute(self, plan: Plan, run: str) -> Manifest:
        """Act as the job: read, upload, decide, roll forward."""
        return execute_plan(self.committer, plan, run=run)

    def check(self, **how: Any) -> BucketSummary:
        """Compare the bucket with Kafka, record by record: everything is landed once and nothing is open."""
        kind, store = KINDS[self.topic.kind], self.store.store
        summary = check_bucket(
            store,
            topics_dir=self.topic.topics_dir,
            pipeline=PIPELINE,
            topic=TOPIC,
            source=self.topic.kafka.all_records(),
            decoder=kind.values,
            as_written=kind.as_written,
            **{"recovered": True, "complete": True, **how},
        )
        objects = {info.key: stored.body for info in store.list(self.topic.data) if (stored := store.get(info.key))}
        kind.check_whole(self.topic.layout, TOPIC, objects, lambda: self.topic.records)
        return summary

    def pending(self) -> set[str]:
        """Ids of the pending uploads."""
        return {upload.upload_id for upload in self.store.pending_uploads(self.topic.data)}
