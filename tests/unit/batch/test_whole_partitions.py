"""Counts of records and times go on over all that a batch lands of a Kafka partition, if it is one slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import Hourly, JsonLines, Layout, Limits, Rotation
from tests.unit.batch.simulated_topic import Topic

MINUTE: Final = 60_000
SMALL_SLICES: Final = Limits(records_per_slice=3)


def topic_of(*, minutes: Sequence[Sequence[int]] = (range(10), range(5)), **rotation: Any) -> Topic:
    """Partitions with records at these minutes, in which all that is landed of a partition may be one slice."""
    layout = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), rotation=Rotation(**rotation))
    topic = Topic(layout, len(minutes))
    for partition, of_partition in enumerate(minutes):
        for minute in of_partition:
            topic.append(b"{}", partition=partition, timestamp=minute * MINUTE)
    return topic


def starts(topic: Topic) -> list[tuple[int, int]]:
    """Kafka partition and first offset of each object."""
    names = [key.rpartition("/")[2].split(".")[0].split("+") for key in topic.objects()]
    return sorted((int(partition), int(offset)) for _, partition, offset in names)


@pytest.mark.parametrize("rule", [{"flush_size": 4}, {"rotate_interval_ms": 4 * MINUTE}], ids=["records", "times"])
def test_objects_begin_as_if_one_task_had_read_the_partition(rule: dict[str, Any]) -> None:
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


@settings(max_examples=40, deadline=None)
@given(
    minutes=st.lists(st.lists(st.integers(0, 200), max_size=12), min_size=1, max_size=3).filter(any),
    flush_size=st.one_of(st.none(), st.integers(1, 5)),
    interval=st.integers(1, 90),
    on_change=st.booleans(),
    most=st.integers(1, 6),
)
def test_any_size_of_slices_makes_the_same_objects(
    minutes: list[list[int]], flush_size: int | None, interval: int, on_change: bool, most: int
) -> None:
    """It has no effect, with any rotation."""
    landed = []
    for limits in (Limits(records_per_slice=most), Limits()):
        topic = topic_of(
            minutes=minutes,
            flush_size=flush_size,
            rotate_interval_ms=interval * MINUTE,
            rotate_on_partition_change=on_change,
            whole_partitions=True,
        )
        topic.land(limits=limits)
        landed.append(topic.objects())
    assert landed[0] == landed[1]
