"""Where each record of a batch is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, bounds, valid_rows
from airflow_provider_kafka_s3.converters.avro_scalar import INT_BYTES, LONG_BYTES, MOST_EMPTY_ITEMS, Datum
from airflow_provider_kafka_s3.converters.varints import CONTINUES, LENGTHS, MERGES, ONE

__all__ = ["LARGEST_BATCH", "Bytes", "Cursor", "Rows", "cursor_of"]

_PADDING: Final = 16
LARGEST_BATCH: Final = 2**31 - 1 - _PADDING
"""Bytes of the data of a batch, so that 32 bits have every position."""

Bytes: TypeAlias = npt.NDArray[np.uint8]
_Words: TypeAlias = npt.NDArray[np.uint64]
Rows: TypeAlias = "Int64Array | None"
"""Numbers of rows, ascending; None: all."""


@dataclass
class Cursor:
    """Where each row is read.

    Attributes:
        data: bytes of all rows, and padding.
        words: the 8 bytes from each position, as little-endian numbers.
        pos: per row, the next byte. Never less than the start of the row.
        end: per row. The rows follow each other in ``data``.
        bad: per row, whether it was found invalid.
        empty_items: per row of the batch, items without bytes that may still follow.
        count: number of rows.
        outer: rows that contain those of this cursor, and for each of these its row there; None: none do.
    """

    data: Bytes
    words: _Words
    pos: Int64Array
    end: Int64Array
    bad: Bools
    empty_items: Int64Array
    count: int
    outer: tuple[Cursor, Int64Array] | None = None

    @property
    def root(self) -> Int64Array:
        """Per row, the row of the batch that contains it."""
        if self.outer is None:
            return np.arange(self.count, dtype=np.int64)
        outer, rows = self.outer
        return outer.root[rows]

    def at(self, rows: Rows) -> Int64Array:
        """The positions of the rows."""
        return self.pos if rows is None else self.pos[rows]

    def move(self, rows: Rows, positions: Int64Array) -> None:
        """Set the positions of the rows."""
        if rows is None:
            self.pos = positions
        else:
            self.pos[rows] = positions

    def mark(self, rows: Rows, wrong: Bools) -> bool:
        """Mark rows as bad; whether there were any."""
        if not wrong.any():
            return False
        self.bad[np.flatnonzero(wrong) if rows is None else rows[wrong]] = True
        return True

    def refuse(self, row: int) -> None:
        """Mark a row as bad, and read nothing more of it."""
        self.bad[row] = True
        self.pos[row] = self.end[row] + 1

    def finish(self, rows: Rows) -> Bools:
        """Mark the rows that are not at their end; the rows that are bad."""
        self.mark(rows, self.at(rows) != (self.end if rows is None else self.end[rows]))
        return self.bad

    def datum(self, row: int) -> Datum:
        """The rest of a row, for a scalar check."""
        return Datum(self.data[self.pos[row] : max(self.pos[row], self.end[row])].tobytes())

    def inside(self, parents: Int64Array, starts: Int64Array) -> Cursor:
        """Values inside the rows ``parents``, which are ascending.

        A value ends where the next one of its row starts: values of a bad row do not overlap either.
        """
        bad = np.zeros(len(parents), np.bool_)
        end = self.end[parents]
        np.copyto(end[:-1], starts[1:], where=parents[1:] == parents[:-1])
        return Cursor(self.data, self.words, starts, end, bad, self.empty_items, len(parents), (self, parents))

    def ints(self, rows: Rows) -> Int64Array:
        """The next int of the rows; those outside its range are not marked."""
        return self.longs(rows, INT_BYTES)

    def longs(self, rows: Rows, most_bytes: int = LONG_BYTES) -> Int64Array:
        """The next long of the rows; one of more than ``most_bytes`` is marked."""
        start = self.at(rows)
        first = self.data.take(start, mode="clip")
        if not first.size or first.max() < 0x80:
            self.move(rows, start + 1)
            return _SHORT.take(first)
        word = self.words[np.minimum(start, len(self.words) - 1)]
        # In place: memory that was just used is faster, and a batch may be one array of a million numbers.
        lowest = ~word
        lowest &= CONTINUES
        other = np.negative(lowest)
        lowest &= other
        lengths = lowest >> np.uint64(7)
        lengths *= LENGTHS
        lengths >>= np.uint64(56)
        length = lengths.view(np.int64)
        np.subtract(lowest, ONE, out=other)
        other ^= lowest
        other &= ~CONTINUES
        word &= other
        for keep, shift in MERGES:
            np.bitwise_and(word, ~keep, out=other)
            other >>= shift
            word &= keep
            word |= other
        long = np.flatnonzero(lowest == 0)
        if long.size:
            self._long_varints(rows, start, word, length, long)
        if most_bytes < LONG_BYTES:
            self.mark(rows, length > most_bytes)
        self.move(rows, start + length)
        np.bitwise_and(word, ONE, out=other)
        np.negative(other, out=other)
        word >>= ONE
        word ^= other
        return word.view(np.int64)

    def _long_varints(self, rows: Rows, start: Int64Array, word: _Words, length: Int64Array, long: Int64Array) -> None:
        """The ninth and the tenth byte of those that have them."""
        ninth = self.data.take(start[long] + 8, mode="clip")
        tenth = self.data.take(start[long] + 9, mode="clip")
        more = ninth >= 0x80
        length[long] = np.where(more, 10, 9)
        top = np.where(more, tenth, 0).astype(np.uint64)
        word[long] |= ((ninth & 0x7F).astype(np.uint64) << np.uint64(56)) | (top << np.uint64(63))
        self.mark(long if rows is None else rows[long], more & (tenth > 1))

    def lengths(self, rows: Rows) -> Int64Array:
        """The next lengths; 0 where one is longer than everything."""
        length = self.longs(rows)
        wrong = length.view(np.uint64) > np.uint64(len(self.data))
        if self.mark(rows, wrong):
            length[wrong] = 0
        return length


_SHORT: Final = np.arange(128, dtype=np.int64) >> 1 ^ -(np.arange(128, dtype=np.int64) & 1)
"""The numbers of varints of one byte."""


def cursor_of(values: Array, starts: int | Int64Array) -> tuple[Cursor, Rows]:
    """The cursor of a batch, and the rows that have a datum."""
    count = len(values)
    validity, _, data_buffer = values.buffers()
    ends = bounds(values)
    first, last = int(ends[0]), int(ends[-1])
    offsets = ends - first
    data = np.zeros(last - first + _PADDING, np.uint8)
    if data_buffer is not None and last > first:
        data[:-_PADDING] = np.frombuffer(memoryview(data_buffer), np.uint8)[first:last]
    words = np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,))
    pos, end = offsets[:-1] + starts, offsets[1:].copy()
    usable = pos <= end
    bad = ~usable
    if values.null_count and validity is not None:
        valid = valid_rows(values)
        usable &= valid
        bad &= valid
    rows = None if usable.all() else np.flatnonzero(usable)
    if rows is not None:
        pos = np.where(usable, pos, offsets[:-1])
    budget = np.full(count, MOST_EMPTY_ITEMS, np.int64)
    return Cursor(data, cast("_Words", words), pos, end, bad, budget, count), rows
