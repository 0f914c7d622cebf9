"""What is sent, and in which order, is what was landed: each record once, or an error before anything is sent."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import BytesConverter, Daily, Envelope, JsonLines, RawBytes, Rotation
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import layout_of, planned, read, replayed

START = 1_700_000_000_000
VALUES = ("key", "headers", "timestamp")
"""What objects of values do not keep."""


def land_around(topic: Topic) -> None:
    """Land some offsets first, so that a later object has several slices of a Kafka partition."""

    def land(run: str, window: dict[int, tuple[int, int]]) -> None:
        wanted = RunRequest(run=run, offsets="data_interval", layout=topic.layout, starting=None, window=window)
        topic.pipeline.land(wanted)

    land("m", {0: (4, 6)})
    land("n", {0: (1, 2)})
    land("rest", {0: (0, 10), 1: (0, 10)})


@pytest.mark.parametrize("with_offsets", [True, False])
def test_an_object_with_several_slices_of_a_partition_gives_each_record_once_and_in_order(with_offsets: bool) -> None:
    """Whole, and continued behind any record."""
    content = {"content": Envelope(), "value_converter": BytesConverter()} if with_offsets else {}
    layout = layout_of(
        JsonLines() if with_offsets else RawBytes(),
        partitioner=Daily(),
        rotation=Rotation(merge_partitions=True),
        **content,
    )
    topic = Topic(layout, 2)
    for partition in (0, 1):
        for n in range(10):
            topic.append(b"%d" % n, partition=partition, timestamp=START + n)
    land_around(topic)
    accepted = () if with_offsets else VALUES
    found = replayed(topic, without=accepted)
    expected = [(partition, n, b"%d" % n) for partition in (0, 1) for n in range(10)]
    assert [(r.partition, r.offset, r.value) for some in found.values() for r in some] == expected
    plan = planned(topic, without=accepted)
    assert plan.records == {0: 10, 1: 10}
    for skip in range(11):
        assert read(topic, plan, 0, skip, without=accepted) == found[0][skip:]
