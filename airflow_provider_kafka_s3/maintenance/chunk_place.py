"""Where the records of a chunk of DeviantArt's sink are in Kafka.

The sink counts records and never looks at their offsets: the first offset in its index is the one at which it began to
read, and the number of records since. So a record has the offset that follows from the index, or a higher one if
offsets have gaps (transactions, compaction). The place of a chunk is found by its text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["ChunkText", "Ends"]

_SEARCHED: Final = 1_000_000
"""Records of Kafka in which a chunk is searched, beyond as many as it has."""

_LOOKED_AT: Final = 10_000
"""Records behind a chunk at the offsets of the index: they show whether offsets have gaps, and values are repeated."""

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A surrogate in UTF-8, whole or cut. Java puts one replacement character in its place, Python one for each byte."""


class Ends(NamedTuple):
    """One past the offset of the last record of a chunk.

    Attributes:
        offsets: all that are in accordance with the records in Kafka, ascending.
        is_certain: whether it is the only one, and nothing behind it can have been deleted.
        is_in_place: whether it is not certain, but the first one follows from the index, and no gap was found from
            there on. So the first one is right if there was no gap before.
    """

    offsets: tuple[int, ...]
    is_certain: bool
    is_in_place: bool = False


class ChunkText(NamedTuple):
    """A chunk.

    Attributes:
        text: its lines, decompressed.
        records: their number; a record with line feeds in its value is several lines.
        first: the lowest offset that its first record can have.
    """

    text: bytes
    records: int
    first: int

    @property
    def least_end(self) -> int:
        """One past the lowest offset that its last record can have."""
        return self.first + self.records

    def find(self, values: Iterable[tuple[int, bytes | None]], earliest: int) -> Ends:
        """Find where it ends.

        Args:
            values: offsets and values of the records in Kafka, from the higher one of ``first`` and ``earliest`` to the
                end of the partition.
            earliest: the first offset in Kafka.
        """
        lines = self.text.split(b"\n")
        if lines.pop() or len(lines) < self.records:
            return Ends((), False)
        search = _Search(self, lines, earliest)
        for offset, written in self._as_written(values):
            search.add(offset, written)
            if search.is_over:
                break
        else:
            search.is_complete = True
        return search.ends()

    def has_in_order(self, values: Iterable[bytes]) -> bool:
        """Whether each of these values, with a line feed behind it, is in the chunk, in this order."""
        text, at = b"\n" + self.text, 0
        for value in values:
            line = b"\n%s\n" % value
            at = text.find(line, at)
            if at < 0:
                return False
            at += len(line) - 1  # the line feed behind a line is the one before the next
        return True

    def _as_written(self, values: Iterable[tuple[int, bytes | None]]) -> Iterator[tuple[int, list[bytes]]]:
        """Offsets, and the lines that the sink writes for values, up to a null value, which stops it."""
        # Lines that are no UTF-8 have the bytes of the values. In others there are replacement characters where values
        # are invalid.
        has_text = _is_utf8(self.text)
        for offset, value in values:
            if value is None:
                return
            written = _as_text(value) if has_text and not _is_utf8(value) else value
            yield offset, written.removesuffix(b"\n").split(b"\n")


class _Search:
    """Searches a chunk among the records of Kafka.

    Three facts decide. No record of the chunk has a lower offset than follows from the index. What Kafka has deleted is
    below its first offset, so if it has some of the records, these are the last ones. Their values are the lines.
    """

    def __init__(self, chunk: ChunkText, lines: Sequence[bytes], earliest: int) -> None:
        self.is_over = False
        self.is_complete = False
        """Whether all records up to the end of the partition were searched."""
        self._chunk, self._lines, self._earliest = chunk, lines, earliest
        self._whole = _Matcher(lines)
        self._records = 0
        self._position = 0
        self._starts: deque[int] = deque(maxlen=chunk.records)
        self._head: list[bytes] = []
        self._head_ends: dict[int, tuple[int, int]] = {}
        self._found: list[int] = []
        self._next = max(chunk.first, earliest)
        self._has_gaps = False

    def add(self, offset: int, written: Sequence[bytes]) -> None:
        """The next record in Kafka."""
        chunk = self._chunk
        self._records += 1
        self._has_gaps |= offset != self._next
        self._next = offset + 1
        self._starts.append(self._position)
        self._position += len(written)
        if self._records < chunk.records and self._position < len(self._lines):
            self._head += written
            self._head_ends[self._position] = (self._records, offset + 1)
        is_end = False
        for line in written:
            is_end = self._whole.add(line)
        # The text of as many records as the chunk has, no matter how many lines these are.
        if is_end and self._records >= chunk.records and self._starts[0] == self._position - len(self._lines):
            self._found.append(offset + 1)
        beyond = self._records - chunk.records
        self.is_over = len(self._found) > 1 or beyond >= (_LOOKED_AT if self._is_in_place else _SEARCHED)

    def ends(self) -> Ends:
        """The result, once all records were added, or enough."""
        chunk, earliest = self._chunk, self._earliest
        if self._is_in_place:
            is_alone = len(self._found) == 1
            return Ends(tuple(self._found), is_alone, not is_alone)
        found = {*self._found}
        # As many as Kafka has at least: those whose lowest offsets were not deleted.
        left = max(0, chunk.least_end - earliest)
        is_certain = chunk.least_end >= earliest
        if chunk.first < earliest:
            found |= {end for records, end in self._tails() if records >= left}
            if left == 0:
                # All may have been deleted. If the lowest end is the first offset in Kafka, they ended just before it.
                is_certain &= self.is_complete or not self._has_gaps
                found.add(earliest)
        return Ends(tuple(sorted(found)), is_certain and len(found) == 1)

    @property
    def _is_in_place(self) -> bool:
        """Whether the chunk is found at the offsets of the index, and no gap shows that they may be too low."""
        chunk = self._chunk
        in_place = chunk.first >= self._earliest and self._found[:1] == [chunk.least_end]
        return in_place and not self._has_gaps

    def _tails(self) -> Iterator[tuple[int, int]]:
        """Numbers of records with which Kafka begins and the chunk ends; and one past the offset of the last one."""
        if not self._head:
            return
        matcher = _Matcher(self._head)
        for line in self._lines:
            matcher.add(line)
        for length in matcher.lengths():
            if length in self._head_ends:
                records, end = self._head_ends[length]
                # Each of the other records is one line at least.
                if len(self._lines) - length >= self._chunk.records - records:
                    yield records, end


class _Matcher:
    """Finds lines in a series of lines, by the algorithm of Knuth, Morris and Pratt."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._matched = 0
        self._shorter = [0] * len(lines)
        for at in range(1, len(lines)):
            self.add(lines[at])
            self._shorter[at] = self._matched
        self._matched = 0

    def add(self, line: bytes) -> bool:
        """The next line of the series; returns whether it ends with all lines."""
        lines, matched = self._lines, self._matched
        while matched and (matched == len(lines) or lines[matched] != line):
            matched = self._shorter[matched - 1]
        self._matched = matched + (lines[matched] == line)
        return self._matched == len(lines)

    def lengths(self) -> Iterator[int]:
        """Numbers of the first lines with which the series ends, descending."""
        matched = self._matched
        while matched:
            yield matched
            matched = self._shorter[matched - 1]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_text(value: bytes) -> bytes:
    """What is left of bytes of which Java has made a text, with replacement characters for those that are invalid."""
    return _SURROGATE.sub("\ufffd".encode(), value).decode("utf-8", "replace").encode()
