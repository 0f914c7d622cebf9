"""A digest of the records of an object: whether Kafka still has the records that were landed.

The bytes of an object depend on the versions of the libraries that encode and compress. Its offsets do not show whether
they have other records by now, as after an unclean leader election. This digest depends on the records alone, as Kafka
has them: however they are split into batches, whether Spark or librdkafka reads them, and whatever they become.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from airflow_provider_kafka_s3.arrays import (
    FAITHFUL_FROM,
    NO_TIMESTAMP,
    Array,
    Int64Array,
    Scattered,
    bounds,
    int64_array,
    int64_values,
    number_values,
    valid_rows,
)
from airflow_provider_kafka_s3.config import MIB

__all__ = ["RecordsDigest", "RecordsOfBatch"]

_DIGITS: Final = 32
_NULL: Final = -1
"""Length of a null value."""
_MOVED_BYTES: Final = 16 * MIB
"""Bytes of a batch that is put into another order as a whole; rows of a larger one are copied group by group."""


class RecordsDigest:
    """Digest of records in their order.

    SHA-256 over the timestamp and the lengths of each record, and over the CRC-32 of all values; of whole records, also
    over those of keys and headers. SHA-256 over all bytes would take half as much time as JSON lines do altogether.
    """

    def __init__(self) -> None:
        """Digest nothing yet."""
        self._records = hashlib.sha256()
        self._headers = hashlib.sha256()
        self._crcs = [0, 0, 0, 0]

    def add(self, numbers: memoryview, headers: memoryview, texts: Sequence[memoryview]) -> None:
        """Add consecutive records: numbers of each and of their headers, and the bytes of each kind of texts."""
        self._records.update(numbers)
        self._headers.update(headers)
        self._crcs[: len(texts)] = [isal_zlib.crc32(t, c) for t, c in zip(texts, self._crcs, strict=False)]

    def hexdigest(self) -> str:
        """The digest so far, 32 hex digits."""
        crcs = b"".join(crc.to_bytes(4, "little") for crc in self._crcs)
        both = self._records.digest() + self._headers.digest()
        return hashlib.sha256(both + crcs).hexdigest()[:_DIGITS]


class RecordsOfBatch:
    """The records of a batch, for the digests of the objects that they go to."""

    def __init__(self, records: pa.RecordBatch, *, whole: bool) -> None:
        """Nothing is computed yet.

        Args:
            records: see :data:`~airflow_provider_kafka_s3.arrays.WHOLE_RECORD_SCHEMA`.
            whole: whether keys and headers belong to the records.
        """
        self._batch = records
        self._whole = whole
        self._in_place: _Numbers | None = None
        self._moved: tuple[Int64Array, _Numbers] | None = None

    def add_to(self, digest: RecordsDigest, rows: slice | Scattered) -> None:
        """Add some rows to a digest."""
        if isinstance(rows, slice):
            self._in_place = self._in_place or _Numbers(self._batch, whole=self._whole)
            self._in_place.add_to(digest, rows.start, rows.stop)
        elif self._batch.nbytes > _MOVED_BYTES:
            selected = self._batch.take(int64_array(rows.indices))
            _Numbers(selected, whole=self._whole).add_to(digest, 0, selected.num_rows)
        else:
            if self._moved is None or self._moved[0] is not rows.order:
                moved = self._batch.take(int64_array(rows.order))
                self._moved = rows.order, _Numbers(moved, whole=self._whole)
            self._moved[1].add_to(digest, rows.start, rows.stop)


class _Numbers:
    """What a digest has of the records of a batch, computed for all of them at once."""

    def __init__(self, records: pa.RecordBatch, *, whole: bool) -> None:
        times = int64_values(records.column("timestamp"))
        # Spark shifts these.
        columns = [np.where((times < FAITHFUL_FROM) & (times != NO_TIMESTAMP), FAITHFUL_FROM - 1, times)]
        self._texts: list[_Texts] = []
        self._headers: _Headers | None = None
        for name in ("value", "key") if whole else ("value",):
            texts = _Texts(records.column(name))
            self._texts.append(texts)
            columns.append(texts.lengths)
        if whole:
            self._headers = _Headers(cast("pa.ListArray[pa.StructScalar]", records.column("headers")))
            columns.append(self._headers.counts)
        self._numbers = _as_bytes(columns)
        self._width = 8 * len(columns)

    def add_to(self, digest: RecordsDigest, start: int, stop: int) -> None:
        texts = [texts.between(start, stop) for texts in self._texts]
        headers = memoryview(b"")
        if self._headers is not None:
            headers, *more = self._headers.between(start, stop)
            texts += more
        digest.add(self._numbers[start * self._width : stop * self._width], headers, texts)


class _Texts:
    """Bytes, one after another, and the length of each."""

    def __init__(self, column: Array) -> None:
        valid, lengths = valid_rows(column), np.diff(bounds(column))
        if lengths[~valid].any():
            # A null may have bytes in the data, which are not copied.
            column = column.take(int64_array(np.arange(len(column))))
            lengths = np.diff(bounds(column))
        self.lengths = np.where(valid, lengths, _NULL)
        self._bounds = bounds(column)
        data = column.buffers()[2]
        self._data = memoryview(b"" if data is None else data).cast("B")

    def between(self, start: int, stop: int) -> memoryview:
        return self._data[self._bounds[start] : self._bounds[stop]] if stop > start else memoryview(b"")


class _Headers:
    """Names and values of headers, and the number of each record."""

    def __init__(self, column: pa.ListArray[pa.StructScalar]) -> None:
        lengths = cast("Array", column.value_lengths())
        self.counts = np.where(valid_rows(column), number_values(lengths, np.int32), 0).astype(np.int64)
        self._ends = np.concatenate(([0], np.cumsum(self.counts)))
        flat = cast("pa.StructArray", column.flatten())
        self._names, self._values = _Texts(flat.field("key")), _Texts(flat.field("value"))
        self._numbers = _as_bytes([self._names.lengths, self._values.lengths])

    def between(self, start: int, stop: int) -> tuple[memoryview, memoryview, memoryview]:
        first, last = int(self._ends[start]), int(self._ends[stop])
        return (
            self._numbers[16 * first : 16 * last],
            self._names.between(first, last),
            self._values.between(first, last),
        )


def _as_bytes(columns: Sequence[Int64Array]) -> memoryview:
    """The numbers of a row after those of the row before, as little-endian int64."""
    return memoryview(np.stack(columns, axis=1).astype("<i8", copy=False).tobytes())
