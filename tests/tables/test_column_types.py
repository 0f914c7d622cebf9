"""Every type of a column that a table can have is read back as the objects have it."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2

from airflow_provider_kafka_s3.config import AvroConverter, JsonSchemaConverter, ProtobufConverter
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from dev.iceberg_catalog import IcebergCatalog
from dev.iceberg_readers import SparkWithIceberg, duckdb_with_iceberg
from tests.protobuf_values import classes, text_of
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
    rows = added_rows(made)
    assert [(row["n"], row["text_or_null"] is None) for row in rows] == [(0, False), (1, True)]
    return rows


def added_rows(made: TableOfTopic) -> list[dict[str, Any]]:
    """Add all batches; the rows as the objects have them."""
    made.topic_table().add()
    objects = Snapshot(made.topic.pipeline.log).objects()
    bodies = [made.topic.bucket.get(found.key) for found in objects]
    stored = pa.concat_tables(pq.read_table(io.BytesIO(body.body)) for body in bodies if body is not None)
    return stored.to_pylist()


def test_values_of_every_type_are_those_of_the_objects(
    table_of: Callable[..., TableOfTopic], catalog_server: IcebergCatalog, s3_settings: S3Settings
) -> None:
    """By pyiceberg and DuckDB."""
    made = table_of(value_converter=AvroConverter())
    expected = land_everything(made, SCHEMA)
    require_rows(made, expected, catalog_server, s3_settings)


def require_rows(
    made: TableOfTopic, expected: list[dict[str, Any]], catalog_server: IcebergCatalog, s3_settings: S3Settings
) -> None:
    """Compare the rows that pyiceberg and DuckDB read."""
    scanned = made.catalog.load_table(made.table).scan().to_arrow().sort_by("n")
    assert scanned.to_pylist() == expected
    with duckdb_with_iceberg(catalog_server.url, str(s3_settings.endpoint_url)) as connection:
        rows = connection.execute(f"select * from lake.{made.table} order by n").to_arrow_table()
    assert rows.cast(scanned.schema).to_pylist() == expected


def require_rows_by_spark(made: TableOfTopic, expected: list[dict[str, Any]], spark: SparkWithIceberg) -> None:
    """Compare the rows that Spark reads."""
    rows = spark.query(f"select * from lake.{made.table} order by n")
    scanned = made.catalog.load_table(made.table).scan().to_arrow().schema
    assert rows.cast(scanned).to_pylist() == expected


def test_spark_reads_the_values_of_every_type_that_it_has(
    table_of: Callable[..., TableOfTopic], spark: SparkWithIceberg
) -> None:
    """All but times of day, which it refuses with the whole table."""
    made = table_of(value_converter=AvroConverter())
    schema = {**SCHEMA, "fields": [field for field in SCHEMA["fields"] if field["name"] != "opens"]}
    expected = land_everything(made, schema)
    require_rows_by_spark(made, expected, spark)


# -- Protobuf ---------------------------------------------------------------------------------------------------------

_F: Any = descriptor_pb2.FieldDescriptorProto
SCALARS: dict[str, Any] = {
    "double": -1e300,
    "float": 0.25,
    "int32": -(2**31),
    "int64": -(2**63),
    "uint32": 2**32 - 1,
    "uint64": 2**63 - 1,
    "sint32": -7,
    "sint64": -(2**40),
    "fixed32": 2**31,
    "fixed64": 2**62,
    "sfixed32": -1,
    "sfixed64": 2**63 - 1,
    "bool": True,
    "string": 'é "quoted"',
    "bytes": b"\x00\xff",
}
WRAPPED = {"Int64Value": 2**62, "UInt64Value": 3, "StringValue": "", "BoolValue": False, "BytesValue": b"\xfe"}


def messages() -> Any:
    """A file whose message has fields of every type."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "duration"))
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    message = file.message_type.add(name="Everything")
    numbers = itertools.count(1)

    def add(name: str, kind: str, **more: Any) -> None:
        named = {"type": getattr(_F, f"TYPE_{kind.upper()}")} if "." not in kind else {"type_name": kind}
        label = {"label": _F.LABEL_OPTIONAL, **({"type": _F.TYPE_MESSAGE} if "." in kind else {})}
        message.field.append(_F(**{"name": name, "number": next(numbers), **label, **named, **more}))

    def add_map(name: str, key: str, value: str) -> None:
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        for number, (part, kind) in enumerate((("key", key), ("value", value)), start=1):
            kinds = {"type": getattr(_F, f"TYPE_{kind.upper()}"), "label": _F.LABEL_OPTIONAL}
            entry.field.append(_F(name=part, number=number, **kinds))
        entry.options.map_entry = True
        add(name, f".t.Everything.{entry.name}", label=_F.LABEL_REPEATED)

    add("n", "int64")
    for kind in SCALARS:
        add(f"a_{kind}", kind)
    line = message.nested_type.add(name="Line")
    line.field.append(_F(name="sku", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL))
    line.field.append(_F(name="count", number=2, type=_F.TYPE_FIXED64, label=_F.LABEL_OPTIONAL))
    add("state", ".t.State", type=_F.TYPE_ENUM)
    add("line", ".t.Everything.Line")
    add("lines", ".t.Everything.Line", label=_F.LABEL_REPEATED)
    add("sizes", "sint32", label=_F.LABEL_REPEATED)
    add_map("counts", "string", "uint64")
    add_map("names", "int32", "bytes")
    add("at", ".google.protobuf.Timestamp")
    add("took", ".google.protobuf.Duration")
    for name in WRAPPED:
        add(f"a_{name}", f".google.protobuf.{name}")
    message.oneof_decl.add(name="payment")
    add("card", "string", oneof_index=0)
    add("cash", "uint64", oneof_index=0)
    return file


def land_messages(made: TableOfTopic, *, most: int) -> list[dict[str, Any]]:
    """Land a message with all fields and one with none, and add them; the rows as the objects have them."""
    file = messages()
    number = made.topic.registry.register(text_of(file), type="PROTOBUF")
    kind = classes(file)["t.Everything"]
    full = kind(n=0, state=1, sizes=[1, -1], card="", **{f"a_{name}": value for name, value in SCALARS.items()})
    full.a_uint64 = most
    full.line.sku, full.line.count = "s", 2**40
    full.lines.add(sku="")
    full.counts["a"], full.names[-3] = 7, b"\xff"
    full.at.FromDatetime(NOON)
    full.took.FromMilliseconds(-1500)
    for name, value in WRAPPED.items():
        getattr(full, f"a_{name}").value = value
    for message in (full, kind(n=1)):
        made.topic.append(made.topic.registry.frame(number, b"\0" + message.SerializeToString()))
    made.topic.land("run")
    rows = added_rows(made)
    assert [row["n"] for row in rows] == [0, 1]
    assert [rows[0][name] for name in ("a_uint64", "card", "cash", "a_BoolValue")] == [most, "", None, False]
    assert {name for name, value in rows[1].items() if value is None} >= {"line", "card", "at", "a_StringValue"}
    return rows


@pytest.mark.parametrize(
    ("converter", "most"),
    [
        (ProtobufConverter(), 2**63 - 1),
        (ProtobufConverter(unsigned="decimal", timestamps="record"), 2**64 - 1),
    ],
)
def test_values_of_protobuf_are_those_of_the_objects(
    table_of: Callable[..., TableOfTopic],
    catalog_server: IcebergCatalog,
    s3_settings: S3Settings,
    spark: SparkWithIceberg,
    converter: ProtobufConverter,
    most: int,
) -> None:
    """Of every type, by pyiceberg, DuckDB and Spark."""
    made = table_of(value_converter=converter)
    expected = land_messages(made, most=most)
    require_rows(made, expected, catalog_server, s3_settings)
    require_rows_by_spark(made, expected, spark)


# -- JSON Schema ------------------------------------------------------------------------------------------------------

CONNECT = "org.apache.kafka.connect.data."
DOCUMENT: dict[str, tuple[dict[str, Any], Any]] = {
    "whole": ({"type": "integer"}, 2**62),
    "small": ({"type": "integer", "connect.type": "int16"}, -7),
    "score": ({"type": "number"}, -1e300),
    "ratio": ({"type": "number", "connect.type": "float32"}, 0.25),
    "text": ({"type": "string", "format": "date-time"}, "2026"),
    "data": ({"type": "string", "connect.type": "bytes"}, "AP8="),
    "flag": ({"type": "boolean"}, True),
    "state": ({"type": "string", "enum": ["NEW", "PAID"]}, "PAID"),
    "tags": ({"type": "array", "items": {"type": "string"}}, ["a", ""]),
    "counts": ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": -1}),
    "place": (
        {"type": "object", "title": "Place", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        {"city": "Oslo"},
    ),
    "either": ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, 7),
    "day": ({"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Date"}, 20458),
    "at": ({"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp"}, 1767616215123),
    "price": (
        {
            "type": "number",
            "connect.type": "bytes",
            "title": f"{CONNECT}Decimal",
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "20"},
        },
        -12.5,
    ),
}


def test_values_of_json_schema_are_those_of_the_objects(
    table_of: Callable[..., TableOfTopic],
    catalog_server: IcebergCatalog,
    s3_settings: S3Settings,
    spark: SparkWithIceberg,
) -> None:
    """Of every type, and absent ones, by pyiceberg, DuckDB and Spark."""
    made = table_of(value_converter=JsonSchemaConverter())
    kinds = {"n": {"type": "integer"}, **{name: kind for name, (kind, _) in DOCUMENT.items()}}
    schema = {"type": "object", "title": "Everything", "properties": kinds, "required": ["n"]}
    number = made.topic.registry.register(json.dumps(schema), type="JSON")
    for document in ({"n": 0, **{name: value for name, (_, value) in DOCUMENT.items()}}, {"n": 1}):
        made.topic.append(made.topic.registry.frame(number, json.dumps(document).encode()))
    made.topic.land("run")
    expected = added_rows(made)
    assert [(row["n"], row["price"]) for row in expected] == [(0, Decimal("-12.50")), (1, None)]
    require_rows(made, expected, catalog_server, s3_settings)
    require_rows_by_spark(made, expected, spark)
