"""A bucket with pipelines, and the pages over it."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Layout, RawBytes
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from airflow_provider_kafka_s3.ui.pages import Pages, Response
from airflow_provider_kafka_s3.ui.places import Connected, Place


class Lake:
    """A bucket, a cluster, and what a browser gets.

    Attributes:
        bucket: with the pipelines.
        requests: that the pages send to it, and its faults.
        kafka: the cluster.
        now: of the clock of the pages, in seconds.
        time: the same since the epoch.
    """

    def __init__(self) -> None:
        self.bucket = MemoryStore("lake")
        self.requests = FaultyStore(self.bucket)
        self.kafka = SimulatedKafka()
        self.now = 0.0
        self.time = 0.0
        self._topics: set[str] = set()
        self.place = Place("s3://lake/topics", "topics", self.connect, lambda: self.now)
        self.pages = Pages(lambda: [self.place], lambda: self.now, lambda: self.time)

    def connect(self) -> Connected:
        """The clients of the place."""
        store = DurableStore(self.requests, Retrier(RetryPolicy(max_retries=0)))
        return Connected(store, self.kafka, ("--kafka-conn-id", "kafka_default"))

    def topic(self, topic: str, pipeline: str = "shop") -> TopicPipeline:
        """A topic of a pipeline."""
        return TopicPipeline(
            self.connect().store,
            self.kafka,
            topics_dir="topics",
            pipeline=pipeline,
            topic=topic,
            connection_options=self.connect().connection_options,
        )

    def land(self, topic: str, count: int, *, run: str, at: int = 0, pipeline: str = "shop") -> None:
        """Append records to a topic, which is created if it does not exist, and land them."""
        if topic not in self._topics:
            self._topics.add(topic)
            self.kafka.create_topic(topic)
        self.append(topic, count, at=at)
        layout = Layout(topics_dir="topics", format=RawBytes())
        self.topic(topic, pipeline).land(
            RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest", adopt_wait=0.0)
        )

    def plan(self, topic: str, *, run: str) -> None:
        """Plan a batch of what waits, and end before it is landed."""
        self.requests.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
        with pytest.raises(SimulatedCrash):
            self.land(topic, 0, run=run)

    def append(self, topic: str, count: int, *, at: int = 0) -> None:
        """Append records to a topic."""
        for _ in range(count):
            self.kafka.append(topic, 0, b"x", timestamp=at)

    def get(self, path: str = "") -> Response:
        """What a browser gets; a later one sees what was landed meanwhile."""
        self.now += 100
        return self.pages.respond(path)


@pytest.fixture
def lake() -> Lake:
    """See the class."""
    return Lake()
