"""The views of DuckDB have the records that were landed: the statements are run as they are, over an S3 server."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import fastavro
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BlockGzip,
    ByField,
    ByKey,
    ByPartition,
    BytesConverter,
    Chain,
    Csv,
    Daily,
    DeviantArtNaming,
    Envelope,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Naming,
    Parquet,
    ProtobufConverter,
    RawBytes,
    SiblingObjects,
    StringConverter,
    TimePattern,
    default_partitioner,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.tables.ddl import Script
from dev.iceberg_readers import duckdb_over_s3
from dev.s3_server import S3Server
from tests.unit.batch.simulated_topic import Topic
from tests.unit.tables.orders import (
    DAY_MS,
    FORMATS,
    START,
    declared,
    landed,
    layout_of,
    letters_script,
    orders,
    record,
    script,
    unscaled,
    values_in,
    with_dead_letters,
)

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """An S3 server in a process of its own."""
    with S3Server() as started:
        yield started


@pytest.fixture
def store(server: S3Server) -> Iterator[S3Store]:
    """An empty bucket."""
    settings = S3Settings(endpoint_url=server.endpoint, region="us-east-1", addressing_style="path")
    client = make_client(settings, S3Credentials(access_key_id="any", secret_access_key="any"))
    bucket = f"lake-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    yield S3Store(client, bucket, settings)
    client.close()


@pytest.fixture
def rows(server: S3Server) -> Callable[..., Rows]:
    """Run the statements for a topic, and read all rows of the view."""

    def read(topic: Topic, order: str = "ALL", make: Callable[..., Script] = script, **called: Any) -> Rows:
        (statement,) = make(topic, "duckdb", **called).statements
        with duckdb_over_s3(server.endpoint) as database:
            database.execute("SET TimeZone = 'UTC'; CREATE SCHEMA lake")
            database.execute(statement)
            view = statement.split(" AS\n")[0].removeprefix("CREATE VIEW ")
            found = database.sql(f"FROM {view} ORDER BY {order}")
            return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]

    return read


def shown_values(record_format: Any, value: dict[str, Any]) -> dict[str, Any]:
    """A value as DuckDB shows it: of Avro, times are without a zone, and a decimal is its bytes."""
    values = values_in(record_format, value)
    if isinstance(record_format, AvroContainer):
        times = {name: values[name].replace(tzinfo=None) for name in ("at", "seen")}
        values |= {**times, "amount": unscaled(value["amount"])}
    return values


def test_a_view_of_dead_letters_has_their_lines(store: S3Store, rows: Callable[..., Rows]) -> None:
    """All of them, with every field as it is."""
    topic = with_dead_letters(store=store)
    letters = topic.dead_letters()
    assert len(letters) == 4
    assert rows(topic, '"partition", "offset"', make=letters_script) == letters


@pytest.mark.parametrize("record_format", FORMATS, ids=str)
def test_a_view_has_the_values_and_the_folders_of_all_records(
    store: S3Store, rows: Callable[..., Rows], record_format: Any
) -> None:
    """With nested types, quotes, line breaks, nulls and empty texts; folders are numbers."""
    topic = landed(layout_of(record_format, partitioner=Daily()), store=store)
    nested = not isinstance(record_format, Csv)
    expected = [
        {**shown_values(record_format, value), "year": 2026, "month": 1, "day": 2 + (n >= 4)}
        for n, value in enumerate(orders(nested=nested))
    ]
    assert rows(topic, '"orderId"', database="lake", table="all orders") == expected


@pytest.mark.parametrize("record_format", [Parquet(), Csv(null="NULL"), JsonLines()], ids=str)
def test_objects_of_several_schemas_of_a_registry_are_in_one_view(
    store: S3Store, rows: Callable[..., Rows], record_format: Any
) -> None:
    """A field that a schema does not have is null, an integer has the wider type, and CSV is read by its header."""
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=AvroConverter()))
    topic.bucket = store  # type: ignore[assignment]
    for number, schema in enumerate((record(n="int", a="string"), record(b="string", n="long"))):
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), {"n": number << 40, "a": "x", "b": "y"})
        topic.append(topic.registry.frame(topic.registry.register(json.dumps(schema)), datum.getvalue()))
    topic.land()
    assert rows(topic, "n") == [
        {"n": 0, "a": "x", "b": None, "partition": 0},
        {"n": 1 << 40, "a": None, "b": "y", "partition": 0},
    ]


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet(), AvroContainer()], ids=str)
def test_values_of_every_type_are_read(store: S3Store, rows: Callable[..., Rows], record_format: Any) -> None:
    """Times of day, unions, maps with other keys, numbers that JSON does not have, nulls inside of lists."""
    entry = {"type": "record", "name": "MapEntry", "fields": [{"name": n, "type": "int"} for n in ("key", "value")]}
    fields = {
        "t": {"type": "int", "logicalType": "time-millis"},
        "local": {"type": "long", "logicalType": "local-timestamp-micros"},
        "u": ["null", "int", "string"],
        "d": "double",
        "f": {"type": "fixed", "name": "F", "size": 2},
        "e": {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        "items": {"type": "array", "items": ["null", "int"]},
        "pairs": {"type": "array", "items": entry},
        "nothing": "null",
    }
    value = {"t": 1_500, "local": 1_000, "u": "x", "d": "-Infinity", "f": "AAE=", "e": "B", "items": [1, None]}
    value |= {"pairs": [{"key": 1, "value": 2}], "nothing": None}
    expected = {**value, "d": -math.inf, "partition": 0}
    if not isinstance(record_format, JsonLines):
        local = dt.datetime.fromtimestamp(0.001, dt.UTC).replace(tzinfo=None)
        expected |= {"t": dt.time(0, 0, 1, 500_000), "local": local, "f": b"\x00\x01"}
    if not isinstance(record_format, AvroContainer):
        expected["u"] = {"int": None, "string": "x"}
    else:
        # A type of which it reads no file.
        fields.pop("local"), value.pop("local"), expected.pop("local")
    layout = Layout(topics_dir="lake", format=record_format, value_converter=declared(**fields))
    assert rows(landed(layout, [value], store=store)) == [expected]


def test_json_of_a_json_schema_has_its_columns_and_that_of_protobuf_is_documents(
    store: S3Store, rows: Callable[..., Rows]
) -> None:
    """Which message of a Protobuf schema a record is, is in the record only."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), value_converter=JsonSchemaConverter()))
    topic.bucket = store  # type: ignore[assignment]
    text = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}, "a": {"type": "string"}}})
    topic.append(topic.registry.frame(topic.registry.register(text, type="JSON"), b'{"n": 1}'))
    topic.land()
    assert rows(topic) == [{"n": 1, "a": None, "partition": 0}]
    topic.layout = Layout(topics_dir="lake", format=JsonLines(), value_converter=ProtobufConverter())
    schema = topic.registry.register('syntax = "proto3"; message M { int32 n = 1; }', type="PROTOBUF")
    topic.append(topic.registry.frame(schema, b"\x00\x08\x02"))
    topic.land("second")
    assert [json.loads(row["value"])["n"] for row in rows(topic, "value", table="documents")] == [1, 2]


@pytest.mark.parametrize("record_format", [JsonLines(), BlockGzip(), JsonLines(compression="zstd")], ids=str)
def test_documents_without_a_schema_are_json(store: S3Store, rows: Callable[..., Rows], record_format: Any) -> None:
    """Of any shape; dead letters, which are below the same folder, and indices are no rows."""
    layout = Layout(topics_dir="lake", format=record_format, errors="dead_letter")
    documents = [{"n": 1}, {"n": [2, None]}, {"m": "x"}]
    topic = landed(layout, [*documents, b"no JSON"], store=store)
    assert any("_dead_letters" in info.key for info in store.list("lake/orders/"))
    assert [json.loads(row["value"]) for row in rows(topic, "value")] == sorted(documents, key=json.dumps)


@pytest.mark.parametrize(
    "record_format", [JsonLines(on_null="write"), Parquet(on_null="write"), AvroContainer(on_null="write")], ids=str
)
def test_objects_of_keys_are_not_read(store: S3Store, rows: Callable[..., Rows], record_format: Any) -> None:
    """They are beside those of values, and those of null values in a folder of their own."""
    content = SiblingObjects(keys=JsonLines(), headers=JsonLines())
    layout = Layout(
        topics_dir="lake",
        format=record_format,
        value_converter=declared(n="long"),
        content=content,
        key_converter=StringConverter(),
    )
    topic = Topic(layout)
    topic.bucket = store  # type: ignore[assignment]
    topic.append(b'{"n": 1}', None, b'{"n": 2}', key=b"k")
    topic.land()
    assert any("/tombstone/" in info.key for info in store.list("lake/orders/"))
    assert rows(topic, "n") == [{"n": 1, "partition": 0}, {"n": 2, "partition": 0}]


@pytest.mark.parametrize(
    "record_format", [JsonLines(on_null="write"), Parquet(on_null="write"), AvroContainer(on_null="write")], ids=str
)
def test_envelopes_are_whole_records(store: S3Store, rows: Callable[..., Rows], record_format: Any) -> None:
    """Each offset once; the folder of the partition is the field; a null value is null."""
    typed = not isinstance(record_format, JsonLines)
    layout = Layout(
        topics_dir="lake",
        format=record_format,
        content=Envelope(),
        key_converter=StringConverter(),
        value_converter=declared(n="long") if typed else JsonConverter(),
    )
    topic = Topic(layout, 2)
    topic.bucket = store  # type: ignore[assignment]
    for n in range(4):
        topic.append(json.dumps({"n": n}).encode(), partition=n % 2, key=b"k%d" % n, timestamp=START)
    topic.append(None, key=b"k4", timestamp=START)
    topic.land()
    found = rows(topic, 'partition, "offset"')
    places = [(row["partition"], row["offset"], row["key"]) for row in found]
    assert places == [(0, 0, "k0"), (0, 1, "k2"), (0, 2, "k4"), (1, 0, "k1"), (1, 1, "k3")]
    values = [row["value"] if typed or row["value"] is None else json.loads(row["value"]) for row in found]
    assert values == [{"n": 0}, {"n": 2}, None, {"n": 1}, {"n": 3}]


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet(), Csv(null="NULL"), AvroContainer()], ids=str)
def test_a_field_that_is_called_like_a_folder_has_the_values_of_the_records(
    store: S3Store, rows: Callable[..., Rows], record_format: Any
) -> None:
    """In any case; the other folders are columns."""
    layout = Layout(
        topics_dir="lake", format=record_format, value_converter=declared(n="long", Day="string"), partitioner=Daily()
    )
    topic = landed(layout, [{"n": 0, "Day": "Monday"}, {"n": 1, "Day": "02"}], store=store)
    assert rows(topic, "n") == [
        {"n": n, "Day": text, "year": 2026, "month": 1} for n, text in enumerate(("Monday", "02"))
    ]


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet(), AvroContainer()], ids=str)
def test_folders_of_keys_and_fields_have_their_values(
    store: S3Store, rows: Callable[..., Rows], record_format: Any
) -> None:
    """Escaped ones, texts of digits, and null; a field of whole numbers is the same column as its folder."""
    layout = Layout(
        topics_dir="lake",
        format=record_format,
        value_converter=declared(n=["null", "long"], of=record_of_text()),
        partitioner=Chain(partitioners=(ByField(names=("n", "of.x")), ByKey())),
    )
    topic = Topic(layout)
    topic.bucket = store  # type: ignore[assignment]
    expected = []
    for n, key in enumerate(("007", "a/b c", "50%")):
        number = None if n == 1 else n
        topic.append(json.dumps({"n": number, "of": {"x": f"é={n}"}}).encode(), key=key.encode())
        expected.append({"n": number, "of": {"x": f"é={n}"}, "of.x": f"é={n}", "key": key})
    topic.land()
    assert rows(topic, '"of.x"') == expected


def record_of_text() -> dict[str, Any]:
    """A record in a field."""
    return {"type": "record", "name": "Of", "fields": [{"name": "x", "type": "string"}]}


@pytest.mark.parametrize(
    ("settings", "folders"),
    [
        ({"partitioner": TimePattern(path_format="YYYY/MM/dd", duration_ms=DAY_MS)}, {}),
        ({"partitioner": TimePattern(path_format="'dt'=YYYY-MM-dd", duration_ms=DAY_MS)}, {"dt": "2026-01-02"}),
        ({"partitioner": TimePattern(path_format="'a'/'year'=YYYY", duration_ms=DAY_MS)}, {"year": 2026}),
        ({"naming": Naming(topic_prefix="topic[x]="), "partitioner": Daily()}, {"year": 2026, "month": 1, "day": 2}),
        ({"naming": Naming(file_name_template="{{start_offset}}-{{partition}}-{{topic}}")}, {"partition": 0}),
        ({"naming": DeviantArtNaming(), "partitioner": default_partitioner(DeviantArtNaming())}, {}),
    ],
    ids=str,
)
def test_folders_and_names_of_every_kind_are_found(
    store: S3Store, rows: Callable[..., Rows], settings: dict[str, Any], folders: dict[str, Any]
) -> None:
    """Those that are no name=value are no columns; another topic in the same folders is not read."""
    layout = Layout(topics_dir="lake", format=JsonLines(), value_converter=declared(n="long"), **settings)
    topic = landed(layout, [{"n": 1}], store=store)
    store.put_new("lake/2026-01-02/orders-more-00000-000000000000.json", b'{"n": 99}\n')
    assert rows(topic) == [{"n": 1, **folders}]


def test_a_layout_that_was_changed_has_one_view_of_what_goes_together(
    store: S3Store, rows: Callable[..., Rows]
) -> None:
    """Another schema and another compression do; objects of another format, or with other folders, are named."""
    layouts = [
        layout_of(JsonLines(), value_converter=declared(n="int")),
        layout_of(JsonLines(compression="gzip"), value_converter=declared(n="long", a=["null", "string"])),
        layout_of(Parquet(), value_converter=declared(n="long")),
        layout_of(JsonLines(), value_converter=declared(n="long"), partitioner=Daily()),
        layout_of(BlockGzip(), value_converter=declared(n="long")),
    ]
    topic = Topic(layouts[0])
    topic.bucket = store  # type: ignore[assignment]
    for n, layout in enumerate(layouts):
        topic.layout = layout
        topic.append(b'{"n": %d}' % n, timestamp=START)
        topic.land(f"run-{n}")
    assert rows(topic, "n") == [{"n": n, "a": None, "partition": 0} for n in (0, 1, 4)]
    (remark,) = [text for text in script(topic, "duckdb").remarks if "another format" in text]
    assert remark.startswith(
        "2 objects up to batch 4 have another format, other settings of it, or other folders, such as s3://"
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("unknown", ["01", "unknown"]), ("__HIVE_DEFAULT_PARTITION__", [1, None])]
)
def test_records_without_a_time_are_in_their_folder(
    store: S3Store, rows: Callable[..., Rows], name: str, expected: list[Any]
) -> None:
    """Folders of numbers are texts if they may have another name than that of null."""
    layout = Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily(), on_bad_timestamp=name)
    topic = Topic(layout)
    topic.bucket = store  # type: ignore[assignment]
    topic.append(b"1", timestamp=START)
    topic.append(b"2", timestamp=-1)
    topic.land()
    assert [row["month"] for row in rows(topic, "value")] == expected


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz", "zstandard"])
def test_avro_of_every_codec_is_read_or_refused(
    server: S3Server, store: S3Store, rows: Callable[..., Rows], codec: Any
) -> None:
    """The extension has three of them; what is refused is an error of DuckDB."""
    topic = landed(layout_of(AvroContainer(codec=codec), value_converter=declared(n="long")), [{"n": 1}], store=store)
    if codec in ("null", "deflate", "snappy"):
        assert rows(topic) == [{"n": 1, "partition": 0}]
        return
    with pytest.raises(ConfigurationError, match=f"read_avro reads no {codec}"):
        script(topic, "duckdb")
    with (
        duckdb_over_s3(server.endpoint) as database,
        pytest.raises(duckdb.Error, match="unknown codec"),
    ):
        database.sql(f"FROM read_avro('{store.url('lake/orders/*/*.avro')}')")


@pytest.mark.parametrize(("converter", "expected"), [(StringConverter(), "x"), (BytesConverter(), b"x")], ids=str)
def test_avro_without_fields_is_one_column(
    store: S3Store, rows: Callable[..., Rows], converter: Any, expected: Any
) -> None:
    """Which the extension calls after the schema."""
    topic = landed(layout_of(AvroContainer(), value_converter=converter), [b"x"], store=store)
    assert rows(topic) == [{"value": expected, "partition": 0}]


def test_avro_of_several_schemas_is_refused() -> None:
    """The extension has no union by name; columns that the first object lacks would be left out."""
    converters = declared(n="int"), declared(n="long", a=["null", "string"])
    topic = Topic(layout_of(AvroContainer(), value_converter=converters[0]))
    for number, converter in enumerate(converters):
        topic.layout = layout_of(AvroContainer(), value_converter=converter)
        topic.append(b'{"n": 1}')
        topic.land(f"run-{number}")
    with pytest.raises(ConfigurationError, match=r"columns of 2 schemas, and read_avro takes one.*snapshot\.urls\(\)"):
        script(topic, "duckdb")


def test_what_duckdb_does_not_read_is_refused() -> None:
    """With the topic, the format and the way out."""
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    for layout, why in (
        (
            Layout(topics_dir="lake", format=AvroContainer(), value_converter=declared(n=["null", local])),
            "AvroContainer: `n` has the type local-timestamp-micros, and read_avro reads no file with one",
        ),
        (Layout(topics_dir="lake", format=RawBytes()), "RawBytes: it has no reader of raw bytes by lines"),
        (Layout(topics_dir="lake", format=JsonLines(compression="bzip2")), "JsonLines: it reads no bzip2"),
        (Layout(topics_dir="lake", format=JsonLines(), naming=Naming(directory_delim="-")), "puts the objects of all"),
    ):
        topic = landed(layout, [{"n": 1}])
        with pytest.raises(ConfigurationError, match=rf"topic 'orders'.*{why}.*snapshot\.urls\(\)"):
            script(topic, "duckdb")


def test_what_has_to_be_installed_is_said() -> None:
    """Extensions, and a secret for the bucket."""
    view = script(landed(layout_of(AvroContainer(), partitioner=ByPartition())), "duckdb")
    assert "read_avro(\n    's3://memory/lake/orders/partition=*/*[0-9].avro'" in view.text
    assert "Avro needs the extension avro: INSTALL avro." in view.remarks
    assert any("INSTALL httpfs" in text and "CREATE SECRET" in text for text in view.remarks)
