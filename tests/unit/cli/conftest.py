"""The command line with Kafka and the store in memory, and a topic of a pipeline."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.request import RunRequest, TargetOffsets, TopicResult
from airflow_provider_kafka_s3.cli import access, main
from airflow_provider_kafka_s3.config import JsonLines, Layout, Limits, RawBytes
from airflow_provider_kafka_s3.kafka import source as kafka_source
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage import bucket as s3_bucket
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash

# A prefix that a shell would split.
TOPIC, PIPELINE, TOPICS_DIR = "orders", "orders-to-lake", "raw topics"
BYTES = Layout(topics_dir=TOPICS_DIR, format=RawBytes())
JSON = Layout(topics_dir=TOPICS_DIR, format=JsonLines())


def no_wait() -> Retrier:
    """Retries without waiting; time passes by itself."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Retrier(sleep=sleep, monotonic=lambda: now[0])


@dataclass(frozen=True)
class Output:
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Stderr as one line."""
        return " ".join(self.err.split())

    @property
    def data(self) -> dict[str, Any]:
        """Stdout of a command with ``--json``, parsed."""
        read: dict[str, Any] = json.loads(self.out)
        return read


def commands_in(message: str) -> list[list[str]]:
    """The command lines that an error prints, as a shell would split them."""
    lines = re.findall(r"`(kafka-s3 [^`]+)`|^    (kafka-s3 .+)$", message, re.MULTILINE)
    return [shlex.split(quoted or indented)[1:] for quoted, indented in lines]


class World:
    """One topic of a pipeline with six records, and the command line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.now = 1_000_000_000.0
        self.empty_bucket()
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.fill(6)
        self._capsys = capsys

    def empty_bucket(self) -> None:
        """Begin with another bucket."""
        self.bucket = MemoryStore("lake", clock=lambda: self.now)

    def fill(self, count: int) -> None:
        """Append JSON records."""
        for i in range(count):
            self.kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)

    def pipeline(
        self, store: ObjectStore | None = None, *, pipeline: str = PIPELINE, topic: str = TOPIC
    ) -> TopicPipeline:
        """A topic of a pipeline, in a process that has read nothing yet."""
        durable = DurableStore(store or self.bucket, no_wait())
        return TopicPipeline(durable, self.kafka, topics_dir=TOPICS_DIR, pipeline=pipeline, topic=topic)

    def committer(self, store: ObjectStore | None = None) -> Committer:
        """Its committer, in a process that has read nothing yet."""
        return self.pipeline(store).committer

    def run(
        self,
        run: str,
        offsets: TargetOffsets = "incremental",
        *,
        store: ObjectStore | None = None,
        pipeline: str = PIPELINE,
        topic: str = TOPIC,
        **settings: Any,
    ) -> TopicResult:
        """Run from beginning to end, without Spark."""
        defaults: dict[str, Any] = {"layout": BYTES, "starting": "earliest", "adopt_wait": 0.0}
        limits = Limits(**({"records_per_slice": 3} | settings.pop("limits", {})))
        request = RunRequest(run=run, offsets=offsets, limits=limits, **(defaults | settings))
        return self.pipeline(store, pipeline=pipeline, topic=topic).land(request)

    def die(self, at: str, run: str = "died", **settings: Any) -> None:
        """Run, and crash after the document ``at`` was created."""
        store = FaultyStore(self.bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key=at)
        with pytest.raises(SimulatedCrash):
            self.run(run, store=store, **settings)

    def cli(self, *arguments: str) -> Output:
        """Run a command."""
        self._capsys.readouterr()
        code = main.main(arguments)
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)

    def on_topic(self, command: str, *arguments: str) -> Output:
        """Run a command on the topic."""
        where = ("--bucket", "lake", "--topics-dir", TOPICS_DIR, "--pipeline", PIPELINE, "--topic", TOPIC)
        return self.cli(command, *where, *arguments)

    def check(self, **options: Any) -> None:
        """Check that the bucket has every record of Kafka once, and that the marker agrees."""
        place = {"topics_dir": TOPICS_DIR, "pipeline": PIPELINE, "topic": TOPIC}
        check_bucket(self.bucket, source=self.kafka.all_records(), **(place | {"recovered": True} | options))

    def data_keys(self) -> list[str]:
        """Keys of the visible objects."""
        return [info.key for info in self.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]


@pytest.fixture
def world(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> World:
    """See the class."""
    made = World(capsys)
    monkeypatch.setattr(s3_bucket, "open_bucket", lambda *_, retrier: DurableStore(made.bucket, retrier))
    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, **__: made.kafka)
    monkeypatch.setattr(access, "Retrier", no_wait)
    for name in ("BUCKET", "AWS_CONN_ID", "KAFKA_CONN_ID", "KAFKA_CONFIG", "ENDPOINT_URL"):
        monkeypatch.delenv(f"KAFKA_S3_{name}", raising=False)
    monkeypatch.setenv("KAFKA_S3_BOOTSTRAP_SERVER", "broker:9092")
    return made


@pytest.fixture
def opened(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments with which commands open the store and Kafka."""
    arguments: dict[str, Any] = {}

    def open_bucket(bucket: str, settings: object, credentials: object, *, retrier: Retrier) -> DurableStore:
        arguments.update(settings=settings, credentials=credentials, bucket=bucket)
        return DurableStore(world.bucket, retrier)

    def open_kafka(config: object, **_: object) -> object:
        arguments.update(config=config)
        return world.kafka

    monkeypatch.setattr(s3_bucket, "open_bucket", open_bucket)
    monkeypatch.setattr(kafka_source, "KafkaSource", open_kafka)
    world.run("first")
    return arguments
