"""A record as Kafka had it, and many of them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar, overload

import msgspec

__all__ = ["Headers", "Record", "Records"]

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""The headers of a record, in their order."""

_T = TypeVar("_T")

_NONE: Final[Headers] = ()
_HEADER: Final = 6
"""Bytes of a header in a request beside its name and value, about."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as Kafka had it.

    Attributes:
        partition: the Kafka partition.
        offset: of the record; None: the object does not keep it, and there are gaps between the offsets.
        timestamp: in milliseconds; None: it has none, or it is not kept.
        key: of the record; None: it is null, or not kept.
        value: of the record; None: it is null.
        headers: of the record, in their order; empty if they are not kept.
    """

    partition: int
    offset: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Records(Sequence[Record]):
    """Records in their order, column by column: most of them are sent without a Python object for each.

    Args:
        partitions: of the records, as the other columns: see :class:`Record`.
        offsets: their offsets.
        timestamps: their timestamps; None: they have none, or these are not kept.
        keys: their keys; None: they have none, or these are not kept.
        values: their values.
        headers: their headers; None: they have none, or these are not kept.
    """

    __slots__ = ("_sizes", "headers", "keys", "offsets", "partitions", "timestamps", "values")

    def __init__(
        self,
        partitions: Sequence[int],
        offsets: Sequence[int | None],
        timestamps: Sequence[int | None] | None,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        *,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        self.partitions = partitions
        self.offsets = offsets
        self.timestamps = [None] * len(values) if timestamps is None else timestamps
        self.keys = [None] * len(values) if keys is None else keys
        self.values = values
        self.headers = headers
        self._sizes: Sequence[int] | None = None

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of the key, the value and the headers of each record, about: a few more for each header."""
        if self._sizes is None:
            parts = zip(self.values, self.keys, strict=True)
            self._sizes = [len(value or b"") + len(key or b"") for value, key in parts]
            if self.headers is not None:
                self._sizes = [*map(operator.add, self._sizes, map(_size_of, self.headers))]
        return self._sizes

    @classmethod
    def of(cls, records: Iterable[Record]) -> Records:
        """The columns of records."""
        if isinstance(records, Records):
            return records
        rows = [(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]
        partitions, offsets, timestamps, keys, values, headers = zip(*rows, strict=True) if rows else ((),) * 6
        return cls(partitions, offsets, timestamps, keys, values, headers=headers if any(headers) else None)

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """The records of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]

        def column(values: Iterable[Sequence[_T]]) -> list[_T]:
            return [*itertools.chain.from_iterable(values)]

        headers = None
        if any(part.headers is not None for part in parts):
            headers = column([_NONE] * len(part) if part.headers is None else part.headers for part in parts)
        return cls(
            column(part.partitions for part in parts),
            column(part.offsets for part in parts),
            column(part.timestamps for part in parts),
            column(part.keys for part in parts),
            column(part.values for part in parts),
            headers=headers,
        )

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Record]:
        headers = itertools.repeat(_NONE) if self.headers is None else self.headers
        return map(Record, self.partitions, self.offsets, self.timestamps, self.keys, self.values, headers)

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> Records: ...

    def __getitem__(self, at: int | slice) -> Record | Records:
        if isinstance(at, int):
            headers = () if self.headers is None else self.headers[at]
            return Record(
                self.partitions[at], self.offsets[at], self.timestamps[at], self.keys[at], self.values[at], headers
            )
        if at.indices(len(self)) == (0, len(self), 1):
            return self
        selected = Records(
            self.partitions[at],
            self.offsets[at],
            self.timestamps[at],
            self.keys[at],
            self.values[at],
            headers=None if self.headers is None else self.headers[at],
        )
        selected._sizes = None if self._sizes is None else self._sizes[at]
        return selected


def _size_of(headers: Headers) -> int:
    size = _HEADER * len(headers)
    for name, value in headers:
        size += len(name) + len(value or b"")
    return size
