"""Orders that are landed in each format, and the statements of the tables over them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    Csv,
    Format,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
)
from airflow_provider_kafka_s3.reading import Snapshot
from airflow_provider_kafka_s3.tables.ddl import (
    DIALECTS,
    LandedTable,
    Script,
    TableName,
    dead_letters_table,
    landed_table,
)
from tests.unit.batch.simulated_topic import Topic

__all__ = [
    "DAY_MS",
    "START",
    "TYPED",
    "declared",
    "landed",
    "layout_of",
    "letters_script",
    "orders",
    "record",
    "saved",
    "script",
    "table_of",
    "unscaled",
    "values_in",
    "with_dead_letters",
]

START: Final = 1_767_312_000_000
"""2026-01-02T00:00:00Z."""
DAY_MS: Final = 86_400_000

_FLAT: Final[dict[str, Any]] = {
    "orderId": "long",
    "note": ["null", "string"],
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "weight": "double",
    "paid": "boolean",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "seen": {"type": "long", "logicalType": "timestamp-micros"},
    "due": {"type": "int", "logicalType": "date"},
    "raw": "bytes",
}
_NESTED: Final[dict[str, Any]] = {
    "lines": {
        "type": "array",
        "items": {
            "type": "record",
            "name": "Line",
            "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
        },
    },
    "tags": {"type": "map", "values": "long"},
}
_NOTES: Final = ("plain", "", None, 'say "no"', "a,b", "1\n2", "\\", " é☃ ")


def record(**fields: Any) -> dict[str, Any]:
    """A schema of Avro."""
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def declared(**fields: Any) -> JsonConverter:
    """A converter of JSON values of a schema."""
    return JsonConverter(schema=json.dumps(record(**fields)))


TYPED: Final[Mapping[bool, JsonConverter]] = {
    nested: declared(**_FLAT, **(_NESTED if nested else {})) for nested in (False, True)
}
"""By whether values have nested fields."""


def orders(*, nested: bool) -> list[dict[str, Any]]:
    """Values in Kafka, of two days."""
    values = []
    for n, note in enumerate(_NOTES):
        value = {
            "orderId": n,
            "note": note,
            "amount": f"{n}.25",
            "weight": n / 2,
            "paid": n % 2 == 0,
            "at": START + n,
            "seen": START * 1000 + n,
            "due": 20_455 + n,
            "raw": base64.b64encode(bytes([0, n, 255])).decode(),
        }
        values.append({**value, **({"lines": [{"sku": "a", "n": n}], "tags": {"x": n}} if nested else {})})
    return values


def values_in(record_format: Format, value: Mapping[str, Any]) -> dict[str, Any]:
    """A value as the files of a format have it, with the types of its columns."""
    if isinstance(record_format, JsonLines | BlockGzip):
        return {**value, "amount": base64.b64encode(unscaled(value["amount"])).decode()}
    day = dt.date(1970, 1, 1) + dt.timedelta(days=value["due"])
    raw = value["raw"] if isinstance(record_format, Csv) else base64.b64decode(value["raw"])
    times = {name: dt.datetime.fromtimestamp(value["at"] // 1000, dt.UTC) for name in ("at", "seen")}
    times["at"] += dt.timedelta(milliseconds=value["at"] % 1000)
    times["seen"] += dt.timedelta(microseconds=value["seen"] % 1_000_000)
    return {**value, "amount": Decimal(value["amount"]), "due": day, "raw": raw, **times}


def unscaled(amount: str) -> bytes:
    """The bytes of a decimal of two digits in Avro."""
    number = int(Decimal(amount).scaleb(2))
    return number.to_bytes(number.bit_length() // 8 + 1, signed=True)


def layout_of(record_format: Format, **settings: Any) -> Layout:
    """A layout of orders: CSV has no nested fields."""
    converter = TYPED[not isinstance(record_format, Csv)]
    return Layout(topics_dir="lake", format=record_format, **{"value_converter": converter, **settings})


def landed(layout: Layout, values: Iterable[Any] | None = None, *, store: Any = None, **more: Any) -> Topic:
    """A topic with values, or with orders, of two days, the first half of them in each."""
    topic = Topic(layout, 2)
    topic.bucket = topic.bucket if store is None else store
    nested = not isinstance(layout.format, Csv)
    given = [*orders(nested=nested)] if values is None else [*values]
    for n, value in enumerate(given):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        late = n * 2 >= len(given)
        topic.append(body, partition=n % 2, **{"timestamp": START + late * DAY_MS, **more})
    topic.land()
    return topic


def table_of(topic: Topic) -> LandedTable:
    """What a table over a topic has."""
    return landed_table(Snapshot(topic.pipeline.log))


def script(topic: Topic, dialect: str, **called: Any) -> Script:
    """The statements for a topic."""
    return DIALECTS[dialect].script(table_of(topic), TableName(**called))


def with_dead_letters(*, store: Any = None) -> Topic:
    """A topic with two dead letters of each Kafka partition: with and without key, headers, value and time."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), errors="dead_letter"), 2)
    topic.bucket = topic.bucket if store is None else store
    for partition in range(2):
        topic.append(b"no JSON", partition=partition, key=b"\xff", headers=[("a", b"1"), ("b", None)], timestamp=START)
        topic.append(b"1", partition=partition)
        topic.append(None, partition=partition)
    topic.land()
    return topic


def letters_script(topic: Topic, dialect: str, **called: Any) -> Script:
    """The statements for the dead letters of a topic."""
    return DIALECTS[dialect].script(dead_letters_table(Snapshot(topic.pipeline.log)), TableName(**called))


def saved(topic: Topic, folder: Path) -> None:
    """Write what the bucket has to a local folder."""
    for info in topic.bucket.list("lake/"):
        stored = topic.bucket.get(info.key)
        assert stored is not None
        file = folder / info.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(stored.body)


FORMATS: Final = (
    JsonLines(),
    JsonLines(compression="gzip"),
    JsonLines(compression="zstd"),
    BlockGzip(),
    Parquet(),
    Parquet(compression="brotli"),
    Parquet(compression="lz4"),
    Csv(null="NULL"),
    Csv(null="\\N", separator="\x01", compression="gzip"),
    Csv(null="NULL", header=False, compression="zstd"),
    AvroContainer(),
)
"""Formats of orders."""
