"""Assigns records to objects that a manifest lists, whatever ended these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Bools, Int64Array, Scattered, int64_values
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.converters.field_values import FieldValues
from airflow_provider_kafka_s3.layout.split import (
    Append,
    Close,
    DataObject,
    Event,
    LeaveOut,
    Splitter,
    Stream,
    first_roll_or_misfit,
)
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.schemas.evolution import SchemaRotation, SchemaVersion

__all__ = ["ListedObjects", "ListedRanges"]

ListedRanges: TypeAlias = Sequence[tuple[int, int, int]]
"""Of an object: Kafka partition, and offset of the first and of the last record, of each slice."""


@dataclass
class _Listed:
    """An object, which is begun with its first record."""

    ranges: ListedRanges
    object: DataObject | None = None
    stream: Stream | None = None
    rotation: SchemaRotation | None = None

    def holds(self, partition: int, offsets: Int64Array) -> Bools:
        """Whether each offset is in a range."""
        within = np.zeros(len(offsets), np.bool_)
        for of, first, last in self.ranges:
            if of == partition:
                within |= (offsets >= first) & (offsets <= last)
        return within


class ListedObjects(Splitter):
    """Assigns the records of listed objects, from their ranges instead of the rules that end objects.

    Between the first and the last record of an object, in each slice, all records of its stream are in it, since a
    stream has one open object. So an object depends on the records in its ranges alone, while the rules depend on all
    records before it. The caller compares the records of the result with those that are listed.

    Args:
        objects: the ranges of each; those beside one another count once.
        layout: see :class:`Splitter`, as for the others.
        topic: the Kafka topic.
        partition: the Kafka partition of the records.
        generation: incarnation of the topic.
    """

    def __init__(
        self, objects: Sequence[ListedRanges], layout: Layout, *, topic: str, partition: int, generation: int
    ) -> None:
        super().__init__(layout, topic=topic, partition=partition, generation=generation)
        self._listed = [_Listed(ranges) for ranges in dict.fromkeys(map(tuple, objects))]

    @override
    def feed(
        self,
        records: pa.RecordBatch,
        sizes: Int64Array,
        schemas: Int64Array | None = None,
        versions: Sequence[SchemaVersion] = (),
        tombstones: Bools | None = None,
        *,
        fields: Mapping[str, FieldValues] | None = None,
    ) -> Iterator[Event]:
        if records.num_rows == 0:
            return
        offsets = int64_values(records.column("offset"))
        encoded = self._encoded_partitions(records, tombstones, fields or {})
        yield from (LeaveOut(row, reason, self._correct_path) for row, reason in sorted(encoded.refused.items()))
        codes, streams = self._streams(np.maximum(encoded.codes, 0), encoded.paths, schemas, versions)
        placed = np.ones(len(offsets), np.bool_)
        placed[list(encoded.refused)] = False
        for listed in self._listed:
            rows = np.flatnonzero(placed & listed.holds(self.partition, offsets))
            if len(rows) and listed.object is None:
                self._begin(listed, int(rows[0]), streams[codes[rows[0]]], offsets, schemas)
            rows = rows[np.array([stream == listed.stream for stream in streams], np.bool_)[codes[rows]]]
            yield from self._take(listed, rows, offsets, schemas, versions)

    def finish(self) -> Iterator[Close]:
        """Close all objects."""
        yield from (Close(listed.object) for listed in self._listed if listed.object is not None)

    def _begin(
        self, listed: _Listed, row: int, stream: Stream, offsets: Int64Array, schemas: Int64Array | None
    ) -> None:
        listed.stream, listed.object = stream, self._name(stream, int(offsets[row]))
        if schemas is not None and self._layout.schema_compatibility is not None:
            listed.object = replace(listed.object, schema=int(schemas[row]))

    def _take(
        self,
        listed: _Listed,
        rows: Int64Array,
        offsets: Int64Array,
        schemas: Int64Array | None,
        versions: Sequence[SchemaVersion],
    ) -> Iterator[Event]:
        """Append rows of an object's stream, but those whose schemas do not fit."""
        if listed.object is None or not len(rows):
            return
        mode, start = self._layout.schema_compatibility, 0
        if schemas is None or mode is None:
            yield Append(listed.object, Scattered(rows, 0, len(rows)), offsets[rows])
            return
        if listed.rotation is None:
            listed.rotation = SchemaRotation(mode, versions)
        first_roll = partial(listed.rotation.first_roll, schemas[rows], np.zeros(len(rows), np.intp), [""])
        while start < len(rows):
            stop, misfit = first_roll_or_misfit(first_roll, start, len(rows))
            if misfit is not None:
                yield replace(misfit, row=int(rows[start]))
                start += 1
                continue
            if stop == start:
                return  # these are other records than the listed ones
            yield Append(listed.object, Scattered(rows, start, stop), offsets[rows[start:stop]])
            start = stop
