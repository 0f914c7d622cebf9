"""The marker: the coverage of a topic, folded from its resolved batches. A run replaces no other document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from airflow_provider_kafka_s3.documents.codec import MAX_BATCH, MAX_PARTITION, Document
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.offsets import Offsets, Ranges, coalesce, intersect, parse_ranges, subtract
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import LogTamperedError
from airflow_provider_kafka_s3.kafka.divergence import LogPosition

__all__ = ["ClosedGeneration", "Marker", "PartitionState", "ResolvedBatch", "fold", "fold_batch", "highest"]


class PartitionState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coverage of one Kafka partition.

    Attributes:
        covered: committed offsets.
        lost: the part of ``covered`` that is in no object: accepted gaps.
        debt: tail ranges of abandoned plans that no batch has covered since.
    """

    covered: Ranges = ()
    lost: Ranges = ()
    debt: Ranges = ()

    def __post_init__(self) -> None:
        for ranges in (self.covered, self.lost, self.debt):
            parse_ranges(ranges)
        if subtract(self.lost, self.covered) or intersect(self.debt, self.covered):
            raise ValueError("lost offsets must be covered, and debt must not be")


class ClosedGeneration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coverage of an earlier incarnation of the topic when a reset closed it.

    Attributes:
        generation: number of resets before it.
        topic_id: incarnation of the topic; empty on brokers without topic ids.
        partitions: the coverage.
    """

    generation: int
    topic_id: str
    partitions: dict[int, PartitionState]


class Marker(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored offsets of one topic of a pipeline.

    Attributes:
        topic: the Kafka topic.
        cluster_id: of the Kafka cluster; information.
        topic_id: incarnation of the topic; empty on brokers without topic ids.
        start: per partition the offset where reading starts before anything is covered; 0 for a partition not listed.
        generation: how many resets there were.
        revision: how many times the marker was replaced.
        resolved: numbers of the batches folded into it.
        partitions: the coverage.
        history: earlier generations.
        reached: per partition the highest offset that the log had reached when a resolved batch was planned, and the
            leader epoch then: ``[offset, epoch]``. A log of which a part below the offset was replaced since is not the
            landed one. None of partitions whose brokers have no epochs, nor in markers of earlier versions.
    """

    topic: str
    cluster_id: str
    topic_id: str
    start: dict[int, int]
    generation: int = 0
    revision: int = 0
    resolved: Ranges = ()
    partitions: dict[int, PartitionState] = msgspec.field(default_factory=dict)
    history: tuple[ClosedGeneration, ...] = ()
    reached: dict[int, LogPosition] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.generation < 0 or self.revision < 0 or any(p < 0 or o < 0 for p, o in self.start.items()):
            raise ValueError("negative numbers")
        if [closed.generation for closed in self.history] != list(range(len(self.history))) or (
            len(self.history) != self.generation
        ):
            raise ValueError(f"generation {self.generation} with {len(self.history)} closed ones, or not in order")
        by_partition: list[Mapping[int, object]] = [
            self.start,
            self.partitions,
            self.reached,
            *(closed.partitions for closed in self.history),
        ]
        if any(not 0 <= p <= MAX_PARTITION for mapping in by_partition for p in mapping):
            raise ValueError(f"Kafka partitions are numbers from 0 to {MAX_PARTITION}")
        if any(offset < 0 or not 0 <= epoch < 2**31 for offset, epoch in self.reached.values()):
            raise ValueError("offsets and leader epochs that no log has reached")
        parse_ranges(self.resolved)
        # Readers iterate over the log by these numbers, so they have to be bounded.
        if self.resolved and not (self.resolved[0][0] >= 1 and self.resolved[-1][1] <= MAX_BATCH + 1):
            raise ValueError(f"batches are numbers from 1 to {MAX_BATCH}")

    @property
    def covered(self) -> Offsets:
        """Committed offsets of this generation."""
        return _offsets(self.partitions, "covered")

    @property
    def lost(self) -> Offsets:
        """Accepted gaps of this generation."""
        return _offsets(self.partitions, "lost")

    @property
    def debt(self) -> Offsets:
        """Offsets that abandoned plans claimed and no batch has covered since."""
        return _offsets(self.partitions, "debt")

    def covered_in(self, generation: int) -> Offsets:
        """Committed offsets of this or an earlier generation."""
        return _offsets(self._partitions_of(generation), "covered")

    def lost_in(self, generation: int) -> Offsets:
        """Accepted gaps of this or an earlier generation."""
        return _offsets(self._partitions_of(generation), "lost")

    def _partitions_of(self, generation: int) -> dict[int, PartitionState]:
        if generation > self.generation:
            raise LogTamperedError(
                f"the marker of topic {self.topic!r} is at generation {self.generation}, and a run was planned at "
                f"generation {generation}: an older version of the marker was restored. Nothing was changed. Restore "
                f"its last version (bucket versioning)"
            )
        return self.partitions if generation == self.generation else self.history[generation].partitions

    @property
    def last_resolved(self) -> int:
        """The highest number of a resolved batch; 0 if there is none."""
        return self.resolved[-1][1] - 1 if self.resolved else 0

    def resolved_downward(self) -> Iterator[int]:
        """Numbers of the resolved batches, the last one first."""
        for first, end in reversed(self.resolved):
            yield from range(end - 1, first - 1, -1)

    def is_resolved(self, batch: int) -> bool:
        """Whether the batch is rolled forward and folded in."""
        return any(start <= batch < end for start, end in self.resolved)

    def has_resolved(self, batches: range) -> bool:
        """Whether all of some consecutive batches are resolved."""
        return any(start <= batches[0] and batches[-1] < end for start, end in self.resolved)


def _offsets(partitions: dict[int, PartitionState], name: str) -> Offsets:
    return Offsets({p: getattr(state, name) for p, state in partitions.items()})


@dataclass(frozen=True)
class ResolvedBatch:
    """What the marker depends on of a batch; the attributes are those of its plan and its manifest."""

    batch: int
    generation: int
    topic_id: str
    new_topic_id: str | None
    tail: bool
    claim: Offsets
    skipped: Offsets
    status: Literal["commit", "abandoned", "reset"]
    release: Literal["debt", "lost"] | None
    reached: Mapping[int, LogPosition] = field(default_factory=dict)


def fold(marker: Marker, plan: Plan, manifest: Manifest) -> Marker:
    """Fold a decided batch into the marker; see :func:`fold_batch`."""
    return fold_batch(
        marker,
        ResolvedBatch(
            batch=plan.batch,
            generation=plan.generation,
            topic_id=plan.topic_id,
            new_topic_id=plan.new_topic_id,
            tail=plan.tail,
            claim=plan.claim,
            skipped=plan.skipped,
            status=manifest.status,
            release=manifest.release,
            reached=plan.reached,
        ),
    )


def fold_batch(marker: Marker, batch: ResolvedBatch) -> Marker:
    """Fold a decided batch into the marker. Pure, and independent of the order within a generation.

    Raises:
        LogTamperedError: the batch is of another generation: a reset lies between it and the marker.
    """
    if batch.generation != marker.generation:
        raise LogTamperedError(
            f"batch {batch.batch} of topic {marker.topic!r} is of generation {batch.generation}, the marker of "
            f"generation {marker.generation}: offsets of one incarnation of the topic mean nothing in another. The "
            f"marker was changed. Nothing was written. Restore its last version (bucket versioning)"
        )
    resolved = coalesce((*marker.resolved, (batch.batch, batch.batch + 1)))
    step = {"resolved": resolved, "revision": marker.revision + 1}
    if batch.status == "reset":
        closed = ClosedGeneration(generation=marker.generation, topic_id=marker.topic_id, partitions=marker.partitions)
        return msgspec.structs.replace(
            marker,
            **step,
            generation=marker.generation + 1,
            topic_id=batch.new_topic_id,
            start={},
            partitions={},
            reached={},
            history=(*marker.history, closed),
        )
    covered, lost, debt, reached = marker.covered, marker.lost, marker.debt, marker.reached
    claim = batch.claim
    if batch.status == "commit":
        covered, lost, debt = covered | claim, lost | batch.skipped, debt - claim
        reached = highest(reached, batch.reached)
    elif batch.release == "lost":
        covered, lost, debt = covered | claim, lost | claim, debt - claim
    elif batch.tail:
        debt = debt | (claim - covered)
    partitions = {
        p: PartitionState(covered=covered[p], lost=lost[p], debt=debt[p]) for p in sorted({*covered, *lost, *debt})
    }
    # Brokers may begin to report topic ids: plans record them, and all plans of a generation have the same id, or none.
    topic_id = marker.topic_id or batch.topic_id
    return msgspec.structs.replace(marker, **step, topic_id=topic_id, partitions=partitions, reached=reached)


def highest(*reached: Mapping[int, LogPosition]) -> dict[int, LogPosition]:
    """Per partition the highest of some positions; of equal offsets that of the latest epoch."""
    furthest: dict[int, LogPosition] = {}
    for positions in reached:
        for partition, position in positions.items():
            furthest[partition] = max(position, furthest.get(partition, position))
    return dict(sorted(furthest.items()))
