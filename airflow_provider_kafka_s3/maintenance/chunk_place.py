"""Where the records of a chunk of DeviantArt's sink are in Kafka.

The sink counts records and never looks at their offsets: the first offset in its index is the one at which it began to
read, and the number of records since. So a record has the offset that follows from the index, or a higher one if
offsets have gaps (transactions, compaction). The place of a chunk is found by its text.

Kafka may have compacted records of a chunk since. Those of them that are left may be anywhere behind the offset of the
index, so that a place is certain only if they cannot be in another one. One case cannot be seen: a chunk of which Kafka
has compacted records, and the same values behind it, whole.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["ChunkText", "Ends"]

_SEARCHED: Final = 10_000_000
"""Records of Kafka in which a chunk is searched, beyond as many as it has. It may also be behind them."""

_COMPARED: Final = 10_000_000
"""Comparisons with records of a chunk of which Kafka may have compacted some. What is behind them is not searched."""

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A surrogate in UTF-8, whole or cut. Java puts one replacement character in its place, Python one for each byte."""


class Ends(NamedTuple):
    """One past the offset of the last record of a chunk.

    Attributes:
        offsets: those that are in accordance with the records in Kafka, ascending; if there are several, maybe not all.
        is_certain: whether it is the only one, and nothing behind it can have been deleted.
        is_in_place: whether it is not certain, but the first one follows from the index, and Kafka has all records of
            the chunk there. So the first one is right if there was no gap before.
        is_complete: whether all records up to the end of the partition were searched, or several offsets found before.
    """

    offsets: tuple[int, ...]
    is_certain: bool
    is_in_place: bool = False
    is_complete: bool = True


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

    def find(self, values: Iterable[tuple[int, bytes | None]], earliest: int, end: int) -> Ends:
        """Find where it ends.

        Args:
            values: offsets and values of the records in Kafka, from the higher one of ``first`` and ``earliest`` to the
                end of the partition.
            earliest: the first offset in Kafka.
            end: of the partition.
        """
        lines = self.text.split(b"\n")
        if lines.pop() or len(lines) < self.records:
            return Ends((), False)
        # Lines that are no UTF-8 have the bytes of the values. In others there are replacement characters where values
        # are invalid.
        has_text = _is_utf8(self.text)
        search = _Search(self, lines, earliest)
        for offset, value in values:
            if value is None:
                # The sink stops at it, so the chunk is before it.
                end = offset
                break
            written = _as_text(value) if has_text and not _is_utf8(value) else value
            search.add(offset, written.removesuffix(b"\n").split(b"\n"))
            if search.is_over:
                return search.ends()
        search.finish(end)
        return search.ends()

    def has_in_order(self, values: Iterable[bytes]) -> bool:
        """Whether each of these values, with a line feed behind it, is in the chunk, in this order."""
        text, position = b"\n" + self.text, 0
        for value in values:
            line = b"\n%s\n" % value
            position = text.find(line, position)
            if position < 0:
                return False
            position += len(line) - 1  # the line feed behind a line is the one before the next
        return True


class _Search:
    """Searches a chunk among the records of Kafka.

    Three facts decide. No record of the chunk has a lower offset than follows from the index. What Kafka has deleted is
    below its first offset, and what it has compacted is in gaps, so the others are there one after another. Their
    values are lines of the chunk.
    """

    def __init__(self, chunk: ChunkText, lines: Sequence[bytes], earliest: int) -> None:
        self._chunk, self._lines, self._earliest = chunk, lines, earliest
        self._is_complete = False
        self._whole = _Matcher(lines)
        self._parts: _Parts | None = None
        self._records = 0
        self._position = 0
        self._starts: deque[int] = deque(maxlen=chunk.records)
        self._head: list[bytes] = []
        self._head_ends: dict[int, tuple[int, int]] = {}
        self._found: set[int] = set()
        """One past places with all records of the chunk."""
        self._possible: set[int] = set()
        """One past places with some of them, where offsets have gaps for the others."""
        self._next = max(chunk.first, earliest)
        self._is_in_place = False
        # The last records, and what is before them: as many as the chunk has, and one more.
        self._last: deque[tuple[int, Sequence[bytes]]] = deque([(self._next - 1, ())], maxlen=chunk.records + 1)

    @property
    def is_over(self) -> bool:
        """Whether there are several places, or too many records to go on."""
        is_long = self._records >= self._chunk.records + _SEARCHED
        return len(self._found | self._possible) > 1 or is_long or (self._parts is not None and self._parts.is_over)

    def add(self, offset: int, written: Sequence[bytes]) -> None:
        """The next record in Kafka."""
        chunk, lines = self._chunk, self._lines
        self._add_gap(offset)
        self._records += 1
        self._next = offset + 1
        self._starts.append(self._position)
        self._position += len(written)
        self._last.append((offset, written))
        if self._records < chunk.records and self._position < len(lines):
            self._head += written
            self._head_ends[self._position] = (self._records, offset + 1)
        is_end = False
        for line in written:
            is_end = self._whole.add(line)
        # The text of as many records as the chunk has, no matter how many lines these are.
        if is_end and self._records >= chunk.records and self._starts[0] == self._position - len(lines):
            self._found.add(offset + 1)
            # Without gaps among its records, as there are no lower offsets.
            self._is_in_place |= offset + 1 == chunk.least_end and chunk.first >= self._earliest
        elif (
            offset - self._last[0][0] >= len(self._last)
            and lines[-len(written) :] == written
            and self._has_room(offset, len(lines))
        ):
            self._possible.add(offset + 1)

    def finish(self, end: int) -> None:
        """All records were added.

        Args:
            end: the offset up to which there are no more.
        """
        self._add_gap(end)
        self._is_complete = self._parts is None or not self._parts.is_over

    def ends(self) -> Ends:
        """The result, once all records were added, or enough."""
        chunk, earliest = self._chunk, self._earliest
        certain = {*self._found}
        # As many as Kafka has at least: those whose lowest offsets were not deleted.
        left = max(0, chunk.least_end - earliest)
        if chunk.first < earliest:
            certain |= {end for records, end in self._tails() if records >= left}
            if left == 0:
                # All may have been deleted. If the lowest end is the first offset in Kafka, they ended just before it.
                certain.add(earliest)
        places = certain | self._possible
        # With several places it does not matter what is behind them.
        is_complete = self._is_complete or len(places) > 1
        is_certain = is_complete and len(places) == len(certain) == 1 and chunk.least_end >= earliest
        return Ends(tuple(sorted(places)), is_certain, self._is_in_place and not is_certain, is_complete)

    def _add_gap(self, offset: int) -> None:
        """If offsets before this one have no records: the last record of the chunk may have been compacted there.

        This matters only if all that Kafka has may be behind the chunk. Otherwise nothing is certain without the last
        record.
        """
        chunk, earliest = self._chunk, self._earliest
        if not self._records or offset == self._next or not chunk.first < chunk.least_end == earliest:
            return
        if self._has_room(offset - 1, len(self._lines) - 1):
            self._possible.add(self._next)

    def _has_room(self, last: int, end: int) -> bool:
        """Whether the last records may be what is left of the chunk, and there are offsets for all of its records.

        Args:
            last: the offset of its last record.
            end: number of its lines that these records may have.
        """
        if self._parts is None:
            self._parts = _Parts(self._lines)
        count = self._parts.count((written for _, written in reversed(self._last)), end)
        if count >= self._chunk.records:
            return True
        before = self._chunk.first - 1 if count == self._records else self._last[-count - 1][0]
        return last - before >= self._chunk.records

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


class _Parts:
    """Finds how many records may be what is left of lines if others of them were compacted."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._left = _COMPARED
        self._at: dict[bytes, list[int]] = {}
        for place, line in enumerate(lines):
            self._at.setdefault(line, []).append(place)

    @property
    def is_over(self) -> bool:
        """Whether there were too many comparisons; then the counts may be too low."""
        return self._left <= 0

    def count(self, records: Iterable[Sequence[bytes]], end: int) -> int:
        """The number of records, from the last one on, whose lines are among the first ``end`` ones in their order.

        Args:
            records: lines of each, the last one first.
            end: see above.
        """
        number = 0
        for written in records:
            place = self._before(written, end)
            if place is None:
                break
            end = place
            number += 1
        return number

    def _before(self, written: Sequence[bytes], end: int) -> int | None:
        """The last place of the lines of a record that is not past ``end``."""
        if not written:
            return None
        places = self._at.get(written[0], ())
        for number in range(bisect_right(places, end - len(written)) - 1, -1, -1):
            self._left -= 1
            if self._left < 0:
                return None
            if self._lines[places[number] : places[number] + len(written)] == written:
                return places[number]
        return None


class _Matcher:
    """Finds lines in a series of lines, by the algorithm of Knuth, Morris and Pratt."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._matched = 0
        self._shorter = [0] * len(lines)
        for index in range(1, len(lines)):
            self.add(lines[index])
            self._shorter[index] = self._matched
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
