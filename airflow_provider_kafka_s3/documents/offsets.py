"""Sets of offsets: sorted, disjoint, coalesced ``[start, end)`` ranges per Kafka partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

__all__ = ["NO_OFFSETS", "Offsets", "Ranges", "certain_ranges", "coalesce", "intersect", "subtract"]

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint, coalesced ``[start, end)`` pairs."""

_SHOWN: Final = 50
"""Ranges in a text at most."""


def coalesce(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges, drop empty ones and join those that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def certain_ranges(first: int, end: int, records: int) -> Ranges | None:
    """The offsets of records, if their bounds and their number leave no choice; else None.

    Args:
        first: the lowest offset.
        end: one past the highest offset.
        records: number of records.
    """
    if records == end - first:
        return ((first, end),)
    if records == 2:
        return ((first, first + 1), (end - 1, end))
    return None


def subtract(ranges: Ranges, taken: Ranges) -> Ranges:
    """The part of ``ranges`` that is not in ``taken``."""
    left: list[tuple[int, int]] = []
    taken_at = 0
    for start, end in ranges:
        while taken_at < len(taken) and taken[taken_at][1] <= start:
            taken_at += 1
        index, low = taken_at, start
        while low < end and index < len(taken) and taken[index][0] < end:
            if taken[index][0] > low:
                left.append((low, taken[index][0]))
            low = max(low, taken[index][1])
            index += 1
        if low < end:
            left.append((low, end))
    return tuple(left)


def intersect(ranges: Ranges, other: Ranges) -> Ranges:
    """The part that is in both."""
    both: list[tuple[int, int]] = []
    a = b = 0
    while a < len(ranges) and b < len(other):
        start, end = max(ranges[a][0], other[b][0]), min(ranges[a][1], other[b][1])
        if start < end:
            both.append((start, end))
        if ranges[a][1] <= other[b][1]:
            a += 1
        else:
            b += 1
    return tuple(both)


class Offsets:
    """An immutable set of offsets over several Kafka partitions.

    ``|``, ``-`` and ``&`` are union, difference and intersection, ``<=`` is inclusion; an empty set is false.
    """

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[int, Iterable[tuple[int, int]]] | None = None) -> None:
        self._ranges: dict[int, Ranges] = {}
        for partition in sorted(ranges or {}):
            if joined := coalesce((ranges or {})[partition]):
                self._ranges[partition] = joined

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, int]]) -> Offsets:
        """Those of ``(partition, start, end)``, which may overlap."""
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for partition, start, end in ranges:
            by_partition.setdefault(partition, []).append((start, end))
        return cls(by_partition)

    @classmethod
    def from_json(cls, value: object) -> Offsets:
        """Parse ``{"0": [[100, 150]]}``; ValueError unless it has exactly the form that :meth:`to_json` writes."""
        if not isinstance(value, dict):
            raise ValueError(f"offsets are a mapping of partitions to ranges, not {type(value).__name__}")
        ranges: dict[int, Ranges] = {}
        for name, pairs in value.items():
            # Ten digits are enough for Kafka's 32 bits, and Python refuses to convert thousands of digits.
            if not (isinstance(name, str) and len(name) <= 10 and name.isascii() and name.isdigit()) or (
                str(int(name)) != name or int(name) >= 2**31
            ):
                raise ValueError(f"{str(name)[:20]!r} is not a Kafka partition")
            ranges[int(name)] = parse_ranges(pairs)
            if not ranges[int(name)]:
                raise ValueError(f"partition {name} has no ranges; it should be left out")
        return cls(ranges)

    def to_json(self) -> dict[str, list[list[int]]]:
        """The JSON form: ``{"0": [[100, 150]]}``."""
        return {str(p): [list(r) for r in ranges] for p, ranges in self._ranges.items()}

    def __getitem__(self, partition: int) -> Ranges:
        """The ranges of a partition; empty if there are none."""
        return self._ranges.get(partition, ())

    def __iter__(self) -> Iterator[int]:
        """The partitions that have offsets, ascending."""
        return iter(self._ranges)

    def items(self) -> Iterable[tuple[int, Ranges]]:
        """Partitions with their ranges, ascending."""
        return self._ranges.items()

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def count(self) -> int:
        """Number of offsets, over all partitions.

        Not ``__len__``: ``tuple(offsets)`` lists partitions, and Python would first allocate one item per offset.
        """
        return sum(end - start for ranges in self._ranges.values() for start, end in ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(tuple(self._ranges.items()))

    def __or__(self, other: Offsets) -> Offsets:
        if not other:
            return self
        return Offsets({p: (*self[p], *other[p]) for p in {*self, *other}})

    def __sub__(self, other: Offsets) -> Offsets:
        return Offsets({p: subtract(ranges, other[p]) for p, ranges in self._ranges.items()})

    def __and__(self, other: Offsets) -> Offsets:
        return Offsets({p: intersect(ranges, other[p]) for p, ranges in self._ranges.items()})

    def __le__(self, other: Offsets) -> bool:
        return not self - other

    def end(self, partition: int) -> int | None:
        """One past the highest offset of a partition; None if it has none."""
        ranges = self[partition]
        return ranges[-1][1] if ranges else None

    def __repr__(self) -> str:
        return f"Offsets({self._ranges})"

    def __str__(self) -> str:
        """For people: ``0: [100, 150), 1: [7, 9)``; only the first ranges, if there are many."""
        shown: list[str] = []
        room = _SHOWN
        for p, ranges in self.items():
            if room > 0:
                shown.append(f"{p}: " + " ".join(f"[{a}, {b})" for a, b in ranges[:room]))
            room -= len(ranges)
        return (", ".join(shown) or "none") + (f" and {-room:,} more ranges" if room < 0 else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Offsets, (self._ranges,))


NO_OFFSETS: Final = Offsets()


def parse_ranges(pairs: object) -> Ranges:
    """Parse ``[[0, 5], [7, 9]]``; ValueError unless sorted, disjoint, coalesced and not negative."""
    if not isinstance(pairs, list | tuple):
        raise ValueError(f"ranges are a list of [start, end] pairs, not {type(pairs).__name__}")
    ranges: list[tuple[int, int]] = []
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(type(x) is int for x in pair)):
            raise ValueError(f"{pair!r} is not a [start, end] pair of integers")
        start, end = pair
        if not 0 <= start < end < 2**63:
            raise ValueError(f"[{start}, {end}) is not a range of offsets")
        if ranges and start <= ranges[-1][1]:
            raise ValueError(f"[{start}, {end}) does not come after {ranges[-1]}")
        ranges.append((start, end))
    return tuple(ranges)
