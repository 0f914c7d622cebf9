"""``kafka-s3 doctor``: address and login of the schema registry, subjects of topics, and schemas that are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.main import parser
from airflow_provider_kafka_s3.cli.registry_checks import check_registry
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    Converter,
    Csv,
    Envelope,
    Format,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Parquet,
    ProtobufConverter,
    SiblingObjects,
)
from airflow_provider_kafka_s3.config.converters import needs_registry
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.unit.cli.conftest import JSON, PIPELINE, TOPIC, TOPICS_DIR, World, no_wait
from tests.unit.registry.conftest import Registry

LONG, PASSWORD = '"long"', "canary-91f3-password"
AVRO = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), value_converter=AvroConverter())


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry without schemas, and a connection to it."""
    with Registry() as started:
        connection = {"conn_type": "http", "host": started.endpoint, "login": "reader", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps(connection))
        yield started


def land(world: World, layout: Layout, *, schema: str = LONG, key: bytes | None = None) -> None:
    """Land a record whose schema has the id 1."""
    schemas = SimulatedRegistry()
    schemas.register(schema)
    world.kafka.create_topic(TOPIC)
    world.kafka.append(
        TOPIC, 0, b"\0\0\0\0\1\2" if needs_registry(layout.value_converter) else b"1", timestamp=0, key=key
    )
    store = DurableStore(world.bucket, no_wait())
    pipeline = TopicPipeline(
        store, world.kafka, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC, registry=schemas
    )
    pipeline.land(RunRequest(run="a", offsets="incremental", layout=layout, starting="earliest"))


def findings(*more: str, topic: bool = True) -> dict[str, tuple[str, str]]:
    """Check -> level and text."""
    which = ("--topic", TOPIC) if topic else ()
    where = ("--bucket", "lake", "--topics-dir", TOPICS_DIR, "--pipeline", PIPELINE, *which)
    found = check_registry(Access(parser().parse_args(["doctor", *where, *more])))
    assert PASSWORD not in str(found)
    return {f.check: (f.level, f"{f.message} {f.fix}") for f in found}


REGISTRY = ("--registry-conn-id", "registry")


def test_without_a_connection_the_topics_that_need_a_registry_are_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the option."""
    monkeypatch.delenv("KAFKA_S3_REGISTRY_CONN_ID", raising=False)
    level, text = findings()["schema registry"]
    assert (level, TOPIC in text, "--registry-conn-id" in text) == ("unknown", False, True)
    land(world, AVRO)
    for topic in (True, False):
        level, text = findings(topic=topic)["schema registry"]
        assert (level, "these topics have schemas of a registry: orders" in text) == ("unknown", True)


def test_a_registry_that_fits_the_topic_has_no_errors_and_nothing_is_written(world: World, registry: Registry) -> None:
    """Its address, the latest schema of the topic's subject, and the schemas that are stored in the bucket."""
    registry.add(1, LONG, f"{TOPIC}-value", 3)
    land(world, AVRO)
    before = snapshot(world.bucket)
    found = findings(*REGISTRY)
    assert {check: level for check, (level, _) in found.items()} == {
        "schema registry": "ok",
        f"subject {TOPIC}-value": "ok",
        f"stored schemas of {TOPIC}": "ok",
    }
    assert "id 1, version 3 and the type AVRO" in found[f"subject {TOPIC}-value"][1]
    check_unchanged(before, snapshot(world.bucket))
    assert all(login is not None for _, login in registry.requests)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, {"error_code": 401, "message": "Unauthorized"}, "AccessDeniedError: .*check the credentials"),
        (404, b"<html>", "RegistryUnavailableError: .*below a path, such as /apis/ccompat/v7"),
        (503, {}, "RegistryUnavailableError: .*status 503"),
    ],
)
def test_a_registry_that_does_not_answer_is_one_error(
    world: World, registry: Registry, status: int, body: object, message: str
) -> None:
    """With its cause; subjects are not requested."""
    registry.failures = [(status, body)] * 100
    found = findings(*REGISTRY)
    ((check, (level, text)),) = found.items()
    assert (check, level) == ("schema registry", "error")
    assert re.search(message, text)
    assert not any("/subjects/" in path for path in registry.paths)


def test_a_connection_that_is_not_there_is_an_error(world: World) -> None:
    """Which names it."""
    level, text = findings("--registry-conn-id", "absent")["schema registry"]
    assert (level, "no connection 'absent'" in text) == ("error", True)


def test_a_subject_that_is_not_there_is_a_warning(world: World, registry: Registry) -> None:
    """Producers may name it otherwise."""
    level, text = findings(*REGISTRY)[f"subject {TOPIC}-value"]
    assert (level, "has no such subject" in text) == ("warning", True)


def test_before_the_first_batch_the_converter_is_unknown(world: World, registry: Registry) -> None:
    """The type of the schema is shown."""
    registry.add(4, "{}", f"{TOPIC}-value", schemaType="JSON")
    level, text = findings(*REGISTRY)[f"subject {TOPIC}-value"]
    assert (level, "the type JSON; no batch was landed" in text) == ("ok", True)


@pytest.mark.parametrize(
    ("layout", "kind", "needed"),
    [
        (AVRO, "PROTOBUF", "value_converter='protobuf'"),
        (AVRO, "JSON", "value_converter='json_schema'"),
        (Layout(topics_dir=TOPICS_DIR, format=JsonLines(), value_converter=ProtobufConverter()), "AVRO", "'avro'"),
        (Layout(topics_dir=TOPICS_DIR, format=JsonLines(), value_converter=JsonSchemaConverter()), "AVRO", "'avro'"),
    ],
)
def test_a_schema_of_another_type_than_the_converter_is_an_error(
    world: World, registry: Registry, layout: Layout, kind: str, needed: str
) -> None:
    """With the converter that fits."""
    registry.add(9, "x", f"{TOPIC}-value", schemaType=kind)
    land(world, Layout(**{**{n: getattr(layout, n) for n in layout.__struct_fields__}, "errors": "dead_letter"}))
    level, text = findings(*REGISTRY)[f"subject {TOPIC}-value"]
    assert (level, f"the type {kind}" in text, needed in text) == ("error", True, True)


TREE: Final = (
    '{"type": "record", "name": "Tree", "fields": [{"name": "of", "type": {"type": "array", "items": "Tree"}}]}'
)
EMPTY: Final = '{"type": "record", "name": "Empty", "fields": []}'


def schema_layout(record_format: Format, converter: Converter, **more: Any) -> Layout:
    """Of values of a registry."""
    return Layout(topics_dir=TOPICS_DIR, format=record_format, value_converter=converter, **more)


@pytest.mark.parametrize(
    ("layout", "kind", "text", "reason"),
    [
        (schema_layout(Parquet(), AvroConverter()), "AVRO", TREE, "schema 9 is recursive"),
        (schema_layout(JsonLines(), AvroConverter()), "AVRO", TREE, "schema 9 is recursive"),
        (schema_layout(AvroContainer(), AvroConverter(), content=Envelope()), "AVRO", TREE, "schema 9 is recursive"),
        (schema_layout(Parquet(), AvroConverter()), "AVRO", EMPTY, "the record 'Empty' without fields, which Parquet"),
        (schema_layout(AvroContainer(), AvroConverter()), "AVRO", '"x"', "schema 9 of the registry cannot be used: "),
        (
            schema_layout(Csv(), AvroConverter()),
            "AVRO",
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}',
            "schema 9: ",
        ),
        (
            schema_layout(Parquet(), ProtobufConverter()),
            "PROTOBUF",
            "message Tree { repeated Tree of = 1; }",
            "message Tree of schema 9 cannot be landed: ",
        ),
        (
            schema_layout(JsonLines(), JsonSchemaConverter()),
            "JSON",
            '{"type": "object", "properties": {"a": {"$ref": "#"}}}',
            "schema 9 of the registry cannot be used: ",
        ),
        (
            Layout(
                topics_dir=TOPICS_DIR,
                format=JsonLines(),
                key_converter=AvroConverter(),
                content=SiblingObjects(keys=Parquet()),
            ),
            "AVRO",
            TREE,
            "schema 9 is recursive",
        ),
    ],
)
def test_a_schema_that_the_layout_cannot_land_is_an_error(
    world: World, registry: Registry, layout: Layout, kind: str, text: str, reason: str
) -> None:
    """Before a record has it, with the reason; the same schema is fine where the format can hold it."""
    part = "value" if needs_registry(layout.value_converter) else "key"
    registry.add(9, text, f"{TOPIC}-{part}", schemaType=kind)
    land(world, msgspec.structs.replace(layout, errors="dead_letter"), key=b"\0\0\0\0\1\2")
    level, found = findings(*REGISTRY)[f"subject {TOPIC}-{part}"]
    assert (level, "cannot be landed by the layout" in found, reason in found) == ("error", True, True), found


def test_a_recursive_schema_is_fine_for_avro_files(world: World, registry: Registry) -> None:
    """They hold the datums as they are."""
    registry.add(9, TREE, f"{TOPIC}-value")
    land(world, schema_layout(AvroContainer(), AvroConverter()))
    assert findings(*REGISTRY)[f"subject {TOPIC}-value"][0] == "ok"


def test_the_schema_of_keys_is_checked_where_keys_have_one(world: World, registry: Registry) -> None:
    """And that of values is not, if they have none of a registry."""
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), key_converter=AvroConverter(), content=Envelope())
    registry.add(1, LONG, f"{TOPIC}-key")
    land(world, layout, key=b"\0\0\0\0\1\2")
    assert {check: level for check, (level, _) in findings(*REGISTRY).items()}.keys() == {
        "schema registry",
        f"subject {TOPIC}-key",
        f"stored schemas of {TOPIC}",
    }


def test_a_topic_whose_values_have_no_schema_needs_no_subject(world: World, registry: Registry) -> None:
    """No subject is requested."""
    land(world, JSON)
    assert findings(*REGISTRY)[f"schemas of {TOPIC}"][0] == "ok"
    assert not any("/subjects/" in path for path in registry.paths)


def test_a_registry_whose_ids_name_other_schemas_than_the_stored_ones_is_an_error(
    world: World, registry: Registry
) -> None:
    """Records would be decoded by the wrong schema; another notation of the same one is none, nor is a deleted one."""
    land(world, AVRO, schema='{"type": "long"}')
    check = f"stored schemas of {TOPIC}"
    assert check not in findings(*REGISTRY)
    registry.add(1, '{  "type":\n"long"}', f"{TOPIC}-value")
    assert findings(*REGISTRY)[check][0] == "ok"
    registry.add(1, '"string"', f"{TOPIC}-value")
    level, text = findings(*REGISTRY)[check]
    assert (level, "the ids 1 name other schemas" in text, "another topics_dir" in text) == ("error", True, True)
