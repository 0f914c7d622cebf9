"""Finds the fields of Protobuf messages, all messages of a batch at once.

Each step reads one field of every message, with NumPy over one buffer. What is found is kept by the numbers of fields;
nothing is converted yet.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_provider_kafka_s3.arrays import Bools, Int64Array
from airflow_provider_kafka_s3.converters.varints import CONTINUES, LENGTHS, MERGES, ONE

__all__ = ["FIXED32", "FIXED64", "GROUP", "PADDING", "SIZED", "VARINT", "Data", "Found", "Spans", "scan"]

Words: TypeAlias = npt.NDArray[np.uint64]

VARINT, FIXED64, SIZED, GROUP, _END, FIXED32 = range(6)
"""Kinds of encoded fields."""

PADDING: Final = 16

_FEW_MESSAGES: Final = 24
"""Messages for which a step over arrays takes longer than Python for each message."""

_FEW_TAGS: Final = 2**12
"""Tags below are counted, which takes less time than to sort them."""

_DEEPEST: Final = 100
_SEVEN: Final = np.uint64(7)
_TOP: Final = np.uint64(56)


class Data:
    """The bytes of values, and padding.

    Attributes:
        bytes: with ``PADDING`` zeros at the end.
        view: of the same bytes; its items are numbers of Python.
        words: the 8 bytes from each position, as little-endian numbers.
    """

    def __init__(self, padded: npt.NDArray[np.uint8]) -> None:
        self.bytes = padded
        self.view = padded.data
        self.words: Words = np.ndarray((len(padded) - 7,), "<u8", padded.data, strides=(1,))

    def varints(self, starts: Int64Array) -> tuple[Words, Int64Array]:
        """The varint at each position, and its length; 11 if it is longer than ten bytes.

        The bits above 64 are dropped.
        """
        first = self.bytes.take(starts, mode="clip")
        if not first.size or first.max() < 0x80:
            return first.astype(np.uint64), np.ones(len(starts), np.int64)
        word = self.words.take(starts, mode="clip")
        stops = ~word & CONTINUES
        lowest = stops & (~stops + ONE)
        length = (((lowest >> _SEVEN) * LENGTHS) >> _TOP).view(np.int64)
        word &= (lowest ^ (lowest - ONE)) & ~CONTINUES
        for keep, shift in MERGES:
            word = (word & keep) | ((word & ~keep) >> shift)
        long = np.flatnonzero(lowest == 0)
        if long.size:
            ninth = self.bytes.take(starts[long] + 8, mode="clip")
            tenth = self.bytes.take(starts[long] + 9, mode="clip")
            more = ninth >= 0x80
            length[long] = np.where(more, np.where(tenth >= 0x80, 11, 10), 9)
            top = np.where(more, tenth, 0).astype(np.uint64)
            word[long] |= ((ninth & 0x7F).astype(np.uint64) << _TOP) | (top << np.uint64(63))
        return word, length


@dataclass(frozen=True)
class Spans:
    """Where messages are.

    Attributes:
        begin: per message.
        end: per message.
        root: per message, the row of the batch that contains it.
    """

    begin: Int64Array
    end: Int64Array
    root: Int64Array

    def __len__(self) -> int:
        return len(self.begin)


@dataclass(frozen=True)
class Found:
    """Fields of one number and one kind.

    Attributes:
        rows: the message of each; those of one message in their order. The messages need not be ascending.
        steps: how many fields are in front of each in its message.
        first: the number of a varint; for the other kinds, the position of the first byte.
        last: the position behind the last byte; the same as ``first`` for a varint.
    """

    rows: Int64Array
    steps: Int64Array
    first: Int64Array
    last: Int64Array

    def some(self, which: Bools | Int64Array) -> Found:
        """A selection."""
        return Found(self.rows[which], self.steps[which], self.first[which], self.last[which])


class _Finder:
    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], list[Found]] = defaultdict(list)

    def add(self, tags: Int64Array, found: Found) -> None:
        """Add one field of each of several messages."""
        if not len(tags):
            return
        if (tags == tags[0]).all():
            self.add_one(int(tags[0]), found)
            return
        few = int(tags.max()) < _FEW_TAGS
        for tag in (np.flatnonzero(np.bincount(tags)) if few else np.unique(tags)).tolist():
            self.add_one(tag, found.some(np.flatnonzero(tags == tag)))

    def add_one(self, tag: int, found: Found) -> None:
        """Add fields with the same tag."""
        self._parts[tag >> 3, tag & 7].append(found)

    def joined(self) -> dict[tuple[int, int], Found]:
        return {key: parts[0] if len(parts) == 1 else _joined(parts) for key, parts in self._parts.items()}


def _joined(parts: list[Found]) -> Found:
    return Found(
        np.concatenate([p.rows for p in parts]),
        np.concatenate([p.steps for p in parts]),
        np.concatenate([p.first for p in parts]),
        np.concatenate([p.last for p in parts]),
    )


def scan(data: Data, spans: Spans, bad: Bools) -> dict[tuple[int, int], Found]:
    """The fields of messages by number and kind.

    A message is bad if it is cut off, if a tag has the number 0, a kind that there is not, or more than 32 bits, if a
    varint has more than ten bytes, or more than five as a tag or a size, or if a group has no end.

    Args:
        data: with the messages.
        spans: where they are.
        bad: per row of the batch; true is put in for those that are bad.
    """
    return _Scan(data, spans, bad).all()


class _Scan:
    """The state of a scan: the position in every message."""

    def __init__(self, data: Data, spans: Spans, bad: Bools) -> None:
        self._data = data
        self._spans = spans
        self._bad = bad
        self._pos = spans.begin.copy()
        self._finder = _Finder()

    def all(self) -> dict[tuple[int, int], Found]:
        spans, step = self._spans, 0
        active = np.flatnonzero(self._pos < spans.end)
        while len(active) >= _FEW_MESSAGES:
            active = self._step(active, step)
            step += 1
        for row in active.tolist():
            try:
                self._rest(row, step)
            except _MalformedError:
                self._bad[spans.root[row]] = True
        return self._finder.joined()

    def _step(self, active: Int64Array, step: int) -> Int64Array:
        """Read one field of each of the messages ``active``; those that have more."""
        data, start, end = self._data, self._pos[active], self._spans.end[active]
        tags, length = data.varints(start)
        body = start + length
        kinds = (tags & _SEVEN).view(np.int64)
        wrong = (length > 5) | (tags >> np.uint64(3) == 0) | (tags > np.uint64(0xFFFFFFFF))
        wrong |= (kinds == _END) | (kinds > FIXED32)
        first = body.copy()
        last = np.where(kinds == FIXED64, body + 8, np.where(kinds == FIXED32, body + 4, body))
        with_varint = np.flatnonzero((kinds == VARINT) | (kinds == SIZED))
        if with_varint.size:
            numbers, lengths = data.varints(body[with_varint])
            sized = kinds[with_varint] == SIZED
            wrong[with_varint] |= lengths > np.where(sized, 5, 10)
            behind = body[with_varint] + lengths
            # A size that is more than everything stays more than that, and fits into 63 bits.
            sizes = np.minimum(numbers, np.uint64(len(data.bytes))).view(np.int64)
            first[with_varint] = np.where(sized, behind, numbers.view(np.int64))
            last[with_varint] = np.where(sized, behind + sizes, behind)
        after = last
        groups = np.flatnonzero((kinds == GROUP) & ~wrong)
        if groups.size:
            after = last.copy()
        for index in groups.tolist():
            place = int(body[index]), int(end[index])
            try:
                last[index], after[index] = _end_of_group(data, *place, int(tags[index]) >> 3)
            except _MalformedError:
                wrong[index] = True
        wrong |= after > end
        if wrong.any():
            self._bad[self._spans.root[active[wrong]]] = True
            good = ~wrong
            active, tags, first, last = active[good], tags[good], first[good], last[good]
            after, end = after[good], end[good]
        self._pos[active] = after
        self._finder.add(tags.view(np.int64), Found(active, np.full(len(active), step), first, last))
        more = after < end
        return active if more.all() else active[more]

    def _rest(self, row: int, step: int) -> None:
        """Read the rest of one message, field by field."""
        data, position, end = self._data, int(self._pos[row]), int(self._spans.end[row])
        fields_by_tag: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        while position < end:
            tag, position = _tag(data.view, position, end)
            if tag & 7 == GROUP:
                first, (last, position) = position, _end_of_group(data, position, end, tag >> 3)
            else:
                first, last, position = _end_of(data, tag & 7, position, end)
            fields_by_tag[tag].append((step, first, last))
            step += 1
        for tag, parts in fields_by_tag.items():
            columns = np.array(parts, np.int64)
            rows = np.full(len(parts), row)
            self._finder.add_one(tag, Found(rows, columns[:, 0], columns[:, 1], columns[:, 2]))


class _MalformedError(Exception):
    """The bytes are no message."""


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if at + place >= end:
            raise _MalformedError
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at + place + 1
    raise _MalformedError


def _tag(data: memoryview, at: int, end: int) -> tuple[int, int]:
    tag, after = _varint(data, at, end)
    if after - at > 5 or tag >> 3 == 0 or tag > 0xFFFFFFFF:
        raise _MalformedError
    return tag, after


def _end_of(data: Data, kind: int, at: int, end: int) -> tuple[int, int, int]:
    """What is found of a field that is no group, and where the next one begins."""
    if kind == VARINT:
        number, after = _varint(data.view, at, end)
        return number - (1 << 64) if number >> 63 else number, after, after
    if kind == SIZED:
        size, first = _varint(data.view, at, end)
        if first - at > 5:
            raise _MalformedError
    elif kind in (FIXED64, FIXED32):
        size, first = 8 if kind == FIXED64 else 4, at
    else:
        raise _MalformedError
    if size > end - first:
        raise _MalformedError
    return first, first + size, first + size


def _end_of_group(data: Data, at: int, end: int, number: int, depth: int = 1) -> tuple[int, int]:
    """The positions of the tag that ends a group, and behind it."""
    if depth > _DEEPEST:
        raise _MalformedError
    position = at
    while True:
        tag, after = _tag(data.view, position, end)
        kind = tag & 7
        if kind == _END:
            if tag >> 3 != number:
                raise _MalformedError
            return position, after
        if kind == GROUP:
            position = _end_of_group(data, after, end, tag >> 3, depth + 1)[1]
        else:
            position = _end_of(data, kind, after, end)[2]
