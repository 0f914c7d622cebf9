"""Objects of records with their lengths before them, and of whole records as text."""

from __future__ import annotations

import json
import struct

import pyarrow as pa

from airflow_provider_kafka_s3.extensions import (
    Batch,
    Format,
    Frames,
    ObjectEncoder,
    PerRecordFormat,
    Record,
    Refused,
)


class LengthPrefixed(Format):
    """Each value behind its length; a magic number before the first, and the number of records at the end."""

    version = "1"

    def encode(self, batch: Batch) -> Frames:
        """The frames of a batch."""
        values = batch.records.column("value").to_pylist()
        return Frames([struct.pack(">I", len(value)) + value for value in values])

    def open(self) -> ObjectEncoder:
        """With a header and a footer."""
        return _Counted()


class _Counted(ObjectEncoder):
    def __init__(self) -> None:
        self._count = 0

    def begin(self) -> bytes:
        return b"SHLF"

    def write(self, frames: pa.Array) -> bytes | memoryview:
        self._count += len(frames)
        return super().write(frames)

    def end(self) -> bytes:
        return struct.pack(">I", self._count)


class WholeRecords(PerRecordFormat):
    """A line of JSON for each record, tombstones included."""

    version = "1"
    reads = ("key", "headers", "timestamp")

    def record(self, record: Record) -> bytes | Refused:
        """One line."""
        try:
            value = None if record.value is None else record.value.decode()
        except UnicodeDecodeError:
            return Refused("the value is not UTF-8")
        row = {
            "at": record.timestamp,
            "key": None if record.key is None else record.key.decode(),
            "headers": [name for name, _ in record.headers],
            "offset": record.offset,
            "value": value,
        }
        return json.dumps(row, sort_keys=True).encode()
