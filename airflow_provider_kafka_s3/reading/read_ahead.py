"""Reads small objects before they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects

__all__ = ["ObjectsAhead", "ReadAhead"]

_AHEAD: Final = 8
"""Small objects that are read before they are needed."""
_SMALL: Final = 1024 * 1024
"""Bytes of a small object at most."""


class ObjectsAhead(CommittedObjects):
    """Objects whose bytes may have been read before they are needed."""

    def __init__(self, log: TopicLog, plan: Plan, decision: Manifest) -> None:
        super().__init__(log, plan, decision)
        self.ahead: dict[str, Future[bytes]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, partition: int) -> None:
        """Forget the objects without records of a Kafka partition: a batch of many partitions has many of them."""
        of_partition = {s.id for s in self.plan.slices if s.partition == partition}
        self._entries = {
            key: entry for key, entry in self._entries.items() if not of_partition.isdisjoint(entry.slices)
        }

    @override
    def get(self, entry: ObjectEntry, start: int | None = None, end: int | None = None) -> bytes:
        future = self.ahead.get(entry.key)
        if future is None:
            return super().get(entry, start, end)
        body = future.result()[start:end]
        if end is None or end >= entry.size:
            del self.ahead[entry.key]
        return body


class ReadAhead:
    """Reads small objects in other threads, a few before they are needed: a store takes longer than they do.

    Args:
        following: the objects and their batches, in the order in which they are read, about.
    """

    def __init__(self, following: Iterable[tuple[ObjectsAhead, ObjectEntry]]) -> None:
        self._left = iter(following)
        self._begun: set[tuple[int, str]] = set()
        self._open: dict[tuple[int, str], ObjectsAhead] = {}
        self._pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for (_, key), objects in self._open.items():
            objects.ahead.pop(key, None)

    def begin(self, objects: ObjectsAhead, entry: ObjectEntry) -> None:
        """Read those behind an object, which is needed now."""
        self._begun.add(place := (objects.plan.batch, entry.key))
        self._open.pop(place, None)
        while len(self._open) < _AHEAD and (following := next(self._left, None)) is not None:
            objects, entry = following
            if entry.size <= _SMALL and (place := (objects.plan.batch, entry.key)) not in self._begun:
                self._open[place] = objects
                objects.ahead[entry.key] = self._pool.submit(CommittedObjects.get, objects, entry, 0, entry.size)
