"""Values with a schema landed as CSV: Python's csv and DuckDB read the same records."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.config import AvroConverter, Csv, JsonConverter, Layout
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.test_typed_values import V1, V2, append, layout, order

FLAT: dict[str, Any] = {**V1, "fields": [*V1["fields"], {"name": "note", "type": "string", "default": ""}]}  # type: ignore[misc]
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "zstd": lambda body: pa.CompressedInputStream(pa.BufferReader(body), "zstd").read(),
    "bzip2": bz2.decompress,
}
NOTES = ["", "NULL", "a,b;c", 'say "no"', "1\n2\r\n3", "é\t|"]


def landed(record_format: Csv, schema: Any, *values: Any, per_poll: int = 3, **more: Any) -> Topic:
    """A topic of Avro values, landed by one run."""
    topic = Topic(layout(record_format, **more), records_per_poll=per_poll)
    append(topic, topic.registry.register(json.dumps(schema)), schema, *values)
    topic.land()
    return topic


def body_of(topic: Topic) -> bytes:
    """The only object."""
    (body,) = topic.objects().values()
    return body


def orders() -> list[dict[str, Any]]:
    """Orders with texts that need quotes, and nulls."""
    return [order(n, note=NOTES[n % len(NOTES)]) for n in range(20)]


def text_of(value: dict[str, Any], null: str) -> list[str]:
    """The fields of an order."""
    at = datetime.fromtimestamp(value["at"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    return [str(value["id"]), null if value["customer"] is None else value["customer"], at, value["note"]]


@pytest.mark.parametrize("compression", DECOMPRESS)
def test_python_reads_the_landed_values(compression: Any) -> None:
    """With each compression; a rerun of the slice in other batches gives the same bytes."""
    topic = landed(Csv(compression=compression), FLAT, *orders())
    ((key, body),) = topic.objects().items()
    ending = {"none": "", "gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2"}[compression]
    assert key == f"lake/orders/partition=0/orders+0+0000000000.csv{ending}"
    read = csv.reader(io.StringIO(DECOMPRESS[compression](body).decode(), newline=""), strict=True)
    assert list(read) == [["id", "customer", "at", "note"], *(text_of(value, "") for value in orders())]
    again = landed(Csv(compression=compression), FLAT, *orders(), per_poll=7)
    assert again.objects() == topic.objects()


@pytest.mark.parametrize("separator", [",", ";", "|", "\t", "\x01"])
def test_separator_header_and_text_of_nulls_are_those_of_the_format(separator: Any) -> None:
    """As given by a DAG; without a header the first line is a record."""
    topic = landed(Csv(separator=separator, header=False, null="\\N"), FLAT, *orders())
    read = csv.reader(io.StringIO(body_of(topic).decode(), newline=""), delimiter=separator, strict=True)
    assert list(read) == [text_of(value, "\\N") for value in orders()]


def test_duckdb_reads_the_landed_values(tmp_path: Path) -> None:
    """Types, nulls and empty texts."""
    path = tmp_path / "orders.csv"
    path.write_bytes(body_of(landed(Csv(), FLAT, *orders())))
    with duckdb.connect() as database:
        read = database.execute(
            "SELECT id, customer, epoch_ms(\"at\"), note FROM read_csv(?, header = true, delim = ',', quote = '\"', "
            "escape = '\"', allow_quoted_nulls = false, "
            "columns = {'id': 'BIGINT', 'customer': 'VARCHAR', 'at': 'TIMESTAMP', 'note': 'VARCHAR'})",
            [str(path)],
        ).fetchall()
    assert read == [tuple(value.values()) for value in orders()]


def test_each_schema_has_objects_with_its_own_header() -> None:
    """Interleaved schemas make one object each, not one per record."""
    topic = Topic(layout(Csv()))
    first, second = (topic.registry.register(json.dumps(schema)) for schema in (V1, FLAT))
    for n in range(10):
        schema_id, schema, more = (second, FLAT, {"note": "x"}) if n % 2 else (first, V1, {})
        append(topic, schema_id, schema, order(n, **more))
    topic.land()
    found = [list(csv.reader(io.StringIO(body.decode()))) for body in topic.objects().values()]
    assert [lines[0] for lines in found] == [["id", "customer", "at"], ["id", "customer", "at", "note"]]
    assert [[int(line[0]) for line in lines[1:]] for lines in found] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_json_values_with_a_declared_schema_are_landed() -> None:
    """A missing field gets its default; a value without the schema is set aside."""
    converter = JsonConverter(schema=json.dumps(FLAT))
    topic = Topic(Layout(topics_dir="lake", format=Csv(), value_converter=converter, errors="dead_letter"))
    topic.append(b'{"id": 1, "at": 0}', b'{"id": "x"}', b'{"id": 2, "at": 0, "note": "n", "customer": "c"}')
    (batch,) = topic.land().batches
    assert (batch.records, batch.dead_letters) == (2, 1)
    body = next(body for key, body in topic.objects().items() if key.endswith(".csv"))
    at = "1970-01-01 00:00:00.000Z"
    assert body.decode() == f'id,customer,at,note\n1,,{at},""\n2,c,{at},n\n'


@pytest.mark.parametrize("schema", ["long", ["null", "double"]])
def test_values_that_are_no_records_are_one_field(schema: Any) -> None:
    """It is named ``value``, as the column in Parquet."""
    values = [1, -5] if schema == "long" else [None, 1.5]
    body = body_of(landed(Csv(null="NULL"), schema, *values))
    assert body.decode() == "value\n" + "".join(f"{'NULL' if value is None else value}\n" for value in values)


def test_a_time_without_a_text_is_no_line_but_a_dead_letter() -> None:
    """Avro has times beyond the year 9999; the reason names the field, and other records are landed."""
    bad = [{**order(n, note=""), "at": at} for n, at in ((1, 2**62), (3, -(2**62)))]
    values = [order(0, note=""), bad[0], order(2, note=""), bad[1], order(4, note="")]
    topic = landed(Csv(), FLAT, *values, errors="dead_letter", per_poll=5)
    (body,) = (body for key, body in topic.objects().items() if key.endswith(".csv"))
    assert [line.split(",")[0] for line in body.decode().splitlines()] == ["id", "0", "2", "4"]
    reason = "the value of schema 1 has a time outside the years 1 to 9999 in field 'at', which has no text in CSV"
    letters = topic.dead_letters()
    assert [(letter["offset"], letter["stage"], letter["reason"]) for letter in letters] == [
        (1, "format", reason),
        (3, "format", reason),
    ]
    with pytest.raises(RecordError, match=r"topic 'orders', partition 0, offset 1: .* field 'at'.* use format='avro'"):
        landed(Csv(), FLAT, *values)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (V2, order(0, tags=[]), "schema 1: field 'tags' of type list.* cannot be a field of CSV"),
        ({"type": "record", "name": "E", "fields": []}, {}, "schema 1: a record without fields"),
        (["null", "string"], "x", "schema 1: field 'value' is the only one.* set null"),
    ],
)
def test_a_schema_that_csv_cannot_hold_is_an_error(schema: Any, value: Any, message: str) -> None:
    """It names the schema and what to do; nothing is landed."""
    topic = Topic(layout(Csv()))
    append(topic, topic.registry.register(json.dumps(schema)), schema, value)
    with pytest.raises(ConfigurationError, match=message):
        topic.land()
    assert topic.objects() == {}


def test_values_without_a_schema_are_refused() -> None:
    """When the DAG is parsed; the message has the converters that fit."""
    with pytest.raises(ConfigurationError, match=r"Csv\(.* needs value_converter, .*'avro', .* or"):
        Layout(format=Csv())
    with pytest.raises(ConfigurationError, match=r"value_converter='json' needs a schema with format=Csv"):
        Layout(format=Csv(), value_converter=JsonConverter())
    assert Layout(format=Csv(), value_converter=AvroConverter()).has_typed_values
