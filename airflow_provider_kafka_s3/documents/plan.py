"""The plan of a batch: its pinned offset ranges, slices and layout, written once, before anything is read."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple

import msgspec

from airflow_provider_kafka_s3.config import Landed, Layout
from airflow_provider_kafka_s3.documents.codec import MAX_BATCH, MAX_PARTITION, Document, builtins, digest
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets, Ranges, coalesce
from airflow_provider_kafka_s3.kafka.divergence import LogPosition
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.version import __version__

__all__ = [
    "MAX_LANDED_OBJECTS",
    "MAX_SLICES",
    "LandedRange",
    "Plan",
    "Slice",
    "SourceBatches",
    "cut_groups",
    "cut_slices",
    "fair_share",
    "first_slices",
    "join_ranges",
    "layout_digest",
    "plan_slices",
    "writer_versions",
]

MAX_SLICES: Final = 200
"""Slices of one Kafka partition in one batch at most: Spark plans a separate read for each, one after the other."""

MAX_LANDED_OBJECTS: Final = 20_000
"""Objects of another pipeline that a task reads at most, unless one range has more: 30 MB of their manifests."""


class Slice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, order=True):
    """A contiguous offset range of one Kafka partition, read by one Spark task, alone or with the rest of its group.

    Attributes:
        id: its number in the plan, from 0.
        partition: the Kafka partition.
        start: its first offset.
        end: one past its last offset.
    """

    id: int
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not (self.id >= 0 and 0 <= self.partition <= MAX_PARTITION and 0 <= self.start < self.end < 2**63):
            raise ValueError(f"{self} is not a range of offsets")


class SourceBatches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The batches of another pipeline that a plan reads in place of Kafka; their objects have its offsets.

    Attributes:
        topics_dir: prefix of the keys of that pipeline.
        pipeline: its name.
        batches: per slice, in the order of their ids, the numbers of these batches: ``[first, end)`` ranges.
    """

    topics_dir: str
    pipeline: str
    batches: tuple[Ranges, ...]

    def __post_init__(self) -> None:
        for ranges in self.batches:
            if coalesce(ranges) != ranges or any(first < 1 or end > MAX_BATCH + 1 for first, end in ranges):
                raise ValueError(f"{ranges} are no ranges of batches")

    @property
    def landed(self) -> Landed:
        """The pipeline."""
        return Landed(pipeline=self.pipeline, topics_dir=self.topics_dir)


class Plan(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a batch claims and how it will be written.

    Attributes:
        batch: its number, from 1, without gaps per topic.
        type: ``data``; ``reset``: the barrier between two incarnations of a topic; or ``release``: the end of the log,
            behind which there is no plan, since another pipeline may land the topic.
        topic: the Kafka topic.
        topic_id: incarnation of the topic that the offsets belong to; empty on brokers without topic ids.
        generation: number of resets before it.
        run: key of the run that planned it.
        tail: whether it continues from the end of the claimed offsets (or covers debt), rather than filling history.
        isolation: isolation level of the end offsets and of the read.
        slices: offset ranges to read, ordered by id.
        skipped: claimed offsets that retention deleted, under the policy ``skip``.
        layout: layout of the objects; None without data.
        layout_sha256: digest of the layout, computed by the version that planned it; information.
        start: of batch 1: the marker's ``start``, from which a lost marker is rebuilt. None for all other batches.
        new_topic_id: incarnation that a reset continues with; else None.
        writer: versions of the software that planned it; information.
        groups: ids of the slices that share objects, and that one task reads; together all ids in their order. Empty:
            no slice shares objects with another.
        epochs: per claimed Kafka partition the leader epoch at which the log had reached the end of the claim. None of
            partitions whose brokers have no epochs, nor in plans of earlier versions.
        source: what is read in place of Kafka; unset: Kafka.
    """

    batch: int
    type: Literal["data", "reset", "release"]
    topic: str
    topic_id: str
    generation: int
    run: str
    tail: bool
    isolation: Isolation
    slices: tuple[Slice, ...]
    skipped: Offsets
    layout: Layout | None
    layout_sha256: str
    start: dict[int, int] | None = None
    new_topic_id: str | None = None
    writer: str = ""
    groups: tuple[tuple[int, ...], ...] = ()
    epochs: dict[int, int] = msgspec.field(default_factory=dict)
    source: SourceBatches | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MAX_BATCH or self.generation < 0:
            raise ValueError(f"batch {self.batch}, generation {self.generation} is out of range")
        if [s.id for s in self.slices] != list(range(len(self.slices))):
            raise ValueError("slice ids are not 0, 1, 2, …")
        if self.groups and ([*itertools.chain(*self.groups)] != list(range(len(self.slices))) or () in self.groups):
            raise ValueError("its groups are not its slices in their order")
        if any(_place(a) >= _place(b) for group in self.grouped for a, b in itertools.pairwise(group)):
            raise ValueError("the slices of a group are not in the order of partitions and offsets")
        if (self.type == "data") != (self.layout is not None) or (self.type == "reset") != (
            self.new_topic_id is not None
        ):
            raise ValueError(f"type {self.type!r} does not go with its layout or new topic id")
        if (self.type == "data") != bool(self.slices or self.skipped):
            raise ValueError("a plan of data claims offsets, and another one claims none")
        starts = (self.start or {}).items()
        if (self.start is not None and self.batch != 1) or any(not 0 <= p <= MAX_PARTITION or o < 0 for p, o in starts):
            raise ValueError(f"batch {self.batch} cannot have the start offsets {self.start}")
        if self.read.count != sum(s.end - s.start for s in self.slices) or self.read & self.skipped:
            raise ValueError("its slices overlap")
        if not self.epochs.keys() <= {*self.claim} or any(not 0 <= epoch < 2**31 for epoch in self.epochs.values()):
            raise ValueError("its leader epochs are not those of its partitions")
        if self.source is not msgspec.UNSET and len(self.source.batches) != len(self.slices):
            raise ValueError("it has not the batches of each slice")

    @classmethod
    def complete(cls, fields: dict[str, Any]) -> None:
        """Give Parquet the encoding of integers and the ids of columns that it had before there was a choice."""
        match fields:
            case {"layout": {"format": {"kind": "parquet"} as settings}}:
                settings.setdefault("integer_encoding", "plain")
                settings.setdefault("field_ids", "schema")

    @property
    def origin(self) -> str:
        """Where its records are read from, for messages."""
        return "Kafka" if self.source is msgspec.UNSET else f"pipeline {self.source.pipeline!r}"

    @property
    def reached(self) -> dict[int, LogPosition]:
        """Per Kafka partition the end of its claim, and the leader epoch at which the log had reached it, if known."""
        claim = self.claim
        return {p: LogPosition(end, epoch) for p, epoch in self.epochs.items() if (end := claim.end(p)) is not None}

    @property
    def read(self) -> Offsets:
        """The offsets in its slices."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for s in self.slices:
            ranges.setdefault(s.partition, []).append((s.start, s.end))
        return Offsets(ranges)

    @property
    def grouped(self) -> tuple[tuple[Slice, ...], ...]:
        """Its slices, those together that share objects and that one task reads."""
        if not self.groups:
            return tuple((s,) for s in self.slices)
        return tuple(tuple(self.slices[i] for i in group) for group in self.groups)

    def group_of(self, slice_: int) -> tuple[Slice, ...]:
        """The slices that share objects with a slice, and itself.

        Args:
            slice_: its id.
        """
        group = next((group for group in self.groups if slice_ in group), (slice_,))
        return tuple(self.slices[i] for i in group)

    @property
    def claim(self) -> Offsets:
        """The offsets that belong to this batch alone: those in its slices and those skipped."""
        return self.read | self.skipped if self.skipped else self.read


def _place(s: Slice) -> tuple[int, int]:
    return s.partition, s.start


def layout_digest(layout: Layout) -> str:
    """Hex SHA-256 of a layout."""
    return digest(builtins(layout))


@functools.cache
def writer_versions() -> str:
    """Versions that the bytes depend on: of this package and of the libraries that compress and encode."""
    libraries = (f"{name} {metadata.version(name)}" for name in ("isal", "deflate", "pyarrow"))
    return ", ".join((f"airflow-provider-kafka-s3 {__version__}", *libraries, f"zlib {zlib.ZLIB_RUNTIME_VERSION}"))


def cut_slices(offsets: Offsets, *, max_records: int) -> tuple[Slice, ...]:
    """Cut offsets into contiguous slices of at most ``max_records`` offsets each, of nearly equal size."""
    slices: list[Slice] = []
    for partition, ranges in offsets.items():
        for start, end in ranges:
            count = -(-(end - start) // max_records)
            edges = [start + (end - start) * i // count for i in range(count + 1)]
            for a, b in itertools.pairwise(edges):
                slices.append(Slice(id=len(slices), partition=partition, start=a, end=b))
    return tuple(slices)


def cut_groups(offsets: Offsets, *, max_records: int) -> tuple[tuple[Slice, ...], tuple[tuple[int, ...], ...]]:
    """Cut offsets into slices, and these into groups of at most ``max_records`` offsets each, of nearly equal size.

    The groups are as few as possible: all offsets, those of one Kafka partition after those of another, are cut at the
    same distances. So a partition has at most one slice more than it would have ranges and whole groups.

    Returns:
        The slices, and the ids of those of each group.
    """
    total = offsets.count
    count = -(-total // max_records)
    slices: list[Slice] = []
    groups: list[list[int]] = []
    position = 0  # offsets before the slice
    for partition, ranges in offsets.items():
        for start, end in ranges:
            low = start
            while low < end:
                # Group i begins at total * i // count.
                group = ((position + 1) * count - 1) // total
                high = min(end, low + total * (group + 1) // count - position)
                if group == len(groups):
                    groups.append([])
                groups[group].append(len(slices))
                slices.append(Slice(id=len(slices), partition=partition, start=low, end=high))
                position, low = position + high - low, high
    return tuple(slices), tuple(map(tuple, groups))


class LandedRange(NamedTuple):
    """Offsets of a Kafka partition that another pipeline has landed together, and that are read as a whole.

    Attributes:
        partition: the Kafka partition.
        start: the first offset.
        end: one past the last offset.
        batch: that has the objects; 0: no batch has any.
        objects: number of these objects.
    """

    partition: int
    start: int
    end: int
    batch: int
    objects: int = 0


def join_ranges(
    ranges: Sequence[LandedRange], *, max_records: int, merge: bool
) -> tuple[tuple[Slice, ...], tuple[tuple[int, ...], ...], tuple[Ranges, ...]]:
    """Join ranges that follow each other to slices of at most ``max_records`` offsets, or of one larger range.

    A task has what the manifests tell of all objects of its slices in memory, so their number has a bound, too.

    Args:
        ranges: in the order of partition and offset.
        max_records: of a slice, or of all slices of a group.
        merge: whether slices share objects.

    Returns:
        The slices, the ids of those of each group, and per slice the numbers of its batches.
    """
    joined: list[list[LandedRange]] = []
    groups: list[list[int]] = []
    sizes: list[int] = []
    objects: list[int] = []
    for part in ranges:
        size = part.end - part.start
        before = joined[-1][-1] if joined else None
        follows = before is not None and (before.partition, before.end) == (part.partition, part.start)
        has_room = bool(sizes) and sizes[-1] + size <= max_records and objects[-1] + part.objects <= MAX_LANDED_OBJECTS
        if has_room and (follows or merge):
            sizes[-1] += size
            objects[-1] += part.objects
        else:
            sizes.append(size)
            objects.append(part.objects)
            groups.append([])
        if not (has_room and follows):
            groups[-1].append(len(joined))
            joined.append([])
        joined[-1].append(part)
    slices = tuple(
        Slice(id=i, partition=parts[0].partition, start=parts[0].start, end=parts[-1].end)
        for i, parts in enumerate(joined)
    )
    batches = tuple(coalesce((part.batch, part.batch + 1) for part in parts if part.batch) for parts in joined)
    return slices, tuple(map(tuple, groups)) if merge else (), batches


def first_slices(offsets: Offsets, *, max_records: int, most: int) -> Offsets:
    """The lowest offsets of every partition that fit into ``most`` slices of ``max_records`` offsets."""
    kept: dict[int, list[tuple[int, int]]] = {}
    for partition, ranges in offsets.items():
        room = most
        for start, end in ranges:
            if room <= 0:
                break
            stop = min(end, start + room * max_records)
            kept.setdefault(partition, []).append((start, stop))
            room -= -(-(stop - start) // max_records)
    return Offsets(kept)


def plan_slices(
    offsets: Offsets, *, max_records: int, merge: bool
) -> tuple[tuple[Slice, ...], tuple[tuple[int, ...], ...]]:
    """The slices of the next batch, and their groups if they share objects; the lowest offsets if not all fit into it.

    Args:
        offsets: to read.
        max_records: of a slice, or of all slices of a group.
        merge: whether slices share objects.
    """
    if not merge:
        return cut_slices(first_slices(offsets, max_records=max_records, most=MAX_SLICES), max_records=max_records), ()
    # Spark plans reads for each group. Groups have half of max_records at least, so no partition has more than
    # MAX_SLICES slices: one for each range, and one more for each edge of a group.
    offsets = first_slices(offsets, max_records=max_records, most=MAX_SLICES // 3)
    return cut_groups(fair_share(offsets, MAX_SLICES * max_records), max_records=max_records)


def fair_share(offsets: Offsets, limit: int) -> Offsets:
    """The lowest offsets of every partition, ``limit`` in total, shared evenly.

    The part of a share that a small partition does not use goes to the others.
    """
    sizes = {p: sum(b - a for a, b in ranges) for p, ranges in offsets.items()}
    if sum(sizes.values()) <= limit:
        return offsets
    shares: dict[int, int] = {}
    left = limit
    for rank, partition in enumerate(sorted(sizes, key=lambda p: (sizes[p], p))):
        # The remainder of the division goes to the first partitions that can use it.
        share = min(sizes[partition], -(-left // (len(sizes) - rank)))
        shares[partition] = share
        left -= share
    return Offsets({p: _first(offsets[p], share) for p, share in shares.items()}) if shares else NO_OFFSETS


def _first(ranges: Ranges, count: int) -> Ranges:
    taken: list[tuple[int, int]] = []
    for start, end in ranges:
        if count <= 0:
            break
        taken.append((start, min(end, start + count)))
        count -= end - start
    return tuple(taken)
