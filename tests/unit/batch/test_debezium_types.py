"""Types of Debezium: folders of its times, and decimals whose schemas leave the precision open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import (
    AvroConverter,
    ByField,
    Daily,
    FieldTime,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Parquet,
)
from tests.landed_rows import rows
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.test_typed_values import datum

TIMES: list[tuple[str, str, int, str]] = [
    ("Date", "int32", 20_500, "year=2026/month=02/day=16"),
    ("Date", "int32", -1, "year=1969/month=12/day=31"),
    ("Year", "int32", 2026, "year=2026/month=01/day=01"),
    ("Timestamp", "int64", 1_771_200_000_000, "year=2026/month=02/day=16"),
    ("MicroTimestamp", "int64", 1_771_200_000_000_000, "year=2026/month=02/day=16"),
    ("NanoTimestamp", "int64", 1_771_200_000_000_000_000, "year=2026/month=02/day=16"),
]
NO_TIMES: list[tuple[str, str, int]] = [
    ("Year", "int32", 0),
    ("Year", "int32", 10_000),
    ("Date", "int32", 2**31 - 1),
    ("Time", "int32", 5),
    ("MicroTime", "int64", 5),
    ("MicroDuration", "int64", 5),
]


def landed(kind: str, name: str, width: str, value: int, partitioner: Any, **more: Any) -> Topic:
    """A topic with one record whose field ``at`` has a type of Debezium, by one of its converters."""
    converters = {
        "envelope": JsonConverter(schemas_enable=True),
        "avro": AvroConverter(),
        "json": JsonSchemaConverter(),
    }
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=JsonLines(),
            value_converter=converters[kind],  # type: ignore[arg-type]
            partitioner=partitioner,
            **more,
        )
    )
    full = f"io.debezium.time.{name}"
    if kind == "envelope":
        field = {"field": "at", "type": width, "name": full, "optional": True}
        envelope = {"schema": {"type": "struct", "fields": [field]}, "payload": {"at": value}}
        topic.append(json.dumps(envelope).encode())
    elif kind == "avro":
        of_field = {"type": {"int32": "int", "int64": "long"}[width], "connect.version": 1, "connect.name": full}
        schema: Any = {"type": "record", "name": "R", "fields": [{"name": "at", "type": ["null", of_field]}]}
        number = topic.registry.register(json.dumps(schema))
        topic.append(topic.registry.frame(number, datum(schema, {"at": value})))
    else:
        schema = {"type": "object", "properties": {"at": {"type": "integer", "title": full, "connect.type": width}}}
        number = topic.registry.register(json.dumps(schema), type="JSON")
        topic.append(topic.registry.frame(number, json.dumps({"at": value}).encode()))
    topic.land()
    return topic


@pytest.mark.parametrize("kind", ["envelope", "avro", "json"])
@pytest.mark.parametrize(("name", "width", "value", "folder"), TIMES)
def test_a_time_of_debezium_has_the_unit_of_its_type(kind: str, name: str, width: str, value: int, folder: str) -> None:
    """Whatever the declared unit is; the value itself stays a number, in the object and in folders of fields."""
    topic = landed(kind, name, width, value, Daily(timestamp_from=FieldTime(name="at")))
    ((key, body),) = topic.objects().items()
    assert key.startswith(f"lake/orders/{folder}/")
    assert rows(key, body) == [{"at": value}]
    (of_field,) = landed(kind, name, width, value, ByField(names=("at",))).objects()
    assert of_field.startswith(f"lake/orders/at={value}/")


@pytest.mark.parametrize("kind", ["envelope", "avro", "json"])
@pytest.mark.parametrize(("name", "width", "value"), NO_TIMES)
def test_what_is_no_point_in_time_is_refused(kind: str, name: str, width: str, value: int) -> None:
    """A year or a day outside the calendar, a time of day, a duration: it is in no folder of 1970."""
    by_time = Daily(timestamp_from=FieldTime(name="at"))
    (letter,) = landed(kind, name, width, value, by_time, errors="dead_letter").dead_letters()
    assert "field 'at' is" in letter["reason"]


def test_schemas_that_differ_in_the_unit_of_a_time_are_not_mixed_up() -> None:
    """Days in one record are no milliseconds in the next."""
    partitioner = Daily(timestamp_from=FieldTime(name="at"))
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=JsonLines(),
            value_converter=JsonConverter(schemas_enable=True),
            partitioner=partitioner,
        )
    )
    for name, value in (("MicroTimestamp", 1_771_200_000_000_000), ("Date", 20_500), ("", 1_771_200_000_000)):
        field = {"field": "at", "type": "int64", **({"name": f"io.debezium.time.{name}"} if name else {})}
        topic.append(json.dumps({"schema": {"type": "struct", "fields": [field]}, "payload": {"at": value}}).encode())
    topic.land()
    assert {key.rpartition("/")[0] for key in topic.objects()} == {"lake/orders/year=2026/month=02/day=16"}


def decimal_topic(record_format: Any, digits: str, **parameters: str) -> Topic:
    """A landed topic with one decimal of an envelope."""
    converter = JsonConverter(schemas_enable=True, decimal_format="NUMERIC")
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter, errors="dead_letter"))
    kind = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", **{name.replace("_", "."): value for name, value in parameters.items()}},
    }
    schema = {"type": "struct", "fields": [{"field": "d", **kind}]}
    topic.append(json.dumps({"schema": schema, "payload": {"d": digits}}).encode())
    topic.land()
    return topic


@pytest.mark.parametrize("record_format", [JsonLines(decimal_format="NUMERIC"), Parquet()])
def test_a_decimal_of_more_digits_than_a_column_has_is_landed_where_it_fits(record_format: Any) -> None:
    """A declared precision of 100 is one of 76, the most that there is; a value with more digits is set aside."""
    topic = decimal_topic(record_format, "1.50", connect_decimal_precision="100")
    ((key, body),) = topic.objects().items()
    assert [float(row["d"]) for row in rows(key, body)] == [1.5]
    (letter,) = decimal_topic(record_format, "9" * 80, connect_decimal_precision="100").dead_letters()
    assert "d has more digits than its precision of 76" in letter["reason"]


def test_a_decimal_of_more_than_38_digits_names_the_parameter_that_it_needs() -> None:
    """Without one, a decimal of an envelope has 38 digits."""
    (letter,) = decimal_topic(JsonLines(), "9" * 39).dead_letters()
    assert "precision of 38" in letter["reason"]
    assert "connect.decimal.precision" in letter["reason"]
    assert decimal_topic(JsonLines(), "9" * 39, connect_decimal_precision="41").dead_letters() == []
