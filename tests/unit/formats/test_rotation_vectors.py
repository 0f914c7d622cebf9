"""The acceptance vectors of rotation, as far as their settings exist here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import Hourly, JsonLines, Layout, Rotation
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.registry import make_format
from tests.unit.formats.preparing import prepare

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "rotation.json").read_text())["cases"]
BY_ID = {case["id"]: case for case in CASES}
SUPPORTED_KEYS = {"id", "values", "flush_size", "behavior_on_null_values", "expect", "expect_starts", "note", "source"}
APPLICABLE = [
    c for c in CASES if c.keys() <= SUPPORTED_KEYS and c.get("behavior_on_null_values", "fail") in ("fail", "ignore")
]


def test_the_vectors_are_used_as_far_as_settings_exist() -> None:
    """The others are about rotation by time, which follows, schemas, and null values that are written."""
    assert (len(CASES), [c["id"] for c in APPLICABLE]) == (11, ["W12"])


@pytest.mark.parametrize("case", APPLICABLE, ids=lambda c: c["id"])
def test_ignored_null_values_leave_no_object(case: dict[str, Any], make_batch: Any, write_objects: Any) -> None:
    """W12: nothing is written, and the number of values that were left out is returned."""
    settings = JsonLines(on_null=case["behavior_on_null_values"])
    batch = make_batch(case["values"])
    assert write_objects(Layout(format=settings), [batch]) == {}
    assert prepare(make_format(settings), batch).ignored == len(case["values"])


def test_an_interval_ends_the_objects_of_a_partition(make_batch: Any, write_objects: Any) -> None:
    """W1: in each hour, and at its end."""
    case = BY_ID["W1"]
    rotation = Rotation(rotate_interval_ms=case["rotate_interval_ms"], flush_size=case["flush_size"])
    layout = Layout(format=JsonLines(), partitioner=Hourly(timezone="America/Los_Angeles"), rotation=rotation)
    batch = make_batch([b"{}"] * len(case["times"]), timestamps=case["times"])
    starts: dict[str, list[int]] = {}
    for key, written in write_objects(layout, [batch]).items():
        starts.setdefault(key.split("/")[-2], []).append(written.offsets[0])
    assert starts == case["expect_starts"]


def test_a_change_of_the_partition_ends_the_objects_before_it(make_batch: Any, write_objects: Any) -> None:
    """W3: each record is of another hour than the one before it."""
    case = BY_ID["W3"]
    rotation = Rotation(
        rotate_interval_ms=case["rotate_interval_ms"],
        rotate_on_partition_change=case["rotate_on_partition_change"],
    )
    times = [(int(hour) * 60 + int(minute)) * 60_000 for hour, minute in (t.split(":") for t in case["times_hm"])]
    batch = make_batch([b"{}"] * len(times), timestamps=times)
    written = write_objects(Layout(format=JsonLines(), partitioner=Hourly(), rotation=rotation), [batch])
    assert sorted(one.offsets[0] for one in written.values()) == case["expect_starts"]


def test_an_interval_without_times_is_refused() -> None:
    """W4: Connect ignores it with a warning; here it is an error where the layout is made."""
    rotation = Rotation(rotate_interval_ms=BY_ID["W4"]["rotate_interval_ms"])
    with pytest.raises(ConfigurationError, match="rotate_interval_ms=1000 needs the times of records"):
        Layout(format=JsonLines(), rotation=rotation)
