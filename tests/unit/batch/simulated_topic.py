"""One topic of a simulated cluster that is landed without Spark."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import RecordDecoder, check_bucket, decode_lines
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry

__all__ = ["Topic"]


class Topic:
    """One topic of a simulated cluster, and its bucket."""

    def __init__(self, layout: Layout, partitions: int = 1, *, records_per_poll: int = 3) -> None:
        self.registry = SimulatedRegistry()
        self.kafka = SimulatedKafka(records_per_poll=records_per_poll)
        self.kafka.create_topic("orders", partitions)
        self.bucket = MemoryStore()
        self.layout = layout

    @property
    def pipeline(self) -> TopicPipeline:
        """A new process."""
        return self.pipeline_with(DurableStore(self.bucket, Retrier()))

    def pipeline_with(self, store: DurableStore) -> TopicPipeline:
        """A new process with another store."""
        return TopicPipeline(
            store,
            self.kafka,
            topics_dir="lake",
            pipeline="orders-to-lake",
            topic="orders",
            registry=self.registry,
        )

    def without_registry(self) -> TopicPipeline:
        """A process that has no schema registry."""
        return TopicPipeline(
            DurableStore(self.bucket, Retrier()),
            self.kafka,
            topics_dir="lake",
            pipeline="orders-to-lake",
            topic="orders",
        )

    def append(self, *values: bytes | None, partition: int = 0, **more: Any) -> None:
        """Append records."""
        for value in values:
            self.kafka.append("orders", partition, value, **more)

    def request(self, run: str = "a", **settings: Any) -> RunRequest:
        """An incremental run from the first record on."""
        return RunRequest(run=run, offsets="incremental", layout=self.layout, starting="earliest", **settings)

    def land(self, run: str = "a", **settings: Any) -> TopicResult:
        """Run to the end."""
        return self.pipeline.land(self.request(run, **settings))

    def restore(self, *keys: str) -> None:
        """Delete objects, and write them again from Kafka."""
        for key in keys:
            self.bucket.delete(key)
        self.pipeline.run(self.request("b", action="restore")).advance()

    def objects(self) -> dict[str, bytes]:
        """Data objects and dead letters."""
        return {
            info.key: stored.body
            for info in self.bucket.list("lake/orders/")
            if (stored := self.bucket.get(info.key)) is not None
        }

    def dead_letters(self) -> list[dict[str, Any]]:
        """In the order of their keys."""
        bodies = [body for key, body in self.objects().items() if "/_dead_letters/" in key]
        return [json.loads(line) for body in bodies for line in body.splitlines()]

    def check(self, decoder: RecordDecoder = decode_lines) -> int:
        """The number of records in the bucket, after all its invariants are checked."""
        return check_bucket(
            self.bucket,
            topics_dir="lake",
            pipeline="orders-to-lake",
            topic="orders",
            source=self.kafka.all_records(),
            decoder=decoder,
            complete=True,
        ).records
