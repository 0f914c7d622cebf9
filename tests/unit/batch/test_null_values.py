"""What Kafka Connect's JsonConverter reads as null is a null value, as one that is null in Kafka."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import BufferReader

from airflow_provider_kafka_s3.config import (
    BlockGzip,
    BytesConverter,
    Csv,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import RecordError
from tests.landed_rows import rows
from tests.unit.batch.simulated_topic import Topic

DECLARED = JsonConverter(schema='{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
ENVELOPED = JsonConverter(schemas_enable=True)
STRUCT: dict[str, Any] = {"type": "struct", "fields": [{"field": "a", "type": "int32"}]}


def envelope(payload: Any, **schema: Any) -> bytes:
    """A value with its schema."""
    return json.dumps({"schema": {**STRUCT, **schema}, "payload": payload}).encode()


def topic_of(record_format: Any, converter: Any, **more: Any) -> Topic:
    """A topic, before anything is in it."""
    return Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter, **more))


def landed(topic: Topic) -> list[Any]:
    """The rows of all data objects, in the order of their names."""
    bodies = [item for item in sorted(topic.objects().items()) if "_dead" not in item[0] and ".index" not in item[0]]
    return [row for key, body in bodies for row in rows(key, body)]


NULLS = [
    pytest.param(JsonConverter(), b'{"a":1}', b"", id="zero-bytes"),
    pytest.param(DECLARED, b'{"a":1}', b"", id="zero-bytes-declared"),
    pytest.param(ENVELOPED, envelope({"a": 1}), b"", id="zero-bytes-enveloped"),
    pytest.param(ENVELOPED, envelope({"a": 1}), b'{"schema":null,"payload":null}', id="no-schema"),
    pytest.param(ENVELOPED, envelope({"a": 1}), b'{ "payload" :\n null, "schema": null }', id="white-space"),
    pytest.param(ENVELOPED, envelope({"a": 1}), envelope(None, optional=True), id="optional"),
]


@pytest.mark.parametrize(("converter", "value", "null"), NULLS)
def test_on_null_decides_about_what_is_null_to_kafka_connect(converter: Any, value: bytes, null: bytes) -> None:
    """It is left out, a row without a value, an object of its key alone, or a dead letter: as a null of Kafka."""
    ignoring = topic_of(JsonLines(on_null="ignore"), converter)
    ignoring.append(value, null, value, null)
    (batch,) = ignoring.land().batches
    assert (batch.records, batch.ignored, landed(ignoring)) == (2, 2, [{"a": 1}] * 2)
    if not converter.has_schema:  # the check compares the bytes of documents
        assert ignoring.check() == 2

    writing = topic_of(JsonLines(on_null="write"), converter, content=Envelope())
    writing.append(value, null)
    writing.land()
    assert [row["value"] for row in landed(writing)] == [{"a": 1}, None]

    beside = topic_of(
        JsonLines(on_null="write"), converter, key_converter=StringConverter(), content=SiblingObjects(keys=JsonLines())
    )
    beside.append(value, null, key=b"k")
    beside.land()
    assert [key for key in beside.objects() if "tombstone" in key] == [
        "lake/orders/tombstone/orders+0+0000000001.keys.json"
    ]
    if not converter.has_schema:
        beside.check()

    setting_aside = topic_of(JsonLines(), converter, errors="dead_letter")
    setting_aside.append(value, null)
    setting_aside.land()
    (letter,) = setting_aside.dead_letters()
    assert "the value is null (a tombstone), and on_null='fail'" in letter["reason"]
    assert landed(setting_aside) == [{"a": 1}]

    failing = topic_of(JsonLines(), converter)
    failing.append(value, null)
    with pytest.raises(RecordError, match=r"'orders', partition 0, offset 1: the value is null .* on_null='ignore'"):
        failing.land()


@pytest.mark.parametrize("record_format", [BlockGzip(lines=JsonLines(on_null="ignore")), Parquet(on_null="ignore")])
def test_null_values_of_envelopes_are_left_out_of_other_formats(record_format: Any) -> None:
    """As of JSON lines."""
    topic = topic_of(record_format, ENVELOPED)
    topic.append(envelope(None, optional=True), envelope({"a": 1}), b'{"schema":null,"payload":null}')
    topic.land()
    assert landed(topic) == [{"a": 1}]


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        envelope(None),
        envelope(None, optional=True, default={"a": 1}),
        envelope(None, type="strict", optional=True),
        b'{"schema":null,"payload":{"a":1}}',
        b'{"schema":null}',
        b'{"payload":null}',
        b'{"schema":null,"payload":null',
        b" ",
    ],
)
def test_what_is_no_null_to_kafka_connect_is_not_left_out(value: bytes) -> None:
    """It is invalid: the payload has to be one of its schema."""
    topic = topic_of(JsonLines(on_null="ignore"), ENVELOPED, errors="dead_letter")
    topic.append(value, envelope({"a": 1}))
    (batch,) = topic.land().batches
    assert (batch.records, batch.ignored, batch.dead_letters) == (1, 0, 1)


@pytest.mark.parametrize(
    ("record_format", "converter", "body"),
    [
        (RawBytes(), BytesConverter(), b"\n"),
        (JsonLines(), StringConverter(), b'""\n'),
        (JsonLines(), JsonConverter(), None),
    ],
)
def test_zero_bytes_are_a_value_of_texts_and_bytes(record_format: Any, converter: Any, body: bytes | None) -> None:
    """They are null where nothing else can be meant, and nowhere else; the document null is a document."""
    topic = topic_of(record_format, converter)
    topic.append(b"" if body else b"null")
    topic.land()
    assert list(topic.objects().values()) == [body or b"null\n"]


def test_a_key_of_zero_bytes_is_null_to_a_converter_of_documents() -> None:
    """The row of an envelope has the key null."""
    topic = topic_of(JsonLines(), JsonConverter(), key_converter=JsonConverter(), content=Envelope())
    topic.append(b"1", key=b"")
    topic.append(b"2", key=b'{"schema":null,"payload":null}')
    topic.land()
    assert [row["key"] for row in landed(topic)] == [None, {"schema": None, "payload": None}]


@pytest.mark.parametrize("record_format", [Parquet(), Csv()])
def test_an_optional_root_has_the_columns_of_one_that_is_not(record_format: Any) -> None:
    """Its values share the objects of the others, and a null among them is a null value."""
    topic = topic_of(record_format, ENVELOPED)
    topic.append(envelope({"a": 1}), envelope({"a": 2}, optional=True), envelope({"a": 3}))
    topic.land()
    ((key, body),) = topic.objects().items()
    if key.endswith(".parquet"):
        assert pq.read_table(BufferReader(body)).to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]
    else:
        assert body == b"a\n1\n2\n3\n"
