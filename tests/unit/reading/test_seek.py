"""Landed records are found by their offset: in every format, across objects and batches, by few requests."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import (
    AvroCodec,
    AvroContainer,
    BlockGzip,
    CompressionName,
    Csv,
    Daily,
    DeviantArtNaming,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Limits,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
    default_partitioner,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError
from airflow_provider_kafka_s3.reading.records import kept_parts, read_records, record_objects
from airflow_provider_kafka_s3.reading.seek import seek
from tests.unit.batch.simulated_topic import Topic
from tests.unit.reading.sought_records import counted, layout_of, offsets, plain, topic_of

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)
TYPED = JsonConverter(schema=SCHEMA)


def number(n: int) -> bytes:
    """A value."""
    return b'{"n":%d,"note":"x%d"}' % (n, n)


COMPRESSIONS: tuple[CompressionName, ...] = ("none", "gzip", "zstd", "bzip2")
CODECS: tuple[AvroCodec, ...] = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
CASES: Mapping[str, Layout] = {
    **{f"json {name}": layout_of(JsonLines(compression=name)) for name in COMPRESSIONS},
    **{f"bytes {name}": layout_of(RawBytes(compression=name)) for name in COMPRESSIONS},
    **{f"csv {name}": layout_of(Csv(compression=name), value_converter=TYPED) for name in COMPRESSIONS},
    **{f"avro {name}": layout_of(AvroContainer(codec=name), value_converter=TYPED) for name in CODECS},
    "parquet": layout_of(Parquet(), value_converter=TYPED),
    "blocks": layout_of(BlockGzip(block_size=100)),
    "blocks of bytes": layout_of(BlockGzip(lines=RawBytes(), block_size=100, encoder="zlib")),
    "blocks of envelopes": layout_of(BlockGzip(block_size=400), content=Envelope()),
    **{
        f"envelopes of {settings.__struct_config__.tag}": layout_of(
            settings, content=Envelope(), value_converter=TYPED, key_converter=StringConverter()
        )
        for settings in (JsonLines(), AvroContainer(), Parquet())
    },
}


WITH_SIBLINGS = layout_of(
    JsonLines(),
    content=SiblingObjects(keys=JsonLines(), headers=JsonLines()),
    key_converter=StringConverter(),
)


@pytest.mark.parametrize("name", CASES)
def test_every_record_is_found_by_its_offset_in_every_format(name: str) -> None:
    """Alone, and with the ones behind it, across slices; the value is that of the record."""
    topic = topic_of(CASES[name])
    for n in range(20):
        topic.append(number(n), key=b"k", timestamp=n)
    topic.land(limits=Limits(records_per_slice=8))
    for n in range(20):
        (found,) = seek(topic.pipeline.log, 0, n)
        value = plain(found)["value"]
        value = json.loads(value) if isinstance(value, str) else value
        assert (found.offset, {**value, "n": int(value["n"])}) == (n, {"n": n, "note": f"x{n}"})
    assert offsets(seek(topic.pipeline.log, 0, 5, records=9)) == [*range(5, 14)]
    assert offsets(seek(topic.pipeline.log, 0, 15, records=100)) == [*range(15, 20)]


@pytest.mark.parametrize("name", [*CASES, "siblings"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_changed_bytes_of_an_object_are_an_error_that_names_it(name: str, data: st.DataObject) -> None:
    """Also those beside the values, and those that are a valid record of the format."""
    layout = WITH_SIBLINGS if name == "siblings" else CASES[name]
    topic = topic_of(layout)
    for n in range(4):
        topic.append(number(n), key=b"k", headers=[("a", b"b")], timestamp=n)
    topic.land()
    key, body = data.draw(st.sampled_from(sorted(topic.objects().items())))
    at = data.draw(st.integers(0, len(body) - 1))
    topic.bucket.delete(key)
    topic.bucket.put_new(key, body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :])
    log = topic.pipeline.log
    with pytest.raises(ForeignObjectError, match=re.escape(key)):
        seek(log, 0, 0, records=10)
    plan, decision = log.require_plan(1)[0], log.require_decision(1)[0]
    # Whoever reads all envelopes needs no index.
    needs_object = not (name == "blocks of envelopes" and key.endswith(".index.json"))
    if "value" in kept_parts(layout).kept and needs_object:
        entries = record_objects(log, plan, decision)
        with pytest.raises(ForeignObjectError, match=re.escape(key)):
            deque(
                itertools.chain.from_iterable(read_records(log, plan, decision, entry) for entry in entries), maxlen=0
            )


@pytest.mark.parametrize("name", CASES)
def test_the_beginning_of_a_longer_object_is_an_error_that_names_it(name: str) -> None:
    """It has the right number of bytes, and its format ends too early: decompressors have errors of their own."""
    layout = CASES[name]

    def landed(notes: list[str]) -> tuple[Topic, str, bytes]:
        topic = topic_of(layout)
        for n, note in enumerate(notes):
            topic.append(b'{"n":%d,"note":"%b"}' % (n, note.encode()), key=b"k", timestamp=n)
        topic.land()
        ((key, body),) = ((key, body) for key, body in topic.objects().items() if not key.endswith(".index.json"))
        return topic, key, body

    short, key, body = landed(["", ""])
    _, _, longer = landed([random.Random(n).randbytes(400).hex() for n in range(2)])
    assert len(longer) > len(body)
    short.bucket.delete(key)
    short.bucket.put_new(key, longer[: len(body)])
    log = short.pipeline.log
    with pytest.raises(ForeignObjectError, match=re.escape(key)):
        seek(log, 0, 0, records=10)
    plan, decision = log.require_plan(1)[0], log.require_decision(1)[0]
    if "value" in kept_parts(layout).kept:
        (entry,) = record_objects(log, plan, decision)
        with pytest.raises(ForeignObjectError, match=re.escape(key)):
            deque(read_records(log, plan, decision, entry), maxlen=0)


def test_a_block_is_one_request_whatever_the_size_of_the_object() -> None:
    """Marker, plan, manifest, index, block; of other formats all bytes are read."""
    values = [json.dumps({"n": n, "text": hashlib.sha256(b"%d" % n).hexdigest()}).encode() for n in range(9000)]
    found = {}
    for record_format in (BlockGzip(block_size=30_000), JsonLines(compression="gzip")):
        topic = topic_of(layout_of(record_format), records_per_poll=9000)
        topic.append(*values)
        topic.land()
        log, store, sizes = counted(topic)
        (record,) = seek(log, 0, 1234)
        assert record.raw == values[1234]
        whole = max(map(len, topic.objects().values()))
        found[record_format.__struct_config__.tag] = (Counter(r.operation for r in store.requests), sizes[0], whole)
    requests, size, whole = found["block_gzip"]
    assert requests == {"get": 5}
    assert size < whole / 10
    requests, size, whole = found["json"]
    assert requests == {"get": 4}
    assert size == whole


def test_the_batch_of_an_offset_is_found_by_few_requests_among_many() -> None:
    """Their order is that of the offsets, so half of the log is left out by each plan that is read."""
    topic = topic_of(layout_of(JsonLines()))
    for n in range(100):
        topic.append(b"%d" % n)
        topic.land(run=str(n))
    log, store, _ = counted(topic)
    assert plain(seek(log, 0, 33)[0])["value"] == 33
    assert len(store.requests) <= 1 + 7 + 2


def test_the_batch_of_a_partition_that_few_batches_have_is_found_by_the_index_of_the_log() -> None:
    """Their order does not help then: one request lists the indexes, and each of them has a hundred batches."""
    topic = topic_of(layout_of(JsonLines()), partitions=2)
    for n in range(105):
        topic.append(b"%d" % n, partition=int(n == 3))
        topic.land(run=str(n))
    log, store, _ = counted(topic)
    assert plain(seek(log, 1, 0)[0])["value"] == 3
    assert Counter(r.operation for r in store.requests)["list"] == 1
    assert len(store.requests) < 20


def test_batches_of_earlier_offsets_that_were_landed_later_are_found() -> None:
    """A backfill: the order of the batches is not that of their offsets."""
    topic = topic_of(layout_of(JsonLines()))
    topic.append(*(b"%d" % n for n in range(12)))
    for run, window in (("a", (8, 12)), ("b", (0, 4)), ("c", (4, 8))):
        request = RunRequest(run=run, offsets="data_interval", layout=topic.layout, starting=None, window={0: window})
        topic.pipeline.land(request)
    for n in range(12):
        assert plain(seek(topic.pipeline.log, 0, n)[0])["value"] == n
    assert offsets(seek(topic.pipeline.log, 0, 0, records=12)) == [*range(12)]


@pytest.mark.parametrize("record_format", [JsonLines(on_null="write"), BlockGzip(lines=JsonLines(on_null="write"))])
def test_keys_headers_and_null_values_are_found_beside_values(record_format: Any) -> None:
    """Null values have no object of values; with an index their offsets are known in the others."""
    content = SiblingObjects(keys=JsonLines(), headers=AvroContainer())
    topic = topic_of(layout_of(record_format, content=content, key_converter=StringConverter()))
    for n, value in enumerate([b"0", b"1", None, None]):
        topic.append(value, key=b"k%d" % n, headers=[("h", b"%d" % n)])
    topic.land()
    found = [plain(r) for r in seek(topic.pipeline.log, 0, 0, records=9)]
    assert [(r["offset"], r["key"], r["headers"][0]["value"], r["value"]) for r in found] == [
        (n, f"k{n}", str(n), n if n < 2 else None) for n in range(4)
    ]
    assert ["tombstone" in r["object"] for r in found] == [False, False, True, True]


def test_headers_of_json_lines_are_found() -> None:
    """Without keys, too."""
    topic = topic_of(layout_of(JsonLines(), content=SiblingObjects(keys=None, headers=JsonLines())))
    topic.append(b"0", headers=[("h", b"x")])
    topic.land()
    found = plain(seek(topic.pipeline.log, 0, 0)[0])
    assert found["headers"] == [{"key": "h", "value": "x"}]
    assert "key" not in found


def test_an_envelope_has_all_of_a_record_and_its_offset() -> None:
    """So gaps are no matter."""
    topic = topic_of(layout_of(JsonLines(on_null="write"), content=Envelope(), errors="dead_letter"))
    for n, value in enumerate([b"0", None, b"no JSON", b"3"]):
        topic.append(value, key=b"k", timestamp=n, headers=[("h", b"x")])
    topic.land()
    found = [plain(r) for r in seek(topic.pipeline.log, 0, 0, records=4)]
    assert [(r["offset"], r["value"], r["timestamp"]) for r in found] == [
        (0, 0, 0),
        (1, None, 1),
        (2, "no JSON", 2),
        (3, 3, 3),
    ]
    assert found[2]["dead_letter"].startswith("the value is not a JSON document")
    assert found[0]["headers"] == [{"key": "h", "value": "eA=="}]


def test_records_of_merged_partitions_are_found() -> None:
    """An object has those of one partition behind those of another."""
    layout = layout_of(JsonLines(), partitioner=Daily(), rotation=Rotation(merge_partitions=True))
    topic = Topic(layout, 3)
    for p in range(3):
        topic.append(*(b"%d%d" % (p + 1, n) for n in range(5)), partition=p, timestamp=0)
    topic.land()
    for p in range(3):
        found = seek(topic.pipeline.log, p, 1, records=3)
        assert [(r.partition, r.offset, plain(r)["value"]) for r in found] == [
            (p, n, 10 * p + 10 + n) for n in (1, 2, 3)
        ]


def test_records_of_an_earlier_generation_are_found() -> None:
    """The topic was created again, so the same offset is two records."""
    topic = topic_of(layout_of(JsonLines()))
    topic.append(b'"old"', b'"only old"')
    topic.land("first")
    topic.kafka.delete_topic("orders")
    topic.kafka.create_topic("orders", 1)
    topic.pipeline.reset(operator="me")
    topic.append(b'"new"')
    topic.land("second")
    log = topic.pipeline.log
    assert [plain(seek(log, 0, 0, generation=g)[0])["value"] for g in (0, 1, None)] == ["old", "new", "new"]
    assert plain(seek(log, 0, 1, generation=0)[0])["value"] == "only old"
    with pytest.raises(ConfigurationError, match="offset 1 is not landed"):
        seek(log, 0, 1)
    with pytest.raises(ConfigurationError, match="has no generation 2: it was reset 1 time"):
        seek(log, 0, 0, generation=2)


def test_bytes_that_are_no_text_are_base64() -> None:
    """JSON has text only; the raw bytes are there as well."""
    topic = topic_of(layout_of(RawBytes()))
    topic.append(b"\xff\x00", "é".encode())
    topic.land()
    found = seek(topic.pipeline.log, 0, 0, records=2)
    assert [plain(r)["value"] for r in found] == [{"base64": "/wA="}, "é"]
    assert found[0].raw == b"\xff\x00"


def test_documents_are_printed_as_they_were() -> None:
    """Numbers keep their digits, and members their order."""
    topic = topic_of(layout_of(JsonLines()))
    topic.append(b'{"b": 1.10, "a": 123456789012345678901234567890}', '"\x9b2J\u2028é"'.encode())
    topic.land()
    first, second = seek(topic.pipeline.log, 0, 0, records=2)
    assert '"value":{"b": 1.10, "a": 123456789012345678901234567890}' in first.line()
    # What a terminal would act on is escaped, and means the same.
    assert r'"value":"\u009b2J\u2028é"' in second.line()
    assert plain(second)["value"] == "\x9b2J\u2028é"


@pytest.mark.parametrize(("partition", "offset"), [(0, 3), (0, -1), (1, 0), (-1, 0)])
def test_an_offset_that_is_not_landed_is_an_error(partition: int, offset: int) -> None:
    """It names what is landed."""
    topic = topic_of(layout_of(JsonLines()))
    topic.append(b"0", b"1", b"2")
    topic.land()
    with pytest.raises(ConfigurationError, match=f"partition {partition}, offset {offset} is not landed: "):
        seek(topic.pipeline.log, partition, offset)


def test_objects_with_the_names_of_deviantart_are_read() -> None:
    """The key has no folder of the topic."""
    naming = DeviantArtNaming()
    record_format = BlockGzip(lines=RawBytes(extension=""), block_size=10)
    topic = topic_of(layout_of(record_format, naming=naming, partitioner=default_partitioner(naming)))
    topic.append(*(b"%d" % n for n in range(30)), timestamp=1)
    topic.land()
    (found,) = seek(topic.pipeline.log, 0, 21)
    assert (found.object, found.value) == ("lake/1970-01-01/orders-00000-000000000000.gz", "21")


def test_values_that_hold_the_separator_are_an_error() -> None:
    """Their records cannot be told apart."""
    topic = topic_of(layout_of(RawBytes()))
    topic.append(b"a\nb", b"c")
    topic.land()
    with pytest.raises(ForeignObjectError, match="it has 3 parts for 2 records: values hold the separator"):
        seek(topic.pipeline.log, 0, 0)
