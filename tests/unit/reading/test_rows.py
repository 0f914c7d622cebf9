"""Rows of objects, compared with other readers."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
from decimal import Decimal
from typing import Any, get_args

import fastavro
import pytest

from airflow_provider_kafka_s3.config import (
    AvroCodec,
    AvroContainer,
    Csv,
    CustomFormat,
    Format,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
)
from airflow_provider_kafka_s3.reading.avro_file import datums
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.rows import Unreadable
from airflow_provider_kafka_s3.reading.seek import seek
from tests.golden.cases import CASES, made
from tests.unit.batch.simulated_topic import Topic
from tests.unit.formats.test_avro_container import unpacked


@pytest.mark.parametrize("codec", get_args(AvroCodec))
def test_avro_files_of_every_codec_and_type_are_those_of_fastavro(codec: AvroCodec) -> None:
    """Several blocks, logical types; times of day are numbers."""
    _, body = made(CASES[f"avro-{codec}"])
    midnight = dt.datetime.combine(dt.date.min, dt.time.min)
    expected = [
        {**row, "opens": (dt.datetime.combine(dt.date.min, row["opens"]) - midnight) // dt.timedelta(microseconds=1)}
        for row in fastavro.reader(io.BytesIO(unpacked(body, codec)))  # type: ignore[call-overload]
    ]
    assert [*itertools.chain.from_iterable(datums(body))] == expected


def test_avro_files_of_other_writers_are_read() -> None:
    """Recursive records, maps, and items in several blocks with sizes."""
    schema: dict[str, Any] = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "of", "type": {"type": "map", "values": "double"}},
            {"name": "next", "type": ["null", "Node"]},
            {"name": "big", "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}},
        ],
    }
    rows = [{"of": {"a": 0.5}, "next": {"of": {}, "next": None, "big": Decimal(1)}, "big": Decimal(10**37)}]
    body = io.BytesIO()
    fastavro.writer(body, fastavro.parse_schema(schema), rows)
    ((found,),) = datums(body.getvalue())
    assert found["next"]["next"] is None
    assert found["of"] == {"a": 0.5}
    assert str(found["big"]) == "1" + "0" * 37 + ".00"


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()], ids=["avro", "parquet", "json"])
def test_what_json_or_python_does_not_have_is_shown(record_format: Format) -> None:
    """Infinite numbers and NaN are texts, as in JSON lines, and times far outside the calendar are numbers."""
    at: Any = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [("x", "double"), ("at", at), ("days", {"type": "map", "values": {"type": "int", "logicalType": "date"}})]
    schema = {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    converter = JsonConverter(schema=json.dumps(schema))
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter))
    values = [("NaN", 0), ("-Infinity", 2**62), ("Infinity", -(2**63))]
    topic.append(*(json.dumps({"x": x, "at": at, "days": {"k": 2**31 - 1}}).encode() for x, at in values))
    topic.land()
    found = [json.loads(record.line())["value"] for record in seek(topic.pipeline.log, 0, 0, records=3)]
    assert [row["x"] for row in found] == ["NaN", "-Infinity", "Infinity"]
    assert [row["at"] for row in found][1:] == [2**62, -(2**63)]
    assert {str(2**31 - 1) in str(row["days"]) for row in found} == {True}


@pytest.mark.parametrize("size", [0, 3, 20, -1, -20])
def test_damaged_avro_files_are_unreadable(size: int) -> None:
    """Nothing of them is returned."""
    _, body = made(CASES["avro-null"])
    with pytest.raises(Unreadable, match="it is no Avro file"):
        format_reader(CASES["avro-null"].layout.format).rows(body[:size], 60, slice(0, 1))


def test_csv_tells_nulls_from_texts() -> None:
    """A quoted field is a text, also one with the text of nulls; quotes and line breaks are in fields."""
    settings = Csv(null="NULL", separator="|")
    body = b'a|b\n1|NULL\n"NULL"|"say ""no""\n|"\n|""\n'
    found = format_reader(settings).rows(body, 3, slice(0, 3))
    assert [row.json for row in found] == [
        {"a": "1", "b": None},
        {"a": "NULL", "b": 'say "no"\n|'},
        {"a": "", "b": ""},
    ]
    assert found[0].raw == b"1|NULL"
    assert [row.json for row in format_reader(Csv(header=False)).rows(b'1,\n,"2"\n', 2, slice(1, 2))] == [[None, "2"]]


@pytest.mark.parametrize("name", ["csv-none", "parquet-zstd", "json-none", "bytes-none"])
def test_a_number_of_rows_that_is_not_that_of_the_manifest_is_an_error(name: str) -> None:
    """The rows could not be those of the offsets."""
    _, body = made(CASES[name])
    settings = CASES[name].layout.format
    count = len(CASES[name].expected) - (1 if name == "csv-none" else 0)
    assert len(format_reader(settings).rows(body, count, slice(0, count))) == count
    for other in (count - 1, count + 1):
        with pytest.raises(Unreadable, match=str(count)):
            format_reader(settings).rows(body, other, slice(0, 1))


@pytest.mark.parametrize(
    ("settings", "body", "message"),
    [
        (JsonLines(), b"1\n2", "does not end with its separator"),
        (RawBytes(separator=""), b"12", "nothing separates its 2 records"),
        (Csv(), b'"\n', "it is no CSV"),
        (Parquet(), b"PAR1", "it is no Parquet file"),
        (CustomFormat(import_path="a.b:C"), b"", "which only writes"),
    ],
)
def test_other_bytes_are_unreadable(settings: Any, body: bytes, message: str) -> None:
    """The reason is that of the format."""
    with pytest.raises(Unreadable, match=message):
        format_reader(settings).rows(body, 2, slice(0, 1))


def test_one_record_needs_no_separator() -> None:
    """It is all bytes."""
    assert format_reader(RawBytes(separator="")).rows(b"a\nb", 1, slice(0, 1))[0].raw == b"a\nb"


@pytest.mark.parametrize("name", ["gzip", "zstd", "bzip2"])
def test_damaged_compression_is_an_error(name: Any) -> None:
    """Cut off in the middle."""
    settings = JsonLines(compression=name)
    _, body = made(CASES[f"json-{name}"])
    assert json.loads(format_reader(settings).uncompressed(body).split(b"\n")[0])["id"] == 0
    with pytest.raises(Unreadable, match=f"its compression '{name}' is damaged"):
        format_reader(settings).uncompressed(body[: len(body) // 2])
