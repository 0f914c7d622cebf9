"""Small lakes for the examples of the pages.

JSON lines: topic ``orders``, two partitions, three hours, two batches. Parquet: topic ``payments``, two days and
two schemas.
"""

from __future__ import annotations

import io
import json
from typing import Any, Final

import fastavro

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import AvroConverter, Daily, Hourly, JsonLines, Layout, Parquet
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry

__all__ = ["Lake", "filled_lake", "parquet_lake"]

TOPIC: Final = "orders"
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_767_312_000_000
"""2026-01-02T00:00:00Z."""
LAYOUT: Final = Layout(format=JsonLines(compression="gzip"), partitioner=Hourly())
PARQUET_LAYOUT: Final = Layout(format=Parquet(), value_converter=AvroConverter(), partitioner=Daily())
PAYMENT: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "paid_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PAYMENT_2: Final[dict[str, Any]] = {
    **PAYMENT,
    "fields": [*PAYMENT["fields"], {"name": "currency", "type": ["null", "string"], "default": None}],
}


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
            value = json.dumps({"order_id": hour * 100 + n, "amount": 2.5, "year": 1999}).encode()
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


def parquet_lake() -> ObjectStore:
    """Payments of two days; those with an even number have a second schema with the field ``currency``."""
    kafka, registry, store = SimulatedKafka(), SimulatedRegistry(), MemoryStore()
    kafka.create_topic("payments", 1)
    ids = [registry.register(json.dumps(schema)) for schema in (PAYMENT_2, PAYMENT)]
    for n in range(10):
        at = START_MS + (n // 6) * 24 * HOUR_MS
        value = {"id": n, "amount": 2.5, "paid_at": at, "currency": "EUR"}
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema((PAYMENT_2, PAYMENT)[n % 2]), value)
        kafka.append("payments", 0, registry.frame(ids[n % 2], datum.getvalue()), at)
    where = {"topics_dir": PARQUET_LAYOUT.topics_dir, "pipeline": "payments", "topic": "payments"}
    pipeline = TopicPipeline(DurableStore(store, Retrier()), kafka, **where, registry=registry)
    pipeline.land(RunRequest(run="first", offsets="incremental", layout=PARQUET_LAYOUT, starting="earliest"))
    return store
