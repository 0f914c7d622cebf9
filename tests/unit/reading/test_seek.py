"""Landed records are found by their offset: in every format, with gaps, across objects and batches, by few requests."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import (
    AvroCodec,
    AvroContainer,
    BlockGzip,
    ByField,
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
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    ForeignObjectError,
    MissingObjectError,
)
from airflow_provider_kafka_s3.reading.seek import SoughtRecord, seek
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.unit.batch.simulated_topic import Topic

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)
TYPED = JsonConverter(schema=SCHEMA)


def topic_of(layout: Layout, **more: Any) -> Topic:
    """An empty topic of one partition."""
    return Topic(layout, records_per_poll=more.pop("records_per_poll", 7), **more)


def layout_of(record_format: Any, **more: Any) -> Layout:
    """A layout of the tests."""
    return Layout(topics_dir="lake", format=record_format, **more)


def number(n: int) -> bytes:
    """A value."""
    return b'{"n":%d,"note":"x%d"}' % (n, n)


def offsets(found: list[SoughtRecord]) -> list[int | None]:
    """Offsets of found records."""
    return [record.offset for record in found]


def plain(record: SoughtRecord) -> dict[str, Any]:
    """The line of a record, parsed."""
    line: dict[str, Any] = json.loads(record.line())
    return line


def counted(topic: Topic) -> tuple[TopicLog, FaultyStore, list[int]]:
    """A new process whose requests, and bytes of objects, are counted."""
    store, sizes = FaultyStore(topic.bucket), [0]
    get = store.get

    def counting(key: str, **place: Any) -> Any:
        stored = get(key, **place)
        if stored is not None and "/_kafka_s3/" not in key:
            sizes[0] += len(stored.body)
        return stored

    store.get = counting  # type: ignore[method-assign]
    log = TopicLog(DurableStore(store, Retrier()), topics_dir="lake", pipeline="orders-to-lake", topic="orders")
    return log, store, sizes


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


def test_offsets_without_a_record_are_passed_over() -> None:
    """As by a consumer: markers of transactions and null values that were left out, with an index that has the gaps."""
    topic = topic_of(layout_of(BlockGzip(lines=JsonLines(on_null="ignore"))))
    topic.append(b"0", None, None, b"3", b"4", None, b"6")
    topic.land()
    assert offsets(seek(topic.pipeline.log, 0, 1)) == [3]
    assert offsets(seek(topic.pipeline.log, 0, 0, records=9)) == [0, 3, 4, 6]
    assert [plain(r)["value"] for r in seek(topic.pipeline.log, 0, 4, records=2)] == [4, 6]


def test_the_end_of_a_batch_may_have_no_records() -> None:
    """Nothing is found behind the last one, which is no error: the offset is landed."""
    topic = topic_of(layout_of(JsonLines(on_null="ignore")))
    topic.append(b"0", None)
    topic.land()
    assert seek(topic.pipeline.log, 0, 1) == []


def test_what_is_not_known_is_an_error_and_the_whole_object_is_there_on_request() -> None:
    """Lines keep no offsets: with gaps only the first and the last record of an object are known."""
    topic = topic_of(layout_of(JsonLines(on_null="ignore")))
    topic.append(b"0", None, b"2", b"3", None, b"5")
    topic.land()
    log = topic.pipeline.log
    assert [plain(seek(log, 0, n)[0])["value"] for n in (0, 5)] == [0, 5]
    with pytest.raises(ConfigurationError) as error:
        seek(log, 0, 2)
    assert (
        "topic 'orders', partition 0: which record has offset 2 is not known. Its object has 4 records with offsets "
        "from 0 to 5, so there are gaps between them, and its format keeps no offsets"
    ) in str(error.value)
    assert "use --whole-block (whole_block=True): s3://memory/lake/orders/partition=0/" in str(error.value)
    found = seek(log, 0, 2, whole_block=True)
    assert [(r["offset"], r["offset_between"], r["value"]) for r in map(plain, found)] == [
        (None, [0, 6], value) for value in (0, 2, 3, 5)
    ]
    with pytest.raises(ConfigurationError, match="which record has offset 1 is not known"):
        seek(log, 0, 0, records=2)


def test_of_two_records_with_a_gap_both_are_known() -> None:
    """They are the first and the last one of their object."""
    topic = topic_of(layout_of(JsonLines(on_null="ignore")))
    topic.append(b"0", None, b"2")
    topic.land()
    assert offsets(seek(topic.pipeline.log, 0, 0, records=5)) == [0, 2]


def test_of_a_block_with_too_many_gaps_the_block_is_there_on_request() -> None:
    """Not the whole object: the others are not read."""
    topic = topic_of(layout_of(BlockGzip(lines=JsonLines(on_null="ignore"), block_size=7000)), records_per_poll=5000)
    topic.append(*(b"%d" % n if n % 2 == 0 else None for n in range(6000)))
    topic.land()
    log, store, _ = counted(topic)
    with pytest.raises(ConfigurationError, match=r"which record has offset 4 is not known\. Its block has 1,511"):
        seek(log, 0, 4)
    before = len(store.requests)
    found = seek(log, 0, 4, whole_block=True)
    assert [record.raw for record in found[:3]] == [b"0", b"2", b"4"]
    assert {record.between for record in found} == {(0, 2 * len(found) - 1)}
    assert len(found) < 2000
    # The marker, the index and the block; plan and manifest do not change.
    assert len(store.requests) - before == 3


def test_records_of_several_objects_are_merged_by_their_offsets() -> None:
    """A partitioner by field gives each object gaps, which its index has."""
    topic = topic_of(layout_of(BlockGzip(block_size=60), partitioner=ByField(names=["k"])))
    topic.append(*(b'{"k":%d,"n":%d}' % (n % 3, n) for n in range(40)))
    topic.land()
    found = seek(topic.pipeline.log, 0, 11, records=17)
    assert [(r["offset"], r["value"]["n"]) for r in map(plain, found)] == [(n, n) for n in range(11, 28)]


def test_candidates_of_several_objects_are_all_there_on_request() -> None:
    """Which of them has the offset is not known either."""
    topic = topic_of(layout_of(JsonLines(), partitioner=ByField(names=["k"])))
    topic.append(*(b'{"k":%d,"n":%d}' % (n % 2, n) for n in range(10)))
    topic.land()
    with pytest.raises(ConfigurationError, match="which record has offset 5 is not known"):
        seek(topic.pipeline.log, 0, 5)
    found = seek(topic.pipeline.log, 0, 5, whole_block=True)
    assert sorted(plain(r)["value"]["n"] for r in found) == list(range(10))
    assert {r.between for r in found} == {(0, 9), (1, 10)}


def test_an_object_without_gaps_is_believed_before_others_whose_offsets_overlap() -> None:
    """Its offsets are in no other object, so those are read where it ends only."""
    topic = topic_of(layout_of(JsonLines(), partitioner=ByField(names=["k"])))
    folders = [0, 1, 2, 2, 2, 2, 0, 1, 0]
    topic.append(*(b'{"k":%d,"n":%d}' % (k, n) for n, k in enumerate(folders)))
    topic.land()
    for n, count in ((2, 4), (3, 1), (5, 1)):
        found = seek(topic.pipeline.log, 0, n, records=count)
        assert [(r["offset"], r["value"]["n"]) for r in map(plain, found)] == [(o, o) for o in range(n, n + count)]
    with pytest.raises(ConfigurationError, match="which record has offset 6 is not known"):
        seek(topic.pipeline.log, 0, 5, records=2)


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


def test_a_missing_object_is_named_with_the_command_that_writes_it_again() -> None:
    """The object of a committed batch, or its index."""
    topic = topic_of(layout_of(BlockGzip()))
    topic.append(b"0")
    topic.land()
    for key in topic.objects():
        kept = topic.objects()[key]
        topic.bucket.delete(key)
        with pytest.raises(MissingObjectError, match=r"is gone\. Write it again.*verify.*--restore.*s3://memory/lake"):
            seek(topic.pipeline.log, 0, 0)
        topic.bucket.put_new(key, kept)


def test_a_loss_that_was_accepted_is_named() -> None:
    """Of a deleted object."""
    topic = topic_of(layout_of(JsonLines()))
    topic.append(b"0")
    topic.land()
    (key,) = topic.objects()
    topic.bucket.delete(key)
    topic.pipeline.accept_deleted(1, reason="test", operator="me")
    with pytest.raises(DataLossError, match="an object of topic 'orders', batch 1 was accepted as lost"):
        seek(topic.pipeline.log, 0, 0)


def test_blocks_whose_index_was_accepted_as_lost_are_read_as_a_whole() -> None:
    """Nothing of the records is lost with it."""
    topic = topic_of(layout_of(BlockGzip(block_size=10)))
    topic.append(*(b"%d" % n for n in range(30)))
    topic.land()
    topic.bucket.delete(next(key for key in topic.objects() if key.endswith(".index.json")))
    topic.pipeline.accept_deleted(1, reason="test", operator="me")
    assert [plain(r)["value"] for r in seek(topic.pipeline.log, 0, 11, records=3)] == [11, 12, 13]


def test_objects_with_the_names_of_deviantart_are_read() -> None:
    """The key has no folder of the topic."""
    naming = DeviantArtNaming()
    record_format = BlockGzip(lines=RawBytes(extension=""), block_size=10)
    topic = topic_of(layout_of(record_format, naming=naming, partitioner=default_partitioner(naming)))
    topic.append(*(b"%d" % n for n in range(30)), timestamp=1)
    topic.land()
    (found,) = seek(topic.pipeline.log, 0, 21)
    assert (found.object, found.value) == ("lake/1970-01-01/orders-00000-000000000000.gz", "21")


@pytest.mark.parametrize("change", ["index", "object", "size"])
def test_damaged_objects_are_errors(change: str) -> None:
    """Nothing is guessed from them."""
    topic = topic_of(layout_of(BlockGzip(block_size=10)))
    topic.append(*(b"%d" % n for n in range(30)))
    topic.land()
    key = next(k for k in topic.objects() if k.endswith(".index.json") == (change == "index"))
    body = topic.objects()[key]
    damaged = body[:20] + bytes([body[20] ^ 1]) + body[21:] if change != "size" else body[:25]
    topic.bucket.delete(key)
    topic.bucket.put_new(key, damaged)
    with pytest.raises(ForeignObjectError, match="cannot be read: "):
        seek(topic.pipeline.log, 0, 0)


def test_values_that_hold_the_separator_are_an_error() -> None:
    """Their records cannot be told apart."""
    topic = topic_of(layout_of(RawBytes()))
    topic.append(b"a\nb", b"c")
    topic.land()
    with pytest.raises(ForeignObjectError, match="it has 3 parts for 2 records: values hold the separator"):
        seek(topic.pipeline.log, 0, 0)


VALUES = st.lists(st.one_of(st.none(), st.integers(0, 10**30)), min_size=1, max_size=25)


@given(values=VALUES, block_size=st.integers(1, 80), start=st.integers(0, 24), records=st.integers(1, 30))
def test_any_part_of_a_topic_of_blocks_is_read_exactly(
    values: list[int | None], block_size: int, start: int, records: int
) -> None:
    """Whatever is null and left out, and wherever blocks end."""
    topic = topic_of(layout_of(BlockGzip(lines=JsonLines(on_null="ignore"), block_size=block_size)))
    topic.append(*(None if value is None else b"%d" % value for value in values))
    topic.land(limits=Limits(records_per_slice=10))
    start %= len(values)
    expected = [(n, b"%d" % value) for n, value in enumerate(values) if value is not None and n >= start][:records]
    found = seek(topic.pipeline.log, 0, start, records=records)
    assert [(record.offset, record.raw) for record in found] == expected
