"""Committed objects as Arrow batches: every format gives the same rows, with the place of each in Kafka."""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    BytesConverter,
    Converter,
    Csv,
    Daily,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    Rotation,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, MissingObjectError
from airflow_provider_kafka_s3.reading.arrow import KAFKA_COLUMNS, VALUE_SCHEMA, arrow_batches
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from tests.unit.batch.simulated_topic import Topic

DECLARED = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
TYPED = JsonConverter(schema=json.dumps(DECLARED))
FIELDS = pa.schema([("n", pa.int64()), ("note", pa.string()), ("absent", pa.float64())])
ROWS: list[dict[str, Any]] = [{"n": n, "note": f"é{n}" if n % 2 else None} for n in range(5)]
VALUES = [json.dumps(row, ensure_ascii=False).encode() for row in ROWS]
HOUR = 3_600_000


def landed(record_format: Format, **more: Any) -> Topic:
    """A topic with the rows."""
    topic = Topic(Layout(topics_dir="lake", format=record_format, **more))
    for n, value in enumerate(VALUES):
        topic.append(value, timestamp=1_767_312_000_000 + n % 2 * HOUR)
    topic.land()
    return topic


def read(topic: Topic, schema: pa.Schema = VALUE_SCHEMA) -> list[dict[str, Any]]:
    """All rows of the latest state."""
    snapshot = Snapshot(topic.pipeline.log)
    batches = [*arrow_batches(snapshot.log.store, snapshot.objects(), schema)]
    assert all(batch.schema == schema for batch in batches)
    return pa.Table.from_batches(batches, schema).to_pylist()


@pytest.mark.parametrize(
    "topic",
    [
        landed(JsonLines()),
        *(landed(JsonLines(compression=name)) for name in ("gzip", "zstd", "bzip2")),
        landed(BlockGzip(block_size=40)),
        landed(Parquet(), value_converter=TYPED),
        *(landed(AvroContainer(codec=name), value_converter=TYPED) for name in ("null", "snappy", "zstandard")),
        landed(Csv(null="NULL"), value_converter=TYPED),
        landed(Csv(null="NULL", compression="gzip", separator=";"), value_converter=TYPED),
        landed(Csv(null="NULL", header=False), value_converter=TYPED),
    ],
    ids=lambda topic: str(topic.layout.format)[:40],
)
def test_fields_are_the_same_from_every_format(topic: Topic) -> None:
    """Those that values do not have are null, and others can be left out."""
    assert read(topic, FIELDS) == [{**row, "absent": None} for row in ROWS]
    assert read(topic, pa.schema([("note", pa.string())])) == [{"note": row["note"]} for row in ROWS]


@pytest.mark.parametrize("record_format", [JsonLines(compression="gzip"), BlockGzip(), RawBytes(separator="\x00\n")])
def test_lines_are_read_as_they_are_with_their_place_in_kafka(record_format: Format) -> None:
    """Byte for byte."""
    topic = landed(record_format)
    (one,) = Snapshot(topic.pipeline.log).objects()
    place = {"_kafka_topic": "orders", "_kafka_partition": 0, "_kafka_batch": 1, "_kafka_object": one.key}
    assert read(topic) == [{"value": value, "_kafka_offset": n, **place} for n, value in enumerate(VALUES)]


def test_an_offset_is_null_where_the_object_does_not_keep_it() -> None:
    """Two folders in turn leave gaps in both."""
    rows = read(landed(JsonLines(), partitioner=Hourly()), pa.schema([("n", pa.int64()), *KAFKA_COLUMNS]))
    assert [row["n"] for row in rows] == [0, 2, 4, 1, 3]
    assert {row["_kafka_offset"] for row in rows} == {None}


@pytest.mark.parametrize(
    "record_format",
    [JsonLines(), RawBytes(), BlockGzip(), Csv(), Csv(header=False), AvroContainer(), Parquet()],
    ids=lambda f: type(f).__name__,
)
def test_places_are_read_without_values(record_format: Format) -> None:
    """In every format: a row for each record."""
    schema = '{"type":"record","name":"o","fields":[{"name":"n","type":"long"}]}'
    has_fields = isinstance(record_format, Csv | AvroContainer | Parquet)
    converter = JsonConverter(schema=schema) if has_fields else BytesConverter()
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter))
    topic.append(b'{"n":1}', b'{"n":2}')
    topic.land()
    place = pa.schema([KAFKA_COLUMNS.field("_kafka_batch"), KAFKA_COLUMNS.field("_kafka_offset")])
    assert read(topic, place) == [{"_kafka_batch": 1, "_kafka_offset": n} for n in (0, 1)]


def test_the_places_of_merged_objects_are_those_of_each_partition() -> None:
    """One object has records of several Kafka partitions."""
    layout = Layout(
        topics_dir="lake", format=JsonLines(), partitioner=Daily(), rotation=Rotation(merge_partitions=True)
    )
    topic = Topic(layout, partitions=2)
    for n in range(5):
        topic.append(VALUES[n], partition=n % 2, timestamp=1_767_312_000_000)
    topic.land()
    rows = read(topic, pa.schema([("n", pa.int64()), *KAFKA_COLUMNS]))
    assert [(row["_kafka_partition"], row["_kafka_offset"], row["n"]) for row in rows] == [
        (0, 0, 0),
        (0, 1, 2),
        (0, 2, 4),
        (1, 0, 1),
        (1, 1, 3),
    ]


def test_a_line_longer_than_a_block_is_read() -> None:
    """Parsers need a whole record."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines()))
    topic.append(json.dumps({"n": 1, "note": "x" * 20_000_000}).encode(), b'{"n": 2}')
    topic.land()
    assert [(row["n"], len(row["note"] or "")) for row in read(topic, FIELDS)] == [(1, 20_000_000), (2, 0)]


def test_columns_of_csv_without_a_header_are_those_of_the_declared_schema() -> None:
    """By name, whatever their order in the schema of the reader; no column has the values of another."""
    topic = landed(Csv(null="NULL", header=False), value_converter=TYPED)
    names = ["note", "absent", "n"]
    found = read(topic, pa.schema([(name, pa.string()) for name in names]))
    assert found == [{"note": row["note"], "absent": None, "n": str(row["n"])} for row in ROWS]
    assert read(topic, pa.schema([("absent", pa.string()), ("other", pa.string())])) == [
        {"absent": None, "other": None} for _ in ROWS
    ]


BYTES_OF = {"type": "record", "name": "B", "fields": [{"name": "b", "type": "bytes"}]}
DECIMAL_OF = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
BINARY: dict[str, Any] = {
    "type": "record",
    "name": "Blobs",
    "fields": [
        {"name": "b", "type": ["null", "bytes"]},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "d", "type": DECIMAL_OF},
    ],
}
NESTED: list[dict[str, Any]] = [
    {"name": "s", "type": ["null", BYTES_OF]},
    {"name": "l", "type": {"type": "array", "items": ["null", DECIMAL_OF]}},
]
FLAT_ROWS: list[dict[str, Any]] = [
    {"b": b"1234", "f": b"abc", "d": Decimal("-26672.12")},
    {"b": None, "f": b"\xff\0\n", "d": Decimal("1.50")},
    {"b": b"", "f": b"===", "d": Decimal("-0.01")},
]
NESTED_ROWS: list[dict[str, Any]] = [
    {"s": {"b": b"\0"}, "l": [None, Decimal("3.00")]},
    {"s": None, "l": []},
    {"s": {"b": b"x"}, "l": [None]},
]


def in_json(value: Any) -> Any:
    """A value as a document has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize(
    "record_format",
    [JsonLines(), BlockGzip(), JsonLines(decimal_format="NUMERIC"), Csv(null="NULL"), AvroContainer(), Parquet()],
    ids=["json", "blocks", "numeric", "csv", "avro", "parquet"],
)
def test_bytes_and_decimals_are_the_same_from_every_format(record_format: Format) -> None:
    """JSON and CSV have them as base64; a text of digits is not taken for a decimal, nor letters for bytes."""
    nested = not isinstance(record_format, Csv)
    avro = {**BINARY, "fields": BINARY["fields"] + (NESTED if nested else [])}
    rows = [{**row, **(more if nested else {})} for row, more in zip(FLAT_ROWS, NESTED_ROWS, strict=True)]
    converter = JsonConverter(schema=json.dumps(avro))
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter))
    topic.append(*(json.dumps(row, default=in_json).encode() for row in rows))
    topic.land()
    columns = [("b", pa.binary()), ("f", pa.binary(3)), ("d", pa.decimal128(9, 2))]
    inner = pa.struct([("b", pa.binary())])
    columns += [("s", inner), ("l", pa.list_(pa.decimal128(9, 2)))] if nested else []
    assert read(topic, pa.schema(columns)) == rows


DIGITS = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1}
INSIDE: dict[str, Any] = {"type": "record", "name": "Inside", "fields": [{"name": "n", "type": "long"}]}


COLUMNS: list[tuple[Any, list[Any], pa.DataType]] = [
    (DIGITS, [Decimal(-(10**48)), Decimal("0.1")], pa.decimal256(50, 1)),
    ("null", [None, None], pa.null()),
    ({"type": "int", "logicalType": "time-millis"}, [3, 86_399_999], pa.int64()),
    ({"type": "array", "items": "null"}, [[None, None], [], [None]], pa.list_(pa.null())),
    (["null", INSIDE], [{"n": 1}, None], pa.struct([pa.field("n", pa.int64(), nullable=False)])),
]


@pytest.mark.parametrize(
    ("record_format", "kind", "values", "column"),
    [
        *(
            (record_format, *column)
            for record_format in (JsonLines(), AvroContainer(), Parquet())
            for column in COLUMNS
        ),
        *((Csv(), *column) for column in COLUMNS[:2]),  # it has texts of times, and no nested values
    ],
    ids=lambda value: str(value)[:12],
)
def test_columns_that_arrow_does_not_read_or_cast_are_read(
    record_format: Format, kind: Any, values: list[Any], column: Any
) -> None:
    """Its cast of lists of nulls makes invalid arrays, its reader of CSV has no decimals of more than 38 digits."""
    fields = [{"name": "x", "type": kind}, {"name": "last", "type": "int"}]
    converter = JsonConverter(schema=json.dumps({"type": "record", "name": "Row", "fields": fields}))
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter))
    topic.append(*(json.dumps({"x": value, "last": 1}, default=str).encode() for value in values))
    topic.land()
    found = read(topic, pa.schema([("x", column), ("last", pa.int32())]))
    assert found == [{"x": value, "last": 1} for value in values]


@pytest.mark.parametrize("record_format", [JsonLines(), Csv()], ids=["json", "csv"])
def test_a_text_that_is_no_base64_is_no_column_of_bytes(record_format: Format) -> None:
    """The error names the column, and the type with which it is read."""
    topic = landed(record_format, value_converter=TYPED)
    with pytest.raises(ForeignObjectError, match=r"the column 'note' has a text that is no base64.* as string"):
        read(topic, pa.schema([("n", pa.int64()), ("note", pa.binary())]))


def test_texts_of_documents_without_a_schema_are_read_as_bytes_as_they_are() -> None:
    """Only the producer knows what they are."""
    assert read(landed(JsonLines()), pa.schema([("note", pa.binary()), ("n", pa.int64())]))[1] == {
        "note": "é1".encode(),
        "n": 1,
    }


@pytest.mark.parametrize("converter", [StringConverter(), BytesConverter()])
def test_csv_of_values_without_fields_has_the_column_value(converter: Converter) -> None:
    """Without a header, too; bytes are their base64."""
    topic = Topic(Layout(topics_dir="lake", format=Csv(null="NULL", header=False), value_converter=converter))
    topic.append(b"a,b", b"c")
    topic.land()
    texts = ["a,b", "c"] if isinstance(converter, StringConverter) else ["YSxi", "Yw=="]
    assert read(topic, pa.schema([("value", pa.string())])) == [{"value": text} for text in texts]
    assert read(topic, pa.schema([("value", pa.binary())])) == [{"value": b"a,b"}, {"value": b"c"}]
    assert read(topic, pa.schema([("n", pa.string())])) == [{"n": None}] * 2


def test_csv_whose_columns_have_no_known_names_is_refused() -> None:
    """Each value brings its schema, which nothing keeps: another column of the same type would be read in its place."""
    topic = Topic(
        Layout(topics_dir="lake", format=Csv(header=False), value_converter=JsonConverter(schemas_enable=True))
    )
    fields = [{"field": name, "type": "int64"} for name in ("a", "b")]
    schema = {"type": "struct", "name": "Pair", "fields": fields}
    topic.append(json.dumps({"schema": schema, "payload": {"a": 1, "b": 2}}).encode())
    topic.land()
    for names in (["b", "a"], ["a", "c"], ["a"]):
        with pytest.raises(
            ConfigurationError,
            match=r"the names of the columns of s3://\S+\.csv are not known: its format has header=False, .* Land the "
            r"topic with header=True; or read the object by a reader of CSV that takes columns by their position",
        ):
            read(topic, pa.schema([(name, pa.int64()) for name in names]))
    assert read(topic, pa.schema([KAFKA_COLUMNS.field("_kafka_offset")])) == [{"_kafka_offset": 0}]


@pytest.mark.parametrize("record_format", [RawBytes(), BlockGzip(lines=RawBytes())], ids=["bytes", "blocks"])
def test_values_that_hold_the_separator_are_an_error_with_the_settings_that_help(record_format: Format) -> None:
    """The object is as it was written, so no check finds anything; other batches can be read."""
    topic = Topic(Layout(topics_dir="lake", format=record_format))
    topic.append(b"a\nb", b"c")
    topic.land("a")
    topic.append(b"d")
    topic.land("b")
    with pytest.raises(
        ForeignObjectError,
        match=r"object s3://\S+ of topic 'orders', batch 1, has 3 parts for 2 records: values hold the separator "
        r"'\\n', so its records cannot be told apart\. .* Land the topic with a separator of RawBytes that no value",
    ):
        read(topic)
    snapshot = Snapshot(topic.pipeline.log)
    (batch,) = arrow_batches(snapshot.log.store, snapshot.objects(batches=[2]))
    assert batch.column("value").to_pylist() == [b"d"]


def test_values_that_are_more_than_an_array_holds_are_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are the texts of columns that are the same for every record; an array has 2 GiB at most."""
    topic = Topic(Layout(topics_dir="lake", format=RawBytes()))
    values = [b"x" * (n % 100) for n in range(300)]
    topic.append(*values)
    topic.land()
    expected = read(topic)
    for module in ("arrow", "formats.lines"):
        monkeypatch.setattr(f"airflow_provider_kafka_s3.reading.{module}.MOST_BYTES", 200)
    assert read(topic) == expected
    snapshot = Snapshot(topic.pipeline.log)
    batches = [*arrow_batches(snapshot.log.store, snapshot.objects())]
    assert len(batches) > 75
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == values


def test_a_value_larger_than_an_array_is_an_error_with_another_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the object; one of exactly so many bytes is read."""
    topic = Topic(Layout(topics_dir="lake", format=RawBytes()))
    topic.append(b"x" * 199, b"y" * 200)
    topic.land()
    monkeypatch.setattr("airflow_provider_kafka_s3.reading.formats.lines.MOST_BYTES", 200)
    assert [len(row["value"]) for row in read(topic)] == [199, 200]
    monkeypatch.setattr("airflow_provider_kafka_s3.reading.formats.lines.MOST_BYTES", 199)
    with pytest.raises(
        ConfigurationError, match=r"a record of s3://\S+ has 200 bytes, and an Arrow array has 199 at most: read "
    ):
        read(topic)


def test_avro_of_many_blocks_is_read() -> None:
    """Some megabytes, a table for about each of them."""
    topic = Topic(Layout(topics_dir="lake", format=AvroContainer(codec="null"), value_converter=TYPED))
    topic.append(*[json.dumps({"n": n, "note": "x" * 50_000}).encode() for n in range(60)])
    topic.land()
    assert [(row["n"], len(row["note"])) for row in read(topic, FIELDS)] == [(n, 50_000) for n in range(60)]


def test_an_object_that_is_gone_or_another_one_is_an_error_with_its_name() -> None:
    """Nothing is left out silently."""
    topic = landed(JsonLines())
    (one,) = Snapshot(topic.pipeline.log).objects()
    stored = topic.bucket.get(one.key)
    assert stored is not None
    topic.bucket.delete(one.key)
    with pytest.raises(MissingObjectError, match=f"object {re.escape(one.url)} of topic 'orders', batch 1, is gone"):
        read(topic)
    topic.bucket.put_new(one.key, stored.body + b"{}\n")
    with pytest.raises(ForeignObjectError, match=r"its CRC-32 is .* instead of"):
        read(topic)


@pytest.mark.parametrize("record_format", [JsonLines(), JsonLines(compression="gzip"), BlockGzip()], ids=str)
@pytest.mark.parametrize("nulls", [{0}, {0, 1}, {2}, {1, 3}, {0, 1, 2, 3}], ids=str)
def test_the_document_null_is_a_row_of_nulls_wherever_it_is(record_format: Format, nulls: set[int]) -> None:
    """Arrow's own parser ends the process if a block begins with it."""
    topic = Topic(Layout(topics_dir="lake", format=record_format))
    topic.append(
        *(b" null\t" if n % 2 and n in nulls else b"null" if n in nulls else b'{"n":%d}' % n for n in range(4))
    )
    topic.land()
    expected = [{"n": None if n in nulls else n} for n in range(4)]
    assert read(topic, pa.schema([("n", pa.int64())])) == expected


def test_the_document_null_does_no_harm_at_the_start_of_a_later_block_or_in_the_search_for_an_error() -> None:
    """The search for the first wrong document begins at any line."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines()))
    large = b'{"n":1,"pad":"%s"}' % (b"x" * 9_000_000)
    topic.append(large, large, b"null", large, b"null", b'{"n":"x"}', b"null")
    topic.land()
    with pytest.raises(ForeignObjectError, match=r"the record of partition 0, offset 5, in object"):
        read(topic, pa.schema([("n", pa.int64())]))


def test_a_schema_that_values_do_not_have_is_an_error() -> None:
    """With the object and the reason."""
    with pytest.raises(ForeignObjectError, match=r"cannot be read as JsonLines with the columns \['note'\]"):
        read(landed(JsonLines()), pa.schema([("note", pa.int64())]))
    with pytest.raises(ConfigurationError, match="are bytes: read them as the column 'value'"):
        read(landed(RawBytes()), pa.schema([("n", pa.int64())]))
    with pytest.raises(ConfigurationError, match=r"nothing separates the records"):
        read(landed(RawBytes(separator="")))


@pytest.mark.parametrize(
    "record_format", [JsonLines(compression="gzip"), BlockGzip(block_size=40)], ids=["json", "blocks"]
)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"n": 1.0}', r"couldn't parse:1\.0"),
        (b'{"n": 1, "note": "a", "n": 2}', r"Column\(/n\) was specified twice"),
        (b'{"n": {"a": 1}}', r"Column\(/n\) changed from number to object"),
        (b"7", r"Column\(\) changed from object to number"),
    ],
    ids=["number", "twice", "object", "no object"],
)
def test_a_document_that_does_not_go_with_the_schema_is_an_error_with_its_offset(
    record_format: Format, value: bytes, why: str
) -> None:
    """The first of them, also in an object of several partitions; the error has what else can be read."""
    merged = {"partitioner": Daily(), "rotation": Rotation(merge_partitions=True)}
    more = merged if isinstance(record_format, JsonLines) else {}
    topic = Topic(Layout(topics_dir="lake", format=record_format, **more), partitions=2)
    topic.append(*VALUES, timestamp=1_767_312_000_000)
    topic.append(*VALUES, value, VALUES[0], value, partition=1, timestamp=1_767_312_000_000)
    topic.land()
    with pytest.raises(
        ForeignObjectError,
        match=rf"^the record of partition 1, offset 5, in object s3://\S+, topic 'orders', batch 1, cannot be read as "
        rf"{type(record_format).__name__} with the columns \['n', 'note', 'absent'\]: .*{why}\. Give its field a "
        rf"type that all values have, .* or read whole lines as the column 'value' of binary type",
    ):
        read(topic, FIELDS)
    assert value in {row["value"] for row in read(topic)}


def test_a_document_whose_offset_is_not_known_is_named_by_its_number_in_the_object() -> None:
    """Two folders in turn leave gaps in both."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly()))
    for n, value in enumerate([*VALUES, b'{"n": 1.5}']):
        topic.append(value, timestamp=1_767_312_000_000 + n % 2 * HOUR)
    topic.land()
    with pytest.raises(
        ForeignObjectError, match=r"^record 3 of partition 0, which has offsets from 1 to 5 with gaps, in object s3://"
    ):
        read(topic, FIELDS)
    assert {row["n"] for row in read(topic, pa.schema([("n", pa.float64())]))} == {0, 1, 2, 3, 4, 1.5}


@pytest.mark.parametrize("record_format", [JsonLines(), Csv(), Parquet(), AvroContainer()], ids=lambda f: str(f)[:9])
def test_batches_of_every_format_are_a_source_of_other_readers(record_format: Format) -> None:
    """A reader of Arrow's batches, which DuckDB queries: one object is in memory at a time."""
    topic = landed(record_format, **({} if isinstance(record_format, JsonLines) else {"value_converter": TYPED}))
    snapshot = Snapshot(topic.pipeline.log)
    found = arrow_batches(snapshot.log.store, snapshot.objects(), FIELDS)
    with pa.RecordBatchReader.from_batches(FIELDS, found) as rows, duckdb.connect() as database:
        database.register("rows", rows)
        assert database.sql("SELECT sum(n), count(note) FROM rows").fetchall() == [(10, 2)]
