"""What a replay sends: which objects, in which order, and what their records lack."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import SlicePart
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading.records import Record, kept_parts, read_records, record_objects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot, milliseconds, overlap
from airflow_provider_kafka_s3.replay.request import ReplayRequest, require_acknowledged

__all__ = ["ReplaySource", "plan_replay", "without_first"]

_MERGED: Final = 100
"""Records of interleaving objects that are merged at once."""


@dataclass(frozen=True)
class _Part:
    """Records of one Kafka partition in an object."""

    low: int
    high: int
    found: ReplayObject


def plan_replay(log: TopicLog, request: ReplayRequest) -> ReplayPlan:
    """Choose the objects of a replay; only documents are read.

    Args:
        log: of the landed topic.
        request: the replay.

    Raises:
        ConfigurationError: records lack what ``without`` does not name, or what the selection needs.
        DataLossError: objects of the selection were accepted as lost.
    """
    snapshot = Snapshot(log, at=request.at)
    low, high = milliseconds("since", request.since), milliseconds("until", request.until)
    wanted = None if request.offsets is None else Offsets({p: [bounds] for p, bounds in request.offsets.items()})
    only = None if request.partitions is None else frozenset(request.partitions)
    generation = snapshot.generation if request.generation is None else request.generation
    missing: dict[str, str] = {}
    parts: dict[int, list[_Part]] = {}
    oldest: list[int | None] = []
    not_indexed = False
    batches = snapshot.select_batches(low, high, wanted, only, generation=generation)
    for plan, decision, lost in snapshot.documents(batches):
        assert plan.layout is not None, "it is committed"
        kept, has_index = kept_parts(plan.layout).missing, plan.layout.has_index
        not_indexed = not_indexed or not has_index
        for entry in record_objects(log, plan, decision):
            if entry.has_times and not overlap((entry.min_timestamp, entry.max_timestamp), low, high):
                continue
            chosen = [
                (partition, part)
                for partition, part in ((plan.slices[part.id].partition, part) for part in entry.by_slice)
                if (only is None or partition in only) and (wanted is None or _span(partition, part) & wanted)
            ]
            if not chosen:
                continue
            if entry.key in lost:
                missing.setdefault("lost", f"{log.store.url(entry.key)} was accepted as lost")
                continue
            missing = {**{str(name): why for name, why in kept.items()}, **missing}
            if wanted is not None and "offset" in kept and not has_index:
                _require_whole(request, log.store.url(entry.key), chosen, wanted)
            oldest.append(entry.min_timestamp if entry.has_times else None)
            for partition, part in chosen:
                found = ReplayObject(batch=plan.batch, key=entry.key, records=part.records)
                parts.setdefault(partition, []).append(_Part(part.min_offset, part.max_offset, found))
    steps = {partition: _steps(found) for partition, found in sorted(parts.items())}
    if not_indexed and "offset" in missing and any(len(step) > 1 for some in steps.values() for step in some):
        missing["order"] = "objects of several folders have offsets in turn, and do not keep them"
    require_acknowledged(log, request, missing)
    return ReplayPlan(
        replay=request.replay,
        topic=log.topic,
        target=request.target,
        batch=snapshot.batch,
        settings=request.settings,
        partitions=steps,
        oldest=None if None in oldest or not oldest else min(time for time in oldest if time is not None),
    )


def _span(partition: int, part: SlicePart) -> Offsets:
    return Offsets({partition: [(part.min_offset, part.max_offset + 1)]})


def _require_whole(request: ReplayRequest, url: str, chosen: Sequence[tuple[int, SlicePart]], wanted: Offsets) -> None:
    """Refuse offsets that end inside of records whose offsets are not known."""
    for partition, part in chosen:
        if part.has_gaps and not _span(partition, part) <= wanted:
            raise ConfigurationError(
                f"the offsets of replay {request.replay!r} begin or end inside of {url}, which has offsets from "
                f"{part.min_offset} to {part.max_offset} with gaps, and does not keep them. Nothing was sent. Select "
                f"all of these offsets, or none"
            )


def _steps(parts: list[_Part]) -> tuple[tuple[ReplayObject, ...], ...]:
    """Objects in the order of their offsets; those whose offsets interleave together."""
    steps: list[list[_Part]] = []
    end = -1
    for part in sorted(parts, key=lambda one: (one.low, one.found.key)):
        if part.low > end:
            steps.append([])
        steps[-1].append(part)
        end = max(end, part.high)
    return tuple(tuple(one.found for one in step) for step in steps)


def without_first(found: Iterable[list[Record]], skip: int) -> Iterator[list[Record]]:
    """Records without the first ones, some at a time.

    Args:
        found: the records, some at a time.
        skip: how many are left out.
    """
    for records in found:
        if left := records[skip:]:
            yield left
        skip = max(skip - len(records), 0)


class ReplaySource:
    """The records of a planned replay, always the same ones in the same order.

    Args:
        log: of the landed topic, for this thread alone.
        request: the replay.
        plan: as it is stored.
    """

    def __init__(self, log: TopicLog, request: ReplayRequest, plan: ReplayPlan) -> None:
        self._log = log
        self._request = request
        self._plan = plan
        self._low = milliseconds("since", request.since)
        self._high = milliseconds("until", request.until)
        self._is_filtered = not (self._low is self._high is None and request.key is None and request.offsets is None)

    def records(self, partition: int, skip: int = 0) -> Iterator[list[Record]]:
        """The records of a Kafka partition without the first ones, some at a time."""
        steps: Sequence[Sequence[ReplayObject]] = self._plan.partitions[partition]
        if not self._is_filtered:
            # Objects that are sent as a whole need not be read again.
            while steps and (count := sum(one.records for one in steps[0])) <= skip:
                steps, skip = steps[1:], skip - count
        found: Iterator[list[Record]] = itertools.chain.from_iterable(self._step(step, partition) for step in steps)
        if self._is_filtered:
            found = ([*filter(self._selects, records)] for records in found)
        yield from without_first(found, skip)

    def _step(self, step: Sequence[ReplayObject], partition: int) -> Iterator[list[Record]]:
        streams = [self._object(one, partition) for one in step]
        if len(streams) == 1 or "order" in self._request.without:
            yield from itertools.chain.from_iterable(streams)
            return
        merged = heapq.merge(*map(itertools.chain.from_iterable, streams), key=self._offset)
        while records := [*itertools.islice(merged, _MERGED)]:
            yield records

    def _object(self, one: ReplayObject, partition: int) -> Iterator[list[Record]]:
        plan, _ = self._log.require_plan(one.batch)
        decision, _ = self._log.require_decision(one.batch)
        (entry,) = (entry for entry in decision.objects if entry.key == one.key)
        has_others = any(plan.slices[part.id].partition != partition for part in entry.by_slice)
        for records in read_records(self._log, plan, decision, entry):
            yield [record for record in records if record.partition == partition] if has_others else records

    def _offset(self, record: Record) -> int:
        if record.offset is None:
            raise ConfigurationError(
                f"replay {self._plan.replay!r} of topic {self._plan.topic!r}, partition {record.partition}: objects of "
                f"several folders have offsets in turn, and do not keep them, so the order is not known. Use "
                f"another id with without=('order',) to send one object after another"
            )
        return record.offset

    def _selects(self, record: Record) -> bool:
        request = self._request
        if request.key is not None and record.key != request.key:
            return False
        if self._low is not None or self._high is not None:
            time = record.timestamp
            if time is None or not overlap((time, time), self._low, self._high):
                return False
        if request.offsets is not None:
            start, end = request.offsets[record.partition]
            if record.offset is None:
                raise ConfigurationError(
                    f"replay {self._plan.replay!r} of topic {self._plan.topic!r}, partition {record.partition}: an "
                    f"object with offsets inside and outside of the selection does not keep them. Select whole "
                    f"objects, such as by partitions"
                )
            return start <= record.offset < end
        return True
