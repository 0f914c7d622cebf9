"""The records of a planned replay, in their order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ControlError
from airflow_provider_kafka_s3.reading.records import Record, read_records
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
        # Of a merged object one slice is sent, or several, each in its place.
        first = sum(part.records for part in itertools.takewhile(lambda part: part.id != one.slice, entry.by_slice))
        at = given = 0
        for records in read_records(self._log, plan, decision, entry):
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
