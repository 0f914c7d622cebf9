"""Every record is in one object, with the same bytes on every try, also when lost objects are built again."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.encode import write_slice
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.rebuilt_objects import object_builder
from airflow_provider_kafka_s3.config import (
    MIB,
    ByPartition,
    Hourly,
    JsonLines,
    Layout,
    Partitioner,
    RawBytes,
    Rotation,
    Upload,
)
from airflow_provider_kafka_s3.documents.manifest import SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError, SparkJobError, UploadRefused
from airflow_provider_kafka_s3.layout.zones import zone_database_version
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.uploads import UploadPool
from tests.plans import data_plan, reset_plan, slices_of

DAY = 86_400_000
HOURLY = Layout(format=JsonLines(), partitioner=Hourly())
PART = 5 * MIB


def plan_of(layout: Layout, *slices: tuple[int, int, int], generation: int = 0) -> Plan:
    """A plan of ``(partition, start, end)``."""
    return data_plan(layout, slices_of(*slices), batch=7, topic="flights", topic_id="topic-id", generation=generation)


def batch_of(rows: Sequence[tuple[int, int, bytes | None]]) -> pa.RecordBatch:
    """Rows of ``(offset, timestamp, value)`` as a batch."""
    offsets, timestamps, values = zip(*rows, strict=True) if rows else ((), (), ())
    columns: list[Any] = [
        pa.array(offsets, pa.int64()),
        pa.array(timestamps, pa.int64()),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["offset", "timestamp", "value"])


def records(start: int, end: int, *, hours: int = 3) -> list[tuple[int, int, bytes | None]]:
    """Records with alternating hours and holes in their offsets."""
    return [(o, DAY + o % hours * 3_600_000, json.dumps({"o": o}).encode()) for o in range(start, end) if o % 5]


class Bucket:
    """A store in memory with the objects of one slice."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.store = DurableStore(self.memory, Retrier(sleep=lambda _: None))

    def write(self, plan: Plan, batches: Sequence[pa.RecordBatch]) -> SliceRows:
        """Write the first slice of a plan."""
        with UploadPool(self.store, part_size=PART, threads=2) as pool:
            return write_slice(plan, plan.slices[0], batches, pool.open)

    def complete(self, rows: SliceRows) -> dict[str, bytes]:
        """Make the objects visible, and return their bytes."""
        for entry in rows.objects:
            self.memory.complete_upload(entry.key, entry.upload_id, entry.upload_parts())
        return {entry.key: self.body(entry.key) for entry in rows.objects}

    def body(self, key: str) -> bytes:
        """Bytes of an object."""
        found = self.memory.get(key)
        assert found is not None
        return found.body


def cut(rows: list[tuple[int, int, bytes | None]], edges: Sequence[int]) -> list[pa.RecordBatch]:
    """Rows as batches that begin at some edges."""
    bounds = [0, *sorted(e % (len(rows) + 1) for e in edges), len(rows)]
    return [batch_of(rows[a:b]) for a, b in itertools.pairwise(bounds)]


def test_every_record_is_in_one_object_and_the_rows_say_which() -> None:
    """Key, size, checksum, content and offsets of each entry are those of its bytes."""
    bucket = Bucket()
    rows = records(10, 60)
    written = bucket.write(plan_of(HOURLY, (4, 10, 60)), cut(rows, [7, 20]))
    bodies = bucket.complete(written)

    assert (written.result.records, written.result.ignored, written.result.next_offset) == (len(rows), 0, 60)
    assert sorted(line for body in bodies.values() for line in body.splitlines()) == sorted(
        v or b"" for _, _, v in rows
    )
    assert [e.min_offset for e in written.objects] == [11, 12, 13]
    for entry in written.objects:
        offsets = [json.loads(line)["o"] for line in bodies[entry.key].splitlines()]
        digest = hashlib.sha256(b"topic-id\0" + (4).to_bytes(8, "little") + np.array(offsets, "<i8").tobytes())
        assert entry.content == digest.hexdigest()
        assert (entry.min_offset, entry.max_offset, entry.records) == (offsets[0], offsets[-1], len(offsets))
        assert (entry.size, entry.crc32) == (len(bodies[entry.key]), f"{zlib.crc32(bodies[entry.key]):08x}")
        assert entry.key.endswith(f"/flights+4+{offsets[0]:010d}.json")
        assert (entry.slices, entry.checksum_algorithm) == ((0,), "CRC32")


def test_uploads_bear_batch_and_a_nonce_of_their_own() -> None:
    """Metadata distinguishes a batch's object from any other, and one attempt's upload from another's."""
    bucket = Bucket()
    plan = plan_of(HOURLY, (4, 10, 60))
    first = bucket.write(plan, [batch_of(records(10, 60))])
    second = Bucket().write(plan, [batch_of(records(10, 60))])
    bucket.complete(first)

    for entry in first.objects:
        info = bucket.memory.head(entry.key)
        assert info is not None
        assert info.metadata == {BATCH_METADATA: "7", NONCE_METADATA: entry.nonce}
    assert len({e.nonce for e in (*first.objects, *second.objects)}) == 6


ROTATED = Layout(
    format=JsonLines(compression="gzip"),
    partitioner=Hourly(),
    rotation=Rotation(flush_size=17, max_bytes=40),
)


@given(edges=st.lists(st.integers(0, 200), max_size=12))
def test_batch_edges_change_neither_names_nor_bytes_nor_rows(edges: list[int]) -> None:
    """For any batching of the same records, the objects and their order in the rows are the same."""
    rows = records(0, 120)
    plan = plan_of(ROTATED, (0, 0, 120))
    whole, cut_up = Bucket(), Bucket()
    one, many = whole.write(plan, [batch_of(rows)]), cut_up.write(plan, cut(rows, edges))

    def description(written: SliceRows) -> list[tuple[Any, ...]]:
        return [(e.key, e.size, e.crc32, e.content, e.records, e.min_offset, e.max_offset) for e in written.objects]

    assert description(one) == description(many)
    assert one.result == many.result
    assert whole.complete(one) == cut_up.complete(many)


@pytest.mark.parametrize(
    "offsets",
    [[[10, 12], [12, 13]], [[10, 12, 11]], [[11], [10]], [[9, 10]], [[19, 20]], [[10, 10]]],
    ids=["twice", "disorder", "disorder-across-batches", "before-start", "at-end", "twice-in-a-batch"],
)
def test_records_that_are_not_the_slice_are_refused(offsets: list[list[int]]) -> None:
    """A record that comes twice, out of order or from another slice ends the attempt."""
    batches = [batch_of([(o, DAY, b"{}") for o in part]) for part in offsets]
    with pytest.raises(SparkJobError, match=r"'flights' partition 2.*\[10, 20\)"):
        Bucket().write(plan_of(HOURLY, (2, 10, 20)), batches)


def test_a_slice_without_records_has_no_objects() -> None:
    """Transaction markers have offsets but no records; empty batches change nothing."""
    written = Bucket().write(plan_of(HOURLY, (2, 10, 20)), [batch_of([])])
    assert written.objects == ()
    assert (written.result.records, written.result.next_offset) == (0, 20)


def test_ignored_nulls_are_counted() -> None:
    """Tombstones that the layout leaves out are in no object and in the count of ignored ones."""
    layout = Layout(format=JsonLines(on_null="ignore"))
    written = Bucket().write(plan_of(layout, (2, 0, 9)), [batch_of([(0, DAY, None), (1, DAY, b"1"), (5, DAY, None)])])
    assert (written.result.records, written.result.ignored) == (1, 2)
    assert [(e.min_offset, e.max_offset) for e in written.objects] == [(1, 1)]


def test_a_bad_record_is_named() -> None:
    """The error of the format names topic, partition and offset."""
    with pytest.raises(RecordError, match="'flights', partition 2, offset 4"):
        Bucket().write(plan_of(HOURLY, (2, 0, 9)), [batch_of([(3, DAY, b"{}"), (4, DAY, b"{")])])


def test_a_key_that_s3_refuses_is_refused_before_anything_is_uploaded() -> None:
    """No upload is begun for an object whose key is too long."""
    bucket = Bucket()
    layout = Layout(topics_dir="d" * 1000, format=RawBytes())
    with pytest.raises(ConfigurationError, match="1024"):
        bucket.write(plan_of(layout, (2, 0, 9)), [batch_of([(0, DAY, b"x" * (PART + 1))])])
    assert not list(bucket.memory.pending_uploads(""))


def test_a_slice_with_too_many_objects_fails_before_it_begins_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit could not hold them, nor the driver their rows."""
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.encode.MAX_OBJECTS", 3)
    bucket = Bucket()
    assert len(bucket.write(plan_of(HOURLY, (4, 10, 60)), [batch_of(records(10, 60))]).objects) == 3
    with pytest.raises(ConfigurationError, match=r"batch 7 of topic 'flights' .* more than 3 in slice 0 alone"):
        Bucket().write(plan_of(HOURLY, (4, 10, 60)), [batch_of(records(10, 60, hours=4))])


BERLIN = Hourly(timezone="Europe/Berlin")


def test_a_plan_of_another_time_zone_database_is_not_executed() -> None:
    """Local time may differ: the error has both versions and the remedies, and nothing is opened."""
    layout = Layout(format=JsonLines(), partitioner=BERLIN, zone_database="1999c")
    bucket = Bucket()
    plan = plan_of(layout, (4, 0, 9))
    mine = zone_database_version()
    message = rf"batch 7 .*'flights'.* 1999c, .* {mine}, .*'Europe/Berlin'.*Install tzdata==1999\.3 .*release='debt'"
    with pytest.raises(ConfigurationError, match=message):
        bucket.write(plan, [batch_of(records(0, 9))])
    assert not list(bucket.memory.pending_uploads(""))
    entries = bucket.write(plan_of(HOURLY, (4, 0, 9)), [batch_of(records(0, 9))]).objects
    with pytest.raises(ConfigurationError, match="1999c"):
        object_builder(bucket.store)(plan, entries, lambda _: [batch_of(records(0, 9))])


@pytest.mark.parametrize(
    ("partitioner", "database"),
    [
        (BERLIN, zone_database_version()),
        (BERLIN, ""),
        (Hourly(), "1999c"),
        (ByPartition(), "1999c"),
    ],
    ids=["the-same", "unknown", "utc", "no-time"],
)
def test_a_layout_without_local_time_accepts_any_time_zone_database(partitioner: Partitioner, database: str) -> None:
    """UTC is the same in all of them, and paths without time need none."""
    layout = Layout(format=JsonLines(), partitioner=partitioner, zone_database=database)
    assert Bucket().write(plan_of(layout, (4, 0, 9)), [batch_of(records(0, 9))]).objects


def test_a_reset_has_no_objects() -> None:
    """A plan without a layout cannot be written."""
    reset = reset_plan(batch=7, topic="flights")
    with pytest.raises(ConfigurationError, match=r"batch 7 .* reset"):
        write_slice(reset, Slice(id=0, partition=0, start=0, end=1), [], lambda *_: pytest.fail("nothing to open"))


# -- writing lost objects again ---------------------------------------------------------------------------------------


def rebuilt_like(rows: list[tuple[int, int, bytes | None]], layout: Layout) -> Iterator[tuple[Any, bytes, Bucket, Any]]:
    """Each object of a slice: its entry, its bytes, an empty bucket, and the object built again for it."""
    bucket = Bucket()
    plan = plan_of(layout, (4, rows[0][0], rows[-1][0] + 1))
    written = bucket.write(plan, [batch_of(rows)])
    bodies = bucket.complete(written)
    for entry in written.objects:
        other = Bucket()
        build = object_builder(other.store)
        rebuilt = build(plan, [entry], lambda _: cut(rows, [3]))
        assert list(rebuilt) == [entry.key]
        yield entry, bodies[entry.key], other, rebuilt[entry.key]


def test_a_lost_object_comes_back_the_same() -> None:
    """Content, size, bytes and metadata of the stored object are the requested ones; nothing else is stored."""
    for entry, body, bucket, rebuilt in rebuilt_like(records(10, 60), ROTATED):
        assert (rebuilt.content, rebuilt.size, rebuilt.crc32) == (entry.content, entry.size, entry.crc32)
        rebuilt.put({"kafka-s3-content": entry.content})
        rebuilt.put({"kafka-s3-content": "a second put finds the key"})
        assert bucket.body(entry.key) == body
        assert [info.key for info in bucket.memory.list("")] == [entry.key]
        info = bucket.memory.head(entry.key)
        assert info is not None
        assert info.metadata == {"kafka-s3-content": entry.content}


def test_a_lost_object_larger_than_a_part_is_uploaded_in_parts() -> None:
    """It does not fit into one request, so it takes several, and again only if its key is free."""
    rows: list[tuple[int, int, bytes | None]] = [(o, DAY, bytes([o]) * MIB) for o in range(12)]
    layout = Layout(format=RawBytes(), part_size=PART)
    for entry, body, bucket, rebuilt in rebuilt_like(rows, layout):
        assert rebuilt.size == entry.size == len(body)
        rebuilt.put({"kafka-s3-content": entry.content})
        rebuilt.put({"kafka-s3-content": "a second put finds the key"})
        assert bucket.body(entry.key) == body
        assert not list(bucket.memory.pending_uploads(""))


def test_an_upload_whose_completion_failed_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object cannot become visible later, after any answer of the store."""
    rows: list[tuple[int, int, bytes | None]] = [(o, DAY, bytes([o]) * MIB) for o in range(12)]
    layout = Layout(format=RawBytes(), part_size=PART)
    for _, _, bucket, rebuilt in rebuilt_like(rows, layout):

        def refuse(*_: object) -> None:
            raise UploadRefused("no")

        monkeypatch.setattr(bucket.memory, "complete_upload", refuse)
        rebuilt.put({})
        assert not list(bucket.memory.pending_uploads(""))
        assert not list(bucket.memory.list(""))


def test_an_object_is_not_built_from_other_records() -> None:
    """If Kafka no longer has its first record, or it has another folder now, the object cannot be built."""
    plan = plan_of(HOURLY, (4, 10, 60))
    entry = Bucket().write(plan, [batch_of(records(10, 60))]).objects[0]
    build = object_builder(Bucket().store)
    assert build(plan, [entry], lambda _: [batch_of(records(12, 60))]) == {}
    others = [(offset, time + DAY, value) for offset, time, value in records(10, 60)]
    assert build(plan, [entry], lambda _: [batch_of(others)]) == {}


def test_the_lost_objects_of_a_slice_come_back_by_one_read_of_it() -> None:
    """Each is the same as if built alone; objects that are not requested are not built."""
    bucket = Bucket()
    plan = plan_of(ROTATED, (4, 10, 60))
    written = bucket.write(plan, [batch_of(records(10, 60))])
    bodies = bucket.complete(written)
    lost = [entry for i, entry in enumerate(written.objects) if i % 2]
    assert len(lost) > 1
    other = Bucket()
    rebuilt = object_builder(other.store)(plan, lost, lambda _: [batch_of(records(10, 60))])
    for entry in lost:
        rebuilt[entry.key].put({})
        assert rebuilt[entry.key].content == entry.content
        assert other.body(entry.key) == bodies[entry.key]
    assert sorted(rebuilt) == sorted(entry.key for entry in lost)


def test_no_file_is_left_when_building_fails_or_is_abandoned(tmp_path: Any) -> None:
    """Temporary files have no names, and are closed with the object or by the error."""
    plan = plan_of(Layout(format=JsonLines(), part_size=PART), (4, 0, 60))
    build = object_builder(Bucket().store, Upload(spill_dir=str(tmp_path)))
    large = json.dumps("x" * PART * 2).encode()
    entries = Bucket().write(plan, [batch_of([(0, 0, b"1"), (1, 0, b"2")])]).objects
    with pytest.raises(RecordError):
        build(plan, entries, lambda _: [batch_of([(0, 0, large)]), batch_of([(1, 0, b"{")])])
    rebuilt = build(plan, entries, lambda _: [batch_of([(0, 0, large)])])
    assert rebuilt
    assert list(tmp_path.iterdir()) == []
    del rebuilt
    gc.collect()
