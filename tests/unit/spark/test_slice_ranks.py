"""Slices form as few frames as possible with exactly one slice per task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.spark.frames import slice_frame, slice_ranks
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from tests.plans import data_plan, slices_of

LAYOUT = Layout(format=JsonLines())


def plan_of(topic: str, slices: list[tuple[int, int, int]], isolation: Isolation = "read_committed") -> Plan:
    """A plan of ``(partition, start, end)``."""
    return data_plan(LAYOUT, slices_of(*slices), topic=topic, isolation=isolation)


def slices_in(plans: list[Plan]) -> list[tuple[Plan, Slice]]:
    """All slices of some plans."""
    return [(plan, s) for plan in plans for s in plan.slices]


def test_the_kth_slices_of_all_partitions_share_a_frame() -> None:
    """Two topics, three ranks: each frame assigns exactly the partitions that it has offsets for."""
    plans = [
        plan_of("a", [(0, 0, 5), (0, 5, 9), (0, 9, 12), (3, 7, 8)]),
        plan_of("b", [(1, 2, 4), (1, 4, 6)]),
    ]
    options = [
        {name: json.loads(value) for name, value in rank.options().items()} for rank in slice_ranks(slices_in(plans))
    ]
    assert options == [
        {
            "assign": {"a": [0, 3], "b": [1]},
            "startingOffsets": {"a": {"0": 0, "3": 7}, "b": {"1": 2}},
            "endingOffsets": {"a": {"0": 5, "3": 8}, "b": {"1": 4}},
        },
        {
            "assign": {"a": [0], "b": [1]},
            "startingOffsets": {"a": {"0": 5}, "b": {"1": 4}},
            "endingOffsets": {"a": {"0": 9}, "b": {"1": 6}},
        },
        {"assign": {"a": [0]}, "startingOffsets": {"a": {"0": 9}}, "endingOffsets": {"a": {"0": 12}}},
    ]


def test_isolation_levels_do_not_share_a_frame() -> None:
    """A frame reads with the isolation level of its plan."""
    ranks = slice_ranks(slices_in([plan_of("a", [(0, 0, 5)]), plan_of("b", [(0, 0, 5)], "read_uncommitted")]))
    assert [(r.isolation, list(r.ranges)) for r in ranks] == [("read_committed", ["a"]), ("read_uncommitted", ["b"])]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=30))
def test_every_slice_is_in_exactly_one_frame(sizes: list[tuple[int, int]]) -> None:
    """Nothing is lost or read twice, and a partition is at most once in a frame."""
    at: dict[int, int] = {}
    slices = []
    for partition, size in sizes:
        start = at.get(partition, 0)
        slices.append((partition, start, start + size))
        at[partition] = start + size
    plan = plan_of("a", slices)
    read = [(p, *bounds) for rank in slice_ranks(slices_in([plan])) for p, bounds in rank.ranges["a"].items()]
    assert sorted(read) == sorted(slices)


class Reader:
    """Replaces ``spark.read`` and its frames; records the options of each frame."""

    def __init__(self) -> None:
        self.given: list[dict[str, str]] = []

    def format(self, name: str) -> Reader:
        assert name == "kafka"
        self._options: dict[str, str] = {}
        return self

    def options(self, **options: str) -> Reader:
        # Spark's options are case-insensitive: the last of two names that differ only so is the one that counts.
        self._options |= {name.lower(): value for name, value in options.items()}
        return self

    def load(self) -> Reader:
        self.given.append(self._options)
        return self

    def selectExpr(self, *columns: str) -> Reader:  # noqa: N802 - Spark's name
        return self

    def unionByName(self, other: Reader) -> Reader:  # noqa: N802 - Spark's name
        return self

    def coalesce(self, count: int) -> Reader:
        return self


class Session:
    """Replaces a session."""

    def __init__(self) -> None:
        self.read = Reader()


@pytest.mark.parametrize(
    "options", [{}, {"failOnDataLoss": "false"}, {"failondataloss": "false"}, {"startingOffsets": "latest"}], ids=str
)
def test_every_frame_fails_on_lost_records_whatever_the_options_say(options: Mapping[str, str]) -> None:
    """With ``failOnDataLoss`` off Spark would skip what retention deleted, and offsets decide where a frame begins."""
    session = Session()
    levels: Mapping[Isolation, Mapping[str, str]] = {"read_committed": options, "read_uncommitted": options}
    plans = [plan_of("a", [(0, 0, 5), (0, 5, 9)]), plan_of("b", [(0, 7, 8)], "read_uncommitted")]
    slice_frame(cast("Any", session), ReadTasks(plans), levels, ["offset"])
    options = [(given["failondataloss"], json.loads(given["startingoffsets"])) for given in session.read.given]
    assert options == [("true", {"a": {"0": 0}}), ("true", {"a": {"0": 5}}), ("true", {"b": {"0": 7}})]
