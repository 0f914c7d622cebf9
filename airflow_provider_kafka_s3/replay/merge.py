"""Merges the records of objects whose offsets interleave."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from airflow_provider_kafka_s3.reading.record import Record, Records

__all__ = ["merged", "most_at_once", "offset_of"]

_MERGED: Final = 100
"""Records that are given at once, about."""


def merged(streams: Iterable[tuple[int, Iterator[Records]]]) -> Iterator[Records]:
    """The records of several streams in the order of their offsets, some at a time.

    A stream is begun when its lowest offset is reached. Before any stream is read, all records before that are given:
    so they can be sent if it fails.

    Args:
        streams: each with an offset that none of its records is below; no two records have the same offset.
    """
    numbered = enumerate(sorted(streams, key=lambda stream: stream[0], reverse=True))
    waiting = [(low, number, stream) for number, (low, stream) in numbered]
    heads: list[tuple[int, int, Records, int, Iterator[Records]]] = []
    pieces: list[Records] = []
    number_found = 0
    while heads or waiting:
        if waiting and (not heads or waiting[-1][0] <= heads[0][0]):
            _, number, stream = waiting.pop()
            records, row = Records.of(()), 0
        else:
            _, number, records, row, stream = heapq.heappop(heads)
            start, bound = row, min(heads[0][0] if heads else math.inf, waiting[-1][0] if waiting else math.inf)
            row = bisect.bisect_left(_offsets(records), bound, start)
            pieces.append(records[start:row])
            number_found += row - start
        if row == len(records):
            if pieces:
                yield Records.joined(pieces)
                pieces, number_found = [], 0
            records, row = next((piece for piece in stream if piece), Records.of(())), 0
        elif number_found >= _MERGED:
            yield Records.joined(pieces)
            pieces, number_found = [], 0
        if records:
            heapq.heappush(heads, (_offsets(records)[row], number, records, row, stream))


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


def _offsets(records: Records) -> Sequence[int]:
    """The offsets of records, of an object that keeps them: they rise."""
    return cast("Sequence[int]", records.offsets)
