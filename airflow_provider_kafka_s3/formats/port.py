"""The interface of a format: it prepares whole batches, and writes the rows of each object.

A batch is prepared before it is split into objects, since one vectorised pass over 10,000 records is cheaper than one
pass per object, and since the split needs the encoded sizes. Only the format reads the prepared ``payload``: an array
of frames for line formats, a record batch for columnar formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, int64_array

__all__ = ["Buffer", "ObjectWriter", "Payload", "Prepared", "RecordFormat", "Rows"]

Buffer: TypeAlias = bytes | memoryview
"""Encoded bytes; a memoryview holds a reference to its Arrow buffer."""
Rows: TypeAlias = slice | Int64Array
"""Rows of a prepared batch: a contiguous slice (explicit start and stop, no step), or indices in ascending order."""
Payload: TypeAlias = "Array | pa.RecordBatch"


@dataclass(frozen=True)
class Prepared:
    """A batch all of whose records can be written.

    Attributes:
        records: the records that will be written (see :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA`).
        sizes: bytes of each record in its object before compression, parallel to ``records``.
        payload: argument of the format's writers, parallel to ``records``.
        ignored: number of null values that were left out.
    """

    records: pa.RecordBatch
    sizes: Int64Array
    payload: Payload
    ignored: int

    def take(self, rows: Rows) -> Payload:
        """The payload of some rows; a slice is not copied."""
        if isinstance(rows, slice):
            return self.payload.slice(rows.start, rows.stop - rows.start)
        return self.payload.take(int64_array(rows))


class ObjectWriter(Protocol):
    """Encodes one object, with a buffer of bounded size."""

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Encode rows; yields the next bytes of the object, and must be consumed to its end."""
        ...

    def close(self) -> Iterable[Buffer]:
        """End the object; yields the rest of its bytes."""
        ...


class RecordFormat(Protocol):
    """Encodes the records of objects."""

    def prepare(self, batch: pa.RecordBatch, *, topic: str, partition: int) -> Prepared:
        """Check a batch of one Kafka partition and encode its records.

        Raises:
            RecordError: a record cannot be written; with topic, partition, offset and what to do.
        """
        ...

    def open(self) -> ObjectWriter:
        """Begin an object."""
        ...
