"""The warning of a batch in which too many objects had to be open at once."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.batch import early_ends
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
        (json_lines(rotation=Rotation(max_bytes=2, max_open_objects=2)), IN_TURN),
        (parquet(schema_compatibility="NONE"), IN_TURN),
        (parquet(rotation=Rotation(rotate_interval_ms=1, rotate_on_partition_change=True)), IN_TURN),
    ],
    ids=[
        "in-order",
        "many-days",
        "enough-open",
        "json",
        "each-record",
        "flush",
        "max-bytes",
        "max-bytes-first",
        "compatibility",
        "times",
    ],
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


@pytest.mark.parametrize("flush_size", [None, 100])
def test_as_many_objects_as_may_be_open_are_not_warned_of(
    caplog: pytest.LogCaptureFixture, flush_size: int | None
) -> None:
    """Ten schemas in one folder, ten open objects: none of them ended early. A dead letter is beside them."""
    rotation = Rotation(max_open_objects=10, flush_size=flush_size)
    layout = parquet(MIB // 2, errors="dead_letter", rotation=rotation)
    topic = Topic(layout)
    for number in range(10):
        schema = {"type": "record", "name": f"R{number}", "fields": [{"name": "f", "type": "long"}]}
        topic.append(topic.registry.frame(topic.registry.register(json.dumps(schema)), b"\2"), timestamp=0)
    topic.append(b"no schema", timestamp=0)
    topic.land()
    assert (len(topic.objects()), len(topic.dead_letters())) == (11, 1)
    assert warnings(caplog) == []


def in_partitions(layout: Layout, *days: list[int]) -> Topic:
    """A topic with a record of each of these days in each Kafka partition."""
    topic = Topic(layout, len(days))
    for partition, of_partition in enumerate(days):
        for day in of_partition:
            topic.append(b"{}", partition=partition, timestamp=day * DAY)
    topic.land()
    return topic


def test_the_remedy_is_enough_for_the_slice_with_the_most_folders(caplog: pytest.LogCaptureFixture) -> None:
    """Slices without many objects are not counted."""
    in_partitions(json_lines(rotation=TWO_OPEN), [n % 7 for n in range(70)], IN_TURN, IN_ORDER)
    (text,) = warnings(caplog)
    assert "2 slices of 3 made 130 objects of 130 records in 7 encoded partitions:" in text
    assert "set max_open_objects to 7 or more" in text


def test_slices_that_share_objects_are_warned_of_together(caplog: pytest.LogCaptureFixture) -> None:
    """Objects that begin in any of them count."""
    topic = in_partitions(json_lines(rotation=Rotation(max_open_objects=2, merge_partitions=True)), IN_TURN, IN_TURN)
    (text,) = warnings(caplog)
    assert f"2 slices of 2 made {len(topic.objects())} objects of 120 records in 3 encoded partitions:" in text


def test_row_groups_that_would_be_tiny_are_not_recommended(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many folders cannot be open at once: what is left is a partitioner with wider ones."""
    monkeypatch.setattr(early_ends, "_SMALLEST_ROW_GROUP", 1024 * MIB)
    landed(parquet(), IN_TURN)
    (text,) = warnings(caplog)
    assert text.endswith("To have fewer and larger ones in the next batches, use a partitioner with wider folders")
