"""``kafka-s3 infer-schema`` prints a schema and what was seen, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import JsonConverter, Layout, Parquet
from tests.unit.cli.conftest import TOPIC, TOPICS_DIR, World


@pytest.fixture
def documents(world: World) -> World:
    """A topic of JSON objects."""
    world.kafka.delete_topic(TOPIC)
    world.kafka.create_topic(TOPIC)
    for n in range(8):
        customer: dict[str, Any] = {"customer": f"c{n}"} if n % 2 else {}
        world.kafka.append(TOPIC, 0, json.dumps({"id": n, **customer}).encode(), timestamp=n)
    return world


def test_it_prints_the_schema_and_what_was_seen(documents: World) -> None:
    """The schema first, then a table with the share of records that have a field."""
    output = documents.cli("infer-schema", "--topic", TOPIC)
    assert (output.code, output.err) == (0, "")
    schema, _, evidence = output.out.partition("\n\n")
    assert [field["name"] for field in json.loads(schema)["fields"]] == ["id", "customer"]
    assert evidence.splitlines() == [
        "topic orders: 8 JSON objects in 8 records",
        "  field     in     nulls  type    seen",
        "  id        100%       0  long    8 long",
        "  customer  50.0%      0  string  4 string",
    ]


def test_the_schema_alone_is_a_file_for_the_converter(documents: World) -> None:
    """Records land with it."""
    text = documents.cli("infer-schema", "--topic", TOPIC, "--schema-only").out
    layout = Layout(topics_dir=TOPICS_DIR, format=Parquet(), value_converter=JsonConverter(schema=text))
    result = documents.run("first", layout=layout)
    assert sum(batch.records for batch in result.batches) == 8


def test_json_has_the_schema_and_the_evidence(documents: World) -> None:
    """As values, with the sampled offsets."""
    data = documents.cli("infer-schema", "--topic", TOPIC, "--records", "4", "--json").data
    assert data["offsets"] == {"0": [[0, 2], [6, 8]]}
    assert (data["records"], data["documents"], data["others"]) == (4, 4, {})
    assert data["schema"]["name"] == "orders"
    assert [field["share"] for field in data["fields"]] == [1.0, 0.5]


def test_nothing_is_written(documents: World) -> None:
    """Neither to the bucket nor to Kafka."""
    before = documents.kafka.all_records()
    documents.cli("infer-schema", "--topic", TOPIC)
    assert [*documents.bucket.list("")] == []
    assert documents.kafka.all_records() == before


def test_values_that_are_no_objects_are_findings(documents: World) -> None:
    """The exit code is 1, and the line says what they are."""
    documents.kafka.append(TOPIC, 0, b"{", timestamp=9)
    output = documents.cli("infer-schema", "--topic", TOPIC)
    assert output.code == 1
    assert "  bytes that are not JSON: 1; such records are invalid\n" in output.out


def test_names_from_records_cannot_forge_lines(documents: World) -> None:
    """A terminal gets them escaped and cut."""
    documents.kafka.append(TOPIC, 0, json.dumps({"a\n\x1b[31mroot": 1, "b" * 500: 1}).encode(), timestamp=9)
    output = documents.cli("infer-schema", "--topic", TOPIC)
    assert "a\\n\\x1b[31mroot" in output.out
    assert "\x1b" not in output.out
    assert "b" * 100 not in output.out.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--records", "0"], "--records 0 must be a positive number"),
        (["--schema-only", "--json"], "--schema-only and --json are given"),
    ],
)
def test_wrong_options_are_named(documents: World, options: list[str], message: str) -> None:
    """With exit code 2."""
    output = documents.cli("infer-schema", "--topic", TOPIC, *options)
    assert output.code == 2
    assert message in output.error


def test_a_topic_without_json_is_refused(world: World) -> None:
    """With what was seen and where; the records of the fixture are numbers."""
    output = world.cli("infer-schema", "--topic", TOPIC)
    assert output.code == 2
    assert "of 6 records there are JSON single values (numbers, texts, booleans or null): 6" in output.error
    assert "partition 0, offset 0" in output.error
