"""Rotation by the times of records: the objects that Kafka Connect's rule makes, whatever the batches are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroConverter,
    ByField,
    ByKey,
    ByPartition,
    Chain,
    Compatibility,
    Daily,
    FieldTime,
    Hourly,
    JsonLines,
    Layout,
    Naming,
    Partitioner,
    RecordTime,
    Rotation,
    SchemaAffix,
    SiblingObjects,
    TimestampFrom,
)
from airflow_provider_kafka_s3.converters.field_values import FieldValues, Unusable
from airflow_provider_kafka_s3.extensions.partitioners import Encoded
from airflow_provider_kafka_s3.layout.split import Append, Close, LeaveOut, Splitter
from airflow_provider_kafka_s3.layout.time_rotation import TimeRotation
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.evolution import NO_SCHEMA, SchemaVersion, decide
from airflow_provider_kafka_s3.schemas.projection import SchemaChangeError

MINUTE = 60_000
HOUR = 60 * MINUTE
UNDATED = "undated"
COUNTRIES = ["AT", "NO", "??"]
UNUSABLE = 2
"""The country that no folder can have."""
LATE = 2**62
"""A timestamp that is no time."""


def version(number: int | None, kind: str, name: str = "a") -> SchemaVersion:
    """A version of a schema with one field."""
    schema = {"type": "record", "name": name, "fields": [{"name": "x", "type": kind}]}
    return SchemaVersion(parse_schema(json.dumps(schema)), number, name)


VERSIONS = [version(1, "int"), version(2, "long"), version(None, "string"), version(1, "int", "b")]


class Record(NamedTuple):
    """A record, of which ``minute`` is the time; None: it has none."""

    minute: int | None
    country: int = 0
    schema: int = 0
    size: int = 1
    is_tombstone: bool = False

    @property
    def time(self) -> int | None:
        """In milliseconds."""
        return None if self.minute is None else self.minute * MINUTE


class Case(NamedTuple):
    """How records become objects; by field, by hour and with typed values, as far as it is said."""

    rotation: Rotation
    partitioner: Partitioner = Hourly()
    mode: Compatibility | None = None
    has_schemas: bool = False
    affix: SchemaAffix | None = None
    on_bad: str = "fail"

    @property
    def of_field(self) -> bool:
        """Whether the time is a field of the value."""
        return isinstance(self.layout.by_time and self.layout.by_time.timestamp_from, FieldTime)

    @property
    def layout(self) -> Layout:
        """With keys, so that tombstones are written."""
        return Layout(
            format=JsonLines(on_null="write"),
            value_converter=AvroConverter(),
            content=SiblingObjects(keys=JsonLines()),
            key_converter=AvroConverter(),
            partitioner=self.partitioner,
            rotation=self.rotation,
            naming=Naming(schema_affix=self.affix),
            on_bad_timestamp=self.on_bad,
            schema_compatibility=self.mode,
        )


def arrow(records: Sequence[Record], first: int) -> pa.RecordBatch:
    """Consecutive records; one without a time has none that is valid."""
    bad = itertools.cycle([-1, LATE])
    times = [next(bad) if r.time is None else r.time for r in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first, first + len(records)), pa.int64()),
            pa.array(times, pa.int64()),
            pa.array([COUNTRIES[r.country].encode() for r in records], pa.binary()),
        ],
        names=["offset", "timestamp", "key"],
    )


def fields(records: Sequence[Record]) -> dict[str, FieldValues]:
    """Of the values of records that are no tombstones are used only."""
    usable = [Unusable("is none") if country == UNUSABLE else name for country, name in enumerate(COUNTRIES)]
    countries = FieldValues(np.array([r.country for r in records], np.int64), usable)
    times: list[Any] = [Unusable("is no time") if r.time is None else r.time for r in records]
    return {"country": countries, "time": FieldValues(np.arange(len(times)), times)}


@dataclass
class Written:
    """What a splitter made: the offsets of each object by its key, and those that are in none."""

    objects: dict[str, list[int]] = field(default_factory=dict)
    left_out: list[int] = field(default_factory=list)

    def by_folder(self) -> dict[str, list[int]]:
        """The offsets of each encoded partition."""
        folders: dict[str, list[int]] = {}
        for key, offsets in self.objects.items():
            folders.setdefault(key.rpartition("/")[0], []).extend(offsets)
        return {folder: sorted(offsets) for folder, offsets in folders.items()}


def split(case: Case, records: Sequence[Record], edges: Iterable[int], into: Written | None = None) -> Written:
    """Feed records in batches that end at these edges; nothing is appended to an object that ended."""
    splitter = Splitter(case.layout, topic="flights", partition=3, generation=0)
    written = Written() if into is None else into
    ended: set[str] = set()
    for low, high in itertools.pairwise(edges):
        part = records[low:high]
        tombstones = np.array([r.is_tombstone for r in part], np.bool_)
        schemas = [NO_SCHEMA if r.is_tombstone else r.schema for r in part]
        events = splitter.feed(
            arrow(part, low),
            np.array([r.size for r in part], np.int64),
            np.array(schemas, np.int64) if case.has_schemas else None,
            VERSIONS,
            tombstones if tombstones.any() else None,
            fields=fields(part),
        )
        for event in events:
            match event:
                case LeaveOut(row=row):
                    written.left_out.append(low + row)
                case Close(object=data_object):
                    ended.add(data_object.key)
                case Append(object=data_object, offsets=offsets):
                    assert data_object.key not in ended
                    written.objects.setdefault(data_object.key, []).extend(offsets.tolist())
    ended |= {event.object.key for event in splitter.finish()}
    assert ended >= written.objects.keys() or into is not None
    return written


class Place(NamedTuple):
    """Where a record goes: its folder, and the schema of the object if each schema has one of its own."""

    folder: str
    schema: int | None


@dataclass
class Plain:
    """Kafka Connect's rules, record by record."""

    case: Case
    done: list[tuple[str, list[int]]] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    current: dict[Place, tuple[int, list[int], list[int]]] = field(default_factory=dict)
    count: int = 0
    base: int | None = None
    last: str | None = None

    def take(self, offset: int, record: Record) -> None:
        """Write a record, or leave it out."""
        case, rotation = self.case, self.case.rotation
        time = None if record.is_tombstone and case.of_field else record.time
        folder = "tombstone" if record.is_tombstone else self.folder(record)
        if folder is None:
            self.left_out.append(offset)
            return
        if not record.is_tombstone:
            folder = self.with_name(folder, record)
        moves = time is not None and not record.is_tombstone
        interval = rotation.rotate_interval_ms
        if interval is not None and self.count:
            late = time is not None and self.base is not None and time - self.base >= interval
            moved = moves and self.last not in (None, folder)
            if late or (moved and rotation.rotate_on_partition_change):
                self.close_all()
        schema = NO_SCHEMA if record.is_tombstone else record.schema
        place = Place(folder, schema if case.has_schemas and case.mode is None else None)
        if case.has_schemas and case.mode is not None and place in self.current:
            target = self.current[place][0]
            try:
                if target != schema and self.verdict(target, schema) == "roll":
                    self.close_all()
            except SchemaChangeError:
                self.left_out.append(offset)
                return
        if place not in self.current:
            if len(self.current) == rotation.max_open_objects:
                del self.current[min(self.current, key=lambda p: self.current[p][1][-1])]
            self.current[place] = (schema, [], [0])
            self.done.append((folder, self.current[place][1]))
        _, offsets, size = self.current[place]
        offsets.append(offset)
        size[0] += record.size
        self.count += 1
        self.base = time if self.base is None else self.base
        self.last = folder if moves else self.last
        if size[0] >= rotation.max_bytes:
            del self.current[place]
        if self.count == rotation.flush_size:
            self.close_all()

    def verdict(self, target: int, schema: int) -> str:
        """Of the schemas of an object and of a record."""
        assert self.case.mode is not None
        return decide(self.case.mode, VERSIONS[target], VERSIONS[schema])

    def close_all(self) -> None:
        """Nothing is carried over."""
        self.current.clear()
        self.count, self.base, self.last = 0, None, None

    def folder(self, record: Record) -> str | None:
        """Of a record that is no tombstone."""
        country = COUNTRIES[record.country]
        match self.case.partitioner:
            case ByPartition():
                return "partition=3"
            case ByKey():
                return "key=%3F%3F" if record.country == UNUSABLE else f"key={country}"
            case ByField() | Chain() if record.country == UNUSABLE:
                return None
            case ByField():
                return f"country={country}"
            case Chain():
                return None if (time := self.folder_of_time(record)) is None else f"country={country}/{time}"
            case _:
                return self.folder_of_time(record)

    def folder_of_time(self, record: Record) -> str | None:
        """By day, or by hour."""
        by_hour = isinstance(self.case.layout.by_time, Hourly)
        if record.minute is None:
            names = ["year", "month", "day", *(["hour"] if by_hour else [])]
            return None if self.case.on_bad == "fail" else "/".join(f"{name}={UNDATED}" for name in names)
        day, hour = divmod(record.minute // 60, 24)
        return f"year=1970/month=01/day={day + 1:02d}" + (f"/hour={hour:02d}" if by_hour else "")

    def with_name(self, folder: str, record: Record) -> str:
        """The folder with the name of the schema."""
        name = f"schema_name={VERSIONS[record.schema].name if self.case.has_schemas else 'null'}"
        return {None: folder, "PREFIX": f"{name}/{folder}", "SUFFIX": f"{folder}/{name}"}[self.case.affix]


def partitioners(times: TimestampFrom) -> list[Partitioner]:
    """With this source of times."""
    chain = Chain(partitioners=(ByField(names=("country",)), Hourly(timestamp_from=times)))
    return [Hourly(timestamp_from=times), Daily(timestamp_from=times), chain]


WITHOUT_TIMES: list[Partitioner] = [ByPartition(), ByKey(), ByField(names=("country",))]
LIMITS = {
    "flush_size": st.one_of(st.none(), st.integers(1, 20)),
    "max_bytes": st.one_of(st.just(10**6), st.integers(1, 40)),
    "max_open_objects": st.one_of(st.just(400), st.integers(1, 5)),
}
ROTATIONS = st.builds(
    Rotation,
    **LIMITS,
    rotate_interval_ms=st.integers(1, 200).map(lambda minutes: minutes * MINUTE),
    rotate_on_partition_change=st.booleans(),
)
CASES = (
    st.builds(
        Case,
        rotation=ROTATIONS,
        partitioner=st.sampled_from(partitioners(RecordTime())),
        mode=st.sampled_from([None, None, "NONE", "BACKWARD"]),
        has_schemas=st.booleans(),
        affix=st.sampled_from([None, None, "PREFIX", "SUFFIX"]),
        on_bad=st.just(UNDATED),
    )
    | st.builds(
        Case,
        rotation=ROTATIONS,
        partitioner=st.sampled_from(partitioners(FieldTime(name="time"))),
        mode=st.none(),
        has_schemas=st.booleans(),
        affix=st.none(),
        on_bad=st.sampled_from(["fail", UNDATED]),
    )
    | st.builds(
        Case,
        rotation=st.builds(Rotation, **LIMITS),
        partitioner=st.sampled_from(WITHOUT_TIMES),
        mode=st.sampled_from([None, "NONE", "BACKWARD"]),
        has_schemas=st.booleans(),
        affix=st.sampled_from([None, "PREFIX", "SUFFIX"]),
        on_bad=st.just("fail"),
    )
)
RECORDS = st.lists(
    st.builds(
        Record,
        minute=st.one_of(st.none(), st.integers(0, 2_000), st.integers(0, 180), st.integers(0, 180)),
        country=st.sampled_from([0, 0, 1, 1, UNUSABLE]),
        schema=st.sampled_from([0, 0, 0, 1, 2, 3]),
        size=st.integers(0, 9),
        is_tombstone=st.sampled_from([False] * 5 + [True]),
    ),
    max_size=60,
)


def edges(cuts: Iterable[int], length: int) -> list[int]:
    """Where batches end."""
    return [0, *sorted(min(cut, length) for cut in cuts), length]


@settings(max_examples=500)
@given(case=CASES, records=RECORDS, in_order=st.booleans(), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_any_batching_makes_the_objects_of_the_rule_of_connect(
    case: Case, records: list[Record], in_order: bool, cuts: list[int]
) -> None:
    """Each record is in one object, in order; with tombstones, records without a time, schemas and all other limits."""
    if in_order:
        records.sort(key=lambda r: -1 if r.minute is None else r.minute)
    written = split(case, records, edges(cuts, len(records)))
    plain = Plain(case)
    for offset, record in enumerate(records):
        plain.take(offset, record)
    found = [(key.removeprefix("topics/flights/").rpartition("/")[0], o) for key, o in written.objects.items()]
    assert sorted(found) == sorted(plain.done)
    assert sorted(written.left_out) == plain.left_out
    everything = sorted([*written.left_out, *itertools.chain(*written.objects.values())])
    assert everything == list(range(len(records)))
    assert all(key.endswith(f"+{offsets[0]:010d}.json") for key, offsets in written.objects.items())


@settings(max_examples=200)
@given(
    records=RECORDS,
    partitioner=st.sampled_from(
        [*WITHOUT_TIMES, *partitioners(RecordTime()), *partitioners(FieldTime(name="time"))],
    ),
    slices=st.lists(st.integers(0, 60), max_size=4),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_any_slices_put_the_same_records_into_each_folder(
    records: list[Record], partitioner: Partitioner, slices: list[int], cuts: list[int]
) -> None:
    """A slice ends its objects; which records are in which folder is the same."""
    case = Case(Rotation(), partitioner, on_bad="fail" if partitioner in WITHOUT_TIMES else UNDATED)
    sliced = Written()
    ends = edges(slices, len(records))
    for low, high in itertools.pairwise(ends):
        within = [low, *sorted(cut for cut in cuts if low < cut < high), high]
        split(case, records, within, into=sliced)
    assert sliced.by_folder() == split(case, records, [0, len(records)]).by_folder()


def minutes(*times: int | None, **more: Any) -> list[Record]:
    """Records at these minutes."""
    return [Record(time, **more) for time in times]


def objects(records: Sequence[Record], **rotation: Any) -> list[list[int]]:
    """The offsets of objects by hour."""
    case = Case(Rotation(**rotation), on_bad=UNDATED)
    alone = split(case, records, range(len(records) + 1))
    assert alone == split(case, records, [0, len(records)])
    return sorted(alone.objects.values())


def test_late_records_share_an_object_by_default_and_end_objects_at_a_change() -> None:
    """The hours 18 and 17 in turn: an object for each hour, or, as in Connect by default, one for each record."""
    records = minutes(1080, 1075, 1081, 1076)
    assert objects(records, rotate_interval_ms=HOUR) == [[0, 2], [1, 3]]
    assert objects(records, rotate_interval_ms=HOUR, rotate_on_partition_change=True) == [[0], [1], [2], [3]]


def test_an_interval_begins_with_the_first_record_after_any_rule_ended_all_objects() -> None:
    """By ``flush_size``, too; a record that ends one object only does not begin it."""
    records = minutes(0, 1, 9, 11, 12, 18, 19)
    assert objects(records, rotate_interval_ms=10 * MINUTE) == [[0, 1, 2], [3, 4, 5, 6]]
    assert objects(records, rotate_interval_ms=10 * MINUTE, flush_size=2) == [[0, 1], [2, 3], [4, 5], [6]]
    assert objects(records, rotate_interval_ms=10 * MINUTE, max_bytes=2) == [[0, 1], [2], [3, 4], [5, 6]]


def test_the_record_at_the_interval_ends_the_objects_before_it() -> None:
    """One millisecond less does not."""
    assert objects(minutes(0, 9, 10), rotate_interval_ms=10 * MINUTE) == [[0, 1], [2]]
    assert objects(minutes(0, 9, 10), rotate_interval_ms=10 * MINUTE + 1) == [[0, 1, 2]]


def test_tombstones_have_times_and_their_folder_is_no_change() -> None:
    """As recorded from Connect (N07)."""
    records = [Record(0), Record(1, is_tombstone=True), Record(2), Record(12, is_tombstone=True), Record(3)]
    assert objects(records, rotate_interval_ms=10 * MINUTE, rotate_on_partition_change=True) == [[0, 2], [1], [3], [4]]


def test_records_without_a_time_take_no_part() -> None:
    """They begin no interval, end none, and their folder is no change."""
    records = minutes(None, 0, None, 5, None, 10)
    expected = [[0, 2, 4], [1, 3], [5]]
    assert objects(records, rotate_interval_ms=10 * MINUTE) == expected
    assert objects(records, rotate_interval_ms=10 * MINUTE, rotate_on_partition_change=True) == expected


def test_an_interval_longer_than_any_time_never_ends() -> None:
    """And does not overflow."""
    assert objects(minutes(0, 59), rotate_interval_ms=10**30) == [[0, 1]]


def test_topics_in_order_are_split_into_slices_of_batches() -> None:
    """Nothing is copied: one event for each object."""
    case = Case(Rotation(rotate_interval_ms=10 * MINUTE))
    splitter = Splitter(case.layout, topic="flights", partition=3, generation=0)
    records = minutes(*range(30))
    events = splitter.feed(arrow(records, 0), np.ones(30, np.int64), fields=fields(records))
    assert [event.rows for event in events if isinstance(event, Append)] == [slice(0, 10), slice(10, 20), slice(20, 30)]


class Counted(np.ndarray[Any, Any]):
    """Counts the values that are looked at."""

    looked_at: ClassVar[int] = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            Counted.looked_at += found.size
        return found


@pytest.mark.parametrize("on_partition_change", [False, True])
def test_ending_objects_at_every_record_takes_few_looks(on_partition_change: bool) -> None:
    """Far fewer than the square of the records, though the next late record is at the end."""
    count = 10_000
    times = np.zeros(count, np.int64)
    times[-1] = HOUR
    rotation = TimeRotation(Rotation(rotate_interval_ms=HOUR, rotate_on_partition_change=on_partition_change))
    codes = np.arange(count) % 2
    rotation.look_at(Encoded(codes, ["a", "b"], times=times.view(Counted)), codes, ["a", "b"], None)
    Counted.looked_at = 0
    start = 0
    while start < count:
        stop = rotation.first_roll(start, count)
        assert stop == start + 1 if on_partition_change else stop == max(count - 1, start + 1)
        rotation.write(start, start + 1)
        rotation.reset()  # as another rule may
        start += 1
    assert 0 < Counted.looked_at < count * 1_000
