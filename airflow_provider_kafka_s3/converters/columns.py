"""Columns of decoded values, and the parts that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Bools, validity_buffer

__all__ = ["Column", "buffer"]


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
