"""Writes Parquet files: rows are collected into row groups that are cut by the rows alone.

Within a row group, the encoder looks at the size of a page after each 1,024 rows and after each chunk of a column. So
rows are merged into chunks that are cut by the rows alone, too, and long values cannot make long pages. The bytes
depend on rows, schema, settings and the version of pyarrow, which ``created_by`` of the file names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.config import MIB, Parquet
from airflow_provider_kafka_s3.formats.port import Buffer, Payload
from airflow_provider_kafka_s3.formats.row_sizes import row_sizes
from airflow_provider_kafka_s3.formats.waiting_rows import SpilledRows, WaitingRows
from airflow_provider_kafka_s3.schemas.field_ids import with_field_ids

__all__ = ["ParquetWriter"]

_Piece: TypeAlias = pa.RecordBatch | SpilledRows
"""Rows of a chunk, in memory or in the temporary file."""

_CHUNK_BYTES: Final = MIB
"""Bytes of rows at which a chunk ends; the bytes of a file depend on it."""
_MERGED: Final = 16
"""Pieces of a chunk that are merged into one when there are this many."""
_SMALL: Final = 4096
_SAMPLE: Final = 20_000
"""Rows of the first row group by which columns are given a dictionary."""
_MOST_DISTINCT: Final = 0.8
"""Part of the sample that is distinct, at most: a dictionary of more values outgrows its page of 1 MiB, and is lost."""


class ParquetWriter:
    """Writes one file, format version 2.6, with the Arrow schema in its metadata.

    Units and zones of timestamps are kept, lists have the names of the specification. With ``field_ids="schema"``
    ``PARQUET:field_id`` in the metadata of a field is the id of its column. After each row group its bytes are yielded.

    Args:
        schema: of all batches; its metadata goes into the file.
        settings: of the format.
        waiting: the rows of all open files; None: those of this one stay in memory.
    """

    def __init__(self, schema: pa.Schema, settings: Parquet, waiting: WaitingRows | None = None) -> None:
        if settings.field_ids == "path":
            schema = with_field_ids(schema)
        self._settings = settings
        self._waiting = waiting
        self._held = 0
        self._rows = _Rows(schema)
        # The complete chunks of the row group, and the one that is not complete but for its rows, by their parts.
        self._chunks: list[list[_Piece]] = []
        self._chunk: list[_Piece] = []
        self._records = self._bytes = self._chunk_bytes = 0
        self._schema = schema
        self._sink = _Sink()
        self._writer: pq.ParquetWriter | None = None

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Collect rows, and encode whole row groups; the payload is a batch of the schema."""
        batch = cast("pa.RecordBatch", payload)
        ends = np.cumsum(row_sizes(batch))
        start = 0
        while start < batch.num_rows:
            before = int(ends[start - 1]) if start else 0
            # The row that reaches a size is the last one of its row group, or chunk.
            group = before + self._settings.row_group_bytes - self._bytes
            group_end = min(
                int(np.searchsorted(ends, group)) + 1, start + self._settings.row_group_records - self._records
            )
            chunk_end = int(np.searchsorted(ends, before + _CHUNK_BYTES - self._chunk_bytes)) + 1
            end = min(batch.num_rows, group_end, chunk_end)
            self._rows.append(batch.slice(start, end - start))
            size = int(ends[end - 1]) - before
            self._records += end - start
            self._bytes += size
            self._held += size
            self._chunk_bytes += size
            if end in (group_end, chunk_end):
                self._end_chunk()
            if end == group_end:
                yield from self._write_row_group()
            start = end
        if self._waiting is not None:
            self._waiting.hold(self, self._held)

    def close(self) -> Iterable[Buffer]:
        """Encode the rows that are left, and end the file."""
        if self._records:
            self._end_chunk()
            yield from self._write_row_group()
            if self._waiting is not None:
                self._waiting.hold(self, 0)
        if self._writer is None:
            self._writer = self._open(self._schema.empty_table())
        self._writer.close()
        yield from self._sink.take()

    def spill(self) -> None:
        """Write the rows that are in memory to the temporary file. Called by the waiting rows."""
        assert self._waiting is not None
        if (rows := self._rows.take()) is not None:
            self._chunk.append(rows)
        for chunk in (*self._chunks, self._chunk):
            chunk[:] = [self._waiting.put(part) if isinstance(part, pa.RecordBatch) else part for part in chunk]
        self._held = 0

    def _end_chunk(self) -> None:
        if (rows := self._rows.take()) is not None:
            self._chunk.append(rows)
        if self._chunk:
            self._chunks.append(self._chunk)
        self._chunk = []
        self._chunk_bytes = 0

    def _read(self, chunk: list[_Piece]) -> pa.RecordBatch:
        """The rows of a chunk as one batch."""
        parts = []
        for part in chunk:
            if isinstance(part, SpilledRows):
                assert self._waiting is not None
                parts.append(self._waiting.take(part, self._schema))
            else:
                parts.append(part)
        return parts[0] if len(parts) == 1 else _merged(parts, self._schema)

    def _write_row_group(self) -> Iterator[Buffer]:
        table = pa.Table.from_batches([self._read(chunk) for chunk in self._chunks])
        self._chunks = []
        self._records = self._bytes = self._held = 0
        if self._writer is None:
            self._writer = self._open(table)
        self._writer.write_table(table, row_group_size=table.num_rows)
        del table
        yield from self._sink.take()

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        """Begin the file; ``first`` is its first row group."""
        repetitive, others = _columns_by_repetition(first.slice(0, _SAMPLE))
        deltas = [path for path, type_ in others if self._settings.integer_encoding == "delta" and _is_integer(type_)]
        return pq.ParquetWriter(
            cast("Any", pa.PythonFile(cast("Any", self._sink), mode="w")),
            self._schema,
            version="2.6",
            compression=cast("Any", self._settings.compression),
            compression_level=self._settings.compression_level,
            data_page_size=self._settings.page_bytes,
            use_dictionary=cast("Any", repetitive),
            column_encoding=cast("Any", dict.fromkeys(deltas, "DELTA_BINARY_PACKED")),
            use_compliant_nested_type=True,
            store_schema=True,
        )


def _columns_by_repetition(rows: pa.Table) -> tuple[list[str], list[tuple[str, pa.DataType]]]:
    """Paths of the columns whose values are in the rows several times, and paths and types of the others.

    The encoder gives a dictionary up when it is too large, after all values so far were written as indexes to it: ids
    and measured values took a fifth more bytes, and more time.
    """
    repetitive: list[str] = []
    others: list[tuple[str, pa.DataType]] = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for path, values in _leaves(name, pa.concat_arrays(column.chunks)) if column.num_chunks else ():
            if pc.count_distinct(values).as_py() <= _MOST_DISTINCT * (len(values) - values.null_count):
                repetitive.append(path)
            else:
                others.append((path, values.type))
    return repetitive, others


def _is_integer(type_: pa.DataType) -> bool:
    """Whether Parquet has its values as INT32 or INT64."""
    return pa.types.is_integer(type_) or (pa.types.is_temporal(type_) and not pa.types.is_interval(type_))


def _leaves(path: str, values: Array) -> Iterator[tuple[str, Array]]:
    """The columns of Parquet inside a column, and their paths."""
    match values:
        case pa.StructArray():
            for field, part in zip(values.type, values.flatten(), strict=True):
                yield from _leaves(f"{path}.{field.name}", part)
        case pa.MapArray():
            yield from _leaves(f"{path}.key_value.key", values.keys)
            yield from _leaves(f"{path}.key_value.value", values.items)
        case pa.ListArray():
            yield from _leaves(f"{path}.list.element", values.flatten())
        case pa.NullArray():
            return
        case _:
            yield path, values


class _Rows:
    """The rows of a chunk that is not complete yet.

    A slice keeps the buffers of its whole batch, of which an object may have a few rows only; so such rows are copied.
    Single rows of many columns take much more than their bytes, so 16 pieces are merged into one of the next level: no
    row is copied often, and there are few pieces.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._levels: list[list[pa.RecordBatch]] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows after the others."""
        if batch.get_total_buffer_size() > 2 * batch.nbytes + _SMALL:
            batch = _merged([batch], self._schema)
        for level in self._levels:
            level.append(batch)
            if len(level) < _MERGED:
                return
            batch = _merged(level, self._schema)
            level.clear()
        self._levels.append([batch])

    def take(self) -> pa.RecordBatch | None:
        """Remove all rows, and return them as one batch; None if there are none."""
        # Rows of a higher level came first.
        pieces = [batch for level in reversed(self._levels) for batch in level]
        self._levels.clear()
        return _merged(pieces, self._schema) if pieces else None


def _merged(pieces: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Copies of rows, one piece after another."""
    columns: list[Array] = [pa.concat_arrays([piece.column(i) for piece in pieces]) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Sink:
    """A file of which only the bytes since the last :meth:`take` are kept."""

    def __init__(self) -> None:
        self.closed = False
        self._pieces: list[bytes] = []
        self._small = bytearray()

    def write(self, data: bytes | pa.Buffer) -> int:
        """Append bytes."""
        size = memoryview(data).nbytes
        if size < _SMALL:  # headers of pages
            self._small += memoryview(data)
            return size
        self._end_small()
        # A buffer is copied, since the encoder uses it again; bytes are not.
        self._pieces.append(bytes(cast("bytes", data)))
        return size

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the bytes are still to be taken."""
        self.closed = True

    def take(self) -> Iterator[Buffer]:
        """Yield and forget the bytes."""
        self._end_small()
        pieces, self._pieces = self._pieces, []
        pieces.reverse()
        while pieces:
            yield pieces.pop()

    def _end_small(self) -> None:
        if self._small:
            self._pieces.append(bytes(self._small))
            self._small.clear()
