"""A small lake for the examples of the pages: topic ``orders``, two partitions, three hours, two batches."""

from __future__ import annotations

import json
from typing import Final

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Hourly, JsonLines, Layout
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

__all__ = ["Lake", "filled_lake"]

TOPIC: Final = "orders"
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_767_312_000_000
"""2026-01-02T00:00:00Z."""
LAYOUT: Final = Layout(format=JsonLines(compression="gzip"), partitioner=Hourly())


class Lake:
    """A process that lands a topic in a bucket."""

    def __init__(self, store: ObjectStore, kafka: SimulatedKafka) -> None:
        self.kafka, self.store = kafka, store
        durable = DurableStore(store, Retrier())
        where = {"topics_dir": LAYOUT.topics_dir, "pipeline": "orders", "topic": TOPIC}
        self.pipeline = TopicPipeline(durable, kafka, **where)

    def produce(self, hour: int, records: int) -> None:
        """Orders of one hour, to both partitions in turn."""
        for n in range(records):
            value = json.dumps({"order_id": hour * 100 + n, "amount": 2.5}).encode()
            self.kafka.append(TOPIC, n % 2, value, START_MS + hour * HOUR_MS + n)

    def land(self, run: str) -> None:
        """Land what is new."""
        self.pipeline.land(RunRequest(run=run, offsets="incremental", layout=LAYOUT, starting="earliest"))


def filled_lake() -> Lake:
    """Two hours are the first batch, a third hour is the second."""
    kafka = SimulatedKafka()
    kafka.create_topic(TOPIC, 2)
    lake = Lake(MemoryStore(), kafka)
    lake.produce(0, 10)
    lake.produce(1, 6)
    lake.land("first")
    lake.produce(2, 4)
    lake.land("second")
    return lake
