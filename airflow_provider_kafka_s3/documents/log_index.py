"""The index of the log: what is known of a hundred, or a thousand, resolved batches, in one document.

It is a pure function of their plans and manifests, which never change, so everybody who writes it writes the same. It
says where to look; it decides nothing.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from airflow_provider_kafka_s3.documents.codec import MAX_BATCH, MAX_PARTITION, Document
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import ResolvedBatch
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets, intersect
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.messages import count

__all__ = ["INDEX_SIZES", "MAX_HULL", "MAX_INDEXED", "MAX_RANGES", "Box", "IndexedBatch", "LogIndex", "indexed_batch"]

INDEX_SIZES: Final = (100, 1_000)
"""Batches of one index, ascending; each size divides the next one."""

MAX_INDEXED: Final = 10_000
"""Batches of one index at most, when it is read."""

MAX_RANGES: Final = 1_000
"""Ranges of offsets of one batch at most, over all Kafka partitions; with more, the index has their hull."""

MAX_HULL: Final = 100
"""Boxes of a hull at most; up to this many Kafka partitions, there is one for each."""

Box = tuple[int, int, int, int]
"""The lowest offset and one past the highest one of some Kafka partitions: first and last partition, low, end."""

_SHA256: Final = re.compile("[0-9a-f]{64}")
_NO_TIMESTAMP: Final = -1


class IndexedBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One resolved batch.

    Attributes:
        batch: its number.
        type: ``data`` or ``reset``, as in its plan.
        status: ``commit``, ``abandoned`` or ``reset``, as in its manifest.
        release: of an abandoned batch, as in its manifest.
        generation: number of resets before it.
        topic_id: incarnation of the topic; empty on brokers without topic ids.
        new_topic_id: incarnation that a reset continues with; None for data.
        tail: whether it continues from the end of the claimed offsets, as in its plan.
        run: key of the run that planned it.
        decided_by: key of the run whose driver decided it.
        claim: claimed offsets, skipped ones included; None: they have more than ``MAX_RANGES`` ranges, see the plan.
        hull: boxes that contain the claim, ascending, if ``claim`` is None; else empty.
        skipped: those of the claim that retention had deleted; empty if ``claim`` is None.
        objects: number of objects, those of keys, headers and dead letters included.
        records: number of records in its data objects.
        tombstones: number of these whose value is null and that have no object of values.
        ignored: number of null values that were left out.
        dead_letters: number of records in its objects of dead letters.
        size: bytes of all its objects.
        min_timestamp: lowest timestamp of its records in milliseconds since the epoch; -1 if it is unknown, for one of
            its objects at least, or if it has no objects. See ``ObjectEntry.min_timestamp``.
        max_timestamp: highest timestamp of its records; -1 exactly if the lowest is unknown.
        plan_sha256: checksum of its plan.
        manifest_sha256: checksum of its manifest.
        same_layout_as: the first batch of the document whose layout is that of this one, but for the time of the clock
            in it; None for a batch without a layout.
    """

    batch: int
    type: Literal["data", "reset"]
    status: Literal["commit", "abandoned", "reset"]
    generation: int
    topic_id: str
    run: str
    decided_by: str
    claim: Offsets | None
    skipped: Offsets
    plan_sha256: str
    manifest_sha256: str
    hull: tuple[Box, ...] = ()
    release: Literal["debt", "lost"] | None = None
    new_topic_id: str | None = None
    tail: bool = False
    objects: int = 0
    records: int = 0
    tombstones: int = 0
    ignored: int = 0
    dead_letters: int = 0
    size: int = 0
    min_timestamp: int = _NO_TIMESTAMP
    max_timestamp: int = _NO_TIMESTAMP
    same_layout_as: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MAX_BATCH or self.generation < 0:
            raise ValueError(f"batch {self.batch}, generation {self.generation} is out of range")
        counts = (self.objects, self.records, self.tombstones, self.ignored, self.dead_letters, self.size)
        if min(counts) < 0 or (self.status != "commit" and max(counts) > 0):
            raise ValueError(f"batch {self.batch} of status {self.status!r} cannot have the counts {counts}")
        if (
            (self.status == "abandoned") != (self.release is not None)
            or (self.type == "reset") != (self.new_topic_id is not None)
            or (self.status == "reset" and self.type != "reset")
            or (self.status == "commit" and self.type != "data")
        ):
            raise ValueError(f"batch {self.batch} of type {self.type!r} cannot have status {self.status!r}")
        if (self.type == "data") != (self.claim is None or bool(self.claim)) or not self.skipped <= (
            self.claim or NO_OFFSETS
        ):
            raise ValueError(f"batch {self.batch} of type {self.type!r} cannot have this claim")
        if (self.claim is None) != bool(self.hull) or not _is_hull(self.hull):
            raise ValueError(f"batch {self.batch} cannot have this hull")
        times = (self.min_timestamp, self.max_timestamp)
        if times[0] > times[1] or (_NO_TIMESTAMP in times and times != (_NO_TIMESTAMP,) * 2):
            raise ValueError(f"batch {self.batch} cannot have records with timestamps from {times[0]} to {times[1]}")
        if not (_SHA256.fullmatch(self.plan_sha256) and _SHA256.fullmatch(self.manifest_sha256)):
            raise ValueError(f"batch {self.batch} has a checksum that is no SHA-256")
        if (self.type == "data") != (self.same_layout_as is not None):
            raise ValueError(f"batch {self.batch} of type {self.type!r} cannot have layout {self.same_layout_as}")

    @property
    def claimed(self) -> Offsets:
        """The claim, of a batch that :func:`~airflow_provider_kafka_s3.batch.log_index.summaries` has yielded."""
        if self.claim is None:
            raise ValueError(f"the claim of batch {self.batch} is in its plan only")
        return self.claim

    @property
    def boxes(self) -> Iterator[Box]:
        """Boxes that contain the claim."""
        if self.claim is None:
            yield from self.hull
            return
        for partition, ranges in self.claim.items():
            yield partition, partition, ranges[0][0], ranges[-1][1]

    def may_claim(self, offsets: Offsets) -> bool:
        """Whether it claims some of these offsets; for a hull, whether it may."""
        if self.claim is not None:
            return bool(self.claim & offsets)
        for partition, ranges in offsets.items():
            box = self._box(partition)
            if box is not None and intersect(ranges, (box[2:],)):
                return True
        return False

    def may_claim_of(self, partitions: Iterable[int]) -> bool:
        """Whether it claims offsets of one of these Kafka partitions; for a hull, whether it may."""
        if self.claim is not None:
            return any(self.claim[partition] for partition in partitions)
        return any(self._box(partition) for partition in partitions)

    def _box(self, partition: int) -> Box | None:
        index = bisect.bisect_right(self.hull, partition, key=lambda box: box[0]) - 1
        return self.hull[index] if index >= 0 and partition <= self.hull[index][1] else None

    def within(self, ranges: int) -> IndexedBatch:
        """The same, with the hull in place of a claim of more ranges."""
        if self.claim is None or _ranges(self.claim) + _ranges(self.skipped) <= ranges:
            return self
        return msgspec.structs.replace(self, claim=None, skipped=NO_OFFSETS, hull=_hull(self.claim))

    @property
    def folded(self) -> ResolvedBatch:
        """What the marker depends on of it."""
        return ResolvedBatch(
            batch=self.batch,
            generation=self.generation,
            topic_id=self.topic_id,
            new_topic_id=self.new_topic_id,
            tail=self.tail,
            claim=self.claimed,
            skipped=self.skipped,
            status=self.status,
            release=self.release,
        )

    @property
    def covers(self) -> bool:
        """Whether its claim counts as landed: it was committed, or accepted as lost."""
        return self.status == "commit" or self.release == "lost"

    @property
    def has_times(self) -> bool:
        """Whether the timestamps of its records are known."""
        return self.min_timestamp != _NO_TIMESTAMP


class LogIndex(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consecutive resolved batches of a log.

    Attributes:
        topic: the Kafka topic.
        first: number of the first batch; the numbers before it fill whole documents of this size.
        batches: all of them, in the order of their numbers.
    """

    topic: str
    first: int
    batches: tuple[IndexedBatch, ...]

    def __post_init__(self) -> None:
        number = len(self.batches)
        if not 1 <= number <= MAX_INDEXED or self.first < 1 or (self.first - 1) % number:
            raise ValueError(f"an index of {count(number, 'batch')} cannot begin with batch {self.first}")
        if [b.batch for b in self.batches] != list(range(self.first, self.first + number)):
            raise ValueError(f"its batches are not the {number:,} from {self.first} on, in their order")
        for b in self.batches:
            if b.claim is not None and _ranges(b.claim) + _ranges(b.skipped) > MAX_RANGES:
                raise ValueError(f"batch {b.batch} has more than {MAX_RANGES:,} ranges of offsets")
            like = b.same_layout_as
            if like is not None and not (
                self.first <= like <= b.batch and self.batches[like - self.first].same_layout_as == like
            ):
                raise ValueError(f"batch {b.batch} has the layout of batch {like}, which is not the first with it")


def indexed_batch(
    plan: Plan, plan_sha256: str, decision: Manifest, manifest_sha256: str, *, same_layout_as: int | None
) -> IndexedBatch:
    """A batch with all of its claim; an index has it within ``MAX_RANGES``.

    Args:
        plan: of the batch.
        plan_sha256: its checksum.
        decision: about the batch.
        manifest_sha256: its checksum.
        same_layout_as: see :class:`IndexedBatch`.
    """
    low = high = _NO_TIMESTAMP
    if decision.objects and all(entry.has_times for entry in decision.objects):
        low = min(entry.min_timestamp for entry in decision.objects)
        high = max(entry.max_timestamp for entry in decision.objects)
    return IndexedBatch(
        batch=plan.batch,
        type="reset" if plan.type == "reset" else "data",  # a release is not decided
        status=decision.status,
        release=decision.release,
        generation=plan.generation,
        topic_id=plan.topic_id,
        new_topic_id=plan.new_topic_id,
        tail=plan.tail,
        run=plan.run,
        decided_by=decision.run,
        claim=plan.claim,
        skipped=plan.skipped,
        objects=len(decision.objects),
        records=decision.records,
        tombstones=decision.tombstones,
        ignored=decision.ignored,
        dead_letters=decision.dead_letters,
        size=decision.size,
        min_timestamp=low,
        max_timestamp=high,
        plan_sha256=plan_sha256,
        manifest_sha256=manifest_sha256,
        same_layout_as=same_layout_as,
    )


def _ranges(offsets: Offsets) -> int:
    return sum(len(ranges) for _, ranges in offsets.items())


def _hull(claim: Offsets) -> tuple[Box, ...]:
    """Boxes that contain a claim: of each Kafka partition, or of as few consecutive ones as ``MAX_HULL`` allows."""
    partitions = [*claim]
    width = -(-len(partitions) // MAX_HULL)
    groups = (partitions[at : at + width] for at in range(0, len(partitions), width or 1))
    return tuple(
        (some[0], some[-1], min(claim[p][0][0] for p in some), max(claim[p][-1][1] for p in some)) for some in groups
    )


def _is_hull(hull: tuple[Box, ...]) -> bool:
    """Whether these boxes are ascending, and not empty."""
    edges = [edge for first, last, _, _ in hull for edge in (first, last + 1)]
    return (
        len(hull) <= MAX_HULL
        and all(first <= last and 0 <= low < end < 2**63 for first, last, low, end in hull)
        and edges == sorted(edges)
        and (not edges or (edges[0] >= 0 and edges[-1] <= MAX_PARTITION + 1))
    )
