"""A run whose objects have another layout than those of earlier batches says so, once, before it reads."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.derived.log_indexes import write_missing
from airflow_provider_kafka_s3.batch.layout_changes import last_layout_period, layout_changes
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.config import (
    ByField,
    Chain,
    ClockTime,
    Daily,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Limits,
    Parquet,
    Rotation,
)
from airflow_provider_kafka_s3.parallel import in_threads
from tests.unit.batch.simulated_topic import Topic


def layout_of(record_format: Format | None = None, **more: Any) -> Layout:
    """A layout of the tests."""
    return Layout(topics_dir="lake", format=record_format or JsonLines(), **more)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about a layout so far, which are then forgotten."""
    found = [message for message in caplog.messages if "the layout of objects changes" in message]
    caplog.clear()
    return found


def test_the_first_run_with_another_layout_says_what_changes_and_from_which_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once: neither its other batches nor the next run say it again."""
    caplog.set_level(logging.WARNING)
    topic = Topic(layout_of(partitioner=Hourly()))
    topic.append(b"1", b"2", timestamp=0)
    topic.land("first")
    assert warnings(caplog) == []
    topic.append(b"3", b"4", timestamp=0)
    topic.layout = layout_of(JsonLines(compression="gzip"), partitioner=Daily())
    topic.land("second", limits=Limits(records_per_batch=1))
    (message,) = warnings(caplog)
    assert "topic orders: the layout of objects changes from batch 2 on: " in message
    assert "format.compression: 'none' -> 'gzip'" in message
    assert "partitioner: hourly -> daily" in message
    topic.append(b"5", timestamp=0)
    topic.land("third")
    assert warnings(caplog) == []


def test_a_reset_and_a_damaged_plan_do_not_hide_or_stop_anything(caplog: pytest.LogCaptureFixture) -> None:
    """The layout is compared with that of the last batch that has one."""
    caplog.set_level(logging.WARNING)
    topic = Topic(layout_of())
    topic.append(b"1")
    topic.land("first")
    topic.kafka.create_topic("orders")
    topic.pipeline.reset(operator="me")
    topic.append(b"2")
    topic.layout = layout_of(rotation=Rotation(flush_size=7))
    topic.land("second")
    (message,) = warnings(caplog)
    assert "changes from batch 3 on: rotation.flush_size: None -> 7" in message


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (layout_of(), layout_of(), []),
        (layout_of(), layout_of(Parquet(), value_converter=JsonConverter(schema="{}")), ["format: json -> parquet"]),
        (
            layout_of(partitioner=Daily(timestamp_from=ClockTime(at_ms=1))),
            layout_of(partitioner=Daily(timestamp_from=ClockTime(at_ms=2))),
            [],
        ),
        (
            layout_of(partitioner=Chain(partitioners=(ByField(names=("a",)), Daily()))),
            layout_of(partitioner=Chain(partitioners=(ByField(names=("b",)), Daily()))),
            ["partitioner.partitioners[0].names[0]: 'a' -> 'b'"],
        ),
    ],
)
def test_what_differs_is_named(before: Layout, now: Layout, expected: list[str]) -> None:
    """By its setting; of another kind, without the settings of the kinds."""
    found = layout_changes(before, now)
    assert found[: len(expected)] == expected
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("sizes", [(100, 1_000), (2, 4)])
def test_the_last_layout_holds_since_its_last_change(sizes: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    """In and across index documents; neither the time of the clock nor a reset is a change."""
    caplog.set_level(logging.ERROR)
    clock = Daily(timestamp_from=ClockTime())
    topic = Topic(layout_of(partitioner=clock))

    def period() -> tuple[int, tuple[str, ...]] | None:
        topic_log = topic.pipeline.log
        topic_log.index_sizes = sizes
        marker, _ = topic_log.require_marker()
        write_missing(topic_log, marker, most=None, parallel=in_threads)
        last = last_layout_period(topic_log, [*indexed_batches(topic_log, marker)])
        return None if last is None else (last.first, last.changes)

    def land(*names: str) -> None:
        for name in names:
            topic.append(b"1")
            topic.land(name)

    land("a", "b", "c")
    assert period() == (1, ())
    topic.layout = layout_of(rotation=Rotation(flush_size=7), partitioner=clock)
    land("d", "e")
    topic.layout = layout_of(partitioner=clock)
    land("f")
    topic.kafka.create_topic("orders")
    topic.pipeline.reset(operator="me")
    land("g", "h", "i", "j")
    assert period() == (6, ("rotation.flush_size: 7 -> None",))
