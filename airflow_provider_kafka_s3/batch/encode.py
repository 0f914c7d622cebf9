"""Encode the records of a slice, or of a group of slices that share objects.

Spark tasks use it to upload slices, :mod:`~airflow_provider_kafka_s3.batch.rebuilt_objects` to write lost objects
again. So both have the same names and the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np
from msgspec import UNSET

from airflow_provider_kafka_s3.arrays import (
    BOUNDS,
    DIVISIBLE,
    Int64Array,
    Scattered,
    bounds,
    int64_values,
    parts_of_bytes,
    true_rows,
)
from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.dead_letters import dead_letters
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.object_stats import ObjectStats
from airflow_provider_kafka_s3.batch.rebuild import ReadSlice
from airflow_provider_kafka_s3.batch.records_digest import RecordsDigest, RecordsOfBatch
from airflow_provider_kafka_s3.config import KIB, MIB, Layout, Upload
from airflow_provider_kafka_s3.converters.unknown_fields import UnknownFieldCounter
from airflow_provider_kafka_s3.documents.manifest import (
    MAX_OBJECTS,
    ObjectEntry,
    SliceResult,
    SliceRows,
    UnknownFields,
)
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError, SparkJobError
from airflow_provider_kafka_s3.extensions.loading import require_pinned
from airflow_provider_kafka_s3.formats.block_gzip import BlockGzipWriter
from airflow_provider_kafka_s3.formats.parts import MAIN, PreparedParts
from airflow_provider_kafka_s3.formats.port import Buffer, ObjectWriter, Payload, Rejected, record_error
from airflow_provider_kafka_s3.formats.registry import make_formats
from airflow_provider_kafka_s3.formats.waiting_rows import WaitingRows
from airflow_provider_kafka_s3.layout.hidden_fields import HiddenFields, folder_names, hidden_fields
from airflow_provider_kafka_s3.layout.keys import INDEX, dead_letters_key, sibling_key, validate_key
from airflow_provider_kafka_s3.layout.listed import ListedObjects, ListedRanges
from airflow_provider_kafka_s3.layout.split import Append, DataObject, Event, LeaveOut, Splitter
from airflow_provider_kafka_s3.layout.zones import package_requirement, zone_database_version
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.storage.uploads import FinishedUpload

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ObjectSink",
    "OpenObject",
    "encode_slices",
    "layout_of",
    "split",
    "too_many_objects",
    "write_slice",
    "write_slices",
]

_CONVERTED_BYTES: Final = 4 * MIB
"""Bytes of values that are converted at a time: decoded values may take many times the memory of their bytes."""
_CONVERTED_LARGE: Final = MIB
"""The same for values above 4 KiB on average, which may be arrays of many small items."""


class ObjectSink(Protocol):
    """Destination of the bytes of one object, such as :class:`~airflow_provider_kafka_s3.storage.uploads.Upload`."""

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. They are copied, so the caller may reuse the buffer."""
        ...

    def seal(self) -> None:
        """Mark the end of the bytes; does not have to wait until they are stored."""
        ...

    def finish(self) -> FinishedUpload:
        """Wait until the bytes are stored, and return their upload."""
        ...


OpenObject = Callable[[str, Mapping[str, str]], ObjectSink]
"""(key, metadata of the object) -> destination of its bytes."""


def write_slice(
    plan: Plan,
    slice_: Slice,
    batches: Iterable[pa.RecordBatch],
    open_object: OpenObject,
    *,
    max_dead_letters: DeadLetterLimit | None = None,
    schemas: SchemaSource | None = None,
    upload: Upload | None = None,
) -> SliceRows:
    """:func:`write_slices` for one slice; ``batches`` has its records."""
    (rows,) = write_slices(
        plan,
        (slice_,),
        lambda _: batches,
        open_object,
        max_dead_letters=max_dead_letters,
        schemas=schemas,
        upload=upload,
    )
    return rows


def write_slices(
    plan: Plan,
    slices: Sequence[Slice],
    read: ReadSlice,
    open_object: OpenObject,
    *,
    max_dead_letters: DeadLetterLimit | None = None,
    schemas: SchemaSource | None = None,
    upload: Upload | None = None,
) -> tuple[SliceRows, ...]:
    """Write all records of some slices to objects, which they share.

    Names and bytes depend on the plan and the records alone, not on the boundaries of the Arrow batches or the number
    of tries. Only the nonce and the upload id of each object are new every time.

    Args:
        plan: of the batch; gives layout, topic and generation.
        slices: one group of its slices.
        read: gives all records of a slice, see :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA`; whole records
            if the layout needs them. It is called for each slice in turn, after the records of the one before.
        open_object: opens an object for writing, such as ``UploadPool.open``.
        max_dead_letters: limit of the batch, which a slice alone may exceed; None: no limit.
        schemas: of the registry, by id; None: the layout needs none.
        upload: bounds the rows of Parquet files in memory, and has the folder of those beyond; None: the defaults.

    Returns:
        The result of each slice, and the objects that begin with a record of it, in the order of their first records.
        All their bytes are stored.

    Raises:
        RecordError: a record cannot be written with the layout, or there are too many dead letters.
        ConfigurationError: an object's key is unsafe, there are more than ``MAX_OBJECTS``, or the plan was made with
            another time zone database, or another version of a class of another package.
        SparkJobError: the batches are not the records of these slices.
    """
    opened: list[tuple[ObjectStats, str, ObjectSink]] = []

    def begin(key: str) -> ObjectStats:
        if len(opened) == MAX_OBJECTS:
            label = f"slice {slices[0].id}" if len(slices) == 1 else f"slices {slices[0].id} to {slices[-1].id}"
            raise too_many_objects(plan, f"more than {MAX_OBJECTS:,} in {label} alone")
        nonce = uuid.uuid4().hex
        sink = open_object(validate_key(key), {BATCH_METADATA: str(plan.batch), NONCE_METADATA: nonce})
        stats = ObjectStats(plan.topic_id, sink.write, sink.seal)
        opened.append((stats, nonce, sink))
        return stats

    results, hidden = encode_slices(
        plan, slices, read, begin, schemas=schemas, max_dead_letters=max_dead_letters, upload=upload
    )
    opened.sort(key=lambda item: (item[0].parts[0].id, item[0].parts[0].min_offset))
    objects: dict[int, list[ObjectEntry]] = {}
    for item in opened:
        entry = _entry(*item)
        objects.setdefault(entry.slices[0], []).append(entry)
    return tuple(
        SliceRows(result=result, objects=tuple(objects.get(result.id, ())), hidden=hidden) for result in results
    )


def too_many_objects(plan: Plan, count: str) -> ConfigurationError:
    """The error for a batch with more objects than one commit can hold."""
    return ConfigurationError(
        f"batch {plan.batch} of topic {plan.topic!r} has too many objects for one commit: {count}; the limit is "
        f"{MAX_OBJECTS:,}. Reduce the number: a partitioner with wider folders, a larger flush_size, "
        f"rotate_interval_ms, max_bytes or max_open_objects, a smaller row_group_bytes of Parquet, or smaller batches "
        f"(records_per_batch of limits)"
    )


def _entry(stats: ObjectStats, nonce: str, sink: ObjectSink) -> ObjectEntry:
    uploaded = sink.finish()
    first = stats.parts[0]
    return ObjectEntry(
        key=uploaded.key,
        slices=tuple(part.id for part in stats.parts),
        nonce=nonce,
        upload_id=uploaded.upload_id,
        parts=tuple((part.etag, part.checksum) for part in uploaded.parts),
        checksum_algorithm="CRC32",
        size=uploaded.size,
        crc32=f"{uploaded.crc32:08x}",
        content=stats.content,
        records=sum(part.records for part in stats.parts),
        min_offset=first.min_offset,
        max_offset=first.max_offset,
        ranges=tuple(stats.parts) if len(stats.parts) > 1 else (),
        min_timestamp=stats.times[0],
        max_timestamp=stats.times[1],
        digest=stats.digest.hexdigest(),
    )


def encode_slices(
    plan: Plan,
    slices: Sequence[Slice],
    read: ReadSlice,
    begin: Callable[[str], ObjectStats | None],
    *,
    schemas: SchemaSource | None,
    max_dead_letters: DeadLetterLimit | None = None,
    listed: Sequence[ListedRanges] | None = None,
    upload: Upload | None = None,
) -> tuple[list[SliceResult], HiddenFields]:
    """Encode the objects of some slices.

    Args:
        plan: see :func:`write_slices`, as for ``slices``, ``read``, ``schemas`` and ``max_dead_letters``.
        slices: one group of its slices.
        read: gives all records of a slice.
        begin: returns the destination of an object by its key; None: the object is left out.
        schemas: of the registry, by id.
        max_dead_letters: limit of the batch.
        listed: the ranges of the objects, if a manifest lists them: then ``read`` may give only the records in these
            ranges, and no other object is complete. None: the layout's rules make the objects of all records.
        upload: see :func:`write_slices`.

    Returns:
        The result of each slice, and the fields of their values that engines do not show.

    Raises:
        KafkaS3Error: see :func:`write_slices`.
    """
    layout = layout_of(plan)
    _require_zone_database(plan, layout)
    if layout.extensions:
        require_pinned(layout, f"batch {plan.batch} of topic {plan.topic!r}")
    make = Splitter if listed is None else partial(ListedObjects, listed)
    splitter = make(layout, topic=plan.topic, partition=slices[0].partition, generation=plan.generation)
    how = upload or Upload()
    with WaitingRows(how.memory, how.spill_dir) as waiting:
        encoding = _Encoding(plan, layout, splitter, begin, schemas=schemas, waiting=waiting)
        results = [encoding.add(s, read(s), max_dead_letters) for s in slices]
        encoding.finish()
    return results, hidden_fields(layout, encoding.folders, encoding.field_paths)


@dataclass(frozen=True)
class _OpenPart:
    """A part of an open object, and its index if it has one.

    Attributes:
        part: its name.
        stats: of what is written to it; None: its bytes are made for the index alone.
        writer: of its bytes.
        digest: of the records.
        index: what is written to its index; None: no index is written.
    """

    part: str
    stats: ObjectStats | None
    writer: ObjectWriter
    digest: RecordsDigest
    index: ObjectStats | None = None

    def write(
        self,
        slice_: Slice,
        offsets: Int64Array,
        times: Int64Array,
        payload: Payload,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        """Append records, with their offsets and timestamps; see :meth:`ObjectStats.add`."""
        for stats in (self.stats, self.index):
            if stats is not None:
                stats.add(slice_, offsets, times, bounds)
        if isinstance(self.writer, BlockGzipWriter):
            self._write(self.writer.write(payload, offsets))
        else:
            self._write(self.writer.write(payload))

    def close(self) -> None:
        """End the part, and its index behind it."""
        self._write(self.writer.close())
        if self.stats is not None:
            self.stats.seal()
        if self.index is not None and isinstance(self.writer, BlockGzipWriter):
            self.index.write(self.writer.index())
            self.index.seal()

    def _write(self, pieces: Iterable[Buffer]) -> None:
        for piece in pieces:
            if self.stats is not None:
                self.stats.write(piece)


@dataclass(frozen=True)
class _Bounds:
    """What is known of landed records whose offsets or timestamps are not: the lowest and the highest one."""

    offsets: tuple[int, int]
    times: Int64Array

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Bounds | None:
        """Those of a batch; None: all are known."""
        stored = (batch.schema.metadata or {}).get(BOUNDS)
        if stored is None:
            return None
        low, high, first, last = msgspec.json.decode(stored)
        return cls((low, high), np.array([first, last], np.int64))


class _Encoding:
    """The objects of some slices, one slice after another.

    Attributes:
        folders: names of the folders ``name=value`` of the objects.
        field_paths: of the values.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        splitter: Splitter,
        begin: Callable[[str], ObjectStats | None],
        *,
        schemas: SchemaSource | None,
        waiting: WaitingRows,
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._begin = begin
        self._splitter = splitter
        self._unknown = UnknownFieldCounter()
        self._formats = make_formats(
            layout,
            topic=plan.topic,
            partition=lambda: self._splitter.partition,
            schemas=schemas,
            waiting=waiting,
            unknown_fields=self._unknown,
        )
        self._open: dict[str, list[_OpenPart]] = {}
        # Bytes of the records behind the last one behind which an object may end.
        self._undivided = 0
        self.folders: set[str] = set()
        self.field_paths: set[str] = set()

    def add(
        self, slice_: Slice, batches: Iterable[pa.RecordBatch], max_dead_letters: DeadLetterLimit | None
    ) -> SliceResult:
        """Encode the records of the next slice; objects stay open for the records of another one."""
        layout, topic, partition = self._layout, self._plan.topic, slice_.partition
        self._splitter.partition = partition
        dead = _DeadLetters(self._plan, layout, slice_, self._begin, max_dead_letters)
        records = ignored = tombstones = 0
        checked = _checked(self._plan, slice_, batches)
        if layout.has_typed_values:
            checked = _in_parts(checked)
        for batch in checked:
            prepared = self._formats.prepare(batch)
            self.field_paths.update(prepared.field_paths)
            if prepared.rejected and layout.errors == "fail":
                raise record_error(batch, prepared.rejected[0], topic=topic, partition=partition)
            if DIVISIBLE in batch.schema.names:
                if prepared.rejected:
                    raise _unknown_offset(batch, prepared.rejected[0], topic=topic, partition=partition)
                prepared = replace(prepared, sizes=self._sizes_at_ends(prepared))
            records += prepared.records.num_rows
            ignored += prepared.ignored
            tombstones += 0 if prepared.tombstones is None else int(prepared.tombstones.sum())
            left_out = self._write(slice_, batch, prepared)
            records -= len(left_out)
            if rejected := [*prepared.rejected, *left_out]:
                dead.add(batch, sorted(rejected, key=lambda r: r.row))
        dead.close()
        unknown, names = self._unknown.take()
        return SliceResult(
            id=slice_.id,
            records=records,
            ignored=ignored,
            dead_letters=dead.count,
            tombstones=tombstones,
            next_offset=slice_.end,
            unknown=UnknownFields(records=unknown, names=names) if unknown else UNSET,
        )

    def _sizes_at_ends(self, prepared: PreparedParts) -> Int64Array:
        """The sizes of records, each at the next record behind which an object may end: so it ends nowhere else."""
        ends = np.flatnonzero(true_rows(prepared.records.column(DIVISIBLE)))
        totals = np.append(0, np.cumsum(prepared.sizes)) + self._undivided
        sizes = np.zeros(len(prepared.sizes), np.int64)
        sizes[ends] = np.diff(np.append(0, totals[ends + 1]))
        self._undivided = int(totals[-1] - sizes.sum())
        return sizes

    def _write(self, slice_: Slice, batch: pa.RecordBatch, prepared: PreparedParts) -> list[Rejected]:
        """Write records to their objects; returns those whose schemas or fields fit no object."""
        left_out: list[Rejected] = []
        timestamps = int64_values(prepared.records.column("timestamp"))
        known = _Bounds.of(batch)
        records = RecordsOfBatch(prepared.records, whole=self._layout.whole_records)
        for event in split(self._splitter, prepared):
            if isinstance(event, LeaveOut):
                left_out.append(_left_out(batch, prepared, event))
                if self._layout.errors == "fail":
                    raise record_error(batch, left_out[0], topic=self._plan.topic, partition=slice_.partition)
                continue
            key = event.object.key
            if not isinstance(event, Append):
                self._close(key)
                continue
            if key not in self._open:
                self.folders |= folder_names(key)
                self._open[key] = [*self._open_parts(event.object)]
            rows = event.rows
            times = known.times if known is not None else timestamps[rows if isinstance(rows, slice) else rows.indices]
            for open_part in self._open[key][:1]:
                records.add_to(open_part.digest, rows)
            for open_part in self._open[key]:
                payload = prepared.take(open_part.part, rows, event.object.schema)
                open_part.write(slice_, event.offsets, times, payload, None if known is None else known.offsets)
        return left_out

    def _open_parts(self, data_object: DataObject) -> Iterator[_OpenPart]:
        digest = RecordsDigest()
        for part in self._formats.names(tombstones=data_object.is_tombstones):
            key = data_object.key if part == MAIN else sibling_key(self._layout, data_object.key, part)
            stats, index = self._begin(key), None
            if part == MAIN and self._layout.has_index:
                index = self._begin(sibling_key(self._layout, key, INDEX))
            for object_stats in (stats, index):
                if object_stats is not None:
                    object_stats.digest = digest
            if stats is not None or index is not None:
                yield _OpenPart(part, stats, self._formats.open(part, key, data_object.schema), digest, index)

    def _close(self, key: str) -> None:
        for open_part in self._open.pop(key):
            open_part.close()

    def finish(self) -> None:
        """End all open objects."""
        for end in self._splitter.finish():
            self._close(end.object.key)


def split(splitter: Splitter, prepared: PreparedParts) -> Iterator[Event]:
    """What becomes of prepared records; see :meth:`~airflow_provider_kafka_s3.layout.split.Splitter.feed`."""
    return splitter.feed(
        prepared.records,
        prepared.sizes,
        prepared.schemas,
        prepared.versions,
        prepared.tombstones,
        fields=prepared.fields,
    )


def _left_out(batch: pa.RecordBatch, prepared: PreparedParts, event: LeaveOut) -> Rejected:
    """A record of a batch whose schema fits no object."""
    offset = int64_values(prepared.records.column("offset"))[event.row]
    row = int(np.searchsorted(int64_values(batch.column("offset")), offset))
    return Rejected(row, "format", event.reason, event.remedy)


class _DeadLetters:
    """The object with the dead letters of a slice, which is opened for the first one."""

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        slice_: Slice,
        begin: Callable[[str], ObjectStats | None],
        limit: DeadLetterLimit | None,
    ) -> None:
        self.count = 0
        self._plan = plan
        self._layout = layout
        self._slice = slice_
        self._partition = slice_.partition
        self._begin = begin
        self._limit = limit
        self._object: ObjectStats | None = None

    def add(self, batch: pa.RecordBatch, rejected: Sequence[Rejected]) -> None:
        """Append dead letters.

        Raises:
            RecordError: there are too many.
        """
        topic, rows = self._plan.topic, [r.row for r in rejected]
        offsets, times = int64_values(batch.column("offset"))[rows], int64_values(batch.column("timestamp"))[rows]
        if self._limit is not None and self.count + len(rejected) > self._limit.left:
            last = record_error(batch, rejected[self._limit.left - self.count], topic=topic, partition=self._partition)
            raise self._limit.error(self._plan, str(last))
        if not self.count:
            key = dead_letters_key(
                self._layout,
                topic=topic,
                partition=self._partition,
                first_offset=int(offsets[0]),
                generation=self._plan.generation,
            )
            self._object = self._begin(key)
        self.count += len(rejected)
        if self._object is not None:
            self._object.add(self._slice, offsets, times)
            row_order = Scattered(np.array(rows, np.int64), 0, len(rows))
            RecordsOfBatch(batch, whole=self._layout.whole_records).add_to(self._object.digest, row_order)
            self._object.write(dead_letters(batch, rejected, topic=topic, partition=self._partition))

    def close(self) -> None:
        """End the object."""
        if self._object is not None:
            self._object.seal()


def layout_of(plan: Plan) -> Layout:
    """The layout of a plan.

    Raises:
        ConfigurationError: the batch has no objects.
    """
    if plan.layout is None:
        raise ConfigurationError(f"batch {plan.batch} of topic {plan.topic!r} is a {plan.type}: it has no objects")
    return plan.layout


def _require_zone_database(plan: Plan, layout: Layout) -> None:
    """Local time may differ between releases of the database, and a plan's objects must not."""
    partitioner, installed = layout.by_time, zone_database_version()
    if partitioner is None or partitioner.timezone == "UTC" or layout.zone_database in ("", installed):
        return
    raise ConfigurationError(
        f"batch {plan.batch} of topic {plan.topic!r} was planned with time zone database {layout.zone_database}, and "
        f"this Python has {installed}, whose hours of {partitioner.timezone!r} may differ. Install "
        f"{package_requirement(layout.zone_database)} here (Airflow worker, Spark driver and executors all need the "
        f"same); or abandon the batch, unless it is decided, with release='debt': then it is planned again"
    )


def _unknown_offset(batch: pa.RecordBatch, rejected: Rejected, *, topic: str, partition: int) -> RecordError:
    """The error for a landed record that cannot be written, and whose offset its object does not keep."""
    first = int(int64_values(batch.column("offset")).min())
    return RecordError(
        f"topic {topic!r}, partition {partition}, a record at offset {first} or behind it: {rejected.reason}; "
        f"{rejected.remedy}. Its object does not keep its offset, so it cannot be set aside: land such records from "
        f"Kafka"
    )


def _checked(plan: Plan, slice_: Slice, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; SparkJobError if a record occurs twice, out of order, or is of another slice."""
    last = slice_.start - 1
    for batch in batches:
        if batch.num_rows == 0:
            continue
        offsets = int64_values(batch.column("offset"))
        if DIVISIBLE in batch.schema.names and slice_.start <= offsets.min() <= offsets.max() < slice_.end:
            yield batch
            continue
        first = int(offsets[0])
        if first <= last or offsets[-1] >= slice_.end or not (offsets[1:] > offsets[:-1]).all():
            raise SparkJobError(
                f"topic {plan.topic!r} partition {slice_.partition}: offset {last} was followed by offsets {first} to "
                f"{int(offsets[-1])}, which are not the next records of [{slice_.start}, {slice_.end}) in order. "
                f"Nothing was decided; try again"
            )
        last = int(offsets[-1])
        yield batch


def _in_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, cut into parts of at most ``_CONVERTED_BYTES``, or ``_CONVERTED_LARGE``, or of one record."""
    for batch in batches:
        ends = bounds(batch.column("value"))
        large = ends[-1] - ends[0] > 4 * KIB * batch.num_rows
        for start, stop in parts_of_bytes(batch.column("value"), _CONVERTED_LARGE if large else _CONVERTED_BYTES):
            yield batch.slice(start, stop - start)
