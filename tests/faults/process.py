"""One pipeline over HTTP: the product's engine, formats, retries and S3 client; only Kafka and time are simulated.

All shared state is in the bucket and in Kafka: a new :class:`Process` on the same bucket and topic is another process.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import fastavro
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import MIB, MIN_PART_SIZE, JsonConverter, Layout, Limits, Parquet, parse_format
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.pipeline import Run, TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Store
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, check_bucket, decode_lines
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["LARGE", "SMALL", "FormatName", "Process", "Size", "Topic"]

TOPIC: Final = "events"
PIPELINE: Final = "lake"

Size = Literal["small", "large"]
FormatName = Literal["bytes", "json", "avro", "parquet"]
SMALL: Final = "small"
LARGE: Final = "large"

_NUMBERS = itertools.count(1)
_SCHEMA: Final = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "at", "type": "long"}, {"name": "of", "type": "string"}, {"name": "padding", "type": "string"}],
}


@dataclass
class Topic:
    """A topic, and the folder of the bucket in which it is landed.

    Attributes:
        format: of the objects.
        size: ``small``: two objects a batch; ``large``: one that takes two parts.
    """

    format: FormatName = "bytes"
    size: Size = SMALL
    topics_dir: str = field(default_factory=lambda: f"t{next(_NUMBERS):05d}")
    kafka: SimulatedKafka = field(default_factory=SimulatedKafka)

    def __post_init__(self) -> None:
        self.kafka.create_topic(TOPIC)

    @property
    def layout(self) -> Layout:
        """Layout of its objects."""
        # Incompressible, so that a large object takes several parts in every format.
        record_format = Parquet(compression="none") if self.format == "parquet" else self.format
        converter = JsonConverter(schema=json.dumps(_SCHEMA)) if self.format in ("avro", "parquet") else None
        return Layout(
            topics_dir=self.topics_dir,
            format=parse_format(record_format),
            value_converter=converter,
            part_size=MIN_PART_SIZE,
        )

    @property
    def control(self) -> str:
        """Prefix of its control documents."""
        return keys.control_prefix(self.topics_dir, PIPELINE, TOPIC)

    @property
    def data(self) -> str:
        """Prefix of its objects."""
        return f"{self.topics_dir}/{TOPIC}/"

    def records_arrive(self) -> None:
        """Append the records of one more batch."""
        padding = 5 * MIB // 4 if self.size == LARGE else 2
        for _ in range(5 if self.size == LARGE else 3):
            at = self.kafka.bounds(TOPIC, 0)[1]
            record = {"at": at, "of": self.kafka.topic_id(TOPIC), "padding": (f"{at}." * padding)[:padding]}
            self.kafka.append(TOPIC, 0, json.dumps(record, separators=(",", ":")).encode(), timestamp=at)


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
            sleep=self.sleep,
            monotonic=self.monotonic,
        )
        self.log = self.pipeline.log
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
        return check_bucket(
            self.store.store,
            topics_dir=self.topic.topics_dir,
            pipeline=PIPELINE,
            topic=TOPIC,
            source=self.topic.kafka.all_records(),
            decoder=_values,
            **{"recovered": True, "complete": True, **how},
        )

    def pending(self) -> set[str]:
        """Ids of the pending uploads."""
        return {upload.upload_id for upload in self.store.pending_uploads(self.topic.data)}


def _values(key: str, body: bytes) -> Sequence[bytes]:
    """The values in an object, as they are in Kafka."""
    if key.endswith(".avro"):
        rows: list[Any] = list(fastavro.reader(io.BytesIO(body)))
    elif key.endswith(".parquet"):
        rows = pq.read_table(io.BytesIO(body)).to_pylist()
    else:
        return decode_lines(key, body)
    return [json.dumps(row, separators=(",", ":")).encode() for row in rows]
