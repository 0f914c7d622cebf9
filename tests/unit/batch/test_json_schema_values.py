"""JSON with schemas of a registry, landed as Avro, Parquet and JSON lines."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.config import AvroContainer, JsonLines, JsonSchemaConverter, Layout, Parquet, RawBytes
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.formats.registry import make_format
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from tests.unit.batch.simulated_topic import Topic

CONNECT: Final = "org.apache.kafka.connect.data."
PLACE: Final = {
    "type": "object",
    "title": "geo.Place",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
ORDER: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "shop.Order",
    "properties": {
        "at": {"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp", "connect.index": 2},
        "id": {"type": "integer", "connect.type": "int32", "connect.index": 0},
        "first-name": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
        "price": {
            "type": "number",
            "connect.type": "bytes",
            "title": f"{CONNECT}Decimal",
            "connect.parameters": {"scale": "2"},
            "connect.index": 3,
        },
        "to": {"$ref": "place.json", "connect.index": 4},
        "tags": {"type": "array", "items": {"type": "string"}, "connect.index": 5},
        "more": {"type": "object", "additionalProperties": {"type": "number"}, "connect.index": 6},
    },
    "required": ["id", "at"],
}
REFERENCE: Final = SchemaReference(name="place.json", subject="place", version=1, text=json.dumps(PLACE))
AT: Final = 1_767_225_600_000


def layout(record_format: Any, **more: Any) -> Layout:
    """Of JSON values with schemas of a registry."""
    return Layout(topics_dir="lake", format=record_format, value_converter=JsonSchemaConverter(), **more)


def order(number: int, **more: Any) -> bytes:
    """An order as a serializer writes it, behind the header."""
    return json.dumps({"id": number, "at": AT + number, **more}).encode()


FULL: Final[dict[str, Any]] = {"first-name": "ü", "price": 1.5, "to": {"city": "Bern", "x": 1}, "tags": ["t"],
                               "more": {"k": 1}, "unknown": [1]}  # fmt: skip


def landed(record_format: Any, *, records_per_poll: int = 3) -> tuple[bytes, Topic]:
    """The object of two orders."""
    topic = Topic(layout(record_format), records_per_poll=records_per_poll)
    schema = topic.registry.register(json.dumps(ORDER), type="JSON", references=[REFERENCE])
    topic.append(topic.registry.frame(schema, order(1, **FULL)), topic.registry.frame(schema, order(2)))
    topic.land()
    (body,) = topic.objects().values()
    return body, topic


def test_parquet_has_the_columns_of_the_schema() -> None:
    """Names as they are in JSON, in the order of Connect; only what has to be there is required."""
    body, _ = landed(Parquet())
    table = pq.read_table(io.BytesIO(body))
    place = pa.struct([pa.field("city", pa.string(), nullable=False)])
    assert table.schema.remove_metadata() == pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            pa.field("first-name", pa.string()),
            pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("price", pa.decimal128(38, 2)),
            pa.field("to", place),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("more", pa.map_(pa.string(), pa.field("value", pa.float64(), nullable=False))),
        ]
    )
    first, second = table.to_pylist()
    assert first == {
        "id": 1, "first-name": "ü", "at": datetime.fromtimestamp(AT / 1000 + 0.001, UTC), "price": Decimal("1.50"),
        "to": {"city": "Bern"}, "tags": ["t"], "more": [("k", 1.0)],
    }  # fmt: skip
    assert [name for name, value in second.items() if value is None] == ["first-name", "price", "to", "tags", "more"]


def test_avro_files_have_names_that_avro_allows() -> None:
    """As Kafka Connect changes them with ``scrub.invalid.names``; records have the titles of their schemas."""
    body, _ = landed(AvroContainer())
    reader: Any = fastavro.reader(io.BytesIO(body))
    first, second = list(reader)
    schema = reader.writer_schema
    assert (schema["name"], [f["name"] for f in schema["fields"]]) == (
        "shop.Order",
        ["id", "first_name", "at", "price", "to", "tags", "more"],
    )
    assert first["to"] == {"city": "Bern"}
    assert (first["first_name"], first["price"], first["more"]) == ("ü", Decimal("1.50"), {"k": 1.0})
    assert (second["id"], second["first_name"], second["to"]) == (2, None, None)


def test_json_lines_are_those_of_kafka_connect() -> None:
    """All fields, in their order, with decimals as bytes."""
    body, _ = landed(JsonLines())
    first = {
        "id": 1, "first-name": "ü", "at": AT + 1, "price": "AJY=", "to": {"city": "Bern"}, "tags": ["t"],
        "more": {"k": 1.0},
    }  # fmt: skip
    second = dict.fromkeys(first) | {"id": 2, "at": AT + 2}
    compact = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in (first, second)]
    assert body.decode().splitlines() == compact


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()])
def test_a_rerun_in_other_batches_and_without_the_registry_gives_the_same_objects(record_format: Any) -> None:
    """The schemas and what they refer to are pinned."""
    body, topic = landed(record_format)
    assert landed(record_format, records_per_poll=1)[0] == body
    before = topic.objects()
    topic.registry._schemas.clear()
    topic.restore(*before)
    assert topic.objects() == before


def test_what_does_not_have_its_schema_becomes_a_dead_letter() -> None:
    """One by one, with the reason; the default policy names topic, partition and offset."""
    topic = Topic(layout(Parquet(), errors="dead_letter"))
    schema = topic.registry.register(json.dumps(ORDER), type="JSON", references=[REFERENCE])
    recursive = topic.registry.register('{"type": "object", "properties": {"a": {"$ref": "#"}}}', type="JSON")
    frame = topic.registry.frame
    bad = [order(1), frame(schema, b"{"), frame(schema, b'{"id": 1}'), frame(recursive, b"{}"), frame(77, b"{}")]
    topic.append(frame(schema, order(1)), *bad, frame(schema, order(2)))
    (batch,) = topic.land().batches
    assert (batch.records, batch.dead_letters) == (2, len(bad))
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    words = ["header", "not one JSON document", "field at is missing", "contains itself", "no schema 77"]
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons
    failing = Topic(layout(Parquet()))
    failing.append(frame(failing.registry.register("{}", type="JSON"), b"{}"))
    with pytest.raises(RecordError, match=r"topic 'orders', partition 0, offset 0: schema 1 .* it has no type"):
        failing.land()


def test_values_that_are_no_objects_are_landed() -> None:
    """Parquet has a column of them."""
    topic = Topic(layout(Parquet()))
    schema = topic.registry.register('{"type": ["null", "array"], "items": {"type": "integer"}}', type="JSON")
    topic.append(*(topic.registry.frame(schema, value) for value in (b"[1, 2]", b"null", b"[]")))
    topic.land()
    (body,) = topic.objects().values()
    assert pq.read_table(io.BytesIO(body)).to_pylist() == [{"value": [1, 2]}, {"value": None}, {"value": []}]


def test_the_converter_needs_a_registry_and_a_format_with_a_schema() -> None:
    """When the DAG is parsed, or before anything is written."""
    with pytest.raises(ConfigurationError, match=r"JsonSchemaConverter.* not go with format=RawBytes"):
        Layout(format=RawBytes(), value_converter=JsonSchemaConverter())
    with pytest.raises(ConfigurationError, match=r"converter 'json_schema' needs a schema registry"):
        make_format(JsonLines(), JsonSchemaConverter())
