"""The split: objects depend on the records alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import Scattered
from airflow_provider_kafka_s3.config import (
    AvroConverter,
    Compatibility,
    JsonLines,
    Layout,
    Naming,
    Rotation,
    SchemaAffix,
    TimePattern,
    parse_partitioner,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.layout.split import Append, Close, Event, LeaveOut, Splitter
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.evolution import SchemaVersion, decide
from airflow_provider_kafka_s3.schemas.projection import SchemaChangeError

KEY_CASES = json.loads((Path(__file__).parents[2] / "vectors" / "object_keys.json").read_text())["cases"]
HOUR = 3_600_000


def indices(event: Append) -> Any:
    """The rows of the batch that are appended."""
    return np.arange(event.rows.start, event.rows.stop) if isinstance(event.rows, slice) else event.rows.indices


def make(kind: Any = "partition", generation: int = 0, **rotation: Any) -> Splitter:
    """A splitter of these settings."""
    layout = Layout(format=JsonLines(), partitioner=parse_partitioner(kind), rotation=Rotation(**rotation))
    return Splitter(layout, topic="flights", partition=3, generation=generation)


def records(offsets: Iterable[int], hours: Iterable[int] | None = None) -> pa.RecordBatch:
    """Records at these offsets, in these hours of 1970."""
    of = list(offsets)
    stamps = [0] * len(of) if hours is None else [h * HOUR for h in hours]
    return pa.RecordBatch.from_arrays(
        [pa.array(of, pa.int64()), pa.array(stamps, pa.int64())], names=["offset", "timestamp"]
    )


def sizes(of: Iterable[int]) -> Any:
    """Sizes of records."""
    return np.array(list(of), np.int64)


def follow(splitter: Splitter, batches: Iterable[tuple[pa.RecordBatch, Any]], most: int = 400) -> dict[str, list[int]]:
    """Apply events; the offsets of each object by key, in the order of their beginnings."""
    objects: dict[str, list[int]] = {}
    open_keys: set[str] = set()

    def do(events: Iterable[Event], batch: pa.RecordBatch | None) -> None:
        for event in events:
            assert not isinstance(event, LeaveOut)
            key = event.object.key
            if isinstance(event, Close):
                open_keys.remove(key)
                continue
            assert batch is not None
            if key not in objects:
                assert event.object.first_offset == event.offsets[0]
                open_keys.add(key)
                assert len(open_keys) <= most
            assert key in open_keys
            column = batch.column("offset").to_numpy()
            assert event.offsets.tolist() == column[indices(event)].tolist()
            objects.setdefault(key, []).extend(event.offsets.tolist())

    for batch, size in batches:
        do(splitter.feed(batch, size), batch)
    do(splitter.finish(), None)
    assert not open_keys
    return objects


def starts(objects: dict[str, list[int]]) -> list[int]:
    """First offsets, in order."""
    return sorted(o[0] for o in objects.values())


@pytest.mark.parametrize("case", [c for c in KEY_CASES if "expect_starts" in c], ids=lambda c: c["id"])
def test_objects_begin_as_in_the_vectors(case: dict[str, Any]) -> None:
    """K5 to K7: every ``flush_size`` records; the end of the slice closes the rest."""
    first = case.get("first_offset", 0)
    batch = records(range(first, first + case["records"]))
    objects = follow(make(flush_size=case["flush_size"]), [(batch, sizes([1] * case["records"]))])
    assert starts(objects) == case["expect_starts"]


def test_flush_size_counts_over_all_encoded_partitions_and_closes_all_of_them() -> None:
    """As in the corpus (R01): five records, in any number of hours."""
    hours = [18, 19, 18, 20, 19, 18, 20, 18, 19, 20, 18, 18]
    objects = follow(make("hourly", flush_size=5), [(records(range(12), hours), sizes([1] * 12))])
    assert sorted(objects.values()) == [[0, 2], [1, 4], [3], [5, 7], [6, 9], [8], [10, 11]]


def test_the_record_that_reaches_max_bytes_is_the_last_of_its_object() -> None:
    """Per object; a record larger than the limit has an object of its own or ends one."""
    batch = records(range(7))
    objects = follow(make(max_bytes=10), [(batch, sizes([4, 5, 1, 10, 9, 3, 2]))])
    assert list(objects.values()) == [[0, 1, 2], [3], [4, 5], [6]]


def test_max_bytes_counts_each_object_for_itself() -> None:
    """Two alternating hours fill their own objects."""
    batch = records(range(6), [0, 1, 0, 1, 0, 1])
    objects = follow(make("hourly", max_bytes=10), [(batch, sizes([5, 1, 5, 1, 5, 1]))])
    assert sorted(objects.values()) == [[0, 2], [1, 3, 5], [4]]


def test_records_without_bytes_need_no_object_of_their_own() -> None:
    """Empty values with an empty separator never fill an object."""
    objects = follow(make(max_bytes=1), [(records(range(4)), sizes([0, 1, 0, 0]))])
    assert list(objects.values()) == [[0, 1], [2, 3]]


def test_flush_size_one_makes_an_object_per_record() -> None:
    """The smallest value."""
    objects = follow(make("hourly", flush_size=1), [(records([5, 9], [0, 0]), sizes([1, 1]))])
    assert list(objects.values()) == [[5], [9]]


def test_gaps_in_offsets_do_not_count() -> None:
    """Transactions and compaction leave gaps; records are counted, and the name has the offset of a record."""
    objects = follow(make(flush_size=2), [(records([10, 17, 40, 41, 99]), sizes([1] * 5))])
    assert list(objects.values()) == [[10, 17], [40, 41], [99]]
    assert [key[-15:] for key in objects] == ["0000000010.json", "0000000040.json", "0000000099.json"]


def test_keys_contain_topic_partition_offset_and_generation() -> None:
    """The whole name of an object, from the splitter's arguments."""
    objects = follow(make("hourly", generation=2), [(records([7], [1]), sizes([1]))])
    assert list(objects) == ["topics/flights/year=1970/month=01/day=01/hour=01/flights+3+0000000007+g2.json"]


def test_objects_close_in_the_order_of_their_first_records() -> None:
    """Also if the first of one hour was closed by its bytes and the hour began again."""
    splitter = make("hourly", flush_size=6, max_bytes=10)
    events = list(splitter.feed(records(range(6), [0, 1, 0, 2, 1, 0]), sizes([10, 1, 1, 1, 1, 1])))
    closed = [e.object.first_offset for e in events if isinstance(e, Close)]
    assert closed == [0, 1, 2, 3]
    assert list(splitter.finish()) == []


def test_batches_in_order_are_split_into_slices_not_indices() -> None:
    """A slice of Arrow arrays is not copied; only mixed batches are put into another order, once for all objects."""
    in_order = list(make("hourly").feed(records(range(6), [0, 0, 1, 1, 1, 2]), sizes([1] * 6)))
    assert [e.rows for e in in_order if isinstance(e, Append)] == [slice(0, 2), slice(2, 5), slice(5, 6)]
    mixed = list(make("hourly").feed(records(range(3), [0, 1, 0]), sizes([1] * 3)))
    assert [indices(e).tolist() for e in mixed if isinstance(e, Append)] == [[0, 2], [1]]
    assert len({id(e.rows.order) for e in mixed if isinstance(e, Append) and isinstance(e.rows, Scattered)}) == 1


def test_an_empty_batch_has_no_events() -> None:
    """All its records may be null values."""
    splitter = make()
    assert list(splitter.feed(records([]), sizes([]))) == []
    assert list(splitter.finish()) == []


def test_a_record_without_timestamp_is_refused_by_name() -> None:
    """The error comes before any event of its batch."""
    batch = pa.RecordBatch.from_arrays([pa.array([4, 5]), pa.array([0, -1])], names=["offset", "timestamp"])
    with pytest.raises(RecordError, match="topic 'flights', partition 3, offset 5"):
        next(make("hourly").feed(batch, sizes([1, 1])))


def test_an_unsafe_key_is_refused() -> None:
    """No object begins with it."""
    layout = Layout(format=JsonLines(), partitioner=TimePattern(path_format="'..'/YYYY", duration_ms=HOUR))
    with pytest.raises(ConfigurationError, match=r"folder '\.\.'"):
        next(Splitter(layout, topic="t", partition=0, generation=0).feed(records([0]), sizes([1])))


def test_a_record_that_needs_one_object_too_many_closes_the_least_recently_written() -> None:
    """Whenever it began; its hour may begin again."""
    splitter = make("hourly", max_open_objects=2)
    events = list(splitter.feed(records(range(7), [0, 1, 0, 2, 0, 1, 0]), sizes([1] * 7)))
    closed = [e.object.first_offset for e in events if isinstance(e, Close)]
    assert closed == [1, 3]
    assert [e.object.first_offset for e in splitter.finish()] == [0, 5]


def test_the_order_of_writing_goes_on_over_batches() -> None:
    """Hour 0 is written in the second batch, after hour 1, which ends therefore."""
    splitter = make("hourly", max_open_objects=2)
    assert not [e for e in splitter.feed(records([0, 1], [0, 1]), sizes([1] * 2)) if isinstance(e, Close)]
    events = splitter.feed(records([2, 3], [0, 2]), sizes([1] * 2))
    assert [e.object.first_offset for e in events if isinstance(e, Close)] == [1]


def test_records_of_more_folders_than_objects_may_be_open_take_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each record ends an object, a look for the next one is at a few records, not at all that follow."""
    looked_at = 0

    def counting(codes: Any, **more: Any) -> Any:
        nonlocal looked_at
        looked_at += len(codes)
        return unique(codes, **more)

    splitter, unique = make("hourly", max_open_objects=2), np.unique
    batch = records(range(3_000), itertools.islice(itertools.cycle(range(23)), 3_000))
    monkeypatch.setattr(np, "unique", counting)
    closed = [e for e in splitter.feed(batch, sizes([1] * 3_000)) if isinstance(e, Close)]
    assert len(closed) == 2_998
    assert looked_at < 3_000 * 200


def test_topics_in_order_stay_below_the_limit_without_indices() -> None:
    """Consecutive hours: each new one closes the oldest, and batches are still split into slices."""
    splitter = make("hourly", max_open_objects=2)
    events = list(splitter.feed(records(range(8), [0, 0, 1, 1, 2, 2, 3, 3]), sizes([1] * 8)))
    assert [e.rows if isinstance(e, Append) else e.object.first_offset for e in events] == [
        slice(0, 2),
        slice(2, 4),
        0,
        slice(4, 6),
        2,
        slice(6, 8),
    ]


def plainly(
    kind: str, rows: list[tuple[int, int, int]], flush: int | None, limit: int, most: int
) -> dict[str, list[int]]:
    """The rules applied record by record: offsets by encoded partition and first offset."""
    done: dict[str, list[int]] = {}
    current: dict[int, tuple[list[int], list[int]]] = {}
    count = 0
    for offset, hour, size in rows:
        place = hour if kind == "hourly" else 0
        if place not in current:
            if len(current) == most:
                del current[min(current, key=lambda p: current[p][0][-1])]
            offsets: list[int] = []
            current[place] = (offsets, [0])
            done[f"{place}@{offset}"] = offsets
        current[place][0].append(offset)
        current[place][1][0] += size
        count += 1
        if current[place][1][0] >= limit:
            del current[place]
        if count == flush:
            current.clear()
            count = 0
    return done


@settings(max_examples=300)
@given(
    kind=st.sampled_from(["partition", "hourly"]),
    rows=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(0, 9)), max_size=60),
    flush=st.one_of(st.none(), st.integers(1, 12)),
    limit=st.integers(1, 40),
    most=st.integers(1, 6),
    in_order=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_any_batching_makes_the_objects_of_the_plain_rules(
    kind: Any,
    rows: list[tuple[int, int, int]],
    flush: int | None,
    limit: int,
    most: int,
    in_order: bool,
    cuts: list[int],
) -> None:
    """Neither vectorisation nor batches change the records of an object, or its name."""
    offsets = list(itertools.accumulate(step for step, _, _ in rows))
    hours = [hour for _, hour, _ in rows]
    listed = list(zip(offsets, sorted(hours) if in_order else hours, [s for _, _, s in rows], strict=True))
    edges = [0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]
    batches = [
        (records([o for o, _, _ in part], [h for _, h, _ in part]), sizes(s for _, _, s in part))
        for part in (listed[a:b] for a, b in itertools.pairwise(edges))
    ]
    objects = follow(make(kind, flush_size=flush, max_bytes=limit, max_open_objects=most), batches, most)
    expected = plainly(kind, listed, flush, limit, most)
    assert sorted(objects.values()) == sorted(expected.values())
    names = {f"{int(key.split('hour=')[1][:2]) if kind == 'hourly' else 0}@{o[0]}": o for key, o in objects.items()}
    assert names == expected
    assert all(key.endswith(f"+{o[0]:010d}.json") for key, o in objects.items())


# --- Schemas that change ---


def version(number: int | None, kind: str, name: str = "a") -> SchemaVersion:
    """A version of a schema with one field."""
    fields = [{"name": "x", "type": kind}]
    node = parse_schema(json.dumps({"type": "record", "name": name, "fields": fields}))
    return SchemaVersion(node, number, name)


VERSIONS = [version(1, "int"), version(2, "long"), version(3, "string"), version(None, "int"), version(1, "int", "b")]


def by_schema(mode: Compatibility | None, affix: SchemaAffix | None = None, **rotation: Any) -> Splitter:
    """A splitter by hours of records with schemas."""
    layout = Layout(
        format=JsonLines(),
        value_converter=AvroConverter(),
        partitioner=parse_partitioner("hourly"),
        rotation=Rotation(**rotation),
        naming=Naming(schema_affix=affix),
        schema_compatibility=mode,
    )
    return Splitter(layout, topic="flights", partition=3, generation=0)


@dataclass
class Reference:
    """The rules applied record by record.

    Attributes:
        done: the objects: their folder and schema, and their offsets.
        left_out: the offsets that are in none.
    """

    mode: Compatibility | None
    flush: int | None
    limit: int
    most: int
    done: list[tuple[str, int, list[int]]] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    current: dict[Any, tuple[int, list[int], list[int]]] = field(default_factory=dict)
    count: int = 0

    def take(self, offset: int, folder: str, size: int, schema: int) -> None:
        """Write a record."""
        place = (folder, schema if self.mode is None else None)
        if self.mode is not None and place in self.current:
            target = self.current[place][0]
            try:
                if target != schema and decide(self.mode, VERSIONS[target], VERSIONS[schema]) == "roll":
                    self.current.clear()
                    self.count = 0
            except SchemaChangeError:
                self.left_out.append(offset)
                return
        if place not in self.current:
            if len(self.current) == self.most:
                del self.current[min(self.current, key=lambda p: self.current[p][1][-1])]
            offsets: list[int] = []
            self.current[place] = (schema, offsets, [0])
            self.done.append((folder, schema, offsets))
        _, offsets, sizes_ = self.current[place]
        offsets.append(offset)
        sizes_[0] += size
        self.count += 1
        if sizes_[0] >= self.limit:
            del self.current[place]
        if self.count == self.flush:
            self.current.clear()
            self.count = 0


@settings(max_examples=400)
@given(
    mode=st.sampled_from([None, "NONE", "BACKWARD", "FORWARD", "FULL"]),
    affix=st.sampled_from([None, "PREFIX", "SUFFIX"]),
    rows=st.lists(
        st.tuples(st.integers(1, 12), st.integers(0, 2), st.integers(0, 9), st.integers(0, len(VERSIONS) - 1)),
        max_size=30,
    ),
    flush=st.one_of(st.none(), st.integers(1, 60)),
    limit=st.one_of(st.just(10**6), st.integers(1, 200)),
    most=st.one_of(st.just(400), st.integers(1, 6)),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_any_batching_makes_the_objects_of_the_rules_of_schemas(
    mode: Compatibility | None,
    affix: SchemaAffix | None,
    rows: list[tuple[int, int, int, int]],
    flush: int | None,
    limit: int,
    most: int,
    cuts: list[int],
) -> None:
    """Rolls, all limits, records that fit no object and names of schemas in the path: as record by record."""
    listed = [row[1:] for row in rows for _ in range(row[0])]
    edges = [0, *sorted(min(c, len(listed)) for c in cuts), len(listed)]
    splitter = by_schema(mode, affix, flush_size=flush, max_bytes=limit, max_open_objects=most)
    objects: dict[str, tuple[int, list[int]]] = {}
    left_out = []
    open_keys: set[str] = set()
    for low, high in itertools.pairwise(edges):
        part = listed[low:high]
        events = splitter.feed(
            records(range(low, high), [hour for hour, _, _ in part]),
            sizes(size for _, size, _ in part),
            np.array([schema for _, _, schema in part], np.int64),
            VERSIONS,
        )
        for event in events:
            if isinstance(event, LeaveOut):
                left_out.append(low + event.row)
            elif isinstance(event, Close):
                open_keys.remove(event.object.key)
            else:
                key, schema = event.object.key, event.object.schema
                assert schema is not None
                assert (key in open_keys) == (key in objects)
                open_keys.add(key)
                assert len(open_keys) <= most
                assert (low + indices(event) == event.offsets).all()
                objects.setdefault(key, (schema, []))[1].extend(event.offsets.tolist())
    open_keys -= {event.object.key for event in splitter.finish()}
    assert not open_keys

    expected = Reference(mode, flush, limit, most)
    for offset, (hour, size, schema) in enumerate(listed):
        name, folder = f"schema_name={VERSIONS[schema].name}", f"year=1970/month=01/day=01/hour={hour:02d}"
        folders = {None: folder, "PREFIX": f"{name}/{folder}", "SUFFIX": f"{folder}/{name}"}
        expected.take(offset, folders[affix], size, schema)
    found = sorted((key.removeprefix("topics/flights/").rpartition("/")[0], s, o) for key, (s, o) in objects.items())
    assert found == sorted(expected.done)
    assert left_out == expected.left_out


def test_the_record_that_rolls_closes_objects_in_the_order_of_their_first_records() -> None:
    """As at the end of flush_size, which counts from this record then."""
    splitter = by_schema("BACKWARD", flush_size=4)
    schemas = np.array([0, 0, 0, 1, 0, 0, 0, 1])
    events = list(splitter.feed(records(range(8), [0, 1, 0, 1, 1, 0, 0, 0]), sizes([1] * 8), schemas, VERSIONS))
    shown = [
        ("close", e.object.first_offset) if isinstance(e, Close) else e.offsets.tolist()
        for e in events
        if not isinstance(e, LeaveOut)
    ]
    assert shown == [[0, 2], [1], ("close", 0), ("close", 1), [3, 4], [5, 6], ("close", 3), ("close", 5), [7]]


def test_an_object_that_ends_alone_leaves_its_schema_behind() -> None:
    """The next record of its folder may have another one, and ends no object of other folders."""
    splitter = by_schema("NONE", max_bytes=3)
    schemas = np.array([0, 0, 1, 0])
    events = [*splitter.feed(records(range(4), [0, 1, 0, 1]), sizes([3, 1, 1, 1]), schemas, VERSIONS)]
    assert [e.object.first_offset for e in events if isinstance(e, Close)] == [0]
    assert [e.object.first_offset for e in splitter.finish()] == [1, 2]


@pytest.mark.parametrize(("affix", "folder"), [("PREFIX", "schema_name=null/{}"), ("SUFFIX", "{}/schema_name=null")])
def test_values_without_schemas_have_a_folder_for_no_name(affix: Any, folder: str) -> None:
    """As in Kafka Connect."""
    layout = Layout(format=JsonLines(), naming=Naming(schema_affix=affix))
    objects = follow(Splitter(layout, topic="t", partition=0, generation=0), [(records(range(2)), sizes([1, 1]))])
    assert list(objects) == [f"topics/t/{folder.format('partition=0')}/t+0+0000000000.json"]
