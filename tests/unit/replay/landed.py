"""Replays of a landed topic, without Kafka."""

from __future__ import annotations

from typing import Any, Final

from airflow_provider_kafka_s3.config import Format, Layout
from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.reading.record import Record
from airflow_provider_kafka_s3.replay.plan import plan_replay
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.source import ReplaySource
from tests.unit.batch.simulated_topic import Topic

__all__ = ["TARGET", "layout_of", "planned", "read", "replayed", "request"]

TARGET: Final = TopicInfo(name="again", topic_id="id-of-topic", cluster_id="id-of-cluster", partitions=(0, 1, 2, 3))


def layout_of(settings: Format, **more: Any) -> Layout:
    """A layout below the prefix of the simulated topic."""
    return Layout(topics_dir="lake", format=settings, **more)


def request(**more: Any) -> ReplayRequest:
    """A replay of everything."""
    return ReplayRequest(**{"replay": "r", "target": "again", **more})


def planned(topic: Topic, **more: Any) -> ReplayPlan:
    """The plan of a replay."""
    return plan_replay(topic.pipeline.log, request(**more), TARGET)


def read(topic: Topic, plan: ReplayPlan, partition: int = 0, skip: int = 0, **more: Any) -> list[Record]:
    """The records of a partition of a plan, without the first ones."""
    source = ReplaySource(topic.pipeline.log, request(**more), plan)
    return [record for some in source.records(partition, skip) for record in some]


def replayed(topic: Topic, **more: Any) -> dict[int, list[Record]]:
    """All records of a replay, by Kafka partition."""
    plan = planned(topic, **more)
    return {partition: read(topic, plan, partition, **more) for partition in plan.numbers}
