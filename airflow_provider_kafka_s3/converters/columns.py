"""Columns of decoded values, and the parts that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, validity_buffer

__all__ = ["Column", "buffer", "last_of_each_key"]


@dataclass(frozen=True)
class Column:
    """Parts of an array, of which the bitmap of nulls is still to be made."""

    type: pa.DataType
    count: int
    buffers: list[pa.Buffer | None] = field(default_factory=list)
    children: list[Array] = field(default_factory=list)
    valid: Bools | None = None

    def array(self, valid: Bools | None = None) -> Array:
        """Make the array; null where the column, or ``valid``, is not valid.

        It has a bitmap only if a value is null.
        """
        if pa.types.is_null(self.type):
            return cast("Array", pa.nulls(self.count))
        if valid is None:
            valid = self.valid
        elif self.valid is not None:
            valid = valid & self.valid
        bits = None if valid is None or valid.all() else validity_buffer(valid)
        buffers = [bits, *self.buffers]
        children = self.children or None
        return cast("Array", pa.Array.from_buffers(self.type, self.count, cast("Any", buffers), children=children))


def buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    """The bytes of numbers; copied only if they are not contiguous."""
    return pa.py_buffer(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def last_of_each_key(rows: Int64Array, keys: Array) -> Int64Array | None:
    """The entries of maps without those whose key follows again in the same map; None: there are none."""
    if len(rows) < 2 or not (rows[1:] == rows[:-1]).any():
        return None
    encoded = keys.dictionary_encode()
    indices = np.frombuffer(cast("Any", encoded.indices.buffers()[1]), np.int32)[: len(rows)].astype(np.int64)
    pairs = rows * (len(encoded.dictionary) + 1) + indices
    ordered = np.sort(pairs)
    if (ordered[1:] != ordered[:-1]).all():
        return None
    # Of the reversed entries the first of each pair is kept.
    _, first = np.unique(pairs[::-1], return_index=True)
    return np.sort(len(pairs) - 1 - first)
