"""Events of the assets that a run updates."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowFailException,
    Asset,
    AssetAlias,
)

from airflow_provider_kafka_s3.config import JsonConverter, Limits

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

Interval = tuple[datetime, datetime]


def test_the_event_of_an_outlet_has_counts_and_offsets_of_the_window(topics: Bench, day: Interval) -> None:
    """A DAG that is scheduled by the asset reads that this day is complete, and with which offsets."""
    lake = Asset("s3://lake/topics")
    task = topics.task(topics="orders,clicks,quiet", offsets="data_interval", outlets=[lake])
    topics.run(task, interval=day)
    assert list(topics.outlet_events) == [lake]
    extra = json.loads(json.dumps(topics.outlet_events[lake].extra))
    for counts in (extra["landed"], *(t["landed"] for t in extra["topics"].values()), *extra["topics"].values()):
        assert (counts.pop("size") > 0) == (counts["records"] > 0)
    none_unknown = {"records": 0, "landed": 0, "names": []}
    nothing = {"batches": 0, "records": 0, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 0}
    assert extra == {
        "bucket": "lake",
        "pipeline": "orders-to-lake",
        "action": "land",
        "window": {
            "source": "data interval",
            "start": "2013-01-01T00:00:00+00:00",
            "end": "2013-01-02T00:00:00+00:00",
        },
        "status": "ok",
        "landed": {"batches": 2, "records": 3, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 2},
        "topics": {
            "clicks": {
                "status": "ok",
                "records": 1,
                "tombstones": 0,
                "ignored": 0,
                "dead_letters": 0,
                "objects": 1,
                "landed": {"batches": 1, "records": 1, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 1},
                "unknown_fields": none_unknown,
                "batches": [1],
                "landed_batches": [1],
                "offsets": {"0": [[0, 1]]},
                "skipped": {},
            },
            "orders": {
                "status": "ok",
                "records": 2,
                "tombstones": 0,
                "ignored": 0,
                "dead_letters": 0,
                "objects": 1,
                "landed": {"batches": 1, "records": 2, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 1},
                "unknown_fields": none_unknown,
                "batches": [1],
                "landed_batches": [1],
                "offsets": {"0": [[0, 2]]},
                "skipped": {},
            },
            "quiet": {
                "status": "empty",
                "records": 0,
                "tombstones": 0,
                "ignored": 0,
                "dead_letters": 0,
                "objects": 0,
                "landed": nothing,
                "unknown_fields": none_unknown,
                "batches": [],
                "landed_batches": [],
                "offsets": {},
                "skipped": {},
            },
        },
    }


def test_the_event_of_a_run_that_leaves_every_topic_out_is_empty(topics: Bench) -> None:
    """It has the same fields as any other."""
    lake = Asset("s3://lake/topics")
    topics.run(topics.task(outlets=[lake]), conf={"kafka_s3": {"offsets": {"orders": {}}}})
    extra = topics.outlet_events[lake].extra
    assert (extra["status"], extra["pipeline"], extra["topics"]) == ("empty", "orders-to-lake", {})
    assert extra["landed"] == {
        "batches": 0,
        "records": 0,
        "tombstones": 0,
        "ignored": 0,
        "dead_letters": 0,
        "objects": 0,
        "size": 0,
    }


def test_the_offsets_of_several_batches_are_one_range(topics: Bench) -> None:
    """However the run was split into batches."""
    lake = Asset("s3://lake/topics")
    topics.run(topics.task(limits=Limits(records_per_batch=1), outlets=[lake]))
    extra = topics.outlet_events[lake].extra["topics"]["orders"]
    assert (extra["batches"], extra["offsets"]) == ([1, 2], {"0": [[0, 2]]})


def test_only_assets_of_a_successful_run_have_events(topics: Bench) -> None:
    """Neither an alias, nor an outlet of a failed run."""
    topics.run(topics.task(outlets=[AssetAlias("lake")]))
    topics.spark.failing["clicks"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(topics.task(topics="clicks", outlets=[Asset("s3://lake/topics")]))
    assert not topics.outlet_events
    context_without = topics.run(topics.task())
    assert context_without["status"] == "ok"


def test_the_event_has_the_fields_that_the_declared_schema_does_not_have(topics: Bench) -> None:
    """Of each topic, as in the task's XCom: who reads the topic by the asset sees that its records have more."""
    lake = Asset("s3://lake/topics")
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'
    topics.fill("orders", [{"n": 3, "vat": 1}])
    topics.run(topics.task(value_converter=JsonConverter(schema=schema), outlets=[lake]))
    unknown = topics.outlet_events[lake].extra["topics"]["orders"]["unknown_fields"]
    assert unknown == {"records": 1, "landed": 1, "names": ["vat"]}
