"""Objects of which each record is a line, compressed as a whole or in blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import count as counted
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.formats.port import FormatReader
from airflow_provider_kafka_s3.reading.lines import expanded, line_blocks, lines_of
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile
from airflow_provider_kafka_s3.reading.rows import AMBIGUOUS, Row, Unreadable
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

__all__ = ["BLOCK_BYTES", "LINE_SCHEMA", "MOST_BYTES", "LineReader"]

LINE_SCHEMA: Final = pa.schema([pa.field("value", pa.binary())])
"""Values that have no schema: the bytes of lines as they are."""

BLOCK_BYTES: Final = 16 * 1024 * 1024
"""Bytes of JSON or CSV that are parsed at once; a record has to fit."""

MOST_BYTES: Final = 2**31 - 1
"""Bytes of texts or binary values that an array has at most: its offsets have 32 bits."""


class LineReader(FormatReader):
    """What objects of lines have in common, whatever a line is."""

    has_json_fields = True
    separator = b"\n"
    """What is behind each record."""

    @override
    def rows(self, text: bytes, count: int, wanted: slice) -> list[Row]:
        return [self.row(line) for line in self._split(text, count)[wanted]]

    @abstractmethod
    def row(self, line: bytes) -> Row:
        """The row that a line is."""

    def table(self, snapshot_object: SnapshotObject, body: bytes, schema: pa.Schema) -> pa.Table:
        """See :class:`FormatReader`; ``value`` of a binary type without other columns is the line."""
        text = self.uncompressed(body)
        if schema.names == ["value"] and pa.types.is_binary(schema.field("value").type):
            return pa.table([_in_chunks(self._lines(snapshot_object, text))], schema=schema)
        return self.table_of_fields(snapshot_object, text, schema)

    @abstractmethod
    def table_of_fields(self, snapshot_object: SnapshotObject, text: bytes, schema: pa.Schema) -> pa.Table:
        """:meth:`table` of the fields of lines."""

    @override
    def record_rows(self, file: RemoteFile, *, topic: str, piece: int, enveloped: bool) -> Iterator[Any]:
        del topic, piece
        pieces = expanded(file, self.compression)
        return line_blocks(pieces) if enveloped else lines_of(pieces, self.separator)

    @override
    def schema(self, file: Any, url: str) -> pa.Schema:
        del file, url
        return LINE_SCHEMA

    def _split(self, text: bytes, count: int) -> list[bytes]:
        if not self.separator:
            if count == 1:
                return [text]
            raise Unreadable(f"nothing separates its {counted(count, 'record')} (separator='')")
        values = self._parts(text)
        if len(values) != count:
            raise Unreadable(f"it has {counted(len(values), 'part')} for {counted(count, 'record')}: {AMBIGUOUS}")
        return values

    def _lines(self, snapshot_object: SnapshotObject, text: bytes) -> list[bytes]:
        """The lines of an object, one for each record."""
        if not self.separator:
            raise ConfigurationError(
                f"nothing separates the records of {snapshot_object.url}: its format has separator=''"
            )
        lines = self._parts(text)
        if len(lines) > snapshot_object.records:
            self.refuse_more_lines(snapshot_object, len(lines))
        if (longest := max(map(len, lines), default=0)) > MOST_BYTES:
            raise ConfigurationError(
                f"a record of {snapshot_object.url} has {counted(longest, 'byte')}, and an Arrow array has "
                f"{MOST_BYTES:,} at most: read the object by airflow_provider_kafka_s3.reading.records.read_records"
            )
        return lines

    def _parts(self, text: bytes) -> list[bytes]:
        parts = text.split(self.separator)
        if parts.pop():
            raise Unreadable("it does not end with its separator")
        return parts

    def refuse_more_lines(self, snapshot_object: SnapshotObject, lines: int) -> None:
        """Raise an error that has the cause of more lines than records, if it is known."""


def _in_chunks(values: Sequence[bytes]) -> pa.ChunkedArray[Any]:
    """Values in as many arrays as they need."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    chunks, start = [], 0
    while start < len(values):
        stop = int(np.searchsorted(ends, ends[start] + MOST_BYTES, side="right")) - 1
        chunks.append(binary_array(values[start:stop], large=False))
        start = stop
    return pa.chunked_array(chunks, pa.binary())
