"""The records of a planned replay, in their order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.codec import corrupt
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import CorruptControlError, DataLossError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.record import Record, Records
from airflow_provider_kafka_s3.reading.record_times import overlap, window
from airflow_provider_kafka_s3.reading.records import read_object
from airflow_provider_kafka_s3.reading.remote_file import REQUEST
from airflow_provider_kafka_s3.replay.merge import merged, most_at_once, offset_of
from airflow_provider_kafka_s3.replay.request import ReplayRequest

__all__ = ["ReplaySource", "without_first"]

_OPEN_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a request of each object that is open for a Kafka partition, all together."""
_LEAST: Final = 64 * 1024
"""Bytes of a request at least."""


class _LostSinceError(Exception):
    """An object was accepted as lost, or expired, since the replay was planned."""

    def __init__(self, one: ReplayObject, given: int) -> None:
        super().__init__(one.key)
        self.one = one
        self.given = given


def without_first(found: Iterable[Records], skip: int) -> Iterator[Records]:
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
        on_read: called for each records that are read, whether they are sent or not.
    """

    def __init__(
        self, log: TopicLog, request: ReplayRequest, plan: ReplayPlan, *, on_read: Callable[[], None] = lambda: None
    ) -> None:
        self._log = log
        self._on_read = on_read
        self._committed: dict[int, CommittedObjects] = {}
        self._request = request
        self._plan = plan
        self._low, self._high = window(request.since, request.until)
        self._wanted = None if request.offsets is None else Offsets({p: [ab] for p, ab in request.offsets.items()})
        self._is_filtered = not (self._low is self._high is None and request.key is None and request.offsets is None)

    def records(self, partition: int, skip: int = 0) -> Iterator[Records]:
        """The records of a Kafka partition without the first ones, some at a time."""
        steps: Sequence[Sequence[ReplayObject]] = self._plan.partitions[partition]
        sent_before = skip
        if not self._is_filtered:
            # Objects that are sent as a whole need not be read again.
            while steps and (number := sum(one.records for one in steps[0])) <= skip:
                steps, skip = steps[1:], skip - number
        passed = 0
        try:
            for records in itertools.chain.from_iterable(self._step(step, partition) for step in steps):
                if left := records[max(skip - passed, 0) :]:
                    yield left
                passed += len(records)
        except _LostSinceError as e:
            sent = sent_before + max(passed - skip, 0)
            raise self._lost_since(e, partition, sent, is_first=skip <= passed) from e

    def _step(self, step: Sequence[ReplayObject], partition: int) -> Iterator[Records]:
        self._keep({one.batch for one in step})
        if not _is_ordered(step):
            yield from itertools.chain.from_iterable(self._selected(one, partition, REQUEST) for one in step)
            return
        size = max(_OPEN_BYTES // most_at_once((one.low, one.high) for one in step), _LEAST)
        yield from merged((one.low, self._selected(one, partition, min(size, REQUEST))) for one in step)

    def _keep(self, batches: set[int]) -> None:
        """Read the documents of these batches, and drop those of others: a manifest may list many objects."""
        for batch in self._committed.keys() - batches:
            del self._committed[batch]
        for batch in batches - self._committed.keys():
            plan, decision = self._log.require_plan(batch)[0], self._log.require_decision(batch)[0]
            self._log.forget(batch)
            if plan.layout is None:
                raise self._changed(f"it has objects of batch {batch}, which is a reset")
            self._committed[batch] = CommittedObjects(self._log, plan, decision)

    def _selected(self, one: ReplayObject, partition: int, size: int) -> Iterator[Records]:
        parts = self._object(one, partition, size)
        if self._wanted is not None and not Offsets({partition: [(one.low, one.high + 1)]}) <= self._wanted:
            ((start, end),) = self._wanted[partition]
            parts = (Records.of(record for record in records if start <= offset_of(record) < end) for records in parts)
        if self._low is not None or self._high is not None or self._request.key is not None:
            parts = (Records.of(filter(self._selects, records)) for records in parts)
        return parts

    def _object(self, one: ReplayObject, partition: int, size: int) -> Iterator[Records]:
        objects = self._committed[one.batch]
        entry = self._entry(objects, one, partition)
        # Of a merged object one slice is sent, or several, each in its place.
        first = sum(part.records for part in itertools.takewhile(lambda part: part.id != one.slice, entry.by_slice))
        position = yielded = 0
        try:
            for records in read_object(objects, entry, without=one.without, request=size):
                self._on_read()
                piece = records[max(first - position, 0) : max(first + one.records - position, 0)]
                position, yielded = position + len(records), yielded + len(piece)
                yield piece
        except DataLossError as e:
            raise _LostSinceError(one, yielded) from e

    def _entry(self, objects: CommittedObjects, one: ReplayObject, partition: int) -> ObjectEntry:
        """The object in the manifest of its batch, which has the records that the plan of the replay has."""
        entry = objects.find(one.key)
        planned = SlicePart(id=one.slice, records=one.records, min_offset=one.low, max_offset=one.high)
        if entry is None or planned not in entry.by_slice or objects.plan.slices[one.slice].partition != partition:
            raise self._changed(
                f"it has {count(one.records, 'record')} of partition {partition} with offsets from {one.low} to "
                f"{one.high} in {one.key!r}, which the manifest of batch {one.batch} has not"
            )
        return entry

    def _changed(self, why: str) -> CorruptControlError:
        return corrupt(self._log.replay_url(self._plan.replay, "plan"), f"{why}. Nothing behind them was sent")

    def _selects(self, record: Record) -> bool:
        if self._request.key is not None and record.key != self._request.key:
            return False
        if self._low is None and self._high is None:
            return True
        time = record.timestamp
        return time is not None and overlap((time, time), self._low, self._high)

    def _lost_since(self, lost: _LostSinceError, partition: int, sent: int, *, is_first: bool) -> DataLossError:
        """The error for an object that is gone, with what was sent, and the way to send the rest.

        Args:
            lost: the object.
            partition: the Kafka partition.
            sent: number of records that were sent.
            is_first: whether earlier processes have sent none of the object, and of those beside it, behind its lowest
                offset.
        """
        replay_object, steps = lost.one, self._plan.partitions[partition]
        step = next(step for step in steps if replay_object in step)
        about = (
            f"replay {self._plan.replay!r} of topic {self._plan.topic!r}, partition {partition}: "
            f"{self._log.store.url(replay_object.key)} was accepted as lost, or expired on purpose, since the replay "
            f"was planned. It has {count(replay_object.records, 'record')} with offsets from {replay_object.low} to "
            f"{replay_object.high}"
        )
        if not _is_ordered(step):
            return DataLossError(
                f"{about}. {count(sent, 'record')} of the partition were sent: those of the objects before it in the "
                f"plan of the replay, and nothing behind it. The order of these objects is not known, so the rest "
                f"cannot be selected by offsets. Compare the target with the objects"
            )
        end = max(other.high for step in steps for other in step) + 1
        if self._request.offsets is not None:
            end = min(end, self._request.offsets[partition][1])
        is_exact = len(step) == 1 or (lost.given == 0 and is_first)
        start = str(replay_object.low) if is_exact else "START"
        where = (
            f"{count(sent, 'record')} of the partition were sent: all with lower offsets, and none behind this object"
            if is_exact
            else f"{count(sent, 'record')} of the partition were sent: all with lower offsets, and some with higher "
            f"ones. START is the offset behind the last of them, which the target shows"
        )
        return DataLossError(
            f"{about}. {where}. To send the rest, use another id with the same settings, and --offsets "
            f"{partition}:{start}-{end} --without lost (offsets={{{partition}: ({start}, {end})}}, without='lost')"
        )


def _is_ordered(step: Sequence[ReplayObject]) -> bool:
    return len(step) == 1 or all(one.has_offsets for one in step)
