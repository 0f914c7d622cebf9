"""Assigns the records of a slice to objects, and ends objects.

The result depends only on the records since the beginning of the slice: the same records in other batches make the same
objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Int64Array, int64_array, int64_values
from airflow_provider_kafka_s3.config import Layout, SiblingObjects
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import TOMBSTONE_FOLDER, data_key
from airflow_provider_kafka_s3.layout.partitioners import Codes, make_partitioner
from airflow_provider_kafka_s3.schemas.evolution import schema_groups

__all__ = ["Append", "Close", "DataObject", "Event", "Splitter"]


@dataclass(frozen=True)
class DataObject:
    """An object of the slice.

    Attributes:
        key: of the object.
        encoded_partition: of its records.
        first_offset: of its records.
        schema: index of the schema of its records; None if it may hold records of several schemas, or none.
        is_tombstones: whether its records are tombstones, which have objects beside this one only.
    """

    key: str
    encoded_partition: str
    first_offset: int
    schema: int | None = None
    is_tombstones: bool = False


@dataclass(frozen=True)
class Append:
    """Append rows of the batch to an object; the first one begins it.

    Attributes:
        object: to append to.
        rows: a contiguous slice (with start and stop, without step), or indices in ascending order.
        offsets: the Kafka offsets of these rows.
    """

    object: DataObject
    rows: slice | Int64Array
    offsets: Int64Array


@dataclass(frozen=True)
class Close:
    """End an object: nothing is appended to it any more."""

    object: DataObject


Event: TypeAlias = Append | Close


_Stream: TypeAlias = tuple[str, int | None]
"""Encoded partition, and index of the schema: records of the same two share an object."""


@dataclass
class _Open:
    object: DataObject
    size: int = 0


class Splitter:
    """Splits the records of one slice into objects.

    An object ends with the record that brings it to ``max_bytes``. All open objects end with the ``flush_size``-th
    record of the Kafka partition since they last did (counted over all encoded partitions together), in the order of
    their first records. A record that needs a new object while ``max_open_objects`` are open ends the one with the
    lowest first offset. Objects of different encoded partitions that end by ``max_bytes`` within one batch may end in
    another order than that of their last records.

    Args:
        layout: with partitioner, rotation and names.
        topic: the Kafka topic.
        partition: the Kafka partition of all records.
        generation: incarnation of the topic, part of the names from 1 on.
    """

    def __init__(self, layout: Layout, *, topic: str, partition: int, generation: int) -> None:
        self._layout = layout
        self._topic = topic
        self._partition = partition
        self._generation = generation
        self._partitioner = make_partitioner(layout)
        self._writes_tombstones = isinstance(layout.content, SiblingObjects) and layout.format.on_null == "write"
        self._open: dict[_Stream, _Open] = {}
        self._records = 0  # since all objects were closed

    def feed(
        self,
        records: pa.RecordBatch,
        sizes: Int64Array,
        schemas: Int64Array | None = None,
        tombstones: npt.NDArray[np.bool_] | None = None,
    ) -> Iterator[Event]:
        """Yield the events of the next records; must be consumed to its end before the next call.

        Args:
            records: the next records of the slice, in offset order.
            sizes: bytes of each in its object, parallel to ``records``.
            schemas: index of the schema of each, if an object holds records of one schema only.
            tombstones: whether each is a tombstone, whose encoded partition is ``tombstone``; None: none is.

        Raises:
            RecordError: a record has no timestamp that the partitioner can use.
            ConfigurationError: an object's key would not be safe.
        """
        if records.num_rows == 0:
            return
        offsets = int64_values(records.column("offset"))
        codes, paths = self._encoded_partitions(records, tombstones)
        streams: list[_Stream] = [(path, None) for path in paths]
        if schemas is not None:
            codes, pairs = schema_groups(schemas, codes)
            streams = [(paths[code], schema) for code, schema in pairs]
        start = 0
        while start < len(offsets):
            stop = len(offsets)
            if self._layout.rotation.flush_size is not None:
                stop = min(stop, start + self._layout.rotation.flush_size - self._records)
            stop = self._first_over_limit(codes, streams, start, stop)
            if stop == start:
                oldest = min(self._open, key=lambda stream: self._open[stream].object.first_offset)
                yield Close(self._open.pop(oldest).object)
                continue
            for code, rows in _groups(codes, start, stop):
                yield from self._append(streams[code], rows, offsets[rows], sizes[rows])
            self._records += stop - start
            start = stop
            if self._records == self._layout.rotation.flush_size:
                yield from self.finish()

    def _encoded_partitions(
        self, records: pa.RecordBatch, tombstones: npt.NDArray[np.bool_] | None
    ) -> tuple[Codes, list[str]]:
        """The encoded partition of each record: an index, and the distinct paths."""
        some = records if tombstones is None else records.take(int64_array(np.flatnonzero(~tombstones)))
        codes, paths = np.zeros(0, np.intp), list[str]()
        if some.num_rows:
            codes, paths = self._partitioner.encode(some, topic=self._topic, partition=self._partition)
        if self._writes_tombstones and TOMBSTONE_FOLDER in paths:
            raise ConfigurationError(
                f"topic {self._topic!r}: the folder {TOMBSTONE_FOLDER!r} is that of the keys of null values, and the "
                f"partitioner puts other records into it; change path_format"
            )
        if tombstones is None:
            return codes, paths
        every = np.full(records.num_rows, len(paths), np.intp)
        every[~tombstones] = codes
        return every, [*paths, TOMBSTONE_FOLDER]

    def finish(self) -> Iterator[Event]:
        """Close all open objects: at the end of the slice, or when ``flush_size`` is reached."""
        still_open = sorted((o.object for o in self._open.values()), key=lambda o: o.first_offset)
        self._open.clear()
        self._records = 0
        for data_object in still_open:
            yield Close(data_object)

    def _first_over_limit(self, codes: Codes, streams: list[_Stream], start: int, stop: int) -> int:
        """The first row for which an object may have to be closed before; ``stop`` if there is none."""
        limit = self._layout.max_open_objects
        if len(streams) <= limit and len(self._open.keys() | streams) <= limit:
            return stop
        taken = set(self._open)
        for row in range(start, stop):
            taken.add(streams[codes[row]])
            if len(taken) > limit:
                return row
        return stop

    def _append(
        self, stream: _Stream, rows: slice | Int64Array, offsets: Int64Array, sizes: Int64Array
    ) -> Iterator[Event]:
        """Append rows of one stream; begins a new object when ``max_bytes`` is reached."""
        ends = np.cumsum(sizes)
        start, written = 0, 0
        while start < len(offsets):
            current = self._open.get(stream)
            if current is None:
                current = self._open[stream] = _Open(self._name(stream, int(offsets[start])))
            # The row that brings the object to max_bytes is its last one.
            last = int(np.searchsorted(ends, self._layout.rotation.max_bytes - current.size + written))
            stop = min(last + 1, len(offsets))
            yield Append(current.object, _sub(rows, start, stop), offsets[start:stop])
            current.size += int(ends[stop - 1]) - written
            start, written = stop, int(ends[stop - 1])
            if last < len(offsets):
                del self._open[stream]
                yield Close(current.object)

    def _name(self, stream: _Stream, first_offset: int) -> DataObject:
        path, schema = stream
        key = data_key(
            self._layout,
            topic=self._topic,
            encoded_partition=path,
            partition=self._partition,
            first_offset=first_offset,
            generation=self._generation,
        )
        is_tombstones = self._writes_tombstones and path == TOMBSTONE_FOLDER
        return DataObject(key, path, first_offset, schema, is_tombstones)


def _groups(codes: Codes, start: int, stop: int) -> Iterator[tuple[int, slice | Int64Array]]:
    """The rows ``[start, stop)`` by code, in the order of the codes' first rows."""
    part = codes[start:stop]
    edges = np.flatnonzero(part[1:] != part[:-1]) + 1
    starts = np.concatenate(([0], edges))
    if len(np.unique(part[starts])) == len(starts):  # the rows of each code are contiguous, as in an ordered topic
        stops = np.append(edges, len(part))
        for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
            yield int(part[low]), slice(start + low, start + high)
        return
    order = np.argsort(part, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(part[order])) + 1)
    for group in sorted(groups, key=lambda rows: int(rows[0])):
        yield int(part[group[0]]), group + start


def _sub(rows: slice | Int64Array, start: int, stop: int) -> slice | Int64Array:
    return slice(rows.start + start, rows.start + stop) if isinstance(rows, slice) else rows[start:stop]
