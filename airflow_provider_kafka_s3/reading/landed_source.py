"""What another pipeline has landed, as the source of a pipeline in place of Kafka."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from msgspec import UNSET

from airflow_provider_kafka_s3.batch.coverage import Covering, covering_downward
from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import (
    Isolation,
    LogEnd,
    LogPosition,
    PipelineSource,
    Source,
    TimedOffset,
    TopicView,
)
from airflow_provider_kafka_s3.config import Landed, LandedConverter, Layout
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import LandedRange, Plan, Slice
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TopicNotFoundError
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.landed_parts import divides, require_parts
from airflow_provider_kafka_s3.reading.landed_pieces import Piece, Wanted, keeps_times, read_pieces
from airflow_provider_kafka_s3.reading.read_ahead import ObjectsAhead
from airflow_provider_kafka_s3.reading.records import keeps_offsets
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["LandedSource", "PlannedSource", "records_of_plan"]

_READERS: Final = 16
"""Documents of batches that are read at the same time."""

_KEPT: Final = 100_000
"""Objects of batches whose manifests are kept for the slices that share objects, at most."""


@dataclass(frozen=True)
class _Topic:
    """The topic."""

    topic_id: str | None
    cluster_id: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class _Latest:
    """The state of a topic.

    Attributes:
        etag: of its marker.
        marker: as it was read.
        snapshot: of the batches up to the first one that is not complete.
    """

    etag: str
    marker: Marker
    snapshot: Snapshot


class LandedSource(PipelineSource):
    """The objects of another pipeline in the same bucket.

    It has the records up to the last batch before which all are complete, as any reader has. Offsets without a record
    in any object are those of Kafka that had none, and of what was accepted as lost. It begins behind the first batches
    that were deleted on purpose, as a log of Kafka behind what retention has deleted.

    Args:
        store: the bucket.
        landed: the pipeline.
        connection_options: of commands in errors.
    """

    def __init__(self, store: DurableStore, landed: Landed, *, connection_options: Sequence[str] = ()) -> None:
        self._store = store
        self._landed = landed
        self._options = tuple(connection_options)
        self._states: dict[str, _Latest] = {}

    @property
    @override
    def landed(self) -> Landed:
        return self._landed

    # -- offsets ------------------------------------------------------------------------------------------------------

    @override
    def describe(self, topic: str) -> TopicView:
        marker, _ = self._marker(topic)
        partitions = tuple(sorted({*marker.start, *marker.covered}))
        return _Topic(marker.topic_id or None, marker.cluster_id or None, partitions)

    @override
    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        latest, readable = self._latest(topic), self.readable(topic)
        left = readable - latest.snapshot.coverage.expired(latest.marker.generation)
        return {p: left[p][0][0] if left[p] else readable.end(p) or 0 for p in partitions}

    @override
    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        readable = self.readable(topic)
        return {p: readable.end(p) or 0 for p in partitions}

    @override
    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        return {p: LogEnd(end, None) for p, end in self.ends(topic, partitions, isolation).items()}

    @override
    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        return {}

    @override
    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        """The lowest offset of the batches that have records of this time or later, and the latest time of that batch.

        A record from the future is in every later window, as in Kafka, and its time shows it.
        """
        latest = self._latest(topic)
        expired = latest.snapshot.coverage.expired_objects
        first: dict[int, tuple[int, int]] = {}

        def look(batches: Iterable[IndexedBatch]) -> None:
            first.clear()
            for batch in batches:
                if batch.status != "commit" or not batch.has_times or batch.max_timestamp < timestamp_ms:
                    continue
                if batch.generation != latest.marker.generation or expired.has_all(batch.batch):
                    continue
                for low_partition, high_partition, low, _ in batch.boxes:
                    for p in range(low_partition, high_partition + 1):
                        first[p] = min(first.get(p, (low, batch.max_timestamp)), (low, batch.max_timestamp))

        latest.snapshot.read_index(look)
        return {p: TimedOffset(*first[p]) if p in first else None for p in partitions}

    @override
    def readable(self, topic: str) -> Offsets:
        latest = self._latest(topic)
        return latest.snapshot.coverage.claimed(latest.marker.generation)

    @override
    def gone(self, topic: str) -> Offsets:
        latest = self._latest(topic)
        return latest.snapshot.coverage.expired(latest.marker.generation, in_part=True)

    @override
    def ranges(self, topic: str, offsets: Offsets, layout: Layout) -> Sequence[LandedRange]:
        topic_log, ranges = self._log(topic), list[LandedRange]()
        expired = functools.cache(lambda: self._latest(topic).snapshot.coverage.expired_objects)
        marker, _ = topic_log.require_marker()
        for covering in _covering(topic_log, marker, offsets):
            plan, objects = covering.plan, CommittedObjects(topic_log, covering.plan, covering.decision)
            of_batch = [(s.partition, s.start, s.end) for s in plan.slices]
            of_batch += [(p, start, end) for p, skipped in plan.skipped.items() for start, end in skipped]
            of_batch = [one for one in of_batch if Offsets.of([one]) & offsets]
            numbers = Counter(part.id for entry in objects.of_records() for part in entry.by_slice)
            by_start = {(s.partition, s.start): numbers[s.id] for s in plan.slices}
            ranges += [LandedRange(*one, plan.batch, by_start.get(one[:2], 0)) for one in of_batch]
            _require_parts(objects, layout, expired)
            topic_log.forget(plan.batch)
        # What was accepted as lost before it was landed is in no committed batch.
        others = offsets & marker.lost_in(marker.generation)
        others -= Offsets.of((part.partition, part.start, part.end) for part in ranges)
        ranges += [LandedRange(p, start, end, 0) for p, parts in others.items() for start, end in parts]
        return sorted(ranges)

    @override
    def of_plan(self, plan: Plan) -> Source:
        if plan.source is UNSET:
            raise ConfigurationError(
                f"batch {plan.batch} of topic {plan.topic!r} has read Kafka, and this process reads what pipeline "
                f"{self._landed.pipeline!r} has landed. Let a process with a connection to Kafka complete it, "
                f"or write its objects again"
            )
        return PlannedSource(self._store, plan, self._options)

    # -- records ------------------------------------------------------------------------------------------------------

    @override
    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        wanted = Offsets({partition: [(start, end)]})
        topic_log = self._log(topic)
        marker, _ = topic_log.require_marker()
        numbers = [covering.plan.batch for covering in _covering(topic_log, marker, wanted)]
        return self._read(topic_log, numbers, partition, (start, end), Wanted(whole=whole))

    def _read(
        self,
        topic_log: TopicLog,
        numbers: Sequence[int],
        partition: int,
        span: tuple[int, int],
        wanted: Wanted,
    ) -> Iterator[pa.RecordBatch]:
        """The records of some batches in a range.

        Args:
            topic_log: of the pipeline.
            numbers: of the batches.
            partition: the Kafka partition.
            span: first and end of the offsets, which divide no object.
            wanted: what batches have.
        """
        of_batches = in_threads(
            lambda n: self._pieces(topic_log, n, partition, span, wanted), numbers, threads=_READERS
        )
        return read_pieces([*itertools.chain.from_iterable(of_batches)], wanted)

    def _pieces(
        self, topic_log: TopicLog, number: int, partition: int, span: tuple[int, int], wanted: Wanted
    ) -> list[Piece]:
        objects = self._objects_of(topic_log, number, partition)
        pieces = []
        for entry in objects.of_records():
            first = 0
            for part in entry.by_slice:
                if objects.plan.slices[part.id].partition == partition and span[0] <= part.min_offset < span[1]:
                    is_unclear = wanted.has_times and entry.has_times and entry.records > 1
                    is_timed = not is_unclear or keeps_times(objects, entry)
                    has_offsets = keeps_offsets(objects, entry, part)
                    place = (part.min_offset, part.max_offset)
                    pieces.append(
                        Piece(objects, entry, first, part.records, *place, has_offsets, is_timed and has_offsets)
                    )
                first += part.records
        return pieces

    def _objects_of(self, topic_log: TopicLog, batch: int, partition: int) -> ObjectsAhead:
        """The objects of a batch; at least those that have records of a Kafka partition."""
        objects = self._all_of(topic_log, batch)
        objects.keep(partition)
        return objects

    def _all_of(self, topic_log: TopicLog, batch: int) -> ObjectsAhead:
        plan, decision = topic_log.require_plan(batch)[0], topic_log.require_decision(batch)[0]
        topic_log.forget(batch)
        return ObjectsAhead(topic_log, plan, decision)

    def _log(self, topic: str) -> TopicLog:
        address = TopicAddress(topics_dir=self._landed.topics_dir, pipeline=self._landed.pipeline, topic=topic)
        return TopicLog(self._store, address, self._options)

    def _marker(self, topic: str) -> tuple[Marker, str]:
        stored = (topic_log := self._log(topic)).read_marker()
        if stored is None:
            raise TopicNotFoundError(
                f"pipeline {self._landed.pipeline!r} below {self._landed.topics_dir!r} has not begun to land topic "
                f"{topic!r}, so there is nothing to read. Let it land the topic first, or correct source: "
                f"{topic_log.marker_url()}"
            )
        return stored

    def _latest(self, topic: str) -> _Latest:
        """The state of a topic; what it has read of the log is kept until a batch is added, or objects expire."""
        marker, etag = self._marker(topic)
        topic_log, latest = self._log(topic), self._states.get(topic)
        # Objects may expire while the marker stays.
        if (
            latest is None
            or latest.etag != etag
            or latest.snapshot.coverage.expired_objects != expired_objects(topic_log)
        ):
            latest = self._states[topic] = _Latest(etag, marker, Snapshot(topic_log))
        return latest


def records_of_plan(store: DurableStore, plan: Plan) -> Callable[[Slice], Iterator[pa.RecordBatch]]:
    """Gives the records of a slice of a plan that reads another pipeline.

    Args:
        store: the bucket.
        plan: that names the batches.
    """
    source = PlannedSource(store, plan)
    whole = plan.layout is not None and plan.layout.whole_records
    return lambda s: source.read(plan.topic, s.partition, s.start, s.end, plan.isolation, whole=whole)


class PlannedSource(LandedSource):
    """The batches that a plan names."""

    def __init__(self, store: DurableStore, plan: Plan, connection_options: Sequence[str] = ()) -> None:
        assert plan.source is not UNSET, "it reads a pipeline"
        super().__init__(store, plan.source.landed, connection_options=connection_options)
        self._batches = plan.source.batches
        self._plan = plan
        # Slices that share objects have mostly the same batches.
        self._known: dict[int, ObjectsAhead] = {}
        self._room = _KEPT
        self._lock = threading.Lock()

    @override
    def describe(self, topic: str) -> TopicView:
        """The topic that the batches were landed from, which may have been created again since."""
        now, batch = super().describe(topic), next((ranges[0][0] for ranges in self._batches if ranges), None)
        if batch is None:
            return now
        plan, _ = self._log(topic).require_plan(batch)
        return _Topic(plan.topic_id or None, now.cluster_id, now.partitions)

    @override
    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        assert plan.layout is not None, "it has slices"
        number = next(s.id for s in plan.slices if s.partition == partition and s.start <= start < s.end)
        numbers = [n for first, stop in self._batches[number] for n in range(first, stop)]
        is_typed = isinstance(plan.layout.value_converter, LandedConverter)
        wanted = Wanted(whole=whole, has_times=not divides(plan.layout), is_typed=is_typed)
        return self._read(self._log(topic), numbers, partition, (start, end), wanted)

    @override
    def _objects_of(self, topic_log: TopicLog, batch: int, partition: int) -> ObjectsAhead:
        if (known := self._known.get(batch)) is not None:
            return known
        objects = self._all_of(topic_log, batch)
        with self._lock:
            if self._plan.groups and len(objects) <= self._room:
                self._room -= len(objects)
                self._known[batch] = objects
                return objects
        objects.keep(partition)
        return objects


def _covering(topic_log: TopicLog, marker: Marker, offsets: Offsets) -> Iterator[Covering]:
    """The committed batches that have offsets; others are no longer, or not yet, landed."""
    landed = offsets & marker.covered_in(marker.generation)
    return covering_downward(topic_log, landed, generation=marker.generation, marker=marker)


def _require_parts(objects: CommittedObjects, layout: Layout, expired: Callable[[], ExpiredObjects]) -> None:
    """See :func:`require_parts`; objects that nobody expects any more are not read, so they need to have nothing."""
    entries = objects.of_records()
    try:
        require_parts(objects, entries, layout)
    except ConfigurationError:
        batch = objects.plan.batch
        lost = objects.log.amended_keys(batch)[0]
        left = [entry for entry in entries if entry.key not in lost and not expired().has(batch, entry)]
        if len(left) == len(entries):
            raise
        require_parts(objects, left, layout)
