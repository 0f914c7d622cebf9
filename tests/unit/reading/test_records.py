"""Records are read from objects as Kafka had them: keys, values, headers, timestamps and offsets."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.object_metadata import CONTENT_METADATA, CRC32_METADATA
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    BytesConverter,
    CompressionName,
    Csv,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    SiblingObjects,
    StringConverter,
    ValuesOnly,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, MissingObjectError
from airflow_provider_kafka_s3.reading.record import Record
from airflow_provider_kafka_s3.reading.records import kept_parts, read_records, record_objects
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from tests.unit.batch.simulated_topic import Topic
from tests.unit.reading import landed_records
from tests.unit.reading.landed_records import Sent

COMPRESSIONS: tuple[CompressionName, ...] = ("none", "gzip", "zstd", "bzip2")
TEXT = StringConverter()
BYTES = BytesConverter()
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]})


def layout_of(record_format: Any, **more: Any) -> Layout:
    """A layout of the tests."""
    return Layout(topics_dir="lake", format=record_format, **more)


WHOLE: Mapping[str, Layout] = {
    **{
        f"{kind} {converter.__struct_config__.tag}": layout_of(
            record_format, content=Envelope(), value_converter=converter, key_converter=converter
        )
        for kind, record_format in {
            **{f"json {name}": JsonLines(compression=name, on_null="write") for name in COMPRESSIONS},
            "avro": AvroContainer(codec="snappy", on_null="write"),
            "parquet": Parquet(on_null="write"),
            "blocks": BlockGzip(lines=JsonLines(on_null="write"), block_size=150),
        }.items()
        for converter in (BYTES, TEXT)
    },
}
VALUES: Mapping[str, Layout] = {
    **{f"bytes {name}": layout_of(RawBytes(compression=name, separator="\r\n")) for name in COMPRESSIONS},
    "json of bytes": layout_of(JsonLines(), value_converter=BYTES),
    "json of text": layout_of(JsonLines(compression="gzip"), value_converter=TEXT),
    "avro": layout_of(AvroContainer(), value_converter=BYTES),
    "parquet": layout_of(Parquet(), value_converter=BYTES),
    "blocks": layout_of(BlockGzip(lines=RawBytes(separator="\r\n"), block_size=60)),
}
BESIDE: Mapping[str, Layout] = {
    f"{kind} {beside}": layout_of(
        record_format,
        value_converter=TEXT,
        key_converter=BYTES if beside == "bytes" else TEXT,
        content=SiblingObjects(keys=keys, headers=AvroContainer() if beside == "avro" else JsonLines()),
    )
    for kind, record_format in {"json": JsonLines(on_null="write"), "parquet": Parquet(on_null="write")}.items()
    for beside, keys in {"json": JsonLines(), "bytes": RawBytes(), "avro": AvroContainer()}.items()
}


def land(layout: Layout, sent: Sequence[Sent], partitions: int = 1) -> Topic:
    """A topic with these records in each partition, landed."""
    return landed_records.land(layout, sent, partitions=partitions, records_per_slice=8)


def read(topic: Topic) -> list[Record]:
    """All landed records, in the order of partitions and offsets."""
    found = landed_records.read(topic)
    return sorted(found, key=lambda record: (record.partition, -1 if record.offset is None else record.offset))


TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=6).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=3), TEXTS), max_size=2).map(tuple)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_whole_records_are_read_as_kafka_had_them(name: str, data: st.DataObject) -> None:
    """Nulls, empty values, equal keys, headers without values, and the offsets behind gaps."""
    some = st.binary(max_size=9) if name.endswith(" bytes") else TEXTS
    headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=4)), max_size=2).map(tuple)
    record = st.tuples(st.none() | some, st.none() | some, headers, st.integers(0, 2**41))
    sent = data.draw(st.lists(record, min_size=1, max_size=20))
    expected = [Record(p, n, t, k, v, h) for p in (0, 1) for n, (k, v, h, t) in enumerate(sent)]
    assert read(land(WHOLE[name], sent, 2)) == expected


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=5, deadline=None)
@given(sent=st.lists(TEXTS, min_size=1, max_size=20))
def test_values_are_read_as_kafka_had_them(name: str, sent: list[bytes]) -> None:
    """With their offsets, where these have no gaps."""
    topic = land(VALUES[name], [(b"k", value, (), 5) for value in sent])
    assert read(topic) == [Record(0, n, None, None, value) for n, value in enumerate(sent)]


@pytest.mark.parametrize("name", BESIDE)
@settings(max_examples=5, deadline=None)
@given(sent=st.lists(st.tuples(TEXTS, st.none() | TEXTS, HEADERS), min_size=1, max_size=20))
def test_keys_and_headers_beside_values_are_read_with_them(name: str, sent: list[Any]) -> None:
    """Also those of null values, which have no object of values."""
    topic = land(BESIDE[name], [(*record, 5) for record in sent])
    found = sorted((r.key, r.value or b"", r.value is None, r.headers) for r in read(topic))
    assert found == sorted((key, value or b"", value is None, headers) for key, value, headers in sent)
    assert all(r.offset is None or (r.key, r.value, r.headers) == sent[r.offset] for r in read(topic))


@pytest.mark.parametrize("content", [ValuesOnly(), Envelope()], ids=["values", "envelope"])
def test_json_documents_are_read_byte_for_byte(content: Any) -> None:
    """Also white space around and in a document, numbers, and escapes."""
    documents = [b' {"a" : 1.0e2}\t', b"null", b'"\\u0041"', b"[ 1 , 2 ]", b'{"key":1,"value":{}}']
    layout = layout_of(JsonLines(), content=content, value_converter=JsonConverter())
    assert [r.value for r in read(land(layout, [(b"k", d, (), 1) for d in documents]))] == documents


def test_a_value_of_a_megabyte_is_read_across_pieces_and_requests() -> None:
    """The separator lies on the border of pieces in one of the objects."""
    for size in range(1024 * 1024 - 3, 1024 * 1024 + 2):
        values = [b"x" * size, b"", b"y" * 5 * 1024 * 1024, b"z"]
        layout = layout_of(RawBytes(separator="\r\n"))
        assert [r.value for r in read(land(layout, [(None, v, (), 1) for v in values]))] == values


def test_offsets_with_gaps_are_unknown_unless_they_are_kept() -> None:
    """Envelopes and indices of blocks keep them."""
    for layout, known in (
        (layout_of(RawBytes()), False),
        (layout_of(BlockGzip(lines=RawBytes())), True),
        (layout_of(JsonLines(), content=Envelope(), value_converter=TEXT), True),
    ):
        topic = Topic(layout)
        topic.append(b"1", b"2")
        topic.kafka.append_marker("orders", 0)
        topic.append(b"3", b"4")
        topic.land()
        expected = [0, 1, 3, 4] if known else [None] * 4
        assert [(r.offset, r.value) for r in read(topic)] == list(zip(expected, [b"1", b"2", b"3", b"4"], strict=True))


def test_offsets_of_blocks_with_thousands_of_gaps_are_known() -> None:
    """The index has them in the form of runs."""
    topic = Topic(layout_of(BlockGzip(lines=RawBytes(on_null="ignore"), block_size=40_000)), records_per_poll=5000)
    topic.append(*(b"%d" % n if n % 7 in (0, 2, 3) else None for n in range(30_000)))
    topic.land()
    expected = [(n, b"%d" % n) for n in range(30_000) if n % 7 in (0, 2, 3)]
    assert [(r.offset, r.value) for r in read(topic)] == expected


def test_dead_letters_are_read_as_whole_records() -> None:
    """They keep everything."""
    topic = land(layout_of(JsonLines(), errors="dead_letter"), [(b"k", b"{", (("h", None),), 7), (b"k", b"{}", (), 8)])
    assert read(topic) == [Record(0, 0, 7, b"k", b"{", (("h", None),)), Record(0, 1, None, None, b"{}")]


def test_a_value_with_the_separator_is_refused_before_a_record_is_read() -> None:
    """The rows are counted first."""
    topic = land(layout_of(RawBytes()), [(None, b"1", (), 1), (None, b"2\n3", (), 1)])
    log = topic.pipeline.log
    plan, decision = log.require_plan(1)[0], log.require_decision(1)[0]
    (entry,) = record_objects(log, plan, decision)
    with pytest.raises(ForeignObjectError, match="more rows for 2 records: values hold the separator"):
        next(read_records(log, plan, decision, entry))


def test_damaged_and_missing_objects_are_refused() -> None:
    """The error names the object."""
    topic = land(layout_of(RawBytes()), [(None, b"1", (), 1)])
    (key,) = topic.objects()
    topic.bucket.delete(key)
    with pytest.raises(MissingObjectError, match=r"orders\+0\+"):
        read(topic)
    DurableStore(topic.bucket, Retrier()).create(key, b"2\n")
    with pytest.raises(ForeignObjectError, match="not those in the manifest"):
        read(topic)


def test_an_object_that_was_written_again_with_other_bytes_is_read() -> None:
    """As by another version of a compressor: its metadata have their checksum, if they have the same records."""
    topic = land(layout_of(JsonLines(compression="gzip"), content=Envelope()), [(b"k", b"1", (), 1)])
    expected = read(topic)
    ((key, body),) = topic.objects().items()
    (entry,) = topic.pipeline.log.require_decision(1)[0].objects
    other = body[:9] + bytes([body[9] ^ 1]) + body[10:]  # the system, in the header of gzip
    metadata = {CONTENT_METADATA: entry.content, CRC32_METADATA: f"{zlib.crc32(other):08x}"}
    topic.bucket.delete(key)
    topic.bucket.put_new(key, other, metadata=metadata)
    assert read(topic) == expected
    topic.bucket.delete(key)
    topic.bucket.put_new(key, other, metadata={**metadata, CONTENT_METADATA: "others"})
    with pytest.raises(ForeignObjectError, match="not those in the manifest"):
        read(topic)


@pytest.mark.parametrize("other", [b'"num_records":7', b'"num_records":{'], ids=["fewer records", "no JSON"])
def test_another_index_than_that_of_the_batch_is_refused(other: bytes) -> None:
    """No record is left out without a word."""
    layout = layout_of(BlockGzip(lines=RawBytes(), block_size=60))
    topic = land(layout, [(None, b"%d" % n, (), 1) for n in range(8)])
    (index,) = (key for key in topic.objects() if key.endswith(".index.json"))
    body = topic.objects()[index]
    topic.bucket.delete(index)
    topic.bucket.put_new(index, body.replace(b'"num_records":8', other))
    assert topic.objects()[index] != body
    with pytest.raises(ForeignObjectError, match=r"not those in the manifest.*index\.json"):
        read(topic)


@pytest.mark.parametrize(
    ("layout", "missing"),
    [
        (layout_of(JsonLines()), {"key", "headers", "timestamp", "offset"}),
        (layout_of(JsonLines(), content=SiblingObjects()), {"headers", "timestamp", "offset"}),
        (layout_of(JsonLines(), content=Envelope()), set()),
        (
            layout_of(JsonLines(), content=Envelope(), key_converter=JsonConverter(schema=SCHEMA)),
            {"key"},
        ),
        (
            layout_of(Parquet(), value_converter=JsonConverter(schema=SCHEMA)),
            {"value", "key", "headers", "timestamp", "offset"},
        ),
        (layout_of(RawBytes(separator="aba")), {"value", "key", "headers", "timestamp", "offset"}),
    ],
)
def test_what_a_layout_does_not_keep_has_a_reason(layout: Layout, missing: set[str]) -> None:
    """Before anything is read."""
    kept = kept_parts(layout)
    assert set(kept.missing) == missing
    assert kept.kept == {"key", "value", "headers", "timestamp", "offset"} - missing


def test_values_that_were_decoded_are_refused() -> None:
    """Their bytes are not those of Kafka."""
    layout = layout_of(Csv(), value_converter=JsonConverter(schema=SCHEMA))
    with pytest.raises(ConfigurationError, match="writes fields, not the bytes"):
        read(land(layout, [(None, b'{"n":1}', (), 1)]))


@pytest.mark.parametrize("name", ["json zstd bytes", "avro bytes", "parquet bytes", "blocks bytes"])
def test_objects_larger_than_a_request_are_read_in_pieces(name: str) -> None:
    """All records are there, and no piece has many of them."""
    random = Random(1)
    sent: list[Sent] = [(b"%d" % n, random.randbytes(1_000_000), (), n) for n in range(11)]
    topic = Topic(WHOLE[name], 1)
    for key, value, headers, timestamp in sent:
        topic.kafka.append("orders", 0, value, timestamp, key=key, headers=headers)
    topic.land()
    log = topic.pipeline.log
    plan, decision = log.require_plan(1)[0], log.require_decision(1)[0]
    (entry,) = record_objects(log, plan, decision)
    pieces = [*read_records(log, plan, decision, entry)]
    assert [(r.key, r.value, r.headers, r.timestamp) for piece in pieces for r in piece] == sent
    assert all(sum(len(r.value or b"") for r in piece) < 6_000_000 for piece in pieces)
