"""What another pipeline has landed, as the source of a pipeline in place of Kafka."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET

from airflow_provider_kafka_s3.arrays import (
    ARE_LINES,
    BOUNDS,
    DIVISIBLE,
    NO_TIMESTAMP,
    RECORD_SCHEMA,
    WHOLE_RECORD_SCHEMA,
    Array,
    Int64Array,
    binary_array,
    int64_array,
    int64_values,
)
from airflow_provider_kafka_s3.batch.coverage import Covering, covering_downward
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import (
    Isolation,
    LogEnd,
    LogPosition,
    PipelineSource,
    Source,
    SourceOfLog,
    TimedOffset,
    TopicView,
)
from airflow_provider_kafka_s3.config import Envelope, JsonConverter, JsonLines, Landed, LandedConverter, Layout
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import LandedRange, Plan, Slice
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ControlError, DataLossError, TopicNotFoundError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.landed_parts import divides, require_parts
from airflow_provider_kafka_s3.reading.landed_values import landed_values
from airflow_provider_kafka_s3.reading.ordered_batches import in_order
from airflow_provider_kafka_s3.reading.record import Records
from airflow_provider_kafka_s3.reading.records import keeps_offsets, read_object
from airflow_provider_kafka_s3.reading.remote_file import REQUEST
from airflow_provider_kafka_s3.reading.row_offsets import RowOffsets
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["LandedSource", "SourceByLog", "records_of_plan"]

log = logging.getLogger(__name__)

_READERS: Final = 16
"""Documents of batches that are read at the same time."""
_OPEN_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a request of each object that is open at the same time, all together."""
_LEAST: Final = 64 * 1024
"""Bytes of a request at least."""

_AHEAD: Final = 8
"""Small objects that are read before they are needed."""
_SMALL: Final = 1024 * 1024
"""Bytes of a small object at most."""
_KEPT: Final = 100_000
"""Objects of batches whose manifests are kept for the slices that share objects, at most."""

_DIVISIBLE: Final = pa.field(DIVISIBLE, pa.bool_(), nullable=False)


@dataclass(frozen=True)
class _Topic:
    """The topic."""

    topic_id: str | None
    cluster_id: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class _Piece:
    """The records of one Kafka partition in an object.

    Attributes:
        objects: of its batch.
        entry: the object.
        first: number of records of other partitions before them.
        records: number of records.
        low: the lowest offset.
        high: the highest offset.
        has_offsets: whether the offset of each record is known.
        is_exact: whether its timestamp is known, too, or that it has none.
    """

    objects: _ObjectsAhead
    entry: ObjectEntry
    first: int
    records: int
    low: int
    high: int
    has_offsets: bool
    is_exact: bool

    @property
    def place(self) -> tuple[int, str]:
        """Where it is among others: no two have the same."""
        return self.low, self.entry.key


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


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What batches of records have.

    Attributes:
        whole: whether they have keys and headers.
        has_times: whether records have a timestamp between the bounds of those of their object, if it keeps none.
        is_typed: whether values are Avro datums with their schema, and not those of Kafka.
    """

    whole: bool
    has_times: bool = True
    is_typed: bool = False


class LandedSource(PipelineSource):
    """The objects of another pipeline in the same bucket.

    It has the records up to the last batch before which all are complete, as any reader has. Offsets without a record
    in any object are those of Kafka that had none, and of what was accepted as lost.

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
        readable = self.readable(topic)
        return {p: readable[p][0][0] if readable[p] else 0 for p in partitions}

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
        first: dict[int, tuple[int, int]] = {}

        def look(batches: Iterable[IndexedBatch]) -> None:
            first.clear()
            for batch in batches:
                if batch.status != "commit" or not batch.has_times or batch.max_timestamp < timestamp_ms:
                    continue
                if batch.generation != latest.marker.generation:
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
    def ranges(self, topic: str, offsets: Offsets, layout: Layout) -> Sequence[LandedRange]:
        topic_log, ranges = self._log(topic), list[LandedRange]()
        for covering in self._covering(topic_log, offsets):
            plan, objects = covering.plan, CommittedObjects(topic_log, covering.plan, covering.decision)
            of_batch = [(s.partition, s.start, s.end) for s in plan.slices]
            of_batch += [(p, start, end) for p, skipped in plan.skipped.items() for start, end in skipped]
            ranges += [LandedRange(*one, plan.batch) for one in of_batch if Offsets.of([one]) & offsets]
            _require_parts(objects, layout)
            topic_log.forget(plan.batch)
        # What was accepted as lost before it was landed is in no committed batch.
        marker, _ = topic_log.require_marker()
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
        return _PlannedSource(self._store, plan, self._options)

    # -- records ------------------------------------------------------------------------------------------------------

    @override
    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        wanted = Offsets({partition: [(start, end)]})
        topic_log = self._log(topic)
        numbers = [covering.plan.batch for covering in self._covering(topic_log, wanted)]
        return self._read(topic_log, numbers, partition, (start, end), _Wanted(whole=whole))

    def _read(
        self,
        topic_log: TopicLog,
        numbers: Sequence[int],
        partition: int,
        span: tuple[int, int],
        wanted: _Wanted,
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
        pieces = sorted(itertools.chain.from_iterable(of_batches), key=lambda piece: piece.place)
        with _ReadAhead(pieces) as ahead:
            for chain in _chains(pieces):
                request = min(max(_OPEN_BYTES // len(chain), _LEAST), REQUEST)
                read = functools.partial(_batches, wanted=wanted, request=request, ahead=ahead)
                exact = _Cut(in_order((piece.low, read(piece)) for piece in chain if piece.is_exact))
                for piece in chain:
                    if not piece.is_exact:
                        yield from exact.below(piece.low)
                        yield from read(piece)
                yield from exact.below(None)

    def _pieces(
        self, topic_log: TopicLog, number: int, partition: int, span: tuple[int, int], wanted: _Wanted
    ) -> list[_Piece]:
        objects = self._objects_of(topic_log, number)
        pieces = []
        for entry in objects.of_records():
            first = 0
            for part in entry.by_slice:
                if objects.plan.slices[part.id].partition == partition and span[0] <= part.min_offset < span[1]:
                    is_timed = _keeps_times(objects, entry) or not (wanted.has_times and entry.has_times)
                    has_offsets = keeps_offsets(objects, entry, part)
                    place = (part.min_offset, part.max_offset)
                    pieces.append(
                        _Piece(objects, entry, first, part.records, *place, has_offsets, is_timed and has_offsets)
                    )
                first += part.records
        return pieces

    def _objects_of(self, topic_log: TopicLog, batch: int) -> _ObjectsAhead:
        plan, decision = topic_log.require_plan(batch)[0], topic_log.require_decision(batch)[0]
        topic_log.forget(batch)
        return _ObjectsAhead(topic_log, plan, decision)

    def _covering(self, topic_log: TopicLog, offsets: Offsets) -> Iterator[Covering]:
        """The committed batches that have offsets; others are no longer, or not yet, landed."""
        marker, _ = topic_log.require_marker()
        landed = offsets & marker.covered_in(marker.generation)
        return covering_downward(topic_log, landed, generation=marker.generation, marker=marker)

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
        """The state of a topic; what it has read of the log is kept until the log has another batch."""
        marker, etag = self._marker(topic)
        latest = self._states.get(topic)
        if latest is None or latest.etag != etag:
            latest = self._states[topic] = _Latest(etag, marker, Snapshot(self._log(topic)))
        return latest


def records_of_plan(store: DurableStore, plan: Plan) -> Callable[[Slice], Iterator[pa.RecordBatch]]:
    """Gives the records of a slice of a plan that reads another pipeline.

    Args:
        store: the bucket.
        plan: that names the batches.
    """
    source = _PlannedSource(store, plan)
    whole = plan.layout is not None and plan.layout.whole_records
    return lambda s: source.read(plan.topic, s.partition, s.start, s.end, plan.isolation, whole=whole)


class _PlannedSource(LandedSource):
    """The batches that a plan names."""

    def __init__(self, store: DurableStore, plan: Plan, connection_options: Sequence[str] = ()) -> None:
        assert plan.source is not UNSET, "it reads a pipeline"
        super().__init__(store, plan.source.landed, connection_options=connection_options)
        self._batches = plan.source.batches
        self._plan = plan
        # Slices that share objects have mostly the same batches.
        self._known: dict[int, _ObjectsAhead] = {}
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
        wanted = _Wanted(whole=whole, has_times=not divides(plan.layout), is_typed=is_typed)
        return self._read(self._log(topic), numbers, partition, (start, end), wanted)

    @override
    def _objects_of(self, topic_log: TopicLog, batch: int) -> _ObjectsAhead:
        if (known := self._known.get(batch)) is not None:
            return known
        objects = super()._objects_of(topic_log, batch)
        with self._lock:
            if self._plan.groups and len(objects) <= self._room:
                self._room -= len(objects)
                self._known[batch] = objects
        return objects


def _require_parts(objects: CommittedObjects, layout: Layout) -> None:
    """See :func:`require_parts`; objects that were accepted as lost are not read, so they need to have nothing."""
    entries = objects.of_records()
    try:
        require_parts(objects, entries, layout)
    except ConfigurationError:
        lost = objects.log.amended_keys(objects.plan.batch)[0]
        if not lost:
            raise
        require_parts(objects, [entry for entry in entries if entry.key not in lost], layout)


def _chains(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces in the order of their lowest offsets, those together whose offsets interleave."""
    chain: list[_Piece] = []
    end = -1
    for piece in pieces:
        if chain and piece.low > end:
            yield chain
            chain = []
        chain.append(piece)
        end = max(end, piece.high)
    if chain:
        yield chain


class SourceByLog(SourceOfLog):
    """The source that the log of a topic shows: for commands, which are not told it.

    Args:
        kafka: the cluster.
        topic_log: of the topic.
    """

    def __init__(self, kafka: Source, topic_log: TopicLog) -> None:
        self._kafka = kafka
        self._log = topic_log

    @override
    def current(self) -> Source:
        return self._current

    @functools.cached_property
    def _current(self) -> Source:
        try:
            stored = self._log.read_marker()
        except ControlError:  # a repair writes it again
            stored = None
        newest = 1 if stored is None else stored[0].last_resolved + 1
        for batch in range(newest, 0, -1):
            plan = self._log.read_plan(batch)
            if plan is not None and plan.slices:  # a reset, and what is accepted as gone, reads nothing
                return self._kafka if plan.source is UNSET else LandedSource(self._log.store, plan.source.landed)
        return self._kafka

    @override
    def of_plan(self, plan: Plan) -> Source:
        return self._kafka if plan.source is UNSET else _PlannedSource(self._log.store, plan)

    @override
    def describe(self, topic: str) -> TopicView:
        return self._current.describe(topic)

    @override
    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return self._current.earliest(topic, partitions)

    @override
    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        return self._current.ends(topic, partitions, isolation)

    @override
    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        return self._current.log_ends(topic, partitions, isolation)

    @override
    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        return self._current.divergences(topic, reached)

    @override
    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        return self._current.at_timestamp(topic, partitions, timestamp_ms)

    @override
    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        return self._current.read(topic, partition, start, end, isolation, whole=whole)


class _ObjectsAhead(CommittedObjects):
    """Objects whose bytes may have been read before they are needed."""

    def __init__(self, log: TopicLog, plan: Plan, decision: Manifest) -> None:
        super().__init__(log, plan, decision)
        self._number = len(decision.objects)
        self.ahead: dict[str, Future[bytes]] = {}

    def __len__(self) -> int:
        return self._number

    @override
    def get(self, entry: ObjectEntry, start: int | None = None, end: int | None = None) -> bytes:
        future = self.ahead.get(entry.key)
        if future is None:
            return super().get(entry, start, end)
        body = future.result()[start:end]
        if end is None or end >= entry.size:
            del self.ahead[entry.key]
        return body


class _ReadAhead:
    """Reads small objects in other threads, a few before they are needed: a store takes longer than they do.

    Args:
        pieces: in the order in which they are read, about.
    """

    def __init__(self, pieces: Iterable[_Piece]) -> None:
        self._left = iter(pieces)
        self._begun: set[tuple[int, str]] = set()
        self._open: dict[tuple[int, str], _ObjectsAhead] = {}
        self._pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for (_, key), objects in self._open.items():
            objects.ahead.pop(key, None)

    def begin(self, piece: _Piece) -> None:
        """Read the next ones, of which this one is needed now."""
        self._begun.add(place := (piece.objects.plan.batch, piece.entry.key))
        self._open.pop(place, None)
        while len(self._open) < _AHEAD and (following := next(self._left, None)) is not None:
            objects, entry = following.objects, following.entry
            if entry.size <= _SMALL and (place := (objects.plan.batch, entry.key)) not in self._begun:
                self._open[place] = objects
                objects.ahead[entry.key] = self._pool.submit(CommittedObjects.get, objects, entry, 0, entry.size)


class _Cut:
    """Batches in the order of offsets, which can be cut at any offset."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def below(self, bound: int | None) -> Iterator[pa.RecordBatch]:
        """The next records whose offsets are below a bound; None: all."""
        while (batch := self._left or next(self._batches, None)) is not None:
            self._left = None
            offsets = int64_values(batch.column("offset"))
            stop = batch.num_rows if bound is None else int(np.searchsorted(offsets, bound))
            if stop:
                yield batch.slice(0, stop)
            if stop < batch.num_rows:
                self._left = batch.slice(stop)
                return


def _batches(piece: _Piece, *, wanted: _Wanted, request: int, ahead: _ReadAhead) -> Iterator[pa.RecordBatch]:
    """The records of a piece, some at a time; none if they were accepted as lost.

    Args:
        piece: the records.
        wanted: what batches have.
        request: bytes of a request.
        ahead: reads those behind it.
    """
    ahead.begin(piece)
    objects, began = piece.objects, False
    try:
        for batch in _present(piece, wanted, request):
            began = True
            yield batch
    except DataLossError:
        if began or piece.entry.key not in objects.log.amended_keys(objects.plan.batch)[0]:
            raise
        log.warning(
            "topic %s: %s of batch %d of pipeline %s were accepted as lost, and are left out: %s",
            objects.plan.topic,
            count(piece.records, "record"),
            objects.plan.batch,
            objects.log.pipeline,
            objects.url(piece.entry),
        )


def _present(piece: _Piece, wanted: _Wanted, request: int) -> Iterator[pa.RecordBatch]:
    is_dead = piece.objects.is_dead_letters(piece.entry)
    rows = _typed_rows(piece) if wanted.is_typed and not is_dead else _rows(piece, wanted, request)
    position = done = 0
    for block in rows:
        of_piece = block.between(max(piece.first - position, 0), max(piece.first + piece.records - position, 0))
        position += len(block.values)
        if len(of_piece.values):
            yield _to_arrow(piece, of_piece, done, wanted)
            done += len(of_piece.values)


@dataclass(frozen=True)
class _Rows:
    """Rows of an object; None: its rows do not have the part, or not all of them.

    Attributes:
        values: binary.
        offsets: of the rows; None for one whose offset is unknown.
        timestamps: in milliseconds, or -1.
        keys: binary.
        headers: see :data:`~airflow_provider_kafka_s3.arrays.WHOLE_RECORD_SCHEMA`.
        metadata: the schema of the values.
    """

    values: Array
    offsets: Sequence[int | None] | Int64Array | None = None
    timestamps: Int64Array | None = None
    keys: Array | None = None
    headers: Array | None = None
    metadata: Mapping[bytes, bytes] | None = None

    def between(self, start: int, stop: int) -> _Rows:
        """Some of them."""
        return _Rows(
            self.values[start:stop],
            None if self.offsets is None else self.offsets[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.headers is None else self.headers[start:stop],
            self.metadata,
        )


def _rows(piece: _Piece, wanted: _Wanted, request: int) -> Iterator[_Rows]:
    """The rows of an object whose values are those of Kafka."""
    keeps_times = _keeps_times(piece.objects, piece.entry)
    are_lines = not keeps_times and _has_documents(piece.objects.layout)
    without = () if wanted.whole else (".keys", ".headers")
    for records in read_object(piece.objects, piece.entry, without=without, request=request):
        times = [NO_TIMESTAMP if time is None else time for time in records.timestamps] if keeps_times else None
        yield _Rows(
            binary_array(records.values, large=False),
            records.offsets,
            None if times is None else np.array(times, np.int64),
            binary_array(records.keys, large=False) if wanted.whole else None,
            _headers(records) if wanted.whole else None,
            {ARE_LINES: b""} if are_lines else None,
        )


def _keeps_times(objects: CommittedObjects, entry: ObjectEntry) -> bool:
    """Whether each record of an object has its timestamp there."""
    return isinstance(objects.layout.content, Envelope) or objects.is_dead_letters(entry)


def _has_documents(layout: Layout) -> bool:
    """Whether each row of an object of values is a JSON document that was checked."""
    converter = layout.value_converter
    is_document = isinstance(converter, JsonConverter) and not converter.has_schema
    return isinstance(layout.record_format, JsonLines) and is_document


def _typed_rows(piece: _Piece) -> Iterator[_Rows]:
    """The rows of an object whose values have a schema."""
    known: Int64Array | None = None
    ranges = [RowOffsets.of_part(part).ranges() for part in piece.entry.by_slice]
    if None not in ranges:
        known = np.concatenate([np.arange(a, b) for of_part in ranges for a, b in of_part or ()])
    done = 0
    for values, metadata in landed_values(piece.objects, piece.entry):
        offsets = None if known is None else known[done : done + len(values)]
        yield _Rows(values, offsets, metadata=metadata)
        done += len(values)


def _to_arrow(piece: _Piece, rows: _Rows, done: int, wanted: _Wanted) -> pa.RecordBatch:
    number = len(rows.values)
    is_last = done + number == piece.records
    # Unknown ones are between bounds, which are beside the records.
    offsets = np.array(rows.offsets, np.int64) if piece.has_offsets else np.full(number, piece.low, np.int64)
    times = rows.timestamps
    if times is None:
        has_times = wanted.has_times and piece.entry.has_times
        times = np.full(number, piece.entry.min_timestamp if has_times else NO_TIMESTAMP, np.int64)
    columns: list[Array] = [int64_array(offsets), int64_array(times), rows.values]
    schema = RECORD_SCHEMA
    if wanted.whole:
        schema = WHOLE_RECORD_SCHEMA
        keys, headers = (schema.field(name).type for name in ("key", "headers"))
        columns.append(pa.nulls(number, keys) if rows.keys is None else rows.keys)
        columns.append(pa.nulls(number, headers) if rows.headers is None else rows.headers)
    if not piece.is_exact:
        ends = np.zeros(number, np.int64)
        ends[-1] = is_last
        columns.append(int64_array(ends).cast(pa.bool_()))
        schema = schema.append(_DIVISIBLE)
    metadata = {**(rows.metadata or {})}
    if not piece.is_exact:
        metadata[BOUNDS] = msgspec.json.encode(
            (piece.low, piece.high, piece.entry.min_timestamp, piece.entry.max_timestamp)
        )
    return pa.RecordBatch.from_arrays(columns, schema=schema.with_metadata(metadata))


def _headers(records: Records) -> Array | None:
    if records.headers is None:
        return None
    schema = pa.schema([WHOLE_RECORD_SCHEMA.field("headers")])
    rows = [[{"key": name, "value": value} for name, value in headers] or None for headers in records.headers]
    return pa.RecordBatch.from_pydict({"headers": rows}, schema=schema).column(0)
