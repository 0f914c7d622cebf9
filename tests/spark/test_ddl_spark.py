"""The tables of ``kafka-s3 ddl --dialect spark`` have the records that were landed; they are run on local copies."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BlockGzip,
    ByField,
    ByKey,
    ByPartition,
    Chain,
    Csv,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    Parquet,
    RawBytes,
    SiblingObjects,
    StringConverter,
    TimePattern,
)
from airflow_provider_kafka_s3.tables.ddl import Script
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
    saved,
    script,
    values_in,
    with_dead_letters,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

ReadTable = Callable[..., "list[dict[str, Any]]"]


@pytest.fixture
def read(spark: SparkSession, tmp_path: Path) -> Iterator[ReadTable]:
    """Run the statements for a topic, and read all rows of the table by a column."""
    table = f"t_{uuid.uuid4().hex}"
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    def rows(
        topic: Topic, order: str, where: str = "true", make: Callable[..., Script] = script
    ) -> list[dict[str, Any]]:
        saved(topic, tmp_path)
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        for statement in make(topic, "spark", table=table).statements:
            spark.sql(statement.replace("s3a://memory/", f"{tmp_path}/"))
        return [as_python(row) for row in spark.table(table).where(where).orderBy(order).collect()]

    yield rows
    spark.sql(f"DROP TABLE IF EXISTS {table}")


def as_python(row: Row) -> dict[str, Any]:
    """A row with plain values."""
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict(True).items()}


def in_utc(value: dict[str, Any]) -> dict[str, Any]:
    """As pyspark has it: times are local and have no zone."""
    return {
        name: field.astimezone().replace(tzinfo=None) if getattr(field, "tzinfo", None) else field
        for name, field in value.items()
    }


def shown(record_format: Any, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Values as the table shows them."""
    return [in_utc(values_in(record_format, value)) for value in values]


def test_a_table_of_dead_letters_has_their_lines(read: ReadTable) -> None:
    """All of them, with every field as it is, although the name of their folder begins with an underscore."""
    topic = with_dead_letters()
    letters = sorted(topic.dead_letters(), key=lambda letter: (letter["offset"], letter["partition"]))
    assert len(letters) == 4
    assert (
        sorted(read(topic, "offset", make=letters_script), key=lambda row: (row["offset"], row["partition"])) == letters
    )


# Without the native library of Hadoop, Spark reads no lines with Zstandard; without a jar of its own no Brotli.
READABLE = [
    one for one in FORMATS if getattr(one, "compression", "") != ("brotli" if isinstance(one, Parquet) else "zstd")
]


@pytest.mark.parametrize("record_format", READABLE, ids=str)
def test_a_table_has_the_values_and_the_folders_of_all_records(read: ReadTable, record_format: Any) -> None:
    """With nested types, quotes, line breaks, nulls and empty texts; folders are numbers, and prune."""
    topic = landed(layout_of(record_format, partitioner=Daily()))
    values = shown(record_format, orders(nested=not isinstance(record_format, Csv)))
    has_folders = not isinstance(record_format, BlockGzip)
    expected = [
        {**value, **({"year": 2026, "month": 1, "day": 2 + (n >= 4)} if has_folders else {})}
        for n, value in enumerate(values)
    ]
    assert read(topic, "orderId") == expected
    if has_folders:
        assert read(topic, "orderId", where="day = 3 AND month = 1") == expected[4:]


@pytest.mark.parametrize("record_format", [Parquet(), JsonLines(), AvroContainer()], ids=str)
def test_objects_of_several_schemas_are_in_one_table(read: ReadTable, record_format: Any) -> None:
    """A field that a schema does not have is null, and an integer has the wider type."""
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=AvroConverter()))
    for number, schema in enumerate((record(n="int", a="string"), record(b="string", n="long"))):
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), {"n": number << 40, "a": "x", "b": "y"})
        topic.append(topic.registry.frame(topic.registry.register(json.dumps(schema)), datum.getvalue()))
    topic.land()
    assert read(topic, "n") == [
        {"n": 0, "a": "x", "b": None, "partition": 0},
        {"n": 1 << 40, "a": None, "b": "y", "partition": 0},
    ]


@pytest.mark.parametrize("record_format", [JsonLines(), BlockGzip(), RawBytes()], ids=str)
def test_documents_and_bytes_are_texts(read: ReadTable, record_format: Any) -> None:
    """Dead letters, which are below the same folder, and indices are no rows; a carriage return ends no line."""
    dead = "fail" if isinstance(record_format, RawBytes) else "dead_letter"
    layout = Layout(topics_dir="lake", format=record_format, errors=dead)
    lines = [b'{"n": 1}', b'{"n": [2, null]}\r'] if dead == "fail" else [b'{"n": 1}', b'{"n": [2, null]}', b"no JSON"]
    topic = landed(layout, lines)
    assert [row["value"].encode() for row in read(topic, "value")] == lines[:2]


@pytest.mark.parametrize("record_format", [JsonLines(on_null="write"), Parquet(on_null="write")], ids=str)
def test_objects_of_keys_are_not_read(read: ReadTable, record_format: Any) -> None:
    """They are beside those of values, and those of null values in a folder of their own."""
    layout = Layout(
        topics_dir="lake",
        format=record_format,
        value_converter=declared(n="long"),
        content=SiblingObjects(keys=JsonLines(), headers=JsonLines()),
        key_converter=StringConverter(),
    )
    topic = Topic(layout)
    topic.append(b'{"n": 1}', None, b'{"n": 2}', key=b"k")
    topic.land()
    assert read(topic, "n") == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("record_format", [JsonLines(on_null="write"), Parquet(on_null="write")], ids=str)
def test_envelopes_are_whole_records(read: ReadTable, record_format: Any) -> None:
    """Each offset once; the folder of the partition is the field; a null value is null."""
    typed = isinstance(record_format, Parquet)
    layout = Layout(
        topics_dir="lake",
        format=record_format,
        content=Envelope(),
        key_converter=StringConverter(),
        value_converter=declared(n="long") if typed else JsonConverter(),
    )
    topic = Topic(layout, 2)
    for n in range(4):
        topic.append(json.dumps({"n": n}).encode(), partition=n % 2, key=b"k%d" % n, timestamp=START)
    topic.append(None, key=b"k4", timestamp=START)
    topic.land()
    found = read(topic, "key")
    places = [(row["partition"], row["offset"], row["key"]) for row in found]
    assert places == [(0, 0, "k0"), (1, 0, "k1"), (0, 1, "k2"), (1, 1, "k3"), (0, 2, "k4")]
    values = [row["value"] if typed or row["value"] is None else json.loads(row["value"]) for row in found]
    assert values == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}, None]


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet(), Csv(null="NULL")], ids=str)
def test_a_field_that_is_called_like_a_folder_has_the_values_of_the_records(
    read: ReadTable, record_format: Any
) -> None:
    """In any case."""
    layout = Layout(
        topics_dir="lake", format=record_format, value_converter=declared(n="long", Day="string"), partitioner=Daily()
    )
    topic = landed(layout, [{"n": 0, "Day": "Monday"}, {"n": 1, "Day": "02"}])
    assert read(topic, "n") == [{"n": n, "Day": text} for n, text in enumerate(("Monday", "02"))]


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet()], ids=str)
def test_folders_of_keys_and_fields_have_their_values(read: ReadTable, record_format: Any) -> None:
    """Escaped ones, texts of digits, and null; a field of whole numbers is the same column as its folder."""
    layout = Layout(
        topics_dir="lake",
        format=record_format,
        value_converter=declared(n=["null", "long"], text="string"),
        partitioner=Chain(partitioners=(ByField(names=("n",)), ByKey())),
    )
    topic = Topic(layout)
    expected = []
    for n, key in enumerate(("007", "a/b c", "50%")):
        number = None if n == 1 else n << 40
        topic.append(json.dumps({"n": number, "text": f"{n}"}).encode(), key=key.encode())
        expected.append({"n": number, "text": f"{n}", "key": key})
    topic.land()
    assert read(topic, "text") == expected


@pytest.mark.parametrize(
    ("settings", "folders"),
    [
        ({"partitioner": TimePattern(path_format="YYYY/MM/dd", duration_ms=DAY_MS)}, {}),
        ({"partitioner": TimePattern(path_format="'dt'=YYYY-MM-dd", duration_ms=DAY_MS)}, {"dt": "2026-01-02"}),
        ({"naming": Naming(topic_prefix="it's [x]="), "partitioner": ByPartition()}, {"partition": 0}),
    ],
    ids=str,
)
def test_folders_of_every_kind_are_found(read: ReadTable, settings: dict[str, Any], folders: dict[str, Any]) -> None:
    """Those that are no name=value are no columns."""
    layout = Layout(topics_dir="lake", format=JsonLines(), value_converter=declared(n="long"), **settings)
    topic = landed(layout, [{"n": 1}])
    assert read(topic, "n") == [{"n": 1, **folders}]


@pytest.mark.parametrize(
    ("name", "expected"), [("unknown", ["01", "unknown"]), ("__HIVE_DEFAULT_PARTITION__", [1, None])]
)
def test_records_without_a_time_are_in_their_folder(read: ReadTable, name: str, expected: list[Any]) -> None:
    """Folders of numbers are texts if they may have another name than that of null."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily(), on_bad_timestamp=name))
    topic.append(b"1", timestamp=START)
    topic.append(b"2", timestamp=-1)
    topic.land()
    assert [row["month"] for row in read(topic, "value")] == expected
