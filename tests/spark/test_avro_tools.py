"""Avro objects of every codec, read by Avro's own implementation in Java."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any, get_args

import fastavro
import pytest

from airflow_provider_kafka_s3.config import AvroCodec
from dev.airflow_home import AVRO_JARS
from dev.java import find_java
from tests.golden.cases import CASES, made
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
