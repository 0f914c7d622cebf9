"""The acceptance vectors of rotation, as far as their settings exist here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.formats.registry import make_format
from tests.unit.formats.preparing import prepare

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "rotation.json").read_text())["cases"]
SUPPORTED_KEYS = {"id", "values", "flush_size", "behavior_on_null_values", "expect", "expect_starts", "note", "source"}
APPLICABLE = [
    c for c in CASES if c.keys() <= SUPPORTED_KEYS and c.get("behavior_on_null_values", "fail") in ("fail", "ignore")
]


def test_the_vectors_are_used_as_far_as_settings_exist() -> None:
    """The others are about rotation by time, schemas, and null values that are written."""
    assert (len(CASES), [c["id"] for c in APPLICABLE]) == (11, ["W12"])


@pytest.mark.parametrize("case", APPLICABLE, ids=lambda c: c["id"])
def test_ignored_null_values_leave_no_object(case: dict[str, Any], make_batch: Any, write_objects: Any) -> None:
    """W12: nothing is written, and the number of values that were left out is returned."""
    settings = JsonLines(on_null=case["behavior_on_null_values"])
    batch = make_batch(case["values"])
    assert write_objects(Layout(format=settings), [batch]) == {}
    assert prepare(make_format(settings), batch).ignored == len(case["values"])
