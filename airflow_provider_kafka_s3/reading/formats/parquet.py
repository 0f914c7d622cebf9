"""Objects of Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.envelope_batches import batch_rows, envelope_rows
from airflow_provider_kafka_s3.reading.formats.port import FormatReader, SparkSource, require_rows
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile
from airflow_provider_kafka_s3.reading.retyped import retyped_column, selected_columns
from airflow_provider_kafka_s3.reading.rows import Row, Unreadable, row_of
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

__all__ = ["ParquetReader"]

_ROWS: Final = 16_384
"""Rows that are read at once at most."""


class ParquetReader(FormatReader):
    """Rows are those of the columns of a file."""

    has_own_columns = True
    reads_every_byte = False
    spark_source = SparkSource("parquet")

    @override
    def rows(self, text: bytes, count: int, wanted: slice) -> list[Row]:
        try:
            table = _table(text)
        except (pa.ArrowException, OSError) as e:
            raise Unreadable(f"it is no Parquet file ({e})") from e
        require_rows(table.num_rows, count)
        return [row_of(value) for value in _values(table.slice(wanted.start, wanted.stop - wanted.start))]

    @override
    def table(self, snapshot_object: SnapshotObject, body: bytes, schema: pa.Schema) -> pa.Table:
        del snapshot_object
        return selected_columns(_table(body), schema)

    @override
    def record_rows(self, file: RemoteFile, *, topic: str, piece: int, enveloped: bool) -> Iterator[Any]:
        del topic
        rows_of: Callable[[pa.RecordBatch], Any] = envelope_rows if enveloped else batch_rows
        with pq.ParquetFile(cast("Any", pa.PythonFile(file, mode="r")), buffer_size=file.request) as parquet_file:
            metadata = parquet_file.metadata
            size = max(sum(metadata.row_group(i).total_byte_size for i in range(parquet_file.num_row_groups)), 1)
            rows = min(max(piece * metadata.num_rows // size, 1), _ROWS)
            yield from map(rows_of, parquet_file.iter_batches(batch_size=rows, use_threads=False))

    @override
    def schema(self, file: Any, url: str) -> pa.Schema:
        del url
        return pq.read_schema(pa.PythonFile(file, mode="r"))


def _table(body: bytes) -> pa.Table:
    # No thread of Arrow reads it: one that gives bytes back while the interpreter ends would end the process by
    # SIGABRT.
    return pq.read_table(pa.BufferReader(body), use_threads=False, pre_buffer=False)


def _values(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; of a row with a time that Python does not have, all times are numbers."""
    try:
        return table.to_pylist(maps_as_pydicts=None)
    except (OverflowError, ValueError):
        if table.num_rows > 1:
            return [row for n in range(table.num_rows) for row in _values(table.slice(n, 1))]
        kinds = [_without_times(column.type) for column in table.schema]
        columns = [retyped_column(column, kind) for column, kind in zip(table.columns, kinds, strict=True)]
        return pa.table(columns, names=table.column_names).to_pylist(maps_as_pydicts=None)


def _without_times(kind: Any) -> pa.DataType:
    """The type with numbers in place of times."""
    if isinstance(kind, pa.StructType):
        return pa.struct([member.with_type(_without_times(member.type)) for member in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    if isinstance(kind, pa.MapType):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else cast("pa.DataType", kind)
