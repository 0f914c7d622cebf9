"""From Arrow to NumPy without a detour.

``pyarrow.Array.to_numpy`` and ``pyarrow.array`` import pandas where it is installed, although nothing here needs it:
more than a second and 50 MB in every Python worker. Buffers are shared without it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Int64Array", "int64_values"]

Int64Array: TypeAlias = npt.NDArray[np.int64]


def int64_values(column: pa.Array[Any]) -> Int64Array:
    """The values of an int64 column that has no nulls, read-only, without a copy."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(0, np.int64)
    whole = np.frombuffer(memoryview(buffer).toreadonly(), np.int64)
    return whole[column.offset : column.offset + len(column)]
