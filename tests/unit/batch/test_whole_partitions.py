"""Counts of records and times go on over all that a batch lands of a Kafka partition, if it is one slice."""

from __future__ import annotations

from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import Hourly, JsonLines, Layout, Limits, Rotation
from tests.unit.batch.simulated_topic import Topic

MINUTE: Final = 60_000
SMALL_SLICES: Final = Limits(records_per_slice=3)


def topic_of(**rotation: Any) -> Topic:
    """Two partitions with 10 and 5 records, one a minute."""
    layout = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), rotation=Rotation(**rotation))
    topic = Topic(layout, 2)
    for partition, count in enumerate((10, 5)):
        for minute in range(count):
            topic.append(b"{}", partition=partition, timestamp=minute * MINUTE)
    return topic


def starts(topic: Topic) -> list[tuple[int, int]]:
    """Kafka partition and first offset of each object."""
    names = [key.rpartition("/")[2].split(".")[0].split("+") for key in topic.objects()]
    return sorted((int(partition), int(offset)) for _, partition, offset in names)


@pytest.mark.parametrize("rule", [{"flush_size": 4}, {"rotate_interval_ms": 4 * MINUTE}], ids=["records", "times"])
def test_objects_begin_as_if_one_task_had_read_the_partition(rule: dict[str, int]) -> None:
    """Slices of 3 records would begin objects at their own starts; an object that is written again is the same."""
    topic = topic_of(**rule, whole_partitions=True)
    topic.land(limits=SMALL_SLICES)
    assert starts(topic) == [(0, 0), (0, 4), (0, 8), (1, 0), (1, 4)]
    landed = topic.objects()
    topic.restore(*landed)
    assert topic.objects() == landed
    assert topic.check() == 15

    sliced = topic_of(**rule)
    sliced.land(limits=SMALL_SLICES)
    assert starts(sliced) == [(0, 0), (0, 2), (0, 5), (0, 7), (1, 0), (1, 2)]


def test_a_batch_without_room_for_the_whole_partition_ends_its_objects() -> None:
    """The next batch begins anew."""
    topic = topic_of(flush_size=4, whole_partitions=True)
    topic.land(limits=Limits(records_per_slice=1, records_per_batch=10))
    assert starts(topic) == [(0, 0), (0, 4), (0, 5), (0, 9), (1, 0), (1, 4)]
