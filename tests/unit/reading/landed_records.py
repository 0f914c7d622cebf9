"""Records that are landed, and read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from airflow_provider_kafka_s3.config import Layout, Limits
from airflow_provider_kafka_s3.reading.records import Record, read_records, record_objects
from tests.unit.batch.simulated_topic import Topic

Sent: TypeAlias = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Key, value, headers and timestamp."""


def land(layout: Layout, sent: Sequence[Sent], *, partitions: int = 1, records_per_slice: int) -> Topic:
    """A topic with these records in each of its partitions, landed."""
    topic = Topic(layout, partitions, records_per_poll=7)
    for partition in range(partitions):
        for key, value, headers, timestamp in sent:
            topic.kafka.append("orders", partition, value, timestamp, key=key, headers=headers)
    topic.land(limits=Limits(records_per_slice=records_per_slice))
    return topic


def read(topic: Topic) -> list[Record]:
    """All records of the first batch, object by object."""
    log = topic.pipeline.log
    (plan, _), (decision, _) = log.require_plan(1), log.require_decision(1)
    objects = record_objects(log, plan, decision)
    return [one for entry in objects for some in read_records(log, plan, decision, entry) for one in some]
