"""The records of a planned replay, in their order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import ControlError
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.records import Record, read_object
from airflow_provider_kafka_s3.reading.snapshot import milliseconds, overlap
from airflow_provider_kafka_s3.replay.request import ReplayRequest

__all__ = ["ReplaySource", "without_first"]

_MERGED: Final = 100
"""Records of interleaving objects that are merged at once."""


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
        on_read: called for each records that are read, whether they are sent or not.
    """

    def __init__(
        self, log: TopicLog, request: ReplayRequest, plan: ReplayPlan, *, on_read: Callable[[], None] = lambda: None
    ) -> None:
        self._log = log
        self._on_read = on_read
        self._request = request
        self._plan = plan
        self._low = milliseconds("since", request.since)
        self._high = milliseconds("until", request.until)
        self._wanted = None if request.offsets is None else Offsets({p: [ab] for p, ab in request.offsets.items()})
        self._is_filtered = not (self._low is self._high is None and request.key is None and request.offsets is None)

    def records(self, partition: int, skip: int = 0) -> Iterator[list[Record]]:
        """The records of a Kafka partition without the first ones, some at a time."""
        steps: Sequence[Sequence[ReplayObject]] = self._plan.partitions[partition]
        if not self._is_filtered:
            # Objects that are sent as a whole need not be read again.
            while steps and (count := sum(one.records for one in steps[0])) <= skip:
                steps, skip = steps[1:], skip - count
        found: Iterator[list[Record]] = itertools.chain.from_iterable(self._step(step, partition) for step in steps)
        yield from without_first(found, skip)

    def _step(self, step: Sequence[ReplayObject], partition: int) -> Iterator[list[Record]]:
        streams = [self._selected(one, partition) for one in step]
        if len(streams) == 1 or not all(one.has_offsets for one in step):
            yield from itertools.chain.from_iterable(streams)
            return
        merged = heapq.merge(*map(itertools.chain.from_iterable, streams), key=_offset)
        while records := [*itertools.islice(merged, _MERGED)]:
            yield records

    def _selected(self, one: ReplayObject, partition: int) -> Iterator[list[Record]]:
        found = self._object(one, partition)
        if self._wanted is not None and not Offsets({partition: [(one.low, one.high + 1)]}) <= self._wanted:
            ((start, end),) = self._wanted[partition]
            found = ([r for r in records if start <= _offset(r) < end] for records in found)
        if self._low is not None or self._high is not None or self._request.key is not None:
            found = ([*filter(self._selects, records)] for records in found)
        return found

    def _object(self, one: ReplayObject, partition: int) -> Iterator[list[Record]]:
        objects = CommittedObjects(
            self._log, self._log.require_plan(one.batch)[0], self._log.require_decision(one.batch)[0]
        )
        entry = objects.entry(one.key)
        # Of a merged object one slice is sent, or several, each in its place.
        first = sum(part.records for part in itertools.takewhile(lambda part: part.id != one.slice, entry.by_slice))
        at = given = 0
        for records in read_object(objects, entry, without=one.without):
            self._on_read()
            some = records[max(first - at, 0) : max(first + one.records - at, 0)]
            at, given = at + len(records), given + len(some)
            yield some
        if given != one.records:
            raise ControlError(
                f"replay {self._plan.replay!r} of topic {self._plan.topic!r}, partition {partition}: "
                f"{self._log.store.url(one.key)} has {given:,} records with offsets from {one.low} to {one.high}, and "
                f"the plan of the replay {one.records:,}. Nothing behind them was sent. One of the documents was "
                f"changed: restore it (bucket versioning)"
            )

    def _selects(self, record: Record) -> bool:
        if self._request.key is not None and record.key != self._request.key:
            return False
        if self._low is None and self._high is None:
            return True
        time = record.timestamp
        return time is not None and overlap((time, time), self._low, self._high)


def _offset(record: Record) -> int:
    assert record.offset is not None, "it is known, or the plan would say so"
    return record.offset
