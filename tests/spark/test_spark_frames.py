"""Frames of Spark's own readers have the values of records, whatever the folders of objects are called."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    ByField,
    ByKey,
    Chain,
    Csv,
    Daily,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    Parquet,
    TimePattern,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading import Snapshot, arrow_dataset, spark_frame
from tests.unit.batch.simulated_topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

START, DAY = 1_767_225_600_000, 86_400_000


def record(**fields: Any) -> dict[str, Any]:
    """A schema of Avro."""
    return {"type": "record", "name": "Row", "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def converter(schema: dict[str, Any]) -> JsonConverter:
    """Of JSON values, with decimals as numbers."""
    return JsonConverter(schema=json.dumps(schema), decimal_format="NUMERIC")


def topic_of(schema: dict[str, Any], **settings: Any) -> Topic:
    """A topic of JSON values with a schema."""
    return Topic(Layout(topics_dir="lake", value_converter=converter(schema), **settings))


def append(topic: Topic, *values: dict[str, Any], **more: Any) -> None:
    """Append records, a day after the other."""
    for n, value in enumerate(values):
        topic.append(json.dumps(value).encode(), **{"timestamp": START + n * DAY, **more})


def saved(topic: Topic, folder: Path) -> Snapshot:
    """The newest snapshot of a topic whose objects are files of a folder."""
    snapshot = Snapshot(topic.pipeline.log)
    for one in snapshot.objects():
        file = folder / one.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(topic.bucket.get(one.key).body)  # type: ignore[union-attr]
    return snapshot


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """All rows, in the order of their numbers."""
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: int(row["n"]))


@pytest.mark.parametrize(
    ("record_format", "name"),
    [
        pytest.param(JsonLines(compression="gzip"), "day", marks=pytest.mark.newest_spark),
        (BlockGzip(), "Year"),
        (Csv(), "day"),
        (Csv(header=False), "Day"),
        pytest.param(Parquet(), "Day", marks=pytest.mark.newest_spark),
        (Parquet(), "year"),
        (AvroContainer(), "day"),
    ],
    ids=str,
)
def test_a_field_that_is_called_like_a_folder_has_the_values_of_the_records(
    spark: SparkSession, tmp_path: Path, record_format: Any, name: str
) -> None:
    """In any case, with a schema and without; the other folders are columns, also where names have such texts."""
    topic = topic_of(record(n="long", **{name: "string"}), format=record_format, partitioner=Daily())
    append(topic, {"n": 0, name: "Monday"}, {"n": 1, name: "02"})
    topic.land()
    root = tmp_path / "day=3" / "year=+%41 é"
    snapshot = saved(topic, root)
    folders = {"year": [2026, 2026], "month": [1, 1], "day": [1, 2]}
    del folders[name.lower()]
    expected = [
        {"n": n, name: text, **{folder: values[n] for folder, values in folders.items()}}
        for n, text in enumerate(("Monday", "02"))
    ]
    given = spark_frame(spark, snapshot, root=str(root), schema=f"n long, {name} string")
    assert rows_of(given) == expected
    last = list(folders)[-1]
    assert rows_of(given.where(f"{last} = {folders[last][1]}"))[-1] == expected[1]
    if record_format != Csv(header=False):
        inferred = rows_of(spark_frame(spark, snapshot, root=str(root)))
        assert [{**row, "n": int(row["n"])} for row in inferred] == expected


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet()], ids=str)
def test_fields_are_not_read_from_folders_that_show_them_changed(
    spark: SparkSession, tmp_path: Path, record_format: Any
) -> None:
    """In lower case, cut, escaped, null; beside them keys are texts, as a field called like Spark's own column."""
    topic = topic_of(
        record(n="long", name=["null", "string"], _metadata="string"),
        format=record_format,
        partitioner=Chain(partitioners=(ByField(names=("name",), missing="null", max_value_bytes=100), ByKey())),
        naming=Naming(lowercase_paths=True),
    )
    keys = [b"007", b"7", b"a b+c%41", b"50%", "é/".encode(), b"__HIVE_DEFAULT_PARTITION__"]
    names = ["North", "x" * 200, "a/b=c%2F", None, "", "007"]
    for n, (key, name) in enumerate(zip(keys, names, strict=True)):
        append(topic, {"n": n, "name": name, "_metadata": "m"}, key=key)
    topic.land()
    snapshot = saved(topic, tmp_path)
    rows = rows_of(spark_frame(spark, snapshot, root=str(tmp_path)))
    assert [(row["name"], row["_metadata"]) for row in rows] == [(name, "m") for name in names]
    shown = ["007", "7", "a b+c%41", "50%", "é/", "__hive_default_partition__"]
    assert [row["key"] for row in rows] == shown
    if isinstance(record_format, Parquet):
        assert {*arrow_dataset(snapshot).to_table().column("key").to_pylist()} == {*shown}


def test_folders_without_a_field_of_their_name_have_the_type_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    """Spark prunes them, and filters of it read only their objects; keys are texts, also those of digits."""
    for record_format in (JsonLines(), Csv(), Parquet()):
        topic = topic_of(record(n="long"), format=record_format, partitioner=Chain(partitioners=(Daily(), ByKey())))
        append(topic, {"n": 0}, {"n": 1}, key=b"07")
        topic.land()
        snapshot = saved(topic, tmp_path / str(record_format))
        root = str(tmp_path / str(record_format))
        frame = spark_frame(spark, snapshot, root=root, schema="n long, day string")
        assert rows_of(frame) == [{"n": n, "day": f"0{n + 1}", "year": 2026, "month": 1, "key": "07"} for n in (0, 1)]
        (kept,) = spark_frame(spark, snapshot, root=root).where("day = 2").select("_metadata.file_path").collect()
        assert "/day=02/" in kept.file_path


def test_bytes_of_csv_and_json_are_those_of_the_records(spark: SparkSession, tmp_path: Path) -> None:
    """Objects have their base64, of which Spark's reader of CSV takes the letters."""
    for record_format in (JsonLines(), Csv(null="NULL")):
        topic = Topic(
            Layout(topics_dir="lake", format=record_format, value_converter=JsonConverter(schemas_enable=True))
        )
        fields = [{"field": "n", "type": "int64"}, {"field": "b.c", "type": "bytes", "optional": True}]
        for n, text in enumerate(["AAH/", None, ""]):
            envelope = {"schema": {"type": "struct", "fields": fields}, "payload": {"n": n, "b.c": text}}
            append(topic, envelope)
        topic.land()
        root = tmp_path / type(record_format).__name__
        found = spark_frame(spark, saved(topic, root), root=str(root), schema="n long, `b.c` binary")
        values = [b"\0\x01\xff", None, b""]
        assert rows_of(found) == [{"n": n, "b.c": value, "partition": 0} for n, value in enumerate(values)]


@pytest.mark.parametrize("record_format", [JsonLines(), BlockGzip(), Csv()], ids=str)
@pytest.mark.parametrize("kind", ["bigint", "boolean", "date"])
def test_a_value_that_has_not_the_type_of_the_schema_is_an_error(
    spark: SparkSession, tmp_path: Path, record_format: Any, kind: str
) -> None:
    """By itself Spark has null for it."""
    topic = topic_of(record(n="long", x="double"), format=record_format)
    append(topic, {"n": 0, "x": 1.5})
    topic.land()
    snapshot = saved(topic, tmp_path)
    (row,) = rows_of(spark_frame(spark, snapshot, root=str(tmp_path), schema="n long, x double"))
    assert row["x"] == 1.5
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((Py4JJavaError, PySparkException), match=r"MALFORMED|Malformed"):
        rows_of(spark_frame(spark, snapshot, root=str(tmp_path), schema=f"n long, x {kind}"))


def test_every_type_of_csv_is_read_with_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    """None of their texts is malformed to Spark."""
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 10}
    day, at = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    schema = record(n="long", d="double", f="float", a=amount, day=day, at=at, local=local, b="boolean", t="string")
    topic = topic_of(schema, format=Csv(null="NULL"))
    value = {"n": 1, "a": "1E-10", "day": 20_000, "at": 1_767_225_600_123, "local": 1_000, "b": True, "t": 'a"\n,'}
    append(topic, {**value, "d": "NaN", "f": "-Infinity"}, {**value, "n": 2, "d": 1e300, "f": 0.1, "t": ""})
    topic.land()
    ddl = (
        "n long, d double, f float, a decimal(12,10), day date, at timestamp, local timestamp_ntz, b boolean, t string"
    )
    rows = rows_of(spark_frame(spark, saved(topic, tmp_path), root=str(tmp_path), schema=ddl))
    assert [name for row in rows for name, found in row.items() if found is None] == []
    assert (rows[0]["a"], rows[1]["d"], rows[0]["t"]) == (Decimal("1E-10"), 1e300, 'a"\n,')
    assert (rows[0]["at"].microsecond, rows[0]["local"].microsecond, str(rows[0]["day"])) == (
        123_000,
        1_000,
        "2024-10-04",
    )


def test_numbers_of_json_that_json_does_not_have_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """They are texts."""
    topic = topic_of(record(n="long", d="double", f="float"), format=JsonLines())
    texts = ["NaN", "Infinity", "-Infinity"]
    append(topic, *({"n": n, "d": text, "f": text} for n, text in enumerate(texts)))
    topic.land()
    rows = rows_of(spark_frame(spark, saved(topic, tmp_path), root=str(tmp_path), schema="n long, d double, f float"))
    assert [(str(row["d"]), str(row["f"])) for row in rows] == [("nan", "nan"), ("inf", "inf"), ("-inf", "-inf")]


@pytest.mark.parametrize("schema", ["x long, n long", "n long, y long", "n long"])
def test_columns_of_csv_with_a_header_have_its_names(spark: SparkSession, tmp_path: Path, schema: str) -> None:
    """Spark finds them by their position, so those of another order would be read in their place."""
    topic = topic_of(record(n="long", x="long"), format=Csv())
    append(topic, {"n": 0, "x": 1})
    topic.land()
    snapshot = saved(topic, tmp_path)
    assert rows_of(spark_frame(spark, snapshot, root=str(tmp_path), schema="n long, x long")) == [
        {"n": 0, "x": 1, "partition": 0}
    ]
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((Py4JJavaError, PySparkException), match=r"CSV header|CSV_HEADER"):
        rows_of(spark_frame(spark, snapshot, root=str(tmp_path), schema=schema))


def test_objects_of_other_folders_are_null_in_those_that_they_do_not_have(spark: SparkSession, tmp_path: Path) -> None:
    """A partitioner that was changed, also to one without names of columns: each record is there once."""
    topic = topic_of(record(n="long"), format=JsonLines(), partitioner=Daily())
    changes = (Daily(), Hourly(), TimePattern(path_format="YYYY-MM-dd", duration_ms=DAY))
    for n, partitioner in enumerate(changes):
        topic.layout = msgspec.structs.replace(topic.layout, partitioner=partitioner)
        append(topic, {"n": n})
        topic.land(f"run-{n}")
    found = rows_of(spark_frame(spark, saved(topic, tmp_path), root=str(tmp_path)))
    whole = {"year": 2026, "month": 1, "day": 1}
    assert found == [
        {"n": 0, **whole, "hour": None},
        {"n": 1, **whole, "hour": 0},
        {"n": 2, "year": None, "month": None, "day": None, "hour": None},
    ]


def test_folders_with_another_delimiter_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    """They are not folders of the file system, so Spark does not find them."""
    topic = topic_of(record(n="long"), format=JsonLines(), partitioner=Daily(), naming=Naming(directory_delim="!"))
    append(topic, {"n": 0}, {"n": 1})
    topic.land()
    found = rows_of(spark_frame(spark, saved(topic, tmp_path), root=str(tmp_path)))
    assert found == [{"n": n, "year": 2026, "month": 1, "day": n + 1} for n in (0, 1)]


def test_columns_that_make_a_frame_unreadable_are_named_before_spark_reads_anything(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A schema without them reads the others."""
    clock = {"type": "int", "logicalType": "time-millis"}
    large = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    part = {"type": "record", "name": "Part", "fields": [{"name": "at", "type": clock}]}
    schema = record(n="long", clock=clock, amount=large, parts={"type": "array", "items": part})
    topic = topic_of(schema, format=Parquet())
    append(topic, {"n": 0, "clock": 1, "amount": 1.5, "parts": []})
    topic.land()
    snapshot = saved(topic, tmp_path)
    with pytest.raises(
        ConfigurationError,
        match=r"'clock' is a time of day, 'amount' is a decimal of 50 digits, more than 38, 'parts\.\S*at' is a time",
    ):
        spark_frame(spark, snapshot, root=str(tmp_path))
    assert rows_of(spark_frame(spark, snapshot, root=str(tmp_path), schema="n long")) == [{"n": 0, "partition": 0}]


@pytest.mark.parametrize("record_format", [JsonLines(), Parquet()], ids=str)
def test_names_that_differ_in_case_only_need_a_session_that_distinguishes_them(
    spark: SparkSession, tmp_path: Path, record_format: Any
) -> None:
    """The error has the setting; with it, both columns are there."""
    topic = topic_of(record(n="long", id="long", Id="long"), format=record_format)
    append(topic, {"n": 0, "id": 1, "Id": 2})
    topic.land()
    snapshot = saved(topic, tmp_path)
    with pytest.raises(ConfigurationError, match=r"in case only.*id.*Set spark\.sql\.caseSensitive to true"):
        spark_frame(spark, snapshot, root=str(tmp_path))
    assert rows_of(spark_frame(spark, snapshot, root=str(tmp_path), schema="n long")) == [{"n": 0, "partition": 0}]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert rows_of(spark_frame(spark, snapshot, root=str(tmp_path))) == [{"n": 0, "id": 1, "Id": 2, "partition": 0}]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_sparks_reader_reads_each_type_that_columns_are_widened_to(spark: SparkSession, tmp_path: Path) -> None:
    """An integer, a float and a decimal beside their wider types; long and double are refused."""
    small = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    large = {**small, "precision": 24, "scale": 3}
    old = {"i": "int", "d": "int", "f": "float", "m": small, "l": "long"}
    new = {"i": "long", "d": "double", "f": "double", "m": large, "l": large}
    topic = topic_of(record(n="long", **old), format=Parquet())
    values = [
        {"i": 1, "d": 1, "f": 1.5, "m": "1.50", "l": 2**62},
        {"i": 2**40, "d": 0.1, "f": 0.1, "m": "0.125", "l": 1},
    ]
    for n, (kinds, value) in enumerate(zip((old, new), values, strict=True)):
        topic.layout = msgspec.structs.replace(topic.layout, value_converter=converter(record(n="long", **kinds)))
        append(topic, {"n": n, **value})
        topic.land(f"run-{n}")
    rows = rows_of(spark_frame(spark, saved(topic, tmp_path), root=str(tmp_path)))
    assert [[row[name] for name in old] for row in rows] == [
        [1, 1.0, 1.5, Decimal("1.50"), 2**62],
        [2**40, 0.1, 0.1, Decimal("0.125"), 1],
    ]
