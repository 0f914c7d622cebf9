"""What a replay sends: which objects, in which order, and what their records lack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import SiblingObjects
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.offsets import Offsets, coalesce, subtract
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, NothingToReplayError
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.record_times import overlap, window
from airflow_provider_kafka_s3.reading.records import keeps_offsets, kept_parts
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.replay.request import ReplayRequest, new_plan, require_acknowledged

__all__ = ["plan_replay"]

_EXPIRED: Final = "expired on purpose (docs/expiry.md)"


def plan_replay(log: TopicLog, request: ReplayRequest, target: TopicInfo) -> ReplayPlan:
    """Choose the objects of a replay. Documents are read, and indices if the order of records depends on them.

    Args:
        log: of the landed topic.
        request: the replay.
        target: the topic that records are sent to.

    Raises:
        ConfigurationError: there are no records, or they lack what ``without`` does not name, or what the selection
            needs.
        DataLossError: records of the selection were accepted as lost, or have expired.
    """
    snapshot = Snapshot(log, at=request.at)
    selection = _Selection.of(request, snapshot)
    findings = _Found(log, request, selection, snapshot.coverage.expired_objects)
    for plan, decision, lost in snapshot.documents(selection.batches(snapshot)):
        findings.add_batch(plan, decision, lost)
    findings.add_lost_offsets(snapshot)
    steps = {partition: findings.steps(parts) for partition, parts in sorted(findings.parts.items())}
    findings.add_missing_offsets(snapshot)
    require_acknowledged(log, request, findings.missing)
    if not steps:
        raise _nothing(request, snapshot, selection)
    return new_plan(
        log,
        request,
        target,
        batch=snapshot.batch,
        partitions=steps,
        oldest=findings.oldest,
        newest=findings.newest,
        notes=tuple(f"{part}: {note}" for part, note in findings.notes.items()),
    )


@dataclass(frozen=True)
class _Selection:
    """Which records are wanted, by what documents have of them."""

    generation: int
    low: int | None
    high: int | None
    offsets: Offsets | None
    partitions: frozenset[int] | None

    @classmethod
    def of(cls, request: ReplayRequest, snapshot: Snapshot) -> _Selection:
        wanted, (low, high) = request.offsets, window(request.since, request.until)
        return cls(
            generation=snapshot.generation if request.generation is None else request.generation,
            low=low,
            high=high,
            offsets=None if wanted is None else Offsets({p: [bounds] for p, bounds in wanted.items()}),
            partitions=None if request.partitions is None else frozenset(request.partitions),
        )

    def batches(self, snapshot: Snapshot) -> list[int]:
        return snapshot.select_batches(self.low, self.high, self.offsets, self.partitions, generation=self.generation)

    def missing(self, snapshot: Snapshot) -> Offsets:
        """Offsets that no batch has: those that are selected by themselves, or lie between landed ones."""
        if self.offsets is None:
            return self.among(snapshot.coverage.missing(self.generation, self.low, self.high))
        return self.among(self.offsets - snapshot.coverage.claimed(self.generation))

    def has(self, partition: int, start: int, end: int) -> bool:
        """Whether some of these offsets are selected."""
        return bool(self.among(Offsets({partition: [(start, end)]})))

    def among(self, offsets: Offsets) -> Offsets:
        """Those of them that are selected."""
        if self.partitions is not None:
            offsets = Offsets({p: ranges for p, ranges in offsets.items() if p in self.partitions})
        return offsets if self.offsets is None else offsets & self.offsets

    def cuts(self, partition: int, part: SlicePart) -> bool:
        """Whether only some of the offsets from the lowest to the highest one are selected."""
        return self.offsets is not None and not _span(partition, part) <= self.offsets


@dataclass
class _Found:
    """Objects that are selected, and what their records lack.

    Attributes:
        expired: objects that were deleted on purpose, or will be.
        missing: what is not kept, and why.
        notes: what is kept otherwise in some records.
        parts: the objects of each Kafka partition.
        times: the lowest and the highest timestamp of each object; None: they are not known.
        runs: the runs that planned the batches of these objects.
    """

    log: TopicLog
    request: ReplayRequest
    selection: _Selection
    expired: ExpiredObjects
    missing: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    parts: dict[int, list[ReplayObject]] = field(default_factory=dict)
    times: set[tuple[int, int] | None] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    _nulls: int = 0
    _committed: dict[int, CommittedObjects] = field(default_factory=dict)

    @property
    def oldest(self) -> int | None:
        """No record that is sent has a lower timestamp; None: it is not known."""
        lowest = [] if None in self.times else [min(times[0] for times in self.times if times is not None)]
        low = [] if self.selection.low is None else [self.selection.low]
        return max(lowest + low, default=None)

    @property
    def newest(self) -> int | None:
        """No record that is sent has a higher timestamp; None: it is not known."""
        highest = [] if None in self.times else [max(times[1] for times in self.times if times is not None)]
        last = [] if self.selection.high is None else [self.selection.high - 1]
        return min(highest + last, default=None)

    def add_batch(self, plan: Plan, decision: Manifest, lost: frozenset[str]) -> None:
        """Add what is selected of a batch."""
        assert plan.layout is not None, "it is committed"
        selection = self.selection
        objects, kept = CommittedObjects(self.log, plan, decision), kept_parts(plan.layout)
        for entry in objects.of_records():
            if entry.has_times and not overlap(
                (entry.min_timestamp, entry.max_timestamp), selection.low, selection.high
            ):
                continue
            chosen = {
                part.id: (plan.slices[part.id].partition, part)
                for part in entry.by_slice
                if selection.has(plan.slices[part.id].partition, part.min_offset, part.max_offset + 1)
            }
            if not chosen:
                continue
            self.runs.add(plan.run)
            if entry.key in lost:
                self._miss("lost", f"{self.log.store.url(entry.key)} {self._why_lost(plan.batch, entry)}")
                continue
            if not objects.is_dead_letters(entry):
                for name, why in kept.missing.items():
                    self._miss(name, why)
                for part_name, note in kept.notes.items():
                    self.notes.setdefault(part_name, note)
            without = self._lost_beside(objects, entry, lost)
            self.times.add((entry.min_timestamp, entry.max_timestamp) if entry.has_times else None)
            for partition, part in chosen.values():
                if selection.cuts(partition, part) and not keeps_offsets(objects, entry, part):
                    raise self._not_whole(entry, part)
                self.parts.setdefault(partition, []).append(
                    ReplayObject(
                        batch=plan.batch,
                        key=entry.key,
                        slice=part.id,
                        records=part.records,
                        low=part.min_offset,
                        high=part.max_offset,
                        has_offsets=keeps_offsets(objects, entry, part, with_index=False),
                        without=without,
                    )
                )
        self._add_nulls(plan, decision)

    def add_lost_offsets(self, snapshot: Snapshot) -> None:
        """Add offsets that are in no object."""
        selection, coverage = self.selection, snapshot.coverage
        lost = selection.among(coverage.lost(selection.generation, selection.low, selection.high))
        expired = lost & coverage.expired(selection.generation)
        why = [f"offsets {expired} {_EXPIRED}"] if expired else []
        if accepted := lost - expired:
            why.append(f"offsets {accepted} were accepted as lost")
        if why:
            self.missing["lost"] = "; ".join([*why, *([self.missing["lost"]] if "lost" in self.missing else [])])

    def _why_lost(self, batch: int, entry: ObjectEntry) -> str:
        return _EXPIRED if self.expired.has(batch, entry) else "was accepted as lost"

    def add_missing_offsets(self, snapshot: Snapshot) -> None:
        """Add offsets that may be landed later, unless runs have landed the whole window."""
        missing = self.selection.missing(snapshot)
        if missing and not self._is_landed(snapshot):
            self.missing["gaps"] = snapshot.coverage.why_missing(self.selection.generation, missing)

    def _is_landed(self, snapshot: Snapshot) -> bool:
        """Whether runs whose batches are sent have landed the window of time: missing offsets are outside of it."""
        selection = self.selection
        if selection.offsets is not None or selection.low is None or selection.high is None:
            return False
        landed = snapshot.coverage.claimed(selection.generation)
        windows = []
        for record in in_threads(self.log.read_run, sorted(self.runs)):
            if record is None or record.window is None:
                continue
            if record.generation == selection.generation and record.target <= landed:
                windows.append(record.window)
        return not subtract(((selection.low, selection.high),), coalesce(windows))

    def steps(self, parts: list[ReplayObject]) -> tuple[tuple[ReplayObject, ...], ...]:
        """Objects of a Kafka partition in the order of their offsets; those whose offsets interleave together."""
        steps: list[list[ReplayObject]] = []
        end = -1
        for part in sorted(parts, key=lambda one: (one.low, one.key)):
            if part.low > end:
                steps.append([])
            steps[-1].append(part)
            end = max(end, part.high)
        return tuple(tuple(self._with_order(step)) if len(step) > 1 else tuple(step) for step in steps)

    def _with_order(self, step: list[ReplayObject]) -> Iterator[ReplayObject]:
        """Interleaving objects; indices show whether the order of their records is known."""
        self._keep({one.batch for one in step if not one.has_offsets})
        for replay_object in step:
            if replay_object.has_offsets:
                yield replay_object
                continue
            objects = self._committed[replay_object.batch]
            entry = objects.entry(replay_object.key)
            (part,) = (part for part in entry.by_slice if part.id == replay_object.slice)
            has_offsets = keeps_offsets(objects, entry, part)
            if not has_offsets:
                self._miss(
                    "order",
                    f"objects of several folders have offsets in turn, and do not keep them, such as "
                    f"{self.log.store.url(replay_object.key)}",
                )
            yield msgspec.structs.replace(replay_object, has_offsets=has_offsets)

    def _keep(self, batches: set[int]) -> None:
        """Read the documents of these batches, and drop those of others."""
        for batch in self._committed.keys() - batches:
            del self._committed[batch]
        for batch in batches - self._committed.keys():
            plan, decision = self.log.require_plan(batch)[0], self.log.require_decision(batch)[0]
            self.log.forget(batch)
            self._committed[batch] = CommittedObjects(self.log, plan, decision)

    def _lost_beside(self, objects: CommittedObjects, entry: ObjectEntry, lost: frozenset[str]) -> tuple[str, ...]:
        content = objects.layout.content
        if not isinstance(content, SiblingObjects) or objects.is_dead_letters(entry):
            return ()
        gone = tuple(name for name in content.siblings if objects.beside(entry, name).key in lost)
        for name in gone:
            url = self.log.store.url(objects.beside(entry, name).key)
            why = self._why_lost(objects.plan.batch, objects.beside(entry, name))
            self._miss("key" if name == ".keys" else "headers", f"{url} {why}")
        return gone

    def _add_nulls(self, plan: Plan, decision: Manifest) -> None:
        for result in decision.slices:
            s = plan.slices[result.id]
            if result.ignored and self.selection.has(s.partition, s.start, s.end):
                self._nulls += result.ignored
                self.missing["nulls"] = (
                    f"up to {count(self._nulls, 'null value')} were left out by on_null='ignore', such as in batch "
                    f"{plan.batch}, partition {s.partition}, offsets {s.start} to {s.end - 1}"
                )

    def _not_whole(self, entry: ObjectEntry, part: SlicePart) -> ConfigurationError:
        return ConfigurationError(
            f"the offsets of replay {self.request.replay!r} begin or end inside of {self.log.store.url(entry.key)}, "
            f"which has offsets from {part.min_offset} to {part.max_offset} with gaps, and does not keep them. Nothing "
            f"was sent. Select all of these offsets, or none"
        )

    def _miss(self, name: str, why: str) -> None:
        self.missing.setdefault(name, why)


def _span(partition: int, part: SlicePart) -> Offsets:
    return Offsets({partition: [(part.min_offset, part.max_offset + 1)]})


def _nothing(request: ReplayRequest, snapshot: Snapshot, selection: _Selection) -> NothingToReplayError:
    """The error for a selection without records, with what there is."""
    log, there = snapshot.log, snapshot.coverage.landed(selection.generation)
    generations = [number for number in snapshot.generations if number != selection.generation]
    others = f"; generations {', '.join(map(str, generations))} have others" if generations else ""
    return NothingToReplayError(
        f"no record of topic {log.topic!r} is in the selection of replay {request.replay!r}. Nothing was sent, and the "
        f"id is free. Batches up to {snapshot.batch} have these offsets of generation {selection.generation}: "
        f"{there}{others}. Compare the times, offsets, partitions and the generation of the replay with them"
    )
