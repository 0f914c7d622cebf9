"""Frames: the encoded records of a file that is a sequence of records, made for a whole batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents, int64_array, valid_rows
from airflow_provider_kafka_s3.config import OnNull
from airflow_provider_kafka_s3.formats.compression import Compression, Compressor
from airflow_provider_kafka_s3.formats.port import Buffer, Payload, Prepared, Rejected

__all__ = ["FrameWriter", "Kept", "without_nulls"]


@dataclass(frozen=True)
class Kept:
    """The records of a batch whose values, or keys, are not null.

    Attributes:
        records: these records.
        rows: their rows in the batch; None: all of them.
        ignored: number of null values that are left out.
        rejected: the null values, if they are invalid.
        part: of the records that is not null.
    """

    records: pa.RecordBatch
    rows: Int64Array | None
    ignored: int
    rejected: Sequence[Rejected]
    part: Literal["key", "value"] = "value"

    def prepared(self, frames: Array, invalid: Sequence[tuple[int, str, str]] = ()) -> Prepared:
        """A prepared batch whose payload are its frames.

        Args:
            frames: of the kept records that are valid.
            invalid: row among the kept records, reason and remedy of each that cannot be written.
        """
        records, rejected = self.records, [*self.rejected]
        if invalid:
            good = np.ones(records.num_rows, np.bool_)
            for row, reason, remedy in invalid:
                good[row] = False
                rejected.append(Rejected(row if self.rows is None else int(self.rows[row]), self.part, reason, remedy))
            records = records.take(int64_array(np.flatnonzero(good)))
        return Prepared(
            records=records,
            sizes=np.diff(bounds(frames)),
            payload=frames,
            ignored=self.ignored,
            rejected=sorted(rejected, key=lambda r: r.row),
        )


def without_nulls(batch: pa.RecordBatch, on_null: OnNull, part: Literal["key", "value"] = "value") -> Kept:
    """The records whose values, or keys, are not null; the others are ignored or rejected."""
    values = batch.column(part)
    if values.null_count == 0:
        return Kept(batch, None, 0, (), part)
    valid = valid_rows(values)
    records, rows = batch.filter(values.is_valid()), np.flatnonzero(valid)
    if on_null != "fail":
        return Kept(records, rows, values.null_count, (), part)
    if part == "key":
        reason = "the key is null"
        remedy = (
            "correct the producer, use content='envelope', which has null keys, or use errors='dead_letter' to set "
            "such records aside"
        )
    else:
        reason = "the value is null (a tombstone), and on_null='fail'"
        remedy = "use on_null='ignore' to leave null values out, or errors='dead_letter' to set them aside"
    return Kept(records, rows, 0, [Rejected(int(row), part, reason, remedy) for row in np.flatnonzero(~valid)], part)


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
