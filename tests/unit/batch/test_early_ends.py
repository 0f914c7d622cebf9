"""The warning of a batch in which too many objects had to be open at once."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import (
    MIB,
    AvroConverter,
    Daily,
    Envelope,
    JsonLines,
    Layout,
    Naming,
    Parquet,
    Rotation,
    SiblingObjects,
)
from tests.unit.batch.simulated_topic import Topic

DAY: Final = 86_400_000
SCHEMAS: Final = [
    json.dumps({"type": "record", "name": f"R{n}", "fields": [{"name": f"f{n}", "type": "long"}]}) for n in range(3)
]
COUNT: Final = 60


def landed(layout: Layout, days: list[int], schemas: list[int] | None = None) -> Topic:
    """A topic with a record of each of these days, with one of three schemas."""
    topic = Topic(layout)
    ids = [topic.registry.register(schema) for schema in SCHEMAS]
    for day, schema in zip(days, schemas or [0] * len(days), strict=True):
        value = topic.registry.frame(ids[schema], b"\2") if layout.needs_registry else b"{}"
        topic.append(value, timestamp=day * DAY)
    topic.land()
    return topic


def values_of(topic: Topic) -> list[str]:
    """Keys of the objects of values."""
    return [key for key in topic.objects() if ".headers." not in key]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages."""
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def parquet(row_group_bytes: int = 128 * MIB, **more: Any) -> Layout:
    """Files of Avro values by day, of which two may be open by default."""
    return Layout(
        topics_dir="lake",
        format=Parquet(row_group_bytes=row_group_bytes),
        **{"value_converter": AvroConverter(), "partitioner": Daily(), **more},
    )


def json_lines(**more: Any) -> Layout:
    """JSON lines by day."""
    return Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily(), **more)


IN_TURN: Final = [n % 3 for n in range(COUNT)]
IN_ORDER: Final = sorted(IN_TURN)
TWO_OPEN: Final = Rotation(max_open_objects=2)


@pytest.mark.parametrize(
    ("layout", "remedy"),
    [
        (parquet(), r"set row_group_bytes of Parquet to (\d+) or less; or use a "),
        (json_lines(rotation=TWO_OPEN), r"set max_open_objects to (\d) or more, if the worker has the memory; or use"),
        (
            json_lines(rotation=TWO_OPEN, content=SiblingObjects(keys=None, headers=JsonLines())),
            r"set max_open_objects to (\d) or more",
        ),
        (
            json_lines(rotation=TWO_OPEN, naming=Naming(file_name_template="{{partition}}-{{start_offset}}")),
            r"set max_open_objects to (\d) or more",
        ),
    ],
    ids=["row-groups", "objects", "siblings", "template"],
)
def test_one_warning_has_the_counts_and_a_remedy_that_works(
    caplog: pytest.LogCaptureFixture, layout: Layout, remedy: str
) -> None:
    """Records of three days in turn, two open objects: each record ends an object; with the remedy there are three."""
    topic = landed(layout, IN_TURN)
    (text,) = warnings(caplog)
    assert text.startswith("topic orders: batch 1: 1 slice of 1 made 60 objects of 60 records in 3 encoded partitions:")
    assert "a slice has at most 2 objects open" in text
    assert text.endswith("; or use a partitioner with wider folders")
    assert len(values_of(topic)) == COUNT
    found = re.search(remedy, text)
    assert found is not None, text
    caplog.clear()
    number, is_parquet = int(found[1]), isinstance(layout.format, Parquet)
    corrected = parquet(number) if is_parquet else json_lines(rotation=Rotation(max_open_objects=number))
    assert len(values_of(landed(corrected, IN_TURN))) == 3
    assert warnings(caplog) == []


def test_schemas_in_turn_are_warned_of_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """In one folder: the remedy is another one."""
    landed(parquet(), [0] * COUNT, IN_TURN)
    (text,) = warnings(caplog)
    assert "60 objects of 60 records in 1 encoded partition:" in text
    assert text.endswith("set row_group_bytes of Parquet to 67108864 or less; or use one topic for each schema")


@pytest.mark.parametrize(
    ("row_groups", "objects", "remedy"),
    [
        (MIB // 2, 2, "set max_open_objects to 20 or more, if the worker has the memory; or use a partitioner with"),
        (128 * MIB, 2, "set row_group_bytes of Parquet to 13421772 or less and max_open_objects to 20 or more, if"),
        (128 * MIB, 400, "set row_group_bytes of Parquet to 13421772 or less; or use a partitioner with"),
    ],
)
def test_the_remedy_has_each_setting_that_is_too_small(
    caplog: pytest.LogCaptureFixture, row_groups: int, objects: int, remedy: str
) -> None:
    """And no other: for 20 days in turn as many objects may have to be open."""
    layout = parquet(row_groups, rotation=Rotation(max_open_objects=objects))
    landed(layout, [n % 20 for n in range(100)])
    (text,) = warnings(caplog)
    assert remedy in text


@pytest.mark.parametrize(
    ("layout", "days"),
    [
        (parquet(), IN_ORDER),
        (parquet(), [*range(COUNT)]),
        (parquet(64 * MIB), IN_TURN),
        (json_lines(), IN_TURN),
        (json_lines(rotation=Rotation(flush_size=1)), IN_TURN),
        (json_lines(rotation=Rotation(flush_size=3, max_open_objects=3)), IN_TURN),
        (json_lines(rotation=Rotation(max_bytes=2)), IN_TURN),
        (parquet(schema_compatibility="NONE"), IN_TURN),
        (parquet(rotation=Rotation(rotate_interval_ms=1, rotate_on_partition_change=True)), IN_TURN),
    ],
    ids=["in-order", "many-days", "enough-open", "json", "each-record", "flush", "max-bytes", "compatibility", "times"],
)
def test_objects_that_do_not_end_early_are_not_warned_of(
    caplog: pytest.LogCaptureFixture, layout: Layout, days: list[int]
) -> None:
    """However many there are: the folders follow each other, or the rotation was asked for."""
    assert landed(layout, days).objects()
    assert warnings(caplog) == []


def test_dead_letters_and_envelopes_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    """An object of dead letters is one of its own."""
    topic = Topic(json_lines(content=Envelope(), errors="dead_letter", rotation=Rotation(max_open_objects=2)))
    for number in range(8):
        topic.append(b"{}" if number % 4 else b"{", timestamp=number % 2 * DAY)
    topic.land()
    assert len(topic.objects()) == 3
    assert warnings(caplog) == []
