"""Protobuf values of a schema registry, landed as Avro, Parquet, CSV and JSON lines."""

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
from google.protobuf import timestamp_pb2

from airflow_provider_kafka_s3.config import AvroContainer, Csv, JsonLines, Layout, Parquet, ProtobufConverter, RawBytes
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from tests.unit.batch.simulated_topic import Topic

ORDER: Final = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    import "place.proto";
    enum State { NEW = 0; DONE = 1; }
    message Order {
      uint64 id = 1;
      State state = 2;
      google.protobuf.Timestamp at = 3;
      Line first = 4;
      repeated Line lines = 5;
      map<string, int32> more = 6;
      google.protobuf.StringValue note = 7;
      oneof to { geo.Place place = 8; string code = 9; }
      message Line { double price = 1; State state = 2; }
    }
"""
PLACE: Final = SchemaReference(
    name="place.proto",
    subject="place",
    version=1,
    text='syntax = "proto3"; package geo; message Place { bytes key = 1; }',
)
AT: Final = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
FULL: Final = b"".join(
    [
        b"\x08\x07\x10\x01\x1a\x0c"
        + timestamp_pb2.Timestamp(seconds=int(AT.timestamp()), nanos=678_901_999).SerializeToString(),
        b"\x22\x0b\x09"
        + b"\0" * 6
        + b"\xf8\x3f"
        + b"\x10\x01\x2a\x00\x2a\x02\x10\x01\x32\x05\x0a\x01k\x10\x03\x3a\x03\x0a\x01n\x42\x03\x0a\x01z",
    ]
)


def layout(record_format: Any, **more: Any) -> Layout:
    """Of Protobuf values."""
    return Layout(topics_dir="lake", format=record_format, **{"value_converter": ProtobufConverter(), **more})


def landed(record_format: Any, *, records_per_poll: int = 3, **more: Any) -> tuple[bytes, Topic]:
    """The object of two orders."""
    topic = Topic(layout(record_format, **more), records_per_poll=records_per_poll)
    schema = topic.registry.register(ORDER, type="PROTOBUF", references=[PLACE])
    topic.append(topic.registry.frame(schema, b"\0" + FULL), topic.registry.frame(schema, b"\2\0"))
    topic.land()
    (body,) = topic.objects().values()
    return body, topic


def test_parquet_has_the_columns_of_the_message() -> None:
    """Fields without presence are required, and have their default where they are absent; messages may be null."""
    body, _ = landed(Parquet())
    table = pq.read_table(io.BytesIO(body))
    required: Any = {"nullable": False}
    line = pa.struct([pa.field("price", pa.float64(), **required), pa.field("state", pa.string(), **required)])
    assert table.schema.remove_metadata() == pa.schema(
        [
            pa.field("id", pa.int64(), **required),
            pa.field("state", pa.string(), **required),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("first", line),
            pa.field("lines", pa.list_(pa.field("element", line, **required)), **required),
            pa.field("more", pa.map_(pa.string(), pa.field("value", pa.int32(), **required)), **required),
            pa.field("note", pa.string()),
            pa.field("place", pa.struct([pa.field("key", pa.binary(), **required)])),
            pa.field("code", pa.string()),
        ]
    )
    first, second = table.to_pylist()
    assert first == {
        "id": 7, "state": "DONE", "at": AT, "first": {"price": 1.5, "state": "DONE"},
        "lines": [{"price": 0.0, "state": "NEW"}, {"price": 0.0, "state": "DONE"}], "more": [("k", 3)], "note": "n",
        "place": {"key": b"z"}, "code": None,
    }  # fmt: skip
    assert second == {
        "id": 0, "state": "NEW", "at": None, "first": None, "lines": [], "more": [], "note": None, "place": None,
        "code": None,
    }  # fmt: skip


def test_avro_files_are_read_by_other_readers() -> None:
    """Records have the full names of the messages, also where a file without a package nests them."""
    body, _ = landed(AvroContainer(), value_converter=ProtobufConverter(unsigned="decimal", timestamps="record"))
    reader: Any = fastavro.reader(io.BytesIO(body))
    first, second = list(reader)
    assert reader.writer_schema["name"] == "Order"
    assert (first["id"], first["state"], first["first"]) == (Decimal(7), "DONE", {"price": 1.5, "state": "DONE"})
    assert first["at"] == {"seconds": int(AT.timestamp()), "nanos": 678_901_999}
    assert (first["more"], first["place"], first["code"]) == ({"k": 3}, {"key": b"z"}, None)
    assert (second["id"], second["lines"], second["at"]) == (Decimal(0), [], None)


def test_json_lines_are_those_of_kafka_connect() -> None:
    """All fields in the order of the file, null ones included."""
    body, _ = landed(JsonLines())
    first, second = (json.loads(line) for line in body.splitlines())
    assert list(first) == ["id", "state", "at", "first", "lines", "more", "note", "place", "code"]
    assert (first["at"], first["place"], first["more"]) == (round(AT.timestamp() * 1e6), {"key": "eg=="}, {"k": 3})
    assert second == {
        "id": 0, "state": "NEW", "at": None, "first": None, "lines": [], "more": {}, "note": None, "place": None,
        "code": None,
    }  # fmt: skip


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()])
def test_a_rerun_in_other_batches_and_without_the_registry_gives_the_same_objects(record_format: Any) -> None:
    """The schemas and what they refer to are pinned."""
    body, topic = landed(record_format)
    assert landed(record_format, records_per_poll=1)[0] == body
    before = topic.objects()
    topic.registry._schemas.clear()
    topic.restore(*before)
    assert topic.objects() == before


FAULTS: Final = [
    (b"\0\x10\x07", "the field Order.state has a number that State does not name"),
    (b"\0\x08" + b"\xff" * 9 + b"\x01", "the field Order.id is above 2^63 - 1"),
    (b"\0\x4a\x01\xff\x4a\x01a", "the field Order.code is not UTF-8"),
    (b"\0\x22\x05\x09", "its bytes are no such message"),
    (b"\7", "does not have the indexes of a message"),
    (b"\0\x1a\x08\x08\x80\x80\x80\x80\x80\x80\x08", "the field Order.at is a time outside the years 1 to 9999"),
]


@pytest.mark.parametrize("records_per_poll", [1, 2, 100])
def test_dead_letters_do_not_depend_on_the_batches_that_are_read(records_per_poll: int) -> None:
    """What does not have its message is set aside with a reason that is the same beside any other records."""
    topic = Topic(layout(Parquet(), errors="dead_letter"), records_per_poll=records_per_poll)
    schema = topic.registry.register(ORDER, type="PROTOBUF", references=[PLACE])
    frame = topic.registry.frame
    twice = b"\0\x4a\x01a\x4a\x01b"
    bad = [b"\0", *(frame(schema, row) for row, _ in FAULTS), frame(77, b"\0"), frame(schema, b"\0\x4a\x01\xff")]
    topic.append(frame(schema, twice), *bad, frame(schema, b"\0"))
    (batch,) = topic.land().batches
    assert (batch.records, batch.dead_letters) == (2, len(bad))
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    words = ["header", *(why for _, why in FAULTS), "no schema 77", "the field Order.code is not UTF-8"]
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons


def test_an_invalid_value_is_an_error_with_its_offset_by_default() -> None:
    """Nothing is landed."""
    topic = Topic(layout(Parquet()))
    schema = topic.registry.register(ORDER, type="PROTOBUF", references=[PLACE])
    topic.append(topic.registry.frame(schema, b"\0"), topic.registry.frame(schema, b"\0\x10\x07"))
    with pytest.raises(
        RecordError, match=r"topic 'orders', partition 0, offset 1: .*a number that State does not name"
    ):
        topic.land()
    assert topic.objects() == {}


def test_csv_has_messages_without_others_inside() -> None:
    """And a message with others is an error, not a dead letter."""
    topic = Topic(layout(Csv(null="NULL"), errors="dead_letter"))
    schema = topic.registry.register("message M { optional string a = 1; required bool b = 2; }", type="PROTOBUF")
    topic.append(topic.registry.frame(schema, b"\0\x10\x01"), topic.registry.frame(schema, b"\0\x0a\x01x\x10\x00"))
    topic.land()
    assert list(topic.objects().values()) == [b"a,b\nNULL,true\nx,false\n"]
    with pytest.raises(ConfigurationError, match="message Order"):
        landed(Csv(), errors="dead_letter")


def test_the_converter_does_not_go_with_formats_without_a_schema() -> None:
    """When the DAG is parsed."""
    with pytest.raises(ConfigurationError, match=r"ProtobufConverter.* not go with format=RawBytes"):
        Layout(format=RawBytes(), value_converter=ProtobufConverter())
