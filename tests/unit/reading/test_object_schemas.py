"""The schema of a snapshot: the columns of all its objects, which every reader can use."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BlockGzip,
    Csv,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, MissingObjectError
from airflow_provider_kafka_s3.formats.avro import AvroWriter
from airflow_provider_kafka_s3.reading import Snapshot, arrow_batches, arrow_dataset
from airflow_provider_kafka_s3.reading.arrow import KAFKA_COLUMNS
from airflow_provider_kafka_s3.reading.avro_columns import avro_tables
from airflow_provider_kafka_s3.reading.seek import seek
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.unit.batch.simulated_topic import Topic

START, HOUR = 1_767_312_000_000, 3_600_000
LINES = pa.schema([("value", pa.binary())])


def record(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """A schema of Avro; the third item of a field is its default."""
    return {
        "type": "record",
        "name": "Row",
        "fields": [dict(zip(("name", "type", "default"), one, strict=False)) for one in fields],
    }


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
WIDER_INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": ["null", "string"], "default": None}],
}
FIRST = record(("n", "int"), ("part", INNER), ("gone", "string"))
SECOND = record(("n", "long"), ("part", WIDER_INNER), ("added", ["null", "string"], None))
BOTH = pa.schema(
    [
        ("n", pa.int64()),
        ("part", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("gone", pa.string()),
        ("added", pa.string()),
    ]
)
ROWS = [{"n": 1, "part": {"x": 2}, "gone": "g"}, {"n": 2**40, "part": {"x": 2**41, "y": "é"}, "added": "a"}]
FILLED = [
    {"n": 1, "part": {"x": 2, "y": None}, "gone": "g", "added": None},
    {"n": 2**40, "part": {"x": 2**41, "y": "é"}, "gone": None, "added": "a"},
]


def declared(record_format: Format, schema: dict[str, Any], **more: Any) -> Topic:
    """A topic of JSON values with a declared schema."""
    converter = JsonConverter(schema=json.dumps(schema))
    return Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter, **more))


def registered(record_format: Format, *schemas: Any) -> Topic:
    """A topic of Avro values with schemas of a registry."""
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=AvroConverter()))
    for schema in schemas:
        topic.registry.register(json.dumps(schema))
    return topic


def append(topic: Topic, number: int, schema: Any, value: Any) -> None:
    """Append a value of a schema of the registry."""
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, schema, value)
    topic.append(topic.registry.frame(number, datum.getvalue()), timestamp=START)


def evolved(record_format: Format) -> Topic:
    """A topic of two batches; a field became wider, one is gone, one was added, also inside of another one."""
    topic = registered(record_format, FIRST, SECOND)
    for number, (schema, row) in enumerate(zip((FIRST, SECOND), ROWS, strict=True), 1):
        append(topic, number, schema, row)
        topic.land(f"run-{number}")
    return topic


def read(snapshot: Snapshot, schema: pa.Schema) -> list[dict[str, Any]]:
    """All rows with the columns of a schema."""
    return pa.Table.from_batches(arrow_batches(snapshot.log.store, snapshot.objects(), schema), schema).to_pylist()


@pytest.mark.parametrize(
    "record_format",
    [JsonLines(), JsonLines(compression="gzip"), RawBytes(), BlockGzip(), BlockGzip(lines=RawBytes())],
    ids=str,
)
def test_lines_and_bytes_have_the_column_value(record_format: Format) -> None:
    """They are read with it as they are, with the place of each; no object is read for the schema."""
    topic = Topic(Layout(topics_dir="lake", format=record_format))
    topic.append(b'{"n": 1}', b'{"n": 2}')
    topic.land()
    log = topic.pipeline.log
    store = FaultyStore(topic.bucket)
    log.store = DurableStore(store, Retrier())
    snapshot = Snapshot(log)
    assert snapshot.schema() == LINES
    assert [request.key for request in store.requests if "_kafka_s3" not in request.key] == []
    schema = pa.schema([*LINES, *KAFKA_COLUMNS])
    assert [(row["value"], row["_kafka_offset"]) for row in read(snapshot, schema)] == [
        (b'{"n": 1}', 0),
        (b'{"n": 2}', 1),
    ]


@pytest.mark.parametrize("record_format", [AvroContainer(codec="snappy"), Parquet()], ids=["avro", "parquet"])
def test_columns_of_several_schemas_are_all_there_in_the_wider_type(record_format: Format) -> None:
    """Every record can be read with them; each batch alone has its own."""
    snapshot = Snapshot(evolved(record_format).pipeline.log)
    assert snapshot.schema() == BOTH
    assert read(snapshot, snapshot.schema()) == FILLED
    assert snapshot.schema(batches=[1]) == pa.schema(
        [("n", pa.int32()), ("part", pa.struct([("x", pa.int32())])), ("gone", pa.string())]
    )
    assert read(snapshot.changes(1), snapshot.changes(1).schema()) == [
        {name: value for name, value in FILLED[1].items() if name != "gone"}
    ]


def test_a_dataset_has_the_columns_of_all_objects_and_the_folders() -> None:
    """Those that were added later as well; a schema of one's own is used as it is."""
    snapshot = Snapshot(evolved(Parquet()).pipeline.log)
    dataset = arrow_dataset(snapshot)
    assert dataset.schema.names == [*BOTH.names, "partition"]
    assert sorted(dataset.to_table(columns=["n", "added", "gone"]).to_pylist(), key=str) == [
        {"n": 1, "added": None, "gone": "g"},
        {"n": 2**40, "added": "a", "gone": None},
    ]
    own = pa.schema([("n", pa.int64())])
    assert sorted(arrow_dataset(snapshot, schema=own).to_table().column("n").to_pylist()) == [1, 2**40]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
WIDER_DECIMAL = {**DECIMAL, "precision": 24, "scale": 3}


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        (("long", 1), ("string", "one"), "int64 in .* and string in"),
        (("long", 2**53 + 1), ("double", 1.5), "int64 in .* and double in"),
        (("float", 1.5), ("long", 7), "float in .* and int64 in"),
        (("double", 1.5), (DECIMAL, Decimal("0.10")), r"double in .* and decimal128\(9, 2\) in"),
        (("long", 2**62), (DECIMAL, Decimal("0.10")), r"int64 in .* and decimal128\(9, 2\) in"),
        (
            ({"type": "array", "items": {**INNER, "fields": [{"name": "x", "type": "long"}]}}, [{"x": 1}]),
            ({"type": "array", "items": {**INNER, "fields": [{"name": "x", "type": "double"}]}}, [{"x": 1.5}]),
            "list<.*x: int64>> in .* and list<.*x: double>> in",
        ),
    ],
    ids=["text", "long and double", "float and long", "double and decimal", "long and decimal", "nested"],
)
def test_types_without_one_that_has_the_values_of_both_are_an_error_with_the_column_and_both_objects(
    record_format: Format, old: tuple[Any, Any], new: tuple[Any, Any], differ: str
) -> None:
    """No schema is given that readers refuse, or with which they change values; each batch can be read alone."""
    schemas = [record(("n", "int"), ("x", kind)) for kind, _ in (old, new)]
    topic = registered(record_format, *schemas)
    for number, (schema, (_, value)) in enumerate(zip(schemas, (old, new), strict=True), 1):
        append(topic, number, schema, {"n": number, "x": value})
        topic.land(f"run-{number}")
    snapshot = Snapshot(topic.pipeline.log)
    with pytest.raises(
        ConfigurationError, match=rf"the column 'x' do not go together: it is {differ}.*by batches=, or"
    ):
        snapshot.schema()
    for batch, (_, value) in enumerate((old, new), 1):
        objects, schema = snapshot.objects(batches=[batch]), snapshot.schema(batches=[batch])
        (row,) = [row for one in arrow_batches(snapshot.log.store, objects, schema) for row in one.to_pylist()]
        assert row["x"] == value
    assert sorted(row["n"] for row in read(snapshot, pa.schema([("n", pa.int32())]))) == [1, 2]


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
def test_a_wider_type_has_every_value_of_the_others(record_format: Format) -> None:
    """The largest numbers, beside one of the wider type."""
    for kind, value, wider, other in (
        ("int", 2**31 - 1, "double", 1.5),
        ("float", 1.5, "double", 0.1),
        (DECIMAL, Decimal("9999999.99"), WIDER_DECIMAL, Decimal("0.125")),
        ("long", 2**63 - 1, WIDER_DECIMAL, Decimal("0.125")),
    ):
        schemas = [record(("x", one)) for one in (kind, wider)]
        topic = registered(record_format, *schemas)
        for number, (schema, x) in enumerate(zip(schemas, (value, other), strict=True), 1):
            append(topic, number, schema, {"x": x})
            topic.land(f"run-{number}")
        snapshot = Snapshot(topic.pipeline.log)
        assert sorted(row["x"] for row in read(snapshot, snapshot.schema())) == sorted([value, other])


def test_avro_of_every_type_is_read_with_its_schema() -> None:
    """The same columns and rows as in Parquet."""
    fields: list[tuple[str, Any]] = [
        ("part", ["null", INNER]),
        ("one", ["null", "string"]),
        ("map", {"type": "map", "values": "long"}),
        ("list", {"type": "array", "items": ["null", "double"]}),
        ("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        ("fixed", {"type": "fixed", "name": "F", "size": 2}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("clock", {"type": "int", "logicalType": "time-millis"}),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
        ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ]
    schema = record(*fields)
    rest = {"one": None, "map": {"k": 1}, "list": [1.5, None], "enum": "B", "fixed": b"ab", "day": 1, "clock": 2}
    rows = [{**rest, "part": value, "at": 3, "amount": Decimal("2.56")} for value in (None, {"x": 5})]
    read_by_format = []
    for record_format in (AvroContainer(), Parquet()):
        topic = registered(record_format, schema)
        for row in rows:
            append(topic, 1, schema, row)
        topic.land()
        snapshot = Snapshot(topic.pipeline.log)
        read_by_format.append((snapshot.schema(), read(snapshot, snapshot.schema())))
    assert read_by_format[0] == read_by_format[1]
    assert [row["part"] for row in read_by_format[0][1]] == [None, {"x": 5}]


DECIMAL_OF = {"type": "bytes", "logicalType": "decimal"}
FIXED = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal"}


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
@pytest.mark.parametrize(
    ("kind", "datum", "value"),
    [
        ({**DECIMAL_OF, "precision": "5", "scale": 2}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "precision": 5, "scale": "2"}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "precision": 3, "scale": 5}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "precision": 5, "scale": -1}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "precision": 4.0}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "precision": 0}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "precision": 100}, b"\x02{", b"{"),
        ({**DECIMAL_OF, "scale": 2}, b"\x02{", b"{"),
        ({**FIXED, "precision": 3}, b"{", b"{"),
        ({"type": "string", "logicalType": "decimal", "precision": 5}, b"\x02{", "{"),
        ({"type": "long", "logicalType": "date"}, b"\x02", 1),
        ({"type": "int", "logicalType": "timestamp-millis"}, b"\x02", 1),
        ({"type": "int", "logicalType": ["date"]}, b"\x02", 1),
        ({"type": {"type": "int", "logicalType": "date"}}, b"\x02", dt.date(1970, 1, 2)),
        ({"type": {"type": "int"}, "logicalType": "date"}, b"\x02", 1),
        ({"type": ["null", "int"], "logicalType": "date"}, b"\x02\x02", 1),
        ({"type": "array", "items": {**DECIMAL_OF, "scale": 2}}, b"\x02\x02{\0", [b"{"]),
        ({"type": "map", "values": {**DECIMAL_OF, "scale": 2}}, b"\x02\x02k\x02{\0", [("k", b"{")]),
    ],
    ids=str,
)
def test_a_logical_type_that_is_not_valid_is_read_as_the_type_below(
    record_format: Format, kind: Any, datum: bytes, value: Any
) -> None:
    """As Avro demands, by the same rule as it was landed; also by the reader of single records."""
    schema = record(("x", kind))
    topic = registered(record_format, schema)
    topic.append(topic.registry.frame(1, datum))
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    assert read(snapshot, snapshot.schema()) == [{"x": value}]
    (found,) = seek(snapshot.log, 0, 0)
    assert value != b"{" or found.value == {"x": "ew=="}


@pytest.mark.parametrize("record_format", [JsonLines(), AvroContainer(), Parquet()], ids=["json", "avro", "parquet"])
def test_of_the_entries_of_a_map_with_the_same_key_the_last_one_is_the_value(record_format: Format) -> None:
    """In every format and for every reader, as Avro for Java reads them: no JSON object has a name twice."""
    topic = registered(record_format, record(("x", {"type": "map", "values": "int"})))
    topic.append(topic.registry.frame(1, b"\x06\x02a\x02\x02b\x04\x02a\x06\0"))
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    (row,) = read(snapshot, snapshot.schema())
    (found,) = seek(snapshot.log, 0, 0)
    if isinstance(record_format, JsonLines):
        assert row == {"value": b'{"x":{"b":2,"a":3}}'}
        assert found.line().count('"a"') == 1
    else:
        assert {**row, "x": sorted(row["x"])} == {"x": [("a", 3), ("b", 2)]}
        assert dict(cast("Any", found.value)["x"]) == {"a": 3, "b": 2}


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
def test_a_union_of_several_types_has_a_field_for_each(record_format: Format) -> None:
    """In Avro as in Parquet: of items, of records, and of records beside null."""
    other = {"type": "record", "name": "Other", "namespace": "a", "fields": [{"name": "y", "type": "string"}]}
    schema = record(
        ("n", "long"),
        ("some", {"type": "array", "items": ["null", "long", "string"]}),
        ("part", ["null", INNER, other]),
    )
    topic = registered(record_format, schema)
    append(topic, 1, schema, {"n": 1, "some": ["one", None, 2], "part": {"x": 3}})
    append(topic, 1, schema, {"n": 2, "some": [], "part": {"y": "b"}})
    append(topic, 1, schema, {"n": 3, "some": [], "part": None})
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    some = [{"long": None, "string": "one"}, None, {"long": 2, "string": None}]
    parts = [{"Inner": {"x": 3}, "Other": None}, {"Inner": None, "Other": {"y": "b"}}, None]
    rows = [{"n": n, "some": some if n == 1 else [], "part": part} for n, part in enumerate(parts, 1)]
    assert read(snapshot, snapshot.schema()) == rows
    one = pa.schema([("part", pa.struct([("Other", pa.struct([("y", pa.string())]))]))])
    assert read(snapshot, one) == [{"part": {"Other": None}}, {"part": {"Other": {"y": "b"}}}, {"part": None}]


def test_a_column_of_avro_that_has_no_type_of_a_union_is_refused() -> None:
    """It would be null, whatever the value; the fields of one of its records are no fields of the union."""
    schema = record(("n", "long"), ("part", {"type": "map", "values": [INNER, "string"]}))
    topic = registered(AvroContainer(), schema)
    append(topic, 1, schema, {"n": 1, "part": {"k": {"x": 3}}})
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    wrong = pa.schema([("part", pa.map_(pa.string(), pa.struct([("x", pa.int32())])))])
    with pytest.raises(
        ConfigurationError,
        match=r"the column 'part' of s3://\S+\.avro is a union of several types: a struct .* \['Inner', 'string'\]",
    ):
        read(snapshot, wrong)


def test_a_recursive_schema_of_avro_is_read_but_for_its_unions() -> None:
    """It has no types of Arrow, so columns are given; values of Python do not have the type of a union."""
    schema = record(("n", "long"), ("next", ["null", "Row"]), ("some", ["long", "string"]))
    topic = registered(AvroContainer(), schema)
    append(topic, 1, schema, {"n": 1, "next": {"n": 2, "next": None, "some": "a"}, "some": 3})
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    inner = pa.struct([("n", pa.int64())])
    assert read(snapshot, pa.schema([("n", pa.int64()), ("next", inner)])) == [{"n": 1, "next": {"n": 2}}]
    union = ("some", pa.struct([("long", pa.int64())]))
    for columns in ([union], [("next", pa.struct([union]))]):
        with pytest.raises(
            ConfigurationError, match=r"the column .*'some'.* is a union of several types in a schema that is recursive"
        ):
            read(snapshot, pa.schema(columns))


def test_numbers_that_java_does_not_read_are_read_from_files_of_earlier_versions() -> None:
    """These copied them, with the datum, into the file."""
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "int"}]}
    writer = AvroWriter(json.dumps(schema).encode(), "null", sync=b"s" * 16)
    datums = pa.array([b"\x02", b"\x84\x80\x80\x80\x80\x00"], pa.binary())
    body = b"".join(bytes(part) for part in (*writer.write(cast("Any", datums)), *writer.close()))
    tables = avro_tables("s3://lake/a.avro", body, pa.schema([("n", pa.int32())]))
    assert pa.concat_tables(tables).column("n").to_pylist() == [1, 2]


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
def test_values_that_are_no_records_are_the_column_value(record_format: Format) -> None:
    """Such as texts."""
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=StringConverter()))
    topic.append(b"one", b"two")
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    assert snapshot.schema() == pa.schema([("value", pa.string())])
    assert read(snapshot, snapshot.schema()) == [{"value": "one"}, {"value": "two"}]


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
def test_a_declared_schema_takes_a_request_for_each_layout(record_format: Format) -> None:
    """However many objects there are."""
    topic = declared(record_format, record(("n", "long")), partitioner=Hourly())
    for n in range(6):
        topic.append(json.dumps({"n": n}).encode(), timestamp=START + n * HOUR)
    topic.land()
    log = topic.pipeline.log
    store = FaultyStore(topic.bucket)
    log.store = DurableStore(store, Retrier())
    snapshot = Snapshot(log)
    assert len(snapshot.objects()) == 6
    store.requests.clear()
    assert snapshot.schema() == pa.schema([("n", pa.int64())])
    assert len(store.requests) <= 2


def test_what_has_no_types_is_refused() -> None:
    """CSV, no object at all, and lines beside columns."""
    topic = declared(Csv(), record(("n", "long")))
    topic.land("nothing")
    with pytest.raises(ConfigurationError, match="no object is selected"):
        Snapshot(topic.pipeline.log).schema()
    topic.append(b'{"n": 1}')
    topic.land()
    with pytest.raises(ConfigurationError, match=r"\.csv is Csv, which has no types of columns: give a schema"):
        Snapshot(topic.pipeline.log).schema()
    mixed = declared(Parquet(), record(("n", "long")))
    mixed.append(b'{"n": 1}')
    mixed.land()
    mixed.layout = Layout(topics_dir="lake", format=JsonLines())
    mixed.append(b'{"n": 2}')
    mixed.land("b")
    snapshot = Snapshot(mixed.pipeline.log)
    with pytest.raises(ConfigurationError, match=r"\.json has lines, or bytes, where other objects have columns"):
        snapshot.schema()
    assert snapshot.schema(batches=[2]) == LINES


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()], ids=["avro", "parquet"])
def test_an_object_that_is_gone_or_another_one_is_an_error_with_its_name(record_format: Format) -> None:
    """It is not left out."""
    topic = declared(record_format, record(("n", "long")))
    topic.append(b'{"n": 1}')
    topic.land()
    (one,) = Snapshot(topic.pipeline.log).objects()
    topic.bucket.delete(one.key)
    with pytest.raises(MissingObjectError, match="is gone"):
        Snapshot(topic.pipeline.log).schema()
    topic.bucket.put_new(one.key, b"x" * one.size)
    with pytest.raises(ForeignObjectError, match=r"is no (AvroContainer|Parquet)"):
        Snapshot(topic.pipeline.log).schema()
