"""Assigns the records of a slice, or of a group of slices, to objects, and ends objects.

The result depends only on the records since the beginning of the first slice: the same records in other batches make
the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Int64Array, Scattered, int64_array, int64_values
from airflow_provider_kafka_s3.config import CustomPartitioner, Layout, SiblingObjects
from airflow_provider_kafka_s3.converters.field_values import FieldValues
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.extensions.partitioners import NO_TIME, Codes, Encoded
from airflow_provider_kafka_s3.extensions.records import Batch
from airflow_provider_kafka_s3.layout.keys import TOMBSTONE_FOLDER, data_key, with_schema_name
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner, record_times
from airflow_provider_kafka_s3.layout.time_rotation import TimeRotation
from airflow_provider_kafka_s3.schemas.evolution import NO_SCHEMA, SchemaRotation, SchemaVersion, schema_groups
from airflow_provider_kafka_s3.schemas.projection import SchemaChangeError

__all__ = ["Append", "Close", "DataObject", "Event", "LeaveOut", "Splitter", "Stream", "first_roll_or_misfit"]

_FIRST_WINDOW: Final = 64
_REGISTER: Final = (
    "correct the schema, or register it for the subject of the topic; or use schema_compatibility='NONE', or "
    "errors='dead_letter' to set such records aside"
)
_CORRECT_FIELD: Final = (
    "correct the producer, name another field, or use errors='dead_letter' to set such records aside; missing='null' "
    "of ByField puts records without the field into the folder of null, and on_bad_timestamp those without a time into "
    "a partition of their own"
)
_CORRECT_CLASS: Final = (
    "correct the producer or your partitioner, or use errors='dead_letter' to set such records aside"
)
_NO_NAME: Final = "null"
"""Name of a schema without one, and of none, in Kafka Connect."""


@dataclass(frozen=True)
class DataObject:
    """An object of the slice.

    Attributes:
        key: of the object.
        encoded_partition: of its records.
        first_offset: of its records.
        schema: index of its schema; None if it may hold records of several schemas, or none.
        is_tombstones: whether its records are tombstones, which have objects beside this one only.
        partition: the Kafka partition of its first record.
    """

    key: str
    encoded_partition: str
    first_offset: int
    schema: int | None = None
    is_tombstones: bool = False
    partition: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Where its first record is; places ascend in the order of records."""
        return self.partition, self.first_offset


@dataclass(frozen=True)
class Append:
    """Append rows of the batch to an object; the first one begins it.

    Attributes:
        object: to append to.
        rows: a contiguous slice (with start and stop, without step), or scattered ones in ascending order.
        offsets: the Kafka offsets of these rows.
    """

    object: DataObject
    rows: slice | Scattered
    offsets: Int64Array


@dataclass(frozen=True)
class Close:
    """End an object: nothing is appended to it any more."""

    object: DataObject


@dataclass(frozen=True)
class LeaveOut:
    """A row that fits no object: it is in none, and changes none.

    Attributes:
        row: of the batch.
        reason: why, without any content of the record.
        remedy: what the user can do; begins with a verb.
    """

    row: int
    reason: str
    remedy: str


Event: TypeAlias = Append | Close | LeaveOut


Stream: TypeAlias = tuple[str, int | None]
"""Encoded partition, and index of the schema: records of the same two share an object."""


@dataclass
class _Open:
    object: DataObject
    size: int = 0
    last_row: int = -1


@dataclass
class _Feed:
    """The records of one call, and how many of them have their events.

    Attributes:
        offsets: of the records.
        sizes: bytes of each in its object.
        codes: index of the stream of each.
        streams: of the records.
        encoded: their encoded partitions.
        refused: rows without one, in ascending order.
        first_roll: the first row before which the schema ends all objects, of a range of rows; None: none does.
        start: the first row without events.
        fits: the row before which no object has to be closed to make room.
    """

    offsets: Int64Array
    sizes: Int64Array
    codes: Codes
    streams: list[Stream]
    encoded: Encoded
    refused: Int64Array
    first_roll: Callable[[int, int], int] | None
    start: int = 0
    fits: int = 0

    @property
    def next_refused(self) -> int:
        """The next row without an encoded partition; the number of rows if there is none."""
        i = int(np.searchsorted(self.refused, self.start))
        return int(self.refused[i]) if i < len(self.refused) else len(self.offsets)


class Splitter:
    """Splits the records of one slice, or of one slice after another, into objects.

    An object ends with the record that brings it to ``max_bytes``. All open objects end with the ``flush_size``-th
    record of the Kafka partition since they last did (counted over all encoded partitions together), in the order of
    their first records; and before a record whose time is ``rotate_interval_ms`` behind that of the first one since
    then (see :class:`~airflow_provider_kafka_s3.layout.time_rotation.TimeRotation`). A record that needs a new object
    while ``max_open_objects`` are open ends the one that was written least recently. Objects of different encoded
    partitions that end by ``max_bytes`` within one batch may end in another order than that of their last records.
    Counts and times begin anew when all objects end, not when one of them does.

    Records of different schemas have different objects that are open at the same time; or, with a
    ``schema_compatibility``, a record whose schema does not fit its open object ends all open objects first.

    Args:
        layout: with partitioner, rotation and names.
        topic: the Kafka topic.
        partition: the Kafka partition of the records. May be changed between two calls, to that of the next slice: the
            open objects take its records, too.
        generation: incarnation of the topic, part of the names from 1 on.
    """

    def __init__(self, layout: Layout, *, topic: str, partition: int, generation: int) -> None:
        self._layout = layout
        self._topic = topic
        self.partition = partition
        self._generation = generation
        self._partitioner = make_partitioner(layout)
        has_class = any(isinstance(p, CustomPartitioner) for p in layout.partitioners)
        self._correct_path = _CORRECT_CLASS if has_class else _CORRECT_FIELD
        self._writes_tombstones = isinstance(layout.content, SiblingObjects) and layout.format.on_null == "write"
        self._open: dict[Stream, _Open] = {}
        self._rows = 0  # of the batches before
        self._records = 0  # since all objects were closed
        self._rotation: SchemaRotation | None = None
        self._times = TimeRotation(layout.rotation)

    def feed(
        self,
        records: pa.RecordBatch,
        sizes: Int64Array,
        schemas: Int64Array | None = None,
        versions: Sequence[SchemaVersion] = (),
        tombstones: npt.NDArray[np.bool_] | None = None,
        *,
        fields: Mapping[str, FieldValues] | None = None,
    ) -> Iterator[Event]:
        """Yield the events of the next records; must be consumed to its end before the next call.

        Args:
            records: the next records of the slice, in offset order.
            sizes: bytes of each in its object, parallel to ``records``.
            schemas: index of the schema of each, if an object has one schema.
            versions: these schemas: the same list in every call, to which the caller may append; for layouts with a
                ``schema_compatibility`` or a ``schema_affix``.
            tombstones: whether each is a tombstone, whose encoded partition is ``tombstone``; None: none is.
            fields: the fields of values that the layout names, parallel to ``records``.

        Raises:
            RecordError: a record has no timestamp that the partitioner can use.
            ConfigurationError: an object's key would not be safe.
        """
        if records.num_rows == 0:
            return
        encoded = self._encoded_partitions(records, tombstones, fields or {})
        refused = np.array(sorted(encoded.refused), np.int64)
        if len(refused) == records.num_rows:
            yield from (LeaveOut(row, encoded.refused[row], self._correct_path) for row in range(records.num_rows))
            return
        # A record without an encoded partition is left out before its code is used.
        codes, streams = self._streams(np.maximum(encoded.codes, 0), encoded.paths, schemas, versions)
        first_roll = None
        if schemas is not None and (rotation := self._schema_rotation(versions)) is not None:
            first_roll = partial(rotation.first_roll, schemas, codes, [path for path, _ in streams])
        self._times.look_at(encoded, codes, [path for path, _ in streams], tombstones)
        offsets = int64_values(records.column("offset"))
        feed = _Feed(offsets, sizes, codes, streams, encoded, refused, first_roll)
        while feed.start < len(offsets):
            yield from self._step(feed)
        self._rows += len(offsets)

    def _step(self, feed: _Feed) -> Iterator[Event]:
        """The events of the next rows to which the same happens, or of what ends before them."""
        start, rotation = feed.start, self._layout.rotation
        stop = feed.next_refused
        if stop == start:
            yield LeaveOut(start, feed.encoded.refused[start], self._correct_path)
            feed.start += 1
            return
        stop = self._times.first_roll(start, stop)
        if stop == start:
            yield from self.finish()
            return
        if start >= feed.fits:
            feed.fits = self._first_over_limit(feed, stop)
        if start == feed.fits:
            yield self._close(min(self._open, key=lambda stream: self._open[stream].last_row))
            return
        stop = min(stop, feed.fits)
        if rotation.flush_size is not None:
            stop = min(stop, start + rotation.flush_size - self._records)
        if feed.first_roll is not None:
            stop = self._first_full(feed, stop)
            stop, misfit = first_roll_or_misfit(feed.first_roll, start, stop)
            if misfit is not None:
                yield misfit
                feed.start += 1
                return
            if stop == start:
                yield from self.finish()
                return
        for code, rows in _groups(feed.codes, start, stop):
            indices = _indices(rows)
            yield from self._append(feed.streams[code], rows, feed.offsets[indices], feed.sizes[indices])
        self._records += stop - start
        self._times.write(start, stop)
        feed.start = stop
        if self._records == rotation.flush_size:
            yield from self.finish()

    def _encoded_partitions(
        self,
        records: pa.RecordBatch,
        tombstones: npt.NDArray[np.bool_] | None,
        fields: Mapping[str, FieldValues],
    ) -> Encoded:
        """The encoded partition of each record."""
        rows = np.arange(records.num_rows) if tombstones is None else np.flatnonzero(~tombstones)
        encoded = Encoded(np.zeros(0, np.intp), [])
        if len(rows):
            valued, of_valued = records, fields
            if len(rows) < records.num_rows:
                valued = records.take(int64_array(rows))
                of_valued = {name: values.take(rows) for name, values in fields.items()}
            encoded = self._partitioner.encode(Batch(valued, self._topic, self.partition, of_valued))
        paths = encoded.paths
        if self._writes_tombstones and TOMBSTONE_FOLDER in paths:
            raise ConfigurationError(
                f"topic {self._topic!r}: the folder {TOMBSTONE_FOLDER!r} is that of the keys of null values, and the "
                f"partitioner puts other records into it; change path_format"
            )
        if tombstones is None:
            return encoded
        every = np.full(records.num_rows, len(paths), np.intp)
        every[rows] = encoded.codes
        refused = {int(rows[row]): reason for row, reason in encoded.refused.items()}
        # A tombstone has no fields, so it has no time if that is one of them.
        times = record_times(records) if self._layout.reads_timestamps else np.full(records.num_rows, NO_TIME)
        if encoded.times is not None:
            times[rows] = encoded.times
        return Encoded(every, [*paths, TOMBSTONE_FOLDER], refused, times)

    def finish(self) -> Iterator[Close]:
        """Close all open objects: at the end of the slice, or when a rule of rotation ends all of them."""
        still_open = sorted((o.object for o in self._open.values()), key=lambda o: o.place)
        self._open.clear()
        self._records = 0
        if self._rotation is not None:
            self._rotation.reset()
        self._times.reset()
        for data_object in still_open:
            yield Close(data_object)

    def _streams(
        self, codes: Codes, paths: Sequence[str], schemas: Int64Array | None, versions: Sequence[SchemaVersion]
    ) -> tuple[Codes, list[Stream]]:
        """Index of each row's stream, and the streams."""
        affix, rolls = self._layout.naming.schema_affix, self._layout.schema_compatibility is not None
        if schemas is None or (rolls and affix is None):
            return codes, [(path if affix is None else self._named(path, _NO_NAME), None) for path in paths]
        codes, pairs = schema_groups(schemas, codes)
        streams: list[Stream] = [
            (paths[code] if affix is None else self._named(paths[code], _name_of(versions, schema)), schema)
            for code, schema in pairs
        ]
        if not rolls:
            return codes, streams
        named = list(dict.fromkeys(path for path, _ in streams))
        return np.array([named.index(path) for path, _ in streams])[codes], [(path, None) for path in named]

    def _named(self, path: str, name: str) -> str:
        is_tombstones = self._writes_tombstones and path == TOMBSTONE_FOLDER
        return path if is_tombstones else with_schema_name(self._layout, path, name)

    def _schema_rotation(self, versions: Sequence[SchemaVersion]) -> SchemaRotation | None:
        mode = self._layout.schema_compatibility
        if self._rotation is None and mode is not None:
            self._rotation = SchemaRotation(mode, versions)
        return self._rotation

    def _close(self, stream: Stream) -> Close:
        if self._rotation is not None:
            self._rotation.close(stream[0])
        return Close(self._open.pop(stream).object)

    def _first_full(self, feed: _Feed, stop: int) -> int:
        """The row behind the first one that brings an object to ``max_bytes``; ``stop`` if there is none."""
        limit = self._layout.rotation.max_bytes
        largest = max((current.size for current in self._open.values()), default=0)
        low, size = feed.start, _FIRST_WINDOW
        while low < stop and largest + int(feed.sizes[feed.start : stop].sum()) >= limit:
            low = min(stop, feed.start + size)
            full = low
            for code, rows in _groups(feed.codes, feed.start, low):
                current = self._open.get(feed.streams[code])
                ends = np.cumsum(feed.sizes[_indices(rows)])
                index = int(np.searchsorted(ends, limit - (0 if current is None else current.size)))
                if index < len(ends):
                    full = min(full, (rows.start + index if isinstance(rows, slice) else int(rows.indices[index])) + 1)
            if full < low:
                return full
            size *= 4  # windows grow, since rows behind such a row are looked at again
        return stop

    def _first_over_limit(self, feed: _Feed, stop: int) -> int:
        """The first row for which an object may have to be closed before; ``stop`` if there is none.

        The rows before it need no other look: objects that end by another rule only make room.
        """
        start, streams, limit = feed.start, feed.streams, self._layout.max_open_objects
        if len(streams) <= limit and len(self._open.keys() | streams) <= limit:
            return stop
        room, size = limit - len(self._open), _FIRST_WINDOW
        while True:
            used, rows = np.unique(feed.codes[start : start + min(size, stop - start)], return_index=True)
            is_new = [streams[code] not in self._open for code in used.tolist()]
            new = np.sort(rows[is_new])
            if len(new) > room:
                return start + int(new[room])
            if start + size >= stop:
                return stop
            size *= 4

    def _append(
        self, stream: Stream, rows: slice | Scattered, offsets: Int64Array, sizes: Int64Array
    ) -> Iterator[Event]:
        """Append rows of one stream; begins a new object when ``max_bytes`` is reached."""
        current, size = self._open.get(stream), int(sizes.sum())
        if (0 if current is None else current.size) + size < self._layout.rotation.max_bytes:  # as nearly always
            if current is None:
                current = self._open[stream] = _Open(self._name(stream, int(offsets[0])))
            yield Append(current.object, rows, offsets)
            current.size += size
            current.last_row = self._rows + _last(rows)
            return
        ends = np.cumsum(sizes)
        start, written = 0, 0
        while start < len(offsets):
            current = self._open.get(stream)
            if current is None:
                current = self._open[stream] = _Open(self._name(stream, int(offsets[start])))
            # The row that brings the object to max_bytes is its last one.
            last = int(np.searchsorted(ends, self._layout.rotation.max_bytes - current.size + written))
            stop = min(last + 1, len(offsets))
            piece = _sub(rows, start, stop)
            yield Append(current.object, piece, offsets[start:stop])
            current.size += int(ends[stop - 1]) - written
            current.last_row = self._rows + _last(piece)
            start, written = stop, int(ends[stop - 1])
            if last < len(offsets):
                yield self._close(stream)

    def _name(self, stream: Stream, first_offset: int) -> DataObject:
        path, schema = stream
        if self._rotation is not None:
            schema = self._rotation.target(path)
        key = data_key(
            self._layout,
            topic=self._topic,
            encoded_partition=path,
            partition=self.partition,
            first_offset=first_offset,
            generation=self._generation,
        )
        is_tombstones = self._writes_tombstones and path == TOMBSTONE_FOLDER
        return DataObject(key, path, first_offset, schema, is_tombstones, self.partition)


def _name_of(versions: Sequence[SchemaVersion], schema: int) -> str:
    return _NO_NAME if schema == NO_SCHEMA else versions[schema].name


def first_roll_or_misfit(first_roll: Callable[[int, int], int], start: int, stop: int) -> tuple[int, LeaveOut | None]:
    """The first row before which all objects have to be closed, or ``stop``; or that the row ``start`` fits none.

    Args:
        first_roll: see :meth:`~airflow_provider_kafka_s3.schemas.evolution.SchemaRotation.first_roll`.
        start: the first row to look at.
        stop: the row after the last one.
    """
    try:
        return first_roll(start, stop), None
    except SchemaChangeError as e:
        row = start if e.row is None else e.row
        if row == start:
            return start, LeaveOut(start, str(e), _REGISTER)
    # What precedes that row is as if it were not there.
    return first_roll(start, row), None


def _groups(codes: Codes, start: int, stop: int) -> Iterator[tuple[int, slice | Scattered]]:
    """The rows ``[start, stop)`` by code, in the order of the codes' first rows."""
    part = codes[start:stop]
    edges = np.flatnonzero(part[1:] != part[:-1]) + 1
    if not len(edges):
        yield int(part[0]), slice(start, stop)
        return
    starts = np.concatenate(([0], edges))
    runs = part[starts]
    largest = int(part.max())
    if len(runs) <= largest + 1 and len(np.unique(runs)) == len(runs):
        # The rows of each code are contiguous, as in an ordered topic.
        stops = np.append(edges, len(part))
        for code, low, high in zip(runs.tolist(), starts.tolist(), stops.tolist(), strict=True):
            yield code, slice(start + low, start + high)
        return
    # NumPy sorts numbers of 16 bits ten times faster.
    small = part.astype(np.int16) if largest <= np.iinfo(np.int16).max else part
    order = np.argsort(small, kind="stable")
    grouped = part[order]
    starts = np.concatenate(([0], np.flatnonzero(grouped[1:] != grouped[:-1]) + 1))
    stops = np.append(starts[1:], len(part))
    first = order[starts]
    order += start
    by_first_row = np.argsort(first)
    grouped, starts, stops = grouped[starts[by_first_row]], starts[by_first_row], stops[by_first_row]
    for code, low, high in zip(grouped.tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield code, Scattered(order, low, high)


def _indices(rows: slice | Scattered) -> slice | Int64Array:
    return rows if isinstance(rows, slice) else rows.indices


def _last(rows: slice | Scattered) -> int:
    return int(rows.stop - 1 if isinstance(rows, slice) else rows.indices[-1])


def _sub(rows: slice | Scattered, start: int, stop: int) -> slice | Scattered:
    return slice(rows.start + start, rows.start + stop) if isinstance(rows, slice) else rows.piece(start, stop)
