"""Compaction and expiry of a topic, each in a process of its own that may be killed at any request."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_kafka_s3.batch.no_kafka import NoKafka
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.config import (
    Daily,
    Envelope,
    Hourly,
    JsonLines,
    Landed,
    Layout,
    Limits,
    Rotation,
    StringConverter,
)
from airflow_provider_kafka_s3.maintenance.expiry_rule import ExpiryRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_elsewhere import landed_elsewhere
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client

__all__ = ["TOPIC", "Night", "Work", "compact", "expire", "work"]

# Processes are forked from one that has imported this module: what the package imports on first use is imported here.
for _name in ("boto3", "botocore.client", "pyarrow", "airflow_provider_kafka_s3.formats.registry"):
    importlib.import_module(_name)

TOPIC: Final = "events"

_ENVELOPE: Final[dict[str, Any]] = {
    "format": JsonLines(on_null="write"),
    "content": Envelope(),
    "key_converter": StringConverter(),
    "errors": "dead_letter",
}


@dataclass
class Night:
    """What is landed by hours, and compacted by days, and how.

    Attributes:
        folder: of the bucket, which has both.
        run: of the compaction.
        is_merged: whether Kafka partitions share objects of days.
        per_slice: records of a slice of the compaction.
        per_batch: records of its batches.
        is_verified: whether objects of days are read back before those of hours are deleted.
    """

    folder: str
    run: str
    is_merged: bool
    per_slice: int
    per_batch: int
    is_verified: bool

    @property
    def of_hours(self) -> Layout:
        """The layout of what is landed from Kafka."""
        return Layout(topics_dir=f"{self.folder}/hours", partitioner=Hourly(), **_ENVELOPE)

    @property
    def of_days(self) -> Layout:
        """The layout of what is compacted."""
        rotation = Rotation(merge_partitions=self.is_merged)
        return Layout(topics_dir=f"{self.folder}/days", partitioner=Daily(), rotation=rotation, **_ENVELOPE)

    def hours(self, store: ObjectStore, kafka: Source | None = None) -> TopicPipeline:
        """The pipeline whose objects expire, as a new process."""
        source = kafka or NoKafka("neither compaction nor expiry needs it")
        topics_dir = self.of_hours.topics_dir
        return TopicPipeline(
            DurableStore(store, Retrier()), source, topics_dir=topics_dir, pipeline="hours", topic=TOPIC
        )

    def days(self, store: ObjectStore) -> TopicPipeline:
        """The pipeline over it, as a new process."""
        durable = DurableStore(store, Retrier())
        source = LandedSource(durable, Landed(pipeline="hours", topics_dir=self.of_hours.topics_dir))
        return TopicPipeline(durable, source, topics_dir=self.of_days.topics_dir, pipeline="days", topic=TOPIC)


Work = Callable[[ObjectStore, Night], None]


def compact(store: ObjectStore, night: Night) -> None:
    """Land by days what is landed by hours."""
    limits = Limits(records_per_slice=night.per_slice, records_per_batch=night.per_batch)
    request = RunRequest(
        run=night.run,
        offsets="incremental",
        starting="earliest",
        layout=night.of_days,
        limits=limits,
        adopt_wait=0.0,
    )
    night.days(store).land(request)


def expire(store: ObjectStore, night: Night) -> None:
    """Record what is compacted as no longer needed, and delete it at once."""
    hours, days = night.hours(store), Landed(pipeline="days", topics_dir=night.of_days.topics_dir)
    rule = ExpiryRule(landed_in=days, least_age=0.0, grace=0.0, operator="a test")
    hours.expire(rule, landed_in=landed_elsewhere(hours, verify=night.is_verified))


def work(action: Work, night: Night, endpoint: str, bucket: str, login: S3Credentials) -> None:
    """Act in a process of its own."""
    logging.disable(logging.WARNING)
    settings = S3Settings(endpoint_url=endpoint, region="us-east-1", addressing_style="path")
    action(S3Store(make_client(settings, login), bucket), night)
