"""The states of all topics of a pipeline."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading import snapshots
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import FaultyStore


class Lake:
    """A bucket of several pipelines."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        for topic in ("orders", "refunds", "clicks", "elsewhere"):
            self.kafka.create_topic(topic, 1)
        self.bucket = MemoryStore()
        self.store = DurableStore(self.bucket, Retrier())
        self._runs = 0

    def land(self, pipeline: str, topic: str, *values: bytes, topics_dir: str = "lake") -> None:
        """Land values of a topic in one batch."""
        for value in values:
            self.kafka.append(topic, 0, value)
        self._runs += 1
        landed = TopicPipeline(self.store, self.kafka, topics_dir=topics_dir, pipeline=pipeline, topic=topic)
        layout = Layout(topics_dir=topics_dir, format=JsonLines())
        landed.land(RunRequest(run=f"run-{self._runs}", offsets="incremental", layout=layout, starting="earliest"))


@pytest.fixture
def lake() -> Lake:
    """Two topics of the pipeline ``sales``, one of them in two batches, and one of another pipeline."""
    lake = Lake()
    lake.land("sales", "refunds", b"1")
    lake.land("sales", "orders", b"1", b"2")
    lake.land("sales", "orders", b"3")
    lake.land("web", "clicks", b"1")
    return lake


def test_every_topic_of_the_pipeline_has_its_state(lake: Lake) -> None:
    """In the order of their names, without those of other pipelines and of other folders."""
    lake.land("sales", "elsewhere", b"1", topics_dir="other")
    found = snapshots(lake.store, pipeline="sales", topics_dir="lake")
    assert [(topic, state.log.topic, state.batch, state.records) for topic, state in found.items()] == [
        ("orders", "orders", 2, 3),
        ("refunds", "refunds", 1, 1),
    ]
    assert [*snapshots(lake.store, pipeline="sales", topics_dir="other")] == ["elsewhere"]


def test_topics_and_their_batches_can_be_named(lake: Lake) -> None:
    """So that the states of an earlier read are named again, and read on from."""
    found = snapshots(lake.store, pipeline="sales", topics_dir="lake", topics=["orders"], at={"orders": 1})
    assert [(topic, state.batch, state.records) for topic, state in found.items()] == [("orders", 1, 2)]
    latest = snapshots(lake.store, pipeline="sales", topics_dir="lake", at={"orders": 1})
    assert {topic: state.batch for topic, state in latest.items()} == {"orders": 1, "refunds": 1}
    now = snapshots(lake.store, pipeline="sales", topics_dir="lake")
    assert [one.records for one in now["orders"].changes(found["orders"].batch).objects()] == [1]


def test_names_that_the_pipeline_does_not_have_are_refused(lake: Lake) -> None:
    """With the nearest one; a batch that is not complete as well."""
    with pytest.raises(ConfigurationError, match=r"no pipeline 'sale' below s3://memory/lake.*did you mean 'sales'"):
        snapshots(lake.store, pipeline="sale", topics_dir="lake")
    with pytest.raises(ConfigurationError, match=r"has no topic 'order'; did you mean 'orders'"):
        snapshots(lake.store, pipeline="sales", topics_dir="lake", topics=["order"])
    with pytest.raises(ConfigurationError, match=r"has no topic 'clicks'; its topics are orders, refunds"):
        snapshots(lake.store, pipeline="sales", topics_dir="lake", at={"clicks": 1})
    with pytest.raises(ConfigurationError, match=r"topic 'refunds' .* has no state at batch 2"):
        snapshots(lake.store, pipeline="sales", topics_dir="lake", at={"refunds": 2})


def test_it_takes_a_listing_and_two_requests_for_each_topic(lake: Lake) -> None:
    """The owner and the marker."""
    store = FaultyStore(lake.bucket)
    snapshots(DurableStore(store, Retrier()), pipeline="sales", topics_dir="lake")
    assert len(store.requests) == 1 + 3 + 2  # owners of all pipelines, markers of this one
