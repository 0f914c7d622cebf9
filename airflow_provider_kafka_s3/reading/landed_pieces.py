"""The records of landed objects, as batches for the encoder."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

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
    one_batch,
)
from airflow_provider_kafka_s3.config import Envelope, JsonConverter, JsonLines, Layout
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import DataLossError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.landed_values import landed_values
from airflow_provider_kafka_s3.reading.ordered_batches import in_order
from airflow_provider_kafka_s3.reading.read_ahead import ObjectsAhead, ReadAhead
from airflow_provider_kafka_s3.reading.record import Records
from airflow_provider_kafka_s3.reading.records import read_object
from airflow_provider_kafka_s3.reading.remote_file import REQUEST
from airflow_provider_kafka_s3.reading.row_offsets import RowOffsets

__all__ = ["Piece", "Wanted", "keeps_times", "read_pieces"]

log = logging.getLogger(__name__)

_OPEN_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a request of each object that is open at the same time, all together."""
_LEAST: Final = 64 * 1024
"""Bytes of a request at least."""
_JOINED_BYTES: Final = 256 * 1024
"""Bytes of the records of small batches from which on no other one is joined with them."""
_DIVISIBLE: Final = pa.field(DIVISIBLE, pa.bool_(), nullable=False)


@dataclass(frozen=True)
class Piece:
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

    objects: ObjectsAhead
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

    @functools.cached_property
    def certain_offsets(self) -> Int64Array:
        """The offsets of its records, where their bounds and their number leave no choice."""
        ranges = RowOffsets(first=self.low, end=self.high + 1, records=self.records).ranges()
        assert ranges is not None, "they are known"
        return np.concatenate([np.arange(start, end) for start, end in ranges])


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What batches of records have.

    Attributes:
        whole: whether they have keys and headers.
        has_times: whether records have a timestamp between the bounds of those of their object, if it keeps none.
        is_typed: whether values are Avro datums with their schema, and not those of Kafka.
    """

    whole: bool
    has_times: bool = True
    is_typed: bool = False


def read_pieces(pieces: Sequence[Piece], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The records of pieces in the order of their offsets; piece after piece where these are unknown.

    Args:
        pieces: of one Kafka partition.
        wanted: what batches have.
    """
    return _joined(_in_place(sorted(pieces, key=lambda piece: piece.place), wanted))


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records, those of small batches of one schema together: each costs the encoder milliseconds."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if waiting and (size >= _JOINED_BYTES or not batch.schema.equals(waiting[0].schema, check_metadata=True)):
            yield one_batch(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield one_batch(waiting)


def _in_place(pieces: Sequence[Piece], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """See :func:`read_pieces`; pieces are in the order of their places."""
    with ReadAhead((piece.objects, piece.entry) for piece in pieces) as ahead:
        for chain in _chains(pieces):
            request = min(max(_OPEN_BYTES // len(chain), _LEAST), REQUEST)
            read = functools.partial(_batches, wanted=wanted, request=request, ahead=ahead)
            exact = _Cut(in_order((piece.low, read(piece)) for piece in chain if piece.is_exact))
            for piece in chain:
                if not piece.is_exact:
                    yield from exact.below(piece.low)
                    yield from read(piece)
            yield from exact.below(None)


def _chains(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces in the order of their lowest offsets, those together whose offsets interleave."""
    chain: list[Piece] = []
    end = -1
    for piece in pieces:
        if chain and piece.low > end:
            yield chain
            chain = []
        chain.append(piece)
        end = max(end, piece.high)
    if chain:
        yield chain


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


def _batches(piece: Piece, *, wanted: Wanted, request: int, ahead: ReadAhead) -> Iterator[pa.RecordBatch]:
    """The records of a piece, some at a time; none if they were accepted as lost.

    Args:
        piece: the records.
        wanted: what batches have.
        request: bytes of a request.
        ahead: reads those behind it.
    """
    ahead.begin(piece.objects, piece.entry)
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


def _present(piece: Piece, wanted: Wanted, request: int) -> Iterator[pa.RecordBatch]:
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
    offsets: Sequence[int | None] | None = None
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


def _rows(piece: Piece, wanted: Wanted, request: int) -> Iterator[_Rows]:
    """The rows of an object whose values are those of Kafka."""
    are_timed = keeps_times(piece.objects, piece.entry)
    are_lines = not are_timed and _has_documents(piece.objects.layout)
    without = () if wanted.whole else (".keys", ".headers")
    for records in read_object(piece.objects, piece.entry, without=without, request=request):
        times = [NO_TIMESTAMP if time is None else time for time in records.timestamps] if are_timed else None
        yield _Rows(
            binary_array(records.values, large=False),
            records.offsets,
            None if times is None else np.array(times, np.int64),
            binary_array(records.keys, large=False) if wanted.whole else None,
            _headers(records) if wanted.whole else None,
            {ARE_LINES: b""} if are_lines else None,
        )


def keeps_times(objects: CommittedObjects, entry: ObjectEntry) -> bool:
    """Whether each record of an object has its timestamp there."""
    return isinstance(objects.layout.content, Envelope) or objects.is_dead_letters(entry)


def _has_documents(layout: Layout) -> bool:
    """Whether each row of an object of values is a JSON document that was checked."""
    converter = layout.value_converter
    is_document = isinstance(converter, JsonConverter) and not converter.has_schema
    return isinstance(layout.record_format, JsonLines) and is_document


def _typed_rows(piece: Piece) -> Iterator[_Rows]:
    """The rows of an object whose values have a schema."""
    for values, metadata in landed_values(piece.objects, piece.entry):
        yield _Rows(values, metadata=metadata)


def _to_arrow(piece: Piece, rows: _Rows, done: int, wanted: Wanted) -> pa.RecordBatch:
    number = len(rows.values)
    is_last = done + number == piece.records
    if not piece.has_offsets:
        offsets = np.full(number, piece.low, np.int64)  # they are between bounds, which are beside the records
    elif rows.offsets is None:
        offsets = piece.certain_offsets[done : done + number]
    else:
        offsets = np.array(rows.offsets, np.int64)
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
