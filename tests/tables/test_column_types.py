"""Every type of a column that a table can have is read back as the objects have it."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.config import AvroConverter
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from dev.iceberg_catalog import IcebergCatalog
from dev.iceberg_readers import SparkWithIceberg, duckdb_with_iceberg
from tests.tables.conftest import TableOfTopic


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    """A logical type of Avro."""
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


NOON = dt.datetime(2026, 1, 5, 12, 30, 15, 123000, tzinfo=dt.UTC)
TYPES: dict[str, tuple[Any, Any]] = {
    "flag": ("boolean", True),
    "small": ("int", -7),
    "number": ("long", 2**62),
    "ratio": ("float", 0.25),
    "score": ("double", -1e300),
    "text": ("string", 'é "quoted"'),
    "data": ("bytes", b"\x00\xff"),
    "token": ({"type": "fixed", "name": "Token", "size": 4}, b"abcd"),
    "state": ({"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "PAID"),
    "price": (logical("bytes", "decimal", precision=9, scale=2), Decimal("-12.50")),
    "long_price": (logical("bytes", "decimal", precision=38, scale=10), Decimal("1234567890123456789.0123456789")),
    "fixed_price": (
        logical({"type": "fixed", "name": "P", "size": 8}, "decimal", precision=12, scale=3),
        Decimal("7.125"),
    ),
    "day": (logical("int", "date"), NOON.date()),
    "opens": (logical("long", "time-micros"), dt.time(9, 30, 0, 5)),
    "at": (logical("long", "timestamp-millis"), NOON),
    "exactly_at": (logical("long", "timestamp-micros"), NOON + dt.timedelta(microseconds=7)),
    "local": (logical("long", "local-timestamp-millis"), NOON.replace(tzinfo=None)),
    "exactly_local": (logical("long", "local-timestamp-micros"), NOON.replace(tzinfo=None)),
    "tags": ({"type": "array", "items": ["null", "string"]}, ["a", None]),
    "counts": ({"type": "map", "values": "long"}, {"a": 1}),
    "place": (
        {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "int"}],
        },
        {"city": "Oslo", "zip": 150},
    ),
    "lines": (
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Line",
                "fields": [{"name": "at", "type": logical("long", "timestamp-millis")}],
            },
        },
        [{"at": NOON}],
    ),
    "either": (["null", "string", "long"], 7),
}
OR_NULL = ("small", "text", "price", "at")
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "n", "type": "long"},
        *({"name": name, "type": kind} for name, (kind, _) in TYPES.items()),
        *(
            {"name": f"{name}_or_null", "type": ["null", kind]}
            for name, (kind, _) in TYPES.items()
            if name in "small text at"
        ),
    ],
}


def land_everything(made: TableOfTopic, schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Land two batches, the second with nulls where they may be, and add them; the rows as the objects have them."""
    number = made.topic.registry.register(json.dumps(schema))
    names = {field["name"] for field in schema["fields"]}
    for n in range(2):
        value = {"n": n, **{name: value for name, (_, value) in TYPES.items() if name in names}}
        value |= {} if n else {f"{name}_or_null": TYPES[name][1] for name in OR_NULL}
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        made.topic.append(b"\0" + number.to_bytes(4, "big") + body.getvalue())
        made.topic.land(f"run-{n}")
    made.topic_table().add()
    objects = Snapshot(made.topic.pipeline.log).objects()
    bodies = [made.topic.bucket.get(found.key) for found in objects]
    stored = pa.concat_tables(pq.read_table(io.BytesIO(body.body)) for body in bodies if body is not None)
    rows = [{**row, "counts": [*row["counts"]]} for row in stored.to_pylist()]
    assert [(row["n"], row["text_or_null"] is None) for row in rows] == [(0, False), (1, True)]
    return rows


def test_values_of_every_type_are_those_of_the_objects(
    table_of: Callable[..., TableOfTopic], catalog_server: IcebergCatalog, s3_settings: S3Settings
) -> None:
    """By pyiceberg and DuckDB."""
    made = table_of(value_converter=AvroConverter())
    expected = land_everything(made, SCHEMA)
    scanned = made.catalog.load_table(made.table).scan().to_arrow().sort_by("n")
    assert scanned.to_pylist() == expected
    with duckdb_with_iceberg(catalog_server.url, str(s3_settings.endpoint_url)) as connection:
        rows = connection.execute(f"select * from lake.{made.table} order by n").to_arrow_table()
    assert rows.cast(scanned.schema).to_pylist() == expected


def test_spark_reads_the_values_of_every_type_that_it_has(
    table_of: Callable[..., TableOfTopic], spark: SparkWithIceberg
) -> None:
    """All but times of day, which it refuses with the whole table."""
    made = table_of(value_converter=AvroConverter())
    schema = {**SCHEMA, "fields": [field for field in SCHEMA["fields"] if field["name"] != "opens"]}
    expected = land_everything(made, schema)
    rows = spark.query(f"select * from lake.{made.table} order by n")
    scanned = made.catalog.load_table(made.table).scan().to_arrow().schema
    assert rows.cast(scanned).to_pylist() == expected
