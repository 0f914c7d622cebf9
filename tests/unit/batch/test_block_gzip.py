"""Objects of blocks and their indices: the vectors, any records, what a reader finds, and what a lost object needs.

The reader here is made from the description of the format alone, and from nothing of the package.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BlockGzip,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    ObjectTags,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
    parse_content,
    parse_format,
)
from airflow_provider_kafka_s3.documents.addresses import marker_key
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError, MissingObjectError
from airflow_provider_kafka_s3.formats import block_gzip, block_offsets
from airflow_provider_kafka_s3.formats.block_offsets import MAX_RANGES
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from tests.unit.batch.simulated_topic import Topic

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "vectors" / "block_gzip.json").read_text())["cases"]
}
HEADER = bytes.fromhex("1f8b08000000000000ff")
THEIRS = ["byte_length_uncompressed", "num_records", "byte_length", "byte_offset", "first_record_offset"]
SMALL = BlockGzip(lines=RawBytes(), block_size=10)


def landed(record_format: BlockGzip, *values: bytes | None, **layout: Any) -> Topic:
    """A topic of one partition whose values were landed by one run."""
    topic = Topic(Layout(topics_dir="lake", format=record_format, **layout))
    topic.append(*values)
    topic.land()
    return topic


def entries_of(topic: Topic) -> dict[str, ObjectEntry]:
    """The objects of batch 1 by their keys."""
    manifest = topic.pipeline.log.read_manifest(1)
    assert manifest is not None
    return {entry.key: entry for entry in manifest.objects}


def pair(topic: Topic) -> tuple[str, str]:
    """The key of the only object, and that of its index."""
    index, data = sorted(topic.objects(), key=lambda key: not key.endswith(".index.json"))
    return data, index


def chunks_of(topic: Topic) -> list[dict[str, Any]]:
    """What the only index has."""
    return json.loads(topic.objects()[pair(topic)[1]])["chunks"]  # type: ignore[no-any-return]


def records_at(body: bytes, index: bytes, offset: int) -> tuple[int, list[bytes]]:
    """First offset and records, each a line, of the block with an offset: one piece of the object is read."""
    chunk = next(c for c in json.loads(index)["chunks"] if c["first_record_offset"] <= offset < c["next_record_offset"])
    block = body[chunk["byte_offset"] :][: chunk["byte_length"]]
    inflate = zlib.decompressobj(31)
    text = inflate.decompress(block)
    assert inflate.eof
    assert inflate.unused_data == b""
    return chunk["first_record_offset"], [line + b"\n" for line in text.split(b"\n")[:-1]]


# -- settings ---------------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    """JSON lines in blocks of 64 MiB, by the fast encoder; a plan has the level itself."""
    made = parse_format("block_gzip")
    assert made == BlockGzip(lines=JsonLines(), block_size=64 * 1024 * 1024, encoder="isal", compression_level=2)
    assert BlockGzip(encoder="zlib").compression_level == 6
    assert (BlockGzip().object_extension, SMALL.object_extension) == (".json.gz", ".bin.gz")
    assert BlockGzip(lines=RawBytes(extension="")).object_extension == ".gz"


def test_a_mapping_may_have_its_lines_as_a_kind_or_a_mapping() -> None:
    """As the format itself."""
    assert parse_format({"kind": "block_gzip", "lines": "bytes"}) == BlockGzip(lines=RawBytes())
    given = {"kind": "block_gzip", "lines": {"kind": "bytes", "extension": ""}, "encoder": "zlib"}
    assert parse_format(given) == BlockGzip(lines=RawBytes(extension=""), encoder="zlib")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lines": {"kind": "json", "compression": "gzip"}}, "must have compression='none': the blocks of lines are"),
        ({"lines": "avro"}, "format: lines='avro' is not known; use 'json' or 'bytes'"),
        ({"block_size": 0}, "block_size=0 must be a positive whole number of bytes"),
        ({"encoder": "gzip"}, "encoder='gzip' is not known; use 'isal' or 'zlib'"),
        ({"compression_level": 4}, "compression_level=4 must be a whole number from 0 to 3: a level of ISA-L"),
        ({"encoder": "zlib", "compression_level": 0}, "compression_level=0 must be a whole number from 1 to 9"),
    ],
)
def test_other_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    """The error names the setting and what it may be."""
    with pytest.raises(ConfigurationError) as error:
        parse_format({"kind": "block_gzip", **settings})
    assert message in str(error.value)


def test_keys_and_merged_partitions_have_no_blocks() -> None:
    """Blocks and their index are of values of one Kafka partition."""
    with pytest.raises(ConfigurationError, match=r"blocks with an index are for values only; use keys='json'"):
        parse_content({"kind": "siblings", "keys": "block_gzip"})
    with pytest.raises(ConfigurationError, match="merge_partitions does not go with format='block_gzip': its index"):
        Layout(format=BlockGzip(), partitioner=Daily(), rotation=Rotation(merge_partitions=True))


def test_an_extension_of_other_objects_is_refused() -> None:
    """The objects of keys would have the names of those of values."""
    values = BlockGzip(lines=RawBytes(extension=".keys.json"))
    with pytest.raises(ConfigurationError, match=r"extension='.keys.json.gz' is that of objects beside"):
        Layout(format=values, content=SiblingObjects(keys=JsonLines(compression="gzip")))


def test_lines_determine_converters_and_contents() -> None:
    """As without blocks."""
    assert Layout(format=BlockGzip()).value_converter == JsonConverter()
    with pytest.raises(ConfigurationError, match=r"value_converter=AvroConverter\(.*does not go with format=RawBytes"):
        Layout(format=SMALL, value_converter=AvroConverter())
    with pytest.raises(ConfigurationError, match="content='envelope' needs a format whose fields may be records"):
        Layout(format=SMALL, content=Envelope())


# -- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["D1", "D2"])
def test_the_object_and_the_index_are_those_of_deviantart(name: str) -> None:
    """To the byte with zlib: the lengths in the vectors, and their fields in their order."""
    case = CASES[name]
    first, last = case["n"]
    topic = Topic(
        Layout(topics_dir="lake", format=BlockGzip(lines=RawBytes(extension=""), encoder="zlib")), records_per_poll=1000
    )
    topic.append(*[b'{"foo": "bar", "counter":%d}' % n for n in range(last + 1)])
    topic.kafka.delete_records("orders", 0, first)
    topic.land()
    data, index = pair(topic)
    assert (data, index) == (
        f"lake/orders/partition=0/orders+0+{first:010d}.gz",
        f"lake/orders/partition=0/orders+0+{first:010d}.index.json",
    )
    (theirs,) = case["index"]["chunks"]
    (chunk,) = chunks_of(topic)
    assert list(chunk) == [*THEIRS, "next_record_offset"]
    assert chunk == {**theirs, "next_record_offset": last + 1}
    ours = json.dumps({"chunks": [{**theirs, "next_record_offset": last + 1}]}, separators=(",", ":"))
    assert topic.objects()[index] == ours.encode()
    assert len(topic.objects()[data]) == theirs["byte_length"]
    assert topic.objects()[data].startswith(HEADER)


def test_a_block_ends_before_the_record_that_would_make_it_larger() -> None:
    """Separators count; a record of exactly the rest fits, and a larger one is a block of its own."""
    topic = landed(SMALL, b"1234", b"1234", b"1", b"123456789", b"x" * 30, b"2", b"3")
    assert [c["byte_length_uncompressed"] for c in chunks_of(topic)] == [10, 2, 10, 31, 4]
    assert [c["num_records"] for c in chunks_of(topic)] == [2, 1, 1, 1, 2]
    assert [c["first_record_offset"] for c in chunks_of(topic)] == [0, 2, 3, 4, 5]
    assert topic.check() == 7


def test_a_first_record_larger_than_a_block_makes_no_empty_one() -> None:
    """DeviantArt's connector makes one, which its index has as a chunk without records."""
    assert [c["num_records"] for c in chunks_of(landed(SMALL, b"x" * 30, b"y"))] == [1, 1]


def test_records_without_bytes_are_in_the_block_before_them() -> None:
    """Also behind a full one, and behind one larger than a block, whatever batches they come in."""
    values = [b"", b"x" * 30, b"", b"y", b"", b"", b"", b"z" * 10, b""]
    topic = landed(BlockGzip(lines=RawBytes(separator=""), block_size=10), *values)
    assert [c["num_records"] for c in chunks_of(topic)] == [1, 2, 4, 2]


def test_the_index_has_the_ranges_of_offsets_with_gaps() -> None:
    """Of the chunks with gaps only; the last field of theirs and the first of ours say where a chunk ends."""
    topic = Topic(Layout(topics_dir="lake", format=BlockGzip(lines=RawBytes(on_null="ignore"), block_size=8)))
    topic.append(b"aaa", None, b"bbb", None, None, b"ccc", b"ddd", None, b"eee")
    topic.land()
    chunks = chunks_of(topic)
    assert [(c["first_record_offset"], c["next_record_offset"]) for c in chunks] == [(0, 3), (5, 7), (8, 9)]
    assert [c.get("offset_ranges") for c in chunks] == [[[0, 1], [2, 3]], None, None]
    assert topic.check() == 5


def test_a_chunk_of_very_many_gaps_has_runs_in_the_place_of_ranges() -> None:
    """An index stays small: of 1,001 records, each with a gap behind it, the numbers are 1 in turn."""
    topic = Topic(
        Layout(topics_dir="lake", format=BlockGzip(lines=RawBytes(on_null="ignore"))), records_per_poll=10_000
    )
    for count in (MAX_RANGES, MAX_RANGES + 1):
        topic.append(*([b"x", None] * count))
        topic.land(run=str(count))
    first, second = (json.loads(body)["chunks"][0] for key, body in sorted(topic.objects().items()) if "index" in key)
    assert list(first) == [*THEIRS, "next_record_offset", "offset_ranges"]
    assert len(first["offset_ranges"]) == MAX_RANGES
    assert list(second) == [*THEIRS, "next_record_offset", "offset_runs"]
    assert second["next_record_offset"] == second["first_record_offset"] + 2 * MAX_RANGES + 1
    assert gzip.decompress(base64.b64decode(second["offset_runs"])) == b"\x01" * (2 * MAX_RANGES + 1)
    assert len(second["offset_runs"]) < 100
    assert topic.check() == 2 * MAX_RANGES + 1


@pytest.mark.parametrize("encoder", ["isal", "zlib"])
def test_runs_do_not_depend_on_batches(encoder: Any) -> None:
    """Nor do the blocks depend on gaps: a member has the same bytes with and without them."""
    settings = BlockGzip(lines=RawBytes(on_null="ignore"), block_size=50_000, encoder=encoder)
    layout = Layout(topics_dir="lake", format=settings)
    chance = random.Random(7)
    values = [None if chance.random() < 0.3 else b"%d" % n for n in range(30_000)]
    made = []
    for count in (77, 30_000):
        topic = Topic(layout, records_per_poll=count)
        topic.append(*values)
        topic.land()
        made.append(topic.objects())
    assert made[0] == made[1]
    assert all("offset_runs" in chunk for chunk in chunks_of(topic)[:-1])
    without = landed(settings, *[value for value in values if value is not None])
    assert topic.objects()[pair(topic)[0]] == without.objects()[pair(without)[0]]
    key = pair(topic)[1]
    topic.restore(key)
    assert topic.objects() == made[0]


def test_many_pieces_of_contiguous_offsets_are_one_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more pieces than an index has ranges, whose first one has a gap."""
    monkeypatch.setattr(block_offsets, "MAX_RANGES", 3)
    monkeypatch.setattr(block_offsets, "_JOINED_AT", 12)
    topic = Topic(Layout(topics_dir="lake", format=BlockGzip(lines=RawBytes(on_null="ignore"))), records_per_poll=1)
    topic.append(b"0", None, *[b"x"] * 50)
    topic.land()
    (chunk,) = chunks_of(topic)
    assert chunk["offset_ranges"] == [[0, 1], [2, 52]]


VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"+"))), max_size=30)


@given(
    values=VALUES,
    block_size=st.integers(1, 60),
    polls=st.tuples(st.integers(1, 9), st.integers(10, 40)),
    encoder=st.sampled_from(["isal", "zlib"]),
)
def test_every_record_is_found_by_the_index_whatever_batches_it_came_in(
    values: list[bytes | None], block_size: int, polls: tuple[int, int], encoder: Any
) -> None:
    """The object is one gzip file of all records, no block is larger than allowed, and the bytes are the same."""
    layout = Layout(
        topics_dir="lake",
        format=BlockGzip(lines=RawBytes(on_null="ignore"), block_size=block_size, encoder=encoder),
    )
    topics = [Topic(layout, records_per_poll=count) for count in polls]
    for topic in topics:
        topic.append(*values)
        topic.land()
    topic = topics[0]
    assert topics[1].objects() == topic.objects()
    there = {offset: value + b"\n" for offset, value in enumerate(values) if value is not None}
    assert topic.check() == len(there)
    if not there:
        return
    data, index = (topic.objects()[key] for key in pair(topic))
    assert gzip.decompress(data) == b"".join(there.values())
    for offset, value in there.items():
        first, lines = records_at(data, index, offset)
        assert lines[[*there].index(offset) - [*there].index(first)] == value
    sizes = [(c["byte_length_uncompressed"], c["num_records"]) for c in json.loads(index)["chunks"]]
    assert all(0 < size <= block_size or records == 1 for size, records in sizes)
    starts = itertools.accumulate((records for _, records in sizes), initial=0)
    begins = [[*there.values()][at] for at in starts if at < len(there)][1:]
    assert all(size + len(following) > block_size for (size, _), following in zip(sizes, begins, strict=False))


def test_blocks_larger_than_those_of_the_encoder_do_not_depend_on_batches() -> None:
    """Some MiB in several members; each begins a new row of the encoder's blocks."""
    values = [json.dumps({"n": n, "text": "abc" * (n % 400)}).encode() for n in range(4000)]
    made: list[dict[str, bytes]] = []
    for count in (7, 4000):
        topic = Topic(Layout(topics_dir="lake", format=BlockGzip(block_size=300_000)), records_per_poll=count)
        topic.append(*values)
        topic.land()
        made.append(topic.objects())
    assert made[0] == made[1]
    data, index = sorted(made[0].items(), key=lambda item: item[0].endswith(".index.json"))
    assert gzip.decompress(data[1]).splitlines() == values
    assert len(json.loads(index[1])["chunks"]) == 9


# -- contents ---------------------------------------------------------------------------------------------------------


def test_an_envelope_is_in_blocks() -> None:
    """A null value is a row of it, so nothing is missing."""
    topic = landed(BlockGzip(lines=JsonLines(on_null="write"), block_size=100), b"1", None, b"3", content=Envelope())
    data, index = (topic.objects()[key] for key in pair(topic))
    found = [json.loads(records_at(data, index, offset)[1][0]) for offset in range(3)]
    assert [(row["offset"], row["value"]) for row in found] == [(0, 1), (1, None), (2, 3)]
    assert len(json.loads(index)["chunks"]) == 3


def test_values_with_schemas_are_lines_in_blocks() -> None:
    """By the converters of JSON lines."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    topic = landed(BlockGzip(), b'{"n": 1, "m": 2}', b'{"n":3}', value_converter=JsonConverter(schema=schema))
    assert gzip.decompress(topic.objects()[pair(topic)[0]]) == b'{"n":1}\n{"n":3}\n'


def test_keys_are_beside_blocks_and_tombstones_have_no_index() -> None:
    """The index is that of an object of values."""
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=BlockGzip(lines=JsonLines(on_null="write")),
            content=SiblingObjects(keys=JsonLines(), headers=AvroContainer()),
            key_converter=StringConverter(),
        )
    )
    for value in (b"1", None, b"3"):
        topic.append(value, key=b"k")
    topic.land()
    assert sorted(key.rpartition("/orders/")[2] for key in topic.objects()) == [
        f"{folder}/orders+0+000000000{first}{ending}"
        for folder, first, endings in (
            ("partition=0", 0, [".headers.avro", ".index.json", ".json.gz", ".keys.json"]),
            ("tombstone", 1, [".headers.avro", ".keys.json"]),
        )
        for ending in endings
    ]
    (chunk,) = (json.loads(body)["chunks"][0] for key, body in topic.objects().items() if "index" in key)
    assert chunk["offset_ranges"] == [[0, 1], [2, 3]]
    everything = topic.objects()
    topic.restore(*everything)
    assert topic.objects() == everything


def test_dead_letters_have_no_blocks() -> None:
    """They are JSON lines of whole records, as of every format."""
    topic = landed(BlockGzip(), b"1", b"no JSON", errors="dead_letter")
    assert [letter["offset"] for letter in topic.dead_letters()] == [1]
    assert sum(key.endswith(".index.json") for key in topic.objects()) == 1


# -- the index as an object of the batch -------------------------------------------------------------------------------


def test_the_manifest_lists_the_index_with_the_records_of_its_object() -> None:
    """Both have the same records; the batch counts them once."""
    topic = landed(SMALL, *[b"%d" % n for n in range(20)], tags=ObjectTags(offsets=True))
    data, index = pair(topic)
    entries = entries_of(topic)
    assert entries.keys() == {data, index}
    assert entries[data].content == entries[index].content
    assert (entries[index].records, entries[index].min_offset, entries[index].max_offset) == (20, 0, 19)
    assert topic.check() == 20


@pytest.mark.parametrize("at", [[0], [1], [0, 1]], ids=["object", "index", "both"])
def test_a_deleted_object_or_index_is_written_again(at: Sequence[int]) -> None:
    """Either alone, too: the index needs the object to be made again, and not to be there."""
    topic = landed(SMALL, *[b"%d" % n for n in range(20)])
    before = topic.objects()
    topic.restore(*[pair(topic)[i] for i in at])
    assert topic.objects() == before
    assert topic.check() == 20


@pytest.mark.parametrize("at", [0, 1], ids=["object", "index"])
def test_verify_names_a_missing_object_or_index(at: int) -> None:
    """An index that was deleted is a loss like any other, and its records are in Kafka."""
    topic = landed(SMALL, b"1")
    key = pair(topic)[at]
    topic.bucket.delete(key)
    with pytest.raises(MissingObjectError, match=f"1 object.*{key}".replace("+", r"\+")):
        topic.pipeline.run(topic.request("b", action="verify")).advance()


@pytest.mark.parametrize("at", [0, 1], ids=["object", "index"])
def test_a_marker_is_built_again_only_if_objects_and_indices_are_there(at: int) -> None:
    """A missing index needs a person's decision, as a missing object does; until then nothing is written."""
    topic = landed(SMALL, b"1", b"2")
    marker = marker_key(topic.pipeline.log.prefix)
    topic.bucket.delete(marker)
    assert topic.pipeline.repair(start={}).was == "missing"
    topic.bucket.delete(marker)
    topic.bucket.delete(pair(topic)[at])
    done = topic.pipeline.repair(start={})
    assert ([gone.batch for gone in done.ambiguous], done.written) == ([1], False)


@pytest.mark.parametrize("at", [0, 1], ids=["object", "index"])
def test_an_object_of_other_bytes_is_not_put_beside_an_index(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the encoder: the places in the index would be wrong, so it names the versions to install."""
    topic = landed(
        BlockGzip(block_size=3000), *[json.dumps({"n": n * n, "m": str(n) * 7}).encode() for n in range(200)]
    )
    key = pair(topic)[at]
    before = {k: v for k, v in topic.objects().items() if k != key}
    of_level_1 = block_gzip.Gzip
    monkeypatch.setattr(block_gzip, "Gzip", lambda level, encoder: of_level_1(0, encoder))
    with pytest.raises(BatchLossError, match=r"install the versions that planned the batch \(.*isal .*zlib .*\)"):
        topic.restore(key)
    assert topic.objects() == before


def test_an_object_of_the_same_size_and_other_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks may lie elsewhere, so the size alone is not enough."""
    topic = landed(SMALL, *[b"%d" % n for n in range(20)])
    data, index = pair(topic)
    before = topic.objects()[index]
    end = block_gzip.BlockGzipWriter._end

    def other(self: Any, member: Any) -> Any:
        for piece in end(self, member):
            yield piece[:9] + b"\x03" + piece[10:] if bytes(piece).startswith(HEADER) else piece

    monkeypatch.setattr(block_gzip.BlockGzipWriter, "_end", other)
    with pytest.raises(BatchLossError, match="as other bytes, and an object of blocks has to fit its index"):
        topic.restore(data)
    assert topic.objects() == {index: before}


def test_of_an_earlier_version_an_index_without_runs_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are those that were committed: the error names that version. Its object is written again as it was."""
    topic = Topic(Layout(topics_dir="lake", format=BlockGzip(lines=RawBytes(on_null="ignore"))), records_per_poll=9_999)
    topic.append(*([b"x", None] * (MAX_RANGES + 1)))
    with monkeypatch.context() as patch:
        patch.setattr(block_offsets.BlockOffsets, "found", lambda self: (None, None))
        topic.land()
    before = topic.objects()
    data, index = pair(topic)
    topic.restore(data)
    assert topic.objects() == before
    with pytest.raises(BatchLossError, match=r"install the versions that planned the batch \(airflow-provider-"):
        topic.restore(index)
    assert topic.objects() == {data: before[data]}


def test_an_upload_of_an_index_that_expired_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is decided, and its data object is there: the index is made from Kafka."""
    monkeypatch.setattr(Retrier, "pause", lambda self, attempt: None)
    topic = Topic(Layout(topics_dir="lake", format=SMALL))
    topic.append(b"1", b"2", b"3")
    whole = landed(SMALL, b"1", b"2", b"3").objects()
    complete = topic.bucket.complete_upload

    def only_data(key: str, *args: Any, **kwargs: Any) -> Any:
        if key.endswith(".index.json"):
            raise KeyboardInterrupt
        return complete(key, *args, **kwargs)

    topic.bucket.complete_upload = only_data  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        topic.land()
    topic.bucket.complete_upload = complete  # type: ignore[method-assign]
    topic.bucket.expire_uploads()
    topic.land()
    assert topic.objects() == whole
    assert topic.check() == 3


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda chunk: {**chunk, "next_record_offset": 9}, "has other bytes or offsets than its object"),
        (lambda chunk: {**chunk, "byte_length_uncompressed": 1}, "does not fit the block of its object at byte 0"),
        (lambda chunk: {**chunk, "num_records": 4}, "has 4 records, its manifest has 3"),
    ],
)
def test_a_wrong_index_is_found(change: Any, finding: str) -> None:
    """The checks of a bucket compare it with its object and with the manifest."""
    topic = landed(BlockGzip(lines=RawBytes()), b"1", b"2", b"3")
    _, index = pair(topic)
    stored = topic.bucket.get(index)
    assert stored is not None
    body = json.dumps({"chunks": [change(c) for c in json.loads(stored.body)["chunks"]]}).encode()
    topic.bucket.delete(index)
    topic.bucket.put_new(index, body, metadata=stored.metadata)
    with pytest.raises(InvariantViolation, match=finding):
        topic.check()
