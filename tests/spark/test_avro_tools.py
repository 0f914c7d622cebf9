"""Avro objects of every codec, read by Avro's own implementation in Java."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any, get_args

import fastavro
import pytest

from airflow_provider_kafka_s3.config import AvroCodec, AvroContainer, AvroConverter, Layout
from dev.airflow_home import AVRO_JARS
from dev.java import find_java
from tests.golden.cases import CASES, made
from tests.unit.batch.simulated_topic import Topic
from tests.unit.formats.test_avro_container import unpacked


def avro_tools(*arguments: object) -> str:
    """The output of a command of avro-tools."""
    jars = list(AVRO_JARS.glob("avro-tools-*.jar"))
    assert jars, f"no avro-tools in {AVRO_JARS}; run `make jars`"
    # A JVM that lives for a second needs no optimizing compiler.
    java = [find_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    command = [*java, "-jar", str(jars[0]), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(schema: Any, records: list[Any]) -> list[Any]:
    """Records in Avro's encoding as JSON, by fastavro."""
    text = io.StringIO()
    fastavro.json_writer(text, fastavro.parse_schema(schema), records)
    return json_lines(text.getvalue())


def json_lines(text: str) -> list[Any]:
    """The documents of some lines. Texts hold characters that ``splitlines`` takes for the ends of lines."""
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.mark.parametrize("codec", get_args(AvroCodec))
def test_java_reads_the_records_and_the_schema_of_avro_objects(codec: AvroCodec, tmp_path: Path) -> None:
    """Several blocks, every type; the same as fastavro reads."""
    extension, body = made(CASES[f"avro-{codec}"])
    path = tmp_path / f"orders{extension}"
    path.write_bytes(body)
    reader = fastavro.reader(io.BytesIO(unpacked(body, codec)))
    records, schema = list(reader), json.loads(reader.metadata["avro.schema"])
    assert len(records) == len(CASES[f"avro-{codec}"].expected)
    assert json_lines(avro_tools("tojson", path)) == as_json(schema, records)
    assert json.loads(avro_tools("getschema", path)) == schema


_ZERO = b"\x80\x80\x80\x80\x80\x00"


def test_java_reads_what_lands_of_numbers_and_blocks_that_it_refuses(tmp_path: Path) -> None:
    """Ints, enums and unions of six bytes, and blocks of a wrong size, are dead letters: Java reads all that lands."""
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    fields = {"a": {"type": "array", "items": "int"}, "i": "int", "e": enum, "u": ["null", "int"]}
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    good = {"a": b"\x02\x02\0", "i": b"\x02", "e": b"\0", "u": b"\0"}
    topic = Topic(
        Layout(topics_dir="lake", format=AvroContainer(), value_converter=AvroConverter(), errors="dead_letter"),
        1,
    )
    schema_id = topic.registry.register(json.dumps(schema))
    wrong = [{"i": _ZERO}, {"e": _ZERO}, {"u": _ZERO}, {"a": b"\x02" + _ZERO + b"\0"}, {"a": b"\x01\x04\x02\0"}]
    allowed = [{}, {"i": _ZERO[1:]}, {"a": b"\x01\x02\x02\0"}, {"a": b"\x82" + _ZERO[1:] + b"\x02" + _ZERO}]
    for change in [value for pair in itertools.zip_longest(wrong, allowed, fillvalue={}) for value in pair]:
        topic.append(topic.registry.frame(schema_id, b"".join((good | change).values())))
    topic.land()
    objects = topic.objects()
    (letters,) = (body for key, body in objects.items() if "_dead" in key)
    (body,) = (body for key, body in objects.items() if key.endswith(".avro"))
    assert len(letters.splitlines()) == len(wrong)
    path = tmp_path / "orders.avro"
    path.write_bytes(body)
    assert len(json_lines(avro_tools("tojson", path))) == len(wrong)
    without_array = json.dumps({**schema, "fields": [f for f in schema["fields"] if f["name"] != "a"]})
    skipped = json_lines(avro_tools("tojson", "--reader-schema", without_array, path))
    assert len(skipped) == len(wrong)
    assert {record["i"] for record in skipped} == {0, 1}
