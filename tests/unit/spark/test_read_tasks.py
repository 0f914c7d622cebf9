"""Which task reads which slices."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.spark.frames import slice_frame
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from tests.plans import data_plan, slices_of
from tests.unit.spark.test_slice_groups import LAYOUT, Reader
from tests.unit.spark.test_slice_ranks import plan_of


@given(st.lists(st.sampled_from([1, 300, 5_000, 5_001, 90_000]), min_size=1, max_size=80), st.booleans())
def test_each_slice_is_read_by_one_task_and_small_ones_share_some(sizes: list[int], several_topics: bool) -> None:
    """Of at most 16 slices and 20,000 offsets on average, and not fewer than eight; nothing is lost or read twice."""
    slices = [(n, 7, 7 + size) for n, size in enumerate(sizes)]
    middle = len(slices) // 2 if several_topics and len(slices) > 1 else len(slices)
    plans = [plan_of(topic, some) for topic, some in (("a", slices[:middle]), ("b", slices[middle:])) if some]
    tasks = ReadTasks(plans)
    frame = cast("Any", slice_frame(cast("Any", Reader()), tasks, {"read_committed": {}}, ["offset"]))
    assert sorted(one for read in frame.tasks for one in read) == slices
    assert len(frame.tasks) == tasks.count
    small = [size for size in sizes if size <= 5_000]
    if len(small) < 2:
        assert (tasks.small, tasks.count) == ((), len(sizes))
    else:
        assert len(tasks.small) == len(small)
        assert len(small) <= 16 * tasks.of_small
        assert sum(small) <= 20_000 * tasks.of_small
        assert tasks.of_small == max(-(-len(small) // 16), -(-sum(small) // 20_000), min(len(small), 8))


def test_many_small_topics_are_few_tasks() -> None:
    """A thousand topics of four Kafka partitions."""
    plans = [data_plan(LAYOUT, slices_of(*((p, 0, 10) for p in range(4))), topic=f"t{n}") for n in range(1_000)]
    tasks = ReadTasks(plans)
    assert (len(tasks.small), tasks.count) == (4_000, 250)
    assert ReadTasks(plans, parallelism=400).count == 400
    assert ReadTasks(plans[:20], parallelism=400).count == 80
    assert tasks.is_small(plans[7], plans[7].slices[3])
