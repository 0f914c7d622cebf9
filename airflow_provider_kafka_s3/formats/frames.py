"""Frames: the encoded records of a file that is a sequence of records, made for a whole batch at a time.

``pyarrow.scalar`` is not used here: it imports pandas, see :mod:`airflow_provider_kafka_s3.arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import Array, Int64Array, binary_array
from airflow_provider_kafka_s3.config import OnNull
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.formats.compression import Compression, Compressor
from airflow_provider_kafka_s3.formats.port import Buffer, Payload, Prepared

__all__ = ["FrameWriter", "bounds", "contents", "handle_nulls", "join", "prepared", "record_error"]


def record_error(batch: pa.RecordBatch, row: int, *, topic: str, partition: int, what: str) -> RecordError:
    """A RecordError about one row; ``what`` is the cause and what to do, without any content of the record."""
    offset = batch.column("offset")[row].as_py()
    return RecordError(f"topic {topic!r}, partition {partition}, offset {offset}: {what}")


def handle_nulls(batch: pa.RecordBatch, on_null: OnNull, *, topic: str, partition: int) -> tuple[pa.RecordBatch, int]:
    """The batch without null values, and their number.

    Raises:
        RecordError: there is a null value, and ``on_null`` is ``fail``.
    """
    values = batch.column("value")
    if values.null_count == 0:
        return batch, 0
    if on_null == "fail":
        first = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise record_error(
            batch,
            first,
            topic=topic,
            partition=partition,
            what="the value is null (a tombstone), and on_null='fail'; use on_null='ignore' to leave null values out",
        )
    return batch.filter(values.is_valid()), values.null_count


def join(values: Array, separator: bytes) -> Array:
    """Append the separator to every value."""
    if not separator:
        return values
    empty, end = (binary_array([text], large=pa.types.is_large_binary(values.type))[0] for text in (b"", separator))
    return cast("Array", pc.binary_join_element_wise(values, empty, end))


def bounds(values: Array) -> Int64Array:
    """The beginning of each value in the data of the array, and the end of the last one: one more than values.

    A slice shares the data of the whole array, so the first bound need not be 0.
    """
    buffer = values.buffers()[1]
    if len(values) == 0 or buffer is None:
        return np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    whole = np.frombuffer(memoryview(buffer).toreadonly(), dtype=np.dtype(width))
    return whole[values.offset : values.offset + len(values) + 1].astype(np.int64, copy=False)


def contents(values: Array) -> memoryview:
    """The bytes of all values, one after another; not copied."""
    at, data = bounds(values), values.buffers()[2]
    return memoryview(b"") if data is None else memoryview(data)[at[0] : at[-1]].cast("B")


def prepared(batch: pa.RecordBatch, frames: Array, ignored: int) -> Prepared:
    """A prepared batch whose payload are its frames."""
    return Prepared(records=batch, sizes=np.diff(bounds(frames)), payload=frames, ignored=ignored)


class FrameWriter:
    """Writes frames one after another, with compression."""

    def __init__(self, compression: Compression) -> None:
        self._compressor: Compressor = compression()

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Encode frames; see :class:`~airflow_provider_kafka_s3.formats.port.ObjectWriter`."""
        return self._compressor.write(contents(cast("Array", payload)))

    def close(self) -> Iterable[Buffer]:
        """End the object."""
        return self._compressor.close()
