"""Merges the records of objects whose offsets interleave."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from typing import Final

from airflow_provider_kafka_s3.reading.records import Record

__all__ = ["merged", "most_at_once", "offset_of"]

_MERGED: Final = 100
"""Records that are given at once, about."""


def merged(streams: Iterable[tuple[int, Iterator[list[Record]]]]) -> Iterator[list[Record]]:
    """The records of several streams in the order of their offsets, some at a time.

    A stream is begun when its lowest offset is reached. Before any stream is read, all records before that are given:
    so they can be sent if it fails.

    Args:
        streams: each with an offset that none of its records is below; no two records have the same offset.
    """
    numbered = enumerate(sorted(streams, key=lambda stream: stream[0], reverse=True))
    waiting = [(low, number, stream) for number, (low, stream) in numbered]
    heads: list[tuple[int, int, list[Record], int, Iterator[list[Record]]]] = []
    found: list[Record] = []
    while heads or waiting:
        if waiting and (not heads or waiting[-1][0] <= heads[0][0]):
            _, number, stream = waiting.pop()
            records, at = list[Record](), 0
        else:
            _, number, records, at, stream = heapq.heappop(heads)
            start, bound = at, min(heads[0][0] if heads else math.inf, waiting[-1][0] if waiting else math.inf)
            while at < len(records) and offset_of(records[at]) < bound:
                at += 1
            found += records[start:at]
        if at == len(records):
            if found:
                yield found
                found = []
            records, at = next((some for some in stream if some), []), 0
        elif len(found) >= _MERGED:
            yield found
            found = []
        if records:
            heapq.heappush(heads, (offset_of(records[at]), number, records, at, stream))


def most_at_once(ranges: Iterable[tuple[int, int]]) -> int:
    """How many ranges, from a lowest to a highest number, have a number in common at most."""
    edges = sorted(edge for low, high in ranges for edge in ((low, 0), (high, 1)))
    most = number = 0
    for _, is_end in edges:
        number += -1 if is_end else 1
        most = max(most, number)
    return most


def offset_of(record: Record) -> int:
    """The offset of a record, of an object that keeps it."""
    assert record.offset is not None, "it is known, or the plan would say so"
    return record.offset
