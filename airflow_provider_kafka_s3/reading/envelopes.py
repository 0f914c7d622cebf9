"""Envelopes column by column: the fields of many records at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from airflow_provider_kafka_s3.arrays import Int64Array
from airflow_provider_kafka_s3.reading.record import Headers

__all__ = [
    "ENVELOPE_FIELDS",
    "EnvelopeColumns",
    "headers_of",
    "matches",
    "parsed_headers",
    "slices",
    "spread",
    "windows",
]

_T = TypeVar("_T", bytes, Headers)

ENVELOPE_FIELDS: Final = ("key", "value", "headers", "partition", "offset", "timestamp")
"""The fields of an envelope that a record is made of."""


@dataclass(frozen=True)
class EnvelopeColumns:
    """The fields of envelopes.

    Attributes:
        keys: as the format has them: bytes or None, or texts of JSON.
        values: likewise.
        partitions: the Kafka partitions.
        offsets: their offsets there.
        timestamps: in milliseconds, or None.
        headers: None: no record has some.
    """

    keys: list[Any]
    values: list[Any]
    partitions: Int64Array
    offsets: Int64Array
    timestamps: Sequence[int | None]
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def are_between(self, some: slice, partition: int, low: int, high: int) -> bool:
        """Whether some of the records are of a partition, with offsets from the lowest to the highest."""
        partitions, offsets = self.partitions[some], self.offsets[some]
        return bool((partitions == partition).all() and offsets.min() >= low and offsets.max() <= high)


def headers_of(headers: Headers, counts: Int64Array) -> list[Headers]:
    """The headers of each record.

    Args:
        headers: of all records, one record after the other.
        counts: how many each record has.
    """
    ends = counts.cumsum()
    return slices(headers, ends - counts, ends)


def parsed_headers(found: Iterable[Mapping[str, Any]] | None) -> Headers:
    """The headers of a record, from Python values."""
    return tuple([(header["key"], header["value"]) for header in found or ()])


def slices(data: _T, begins: Int64Array, ends: Int64Array) -> list[_T]:
    """What is between places of data."""
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def spread(found: list[Any], rows: Int64Array, count: int) -> list[Any]:
    """Values of some rows as values of all: None elsewhere."""
    every = [None] * count
    for row, value in zip(rows.tolist(), found, strict=True):
        every[row] = value
    return every


def windows(data: bytes, begins: Int64Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes at places of data, a row for each; all of them are inside."""
    every: npt.NDArray[np.void] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return every[begins].view(np.uint8).reshape(-1, width)


def matches(data: bytes, begins: Int64Array, text: bytes) -> npt.NDArray[np.bool_]:
    """Whether each place of data, from its beginning on, has a text, whose last byte is not zero."""
    if len(data) < len(text):
        return np.zeros(len(begins), np.bool_)
    last = len(data) - len(text)
    every: npt.NDArray[np.bytes_] = np.ndarray((last + 1,), f"S{len(text)}", data, strides=(1,))
    is_match: npt.NDArray[np.bool_] = (every[np.minimum(begins, last)] == text) & (begins <= last)
    return is_match
