"""The offsets of the records of a block: their ranges, or, if these are many, runs in few bytes.

Runs are numbers in turn: how many offsets follow one another, how many are left out behind them, and so on; the last
one is of the first kind. Each number is a varint (LEB128): seven bits in a byte, the lowest ones first, and the highest
bit of each byte but the last is set. The varints are compressed as gzip members, and these are text in Base64.
"""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from airflow_provider_kafka_s3.arrays import Int64Array
from airflow_provider_kafka_s3.config import KIB

__all__ = ["MAX_RANGES", "BlockOffsets", "ranges_of_runs"]

MAX_RANGES: Final = 1_000
"""Ranges that a chunk of an index has as such at most; more are runs."""

_JOINED_AT: Final = 4 * MAX_RANGES
"""Ranges in memory at which those that touch are joined."""
_MEMBER: Final = 64 * KIB
"""Bytes of varints in a gzip member; the last one has fewer. No encoder stays open, so an open object takes no more."""
_READ: Final = 8 * KIB
"""Bytes of varints that are decompressed at once."""


class BlockOffsets:
    """Ascending offsets, as they are written. They are joined from time to time only: most pieces of records are small.

    Args:
        compress: makes a gzip member.
    """

    def __init__(self, compress: Callable[[memoryview], bytes]) -> None:
        self._compress = compress
        self._starts: list[Int64Array] = []
        self._ends: list[Int64Array] = []
        self._count = 0
        # Once there are too many ranges, all but the last one become runs.
        self._behind: int | None = None
        self._varints = bytearray()
        self._members: list[bytes] = []

    def add(self, offsets: Int64Array) -> None:
        """Add offsets behind all others."""
        gaps = np.flatnonzero(offsets[1:] - offsets[:-1] != 1)
        self._starts += [offsets[:1], offsets[1:][gaps]]
        self._ends += [offsets[:-1][gaps] + 1, offsets[-1:] + 1]
        self._count += len(gaps) + 1
        if self._count > _JOINED_AT:
            self._join()

    def found(self) -> tuple[tuple[tuple[int, int], ...] | None, str | None]:
        """The ranges, or the runs in their place; without gaps neither. Nothing can be added any more."""
        self._join()
        if not self._starts:
            return None, None
        starts, ends = self._starts[0], self._ends[0]
        if self._behind is None:
            return (tuple(zip(starts.tolist(), ends.tolist(), strict=True)) if len(starts) > 1 else None), None
        self._encode(starts, ends)
        if self._varints:
            self._members.append(self._compress(memoryview(self._varints)))
        return None, base64.b64encode(b"".join(self._members)).decode()

    def _join(self) -> None:
        if not self._starts:
            return
        starts, ends = np.concatenate(self._starts), np.concatenate(self._ends)
        gaps = starts[1:] != ends[:-1]
        starts, ends = starts[np.append(True, gaps)], ends[np.append(gaps, True)]
        if self._behind is not None or len(starts) > MAX_RANGES:
            # Offsets that are added later may continue the last one.
            self._encode(starts[:-1], ends[:-1])
            starts, ends = starts[-1:], ends[-1:]
        self._starts, self._ends, self._count = [starts], [ends], len(starts)

    def _encode(self, starts: Int64Array, ends: Int64Array) -> None:
        if not len(starts):
            return
        numbers = np.empty(2 * len(starts), np.int64)
        before = starts[0] if self._behind is None else self._behind
        numbers[::2] = starts - np.append(before, ends[:-1])
        numbers[1::2] = ends - starts
        self._varints += _varints(numbers[1:] if self._behind is None else numbers)
        self._behind = int(ends[-1])
        while len(self._varints) >= _MEMBER:
            self._members.append(self._compress(memoryview(self._varints)[:_MEMBER]))
            self._varints = self._varints[_MEMBER:]


def _varints(numbers: Int64Array) -> bytes:
    sizes, left = np.ones(len(numbers), np.int64), numbers >> 7
    while left.any():
        sizes += left > 0
        left = left >> 7
    ends = np.cumsum(sizes)
    out, positions, left = np.zeros(int(ends[-1]), np.uint8), ends - sizes, numbers
    while len(left):
        has_more = left > 127
        out[positions] = (left & 127) | (has_more.astype(np.int64) << 7)
        positions, left = positions[has_more] + 1, left[has_more] >> 7
    return out.tobytes()


def ranges_of_runs(runs: str, first: int) -> Iterator[tuple[int, int]]:
    """The ranges ``(start, stop)`` of runs, one after another.

    Args:
        runs: see above.
        first: offset of the first record.

    Raises:
        ValueError: they are damaged; as OSError, EOFError and zlib.error.
    """
    numbers = _numbers(base64.b64decode(runs, validate=True))
    for number in numbers:
        yield first, first + number
        first += number + next(numbers, 0)


def _numbers(compressed: bytes) -> Iterator[int]:
    number = shift = 0
    with gzip.GzipFile(fileobj=io.BytesIO(compressed)) as file:
        while piece := file.read(_READ):
            for byte in piece:
                number |= (byte & 127) << shift
                if byte > 127:
                    shift += 7
                    continue
                yield number
                number = shift = 0
