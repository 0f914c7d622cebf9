"""The acceptance vectors of rotation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import (
    Daily,
    Hourly,
    JsonLines,
    Layout,
    Rotation,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.registry import make_format
from tests.unit.batch.simulated_topic import Topic
from tests.unit.formats.preparing import prepare

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "rotation.json").read_text())["cases"]
BY_ID = {case["id"]: case for case in CASES}
SUPPORTED_KEYS = {"id", "values", "flush_size", "behavior_on_null_values", "expect", "expect_starts", "note", "source"}
APPLICABLE = [
    c for c in CASES if c.keys() <= SUPPORTED_KEYS and c.get("behavior_on_null_values", "fail") in ("fail", "ignore")
]


def test_every_vector_is_used() -> None:
    """Here, or among the tests of schemas that change."""
    here, of_schemas = {"W1", "W3", "W4", "W10", "W11", "W13", "W17"}, {"W5", "W7", "W8"}
    assert here | of_schemas | {c["id"] for c in APPLICABLE} == BY_ID.keys()
    assert [c["id"] for c in APPLICABLE] == ["W12"]


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


def test_an_interval_ends_objects_within_one_encoded_partition(make_batch: Any, write_objects: Any) -> None:
    """W17: the times of W1, all of one day."""
    case, times = BY_ID["W17"], BY_ID["W1"]["times"]
    rotation = Rotation(rotate_interval_ms=case["rotate_interval_ms"])
    layout = Layout(format=JsonLines(), partitioner=Daily(timezone="America/Los_Angeles"), rotation=rotation)
    written = write_objects(layout, [make_batch([b"{}"] * len(times), timestamps=times)])
    assert len({key.rpartition("/")[0] for key in written}) == 1
    assert sorted(one.offsets[0] for one in written.values()) == [0, 3, 6, 9, 12, 15]


@pytest.mark.parametrize(
    ("values", "objects"),
    [
        ([None] * BY_ID["W10"]["tombstones"], {"tombstone+0": 3}),
        (
            [value and b"{}" for value in BY_ID["W11"]["values"]],
            {**{f"partition=0+{n}": 3 for n in (0, 3, 6)}, "tombstone+9": 1, "partition=0+10": 1},
        ),
    ],
    ids=["W10", "W11"],
)
def test_tombstones_have_objects_of_their_own_and_count(values: list[bytes | None], objects: dict[str, int]) -> None:
    """Their keys are landed, and ``flush_size`` counts them with the others."""
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=JsonLines(on_null="write"),
            content=SiblingObjects(keys=JsonLines()),
            key_converter=StringConverter(),
            rotation=Rotation(flush_size=3),
        )
    )
    topic.append(*values, key=b"k")
    topic.land()
    found = {}
    for key, body in topic.objects().items():
        if ".keys." in key:
            folder, _, name = key.removeprefix("lake/orders/").partition("/")
            found[f"{folder}+{int(name.partition('.')[0].rpartition('+')[2])}"] = body.count(b"\n")
    assert found == objects


def test_values_of_headers_are_texts() -> None:
    """W13: numbers and booleans, too."""
    case = BY_ID["W13"]
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), content=SiblingObjects(keys=None, headers=JsonLines())))
    sent = [value if isinstance(value, str) else json.dumps(value) for value in case["headers"]]
    topic.append(b"{}", headers=[("h", text.encode()) for text in sent])
    topic.land()
    (body,) = (body for key, body in topic.objects().items() if ".headers." in key)
    assert [header["value"] for header in json.loads(body)["headers"]] == case["expect"]
