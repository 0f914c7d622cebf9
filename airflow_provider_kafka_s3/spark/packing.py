"""The transfer format of records from Spark to a Python worker: few columns, in pieces of bounded size.

Every column costs the JVM time per record. So does Spark's own limit on the bytes of an Arrow batch, which measures all
columns after every record (a quarter of the JVM's time when records are small). Instead large values are cut into
pieces, one row each, so that the limit on *rows* limits the bytes as well. In the worker the pieces of a value are
adjacent in memory, and joining them only removes the boundaries between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import (
    RECORD_SCHEMA,
    WHOLE_RECORD_SCHEMA,
    Array,
    Int64Array,
    bounds,
    int64_array,
    int64_values,
    one_batch,
    true_rows,
)
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import ConfigurationError, SparkJobError

__all__ = ["PIECE_BYTES", "RecordPacking", "SlicePositions"]

PIECE_BYTES: Final = 4096
"""Bytes of one row's value at most: with 10,000 rows in a batch, 40 MB of a worker's memory."""

_MICROSECONDS: Final = 1_000


@dataclass(frozen=True)
class SlicePositions:
    """The slices of a topic, and the positions of their first and last offsets, ascending."""

    slices: Sequence[Slice]
    starts: Int64Array
    lasts: Int64Array


class RecordPacking:
    """Both sides of the transfer: SQL that packs records, and Arrow kernels that unpack them.

    Kafka partition and offset share one number, the *position*: the partition in its upper bits, the offset below.

    Args:
        plans: plans whose slices are transferred.

    Raises:
        ConfigurationError: an offset is too large to share a number with its partition.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        slices = [(plan.topic, s) for plan in plans for s in plan.slices]
        self._shift = 63 - max((s.partition for _, s in slices), default=0).bit_length()
        self._topics = len(plans) > 1
        self._whole = any(plan.layout is not None and plan.layout.whole_records for plan in plans)
        for topic, s in slices:
            if s.end > 1 << self._shift:
                raise ConfigurationError(
                    f"topic {topic!r} partition {s.partition}: offset {s.end} and a partition number do not fit into "
                    f"63 bits. Land topics with so many partitions in separate runs"
                )

    @property
    def pieces(self) -> list[str]:
        """First step, in SQL: from the columns of Spark's Kafka source to one row per piece, numbered by ``piece``."""
        # Names are quoted: some of them are SQL keywords, and every version adds more.
        # A small value, and null, get a constant array: it costs nothing per record.
        # greatest() ignores nulls.
        size = "greatest(octet_length(`value`), octet_length(`key`))" if self._whole else "octet_length(`value`)"
        number = f"if(coalesce({size}, 0) <= {PIECE_BYTES}, array(0L), sequence(0L, ({size} - 1L) div {PIECE_BYTES}))"
        names = ["partition", "offset", "timestamp", "value", *self._names]
        return [*(f"`{name}`" for name in names), f"explode({number}) AS `piece`"]

    @property
    def columns(self) -> list[str]:
        """Second step, in SQL: ``position``, ``timestamp``, ``value``, and, with several plans, ``topic``.

        Of whole records also ``key``, in pieces like the value, and ``headers``, in the row of the first piece.
        """
        # With a key of several pieces, a small value is in the row of the first one.
        small = "if(`piece` = 0, `value`, NULL)" if self._whole else "`value`"
        columns = [
            f"shiftleft(CAST(`partition` AS BIGINT), {self._shift}) | `offset` AS `position`",
            "`timestamp`",
            f"if(octet_length(`value`) <= {PIECE_BYTES}, {small}, {_piece('value')}) AS `value`",
        ]
        if self._whole:
            columns += [
                f"if(octet_length(`key`) <= {PIECE_BYTES}, if(`piece` = 0, `key`, NULL), {_piece('key')}) AS `key`",
                "if(`piece` = 0, `headers`, NULL) AS `headers`",
            ]
        return [*columns, *(["`topic`"] if self._topics else [])]

    @property
    def source_options(self) -> dict[str, str]:
        """Options of Spark's Kafka source."""
        return {"includeHeaders": "true"} if self._whole else {}

    @property
    def _names(self) -> list[str]:
        return [*(["key", "headers"] if self._whole else []), *(["topic"] if self._topics else [])]

    def by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """The rows of a batch by topic, adjacent ones together, in their order; None: there is only one topic.

        Args:
            batch: not empty.
        """
        if not self._topics:
            yield None, batch
            return
        names = batch.column("topic")
        changes = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1))
        edges = [0, *(np.flatnonzero(true_rows(changes)) + 1).tolist(), len(names)]
        for low, high in itertools.pairwise(edges):
            yield names[low].as_py(), batch.slice(low, high - low)

    def slice_positions(self, slices: Sequence[Slice]) -> SlicePositions:
        """Where the slices of one topic are.

        Args:
            slices: by partition and offset.
        """
        starts = np.array([s.partition << self._shift | s.start for s in slices], np.int64)
        return SlicePositions(
            slices, starts, np.array([s.partition << self._shift | s.end - 1 for s in slices], np.int64)
        )

    def runs(self, batch: pa.RecordBatch, slices: SlicePositions) -> Iterator[tuple[Slice, pa.RecordBatch]]:
        """The rows of a batch by slice, adjacent ones together, in their order.

        Args:
            batch: not empty, of one topic.
            slices: of that topic.

        Raises:
            SparkJobError: a row is of none of the slices.
        """
        positions = int64_values(batch.column("position"))
        indices = np.searchsorted(slices.starts, positions, side="right") - 1
        if (wrong := np.flatnonzero((indices < 0) | (positions > slices.lasts[indices]))).size:
            position = int(positions[wrong[0]])
            partition, offset = position >> self._shift, position & ((1 << self._shift) - 1)
            raise SparkJobError(
                f"partition {partition} offset {offset} is in none of the slices that the task may "
                f"read. Nothing was decided; try again"
            )
        edges = [0, *(np.flatnonzero(indices[1:] != indices[:-1]) + 1).tolist(), len(indices)]
        for low, high in itertools.pairwise(edges):
            yield slices.slices[indices[low]], batch.slice(low, high - low)

    def records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack batches of :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA`, or of whole records.

        A piece is joined only to a full one before it: a small record that occurs twice stays two records, which the
        check of the offsets finds.

        Args:
            batches: of one slice, in order, with any boundaries.
        """
        held: pa.RecordBatch | None = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            rows = batch if held is None else one_batch([held, batch])
            position = int64_values(rows.column("position"))
            full = np.diff(bounds(rows.column("value"))) == PIECE_BYTES
            if self._whole:
                full |= np.diff(bounds(rows.column("key"))) == PIECE_BYTES
            begins = np.concatenate(([True], (position[1:] != position[:-1]) | ~full[:-1]))
            whole = rows.num_rows
            if full[-1]:  # the next batch may continue it
                whole = int(np.flatnonzero(begins)[-1])
            held = rows.slice(whole) if whole < rows.num_rows else None
            if whole:
                yield self._joined(rows.slice(0, whole), begins[:whole])
        if held is not None:
            yield self._joined(held, np.arange(held.num_rows) == 0)

    def _joined(self, rows: pa.RecordBatch, begins: Any) -> pa.RecordBatch:
        positions, times = int64_values(rows.column("position")), int64_values(rows.column("timestamp"))
        first = None if begins.all() else np.flatnonzero(begins)
        if first is not None:
            positions, times = positions[first], times[first]
        # Spark counts microseconds. A record without a timestamp has -1 ms, one millisecond before the epoch.
        columns = [
            int64_array(positions & ((1 << self._shift) - 1)),
            int64_array(np.floor_divide(times, _MICROSECONDS)),
            _joined_pieces(rows.column("value"), first),
        ]
        if not self._whole:
            return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
        headers = rows.column("headers") if first is None else rows.column("headers").take(int64_array(first))
        columns += [
            _joined_pieces(rows.column("key"), first),
            headers.cast(WHOLE_RECORD_SCHEMA.field("headers").type),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=WHOLE_RECORD_SCHEMA)


def _piece(column: str) -> str:
    """The SQL of one piece of a column."""
    return f"substring(`{column}`, CAST(`piece` * {PIECE_BYTES} + 1 AS INT), {PIECE_BYTES})"


def _joined_pieces(pieces: Array, first: Int64Array | None) -> Array:
    """Values of which the pieces begin at some rows; None: each has one piece. The data is not copied."""
    if first is None:
        return pieces
    ends = bounds(pieces)
    kept = np.append(ends[first], ends[-1]).astype(np.int32)
    valid = pieces.is_valid().take(int64_array(first)) if pieces.null_count else None
    buffers = [None if valid is None else valid.buffers()[1], pa.py_buffer(kept.data), pieces.buffers()[2]]
    return cast("Array", pa.Array.from_buffers(pa.binary(), len(first), buffers))
