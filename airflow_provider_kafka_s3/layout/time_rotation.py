"""Rotation by the times of records, as with Kafka Connect's ``rotate.interval.ms``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Final

import numpy as np

from airflow_provider_kafka_s3.arrays import Bools, Int64Array
from airflow_provider_kafka_s3.config import Rotation
from airflow_provider_kafka_s3.extensions.partitioners import NO_TIME, Codes, Encoded

__all__ = ["TimeRotation"]

_LATEST: Final = 2**63 - 1


class TimeRotation:
    """Decides where the times of records end the open objects of one Kafka partition.

    The interval begins with the time of the first record since all objects were closed. A record whose time is
    ``rotate_interval_ms`` or more behind it closes all of them before it is written, and begins the next interval; one
    with an earlier time closes nothing. With ``rotate_on_partition_change``, so does a record of another encoded
    partition than the last one. Tombstones have times, and their folder is no change. Records without a usable time
    begin no interval and close nothing.

    Nothing is carried over when all objects are closed, so the result depends only on the records since the beginning
    of the slice, not on their batches.

    Args:
        rotation: without an interval, nothing is closed.
    """

    def __init__(self, rotation: Rotation) -> None:
        self._interval = rotation.rotate_interval_ms
        self._on_partition_change = rotation.rotate_on_partition_change
        self._begin: int | None = None
        self._path: str | None = None

    def look_at(self, encoded: Encoded, codes: Codes, paths: Sequence[str], tombstones: Bools | None) -> None:
        """Look at the records of the next batch.

        Args:
            encoded: their times.
            codes: index of each record's encoded partition in ``paths``.
            paths: the encoded partitions; one may occur more than once.
            tombstones: whether each record is a tombstone; None: none is.
        """
        if self._interval is None:
            return
        self._times = times = np.full(len(codes), NO_TIME) if encoded.times is None else encoded.times
        # The highest time of each block leads to the next late one without a look at all times before it. With blocks
        # of the square root, closing at every record is not quadratic.
        self._block = isqrt(len(times))
        starts = np.arange(0, len(times), self._block)
        self._highest: Int64Array = np.maximum.reduceat(times, starts)
        if not self._on_partition_change:
            return
        moving = times != NO_TIME
        if tombstones is not None:
            moving &= ~tombstones
        self._moving = np.flatnonzero(moving)
        distinct = {path: code for code, path in enumerate(dict.fromkeys(paths))}
        self._places = np.array([distinct[path] for path in paths], np.intp)[codes[self._moving]]
        self._names = list(distinct)
        self._changes = self._moving[1:][self._places[1:] != self._places[:-1]]

    def first_roll(self, start: int, stop: int) -> int:
        """The first row before which all open objects have to be closed; ``stop`` if there is none.

        Args:
            start: the first row to look at; all before it are written, or left out.
            stop: the row after the last one; no row before it is one that is refused.
        """
        if self._interval is None:
            return stop
        begin, low = self._begin, start
        if begin is None:
            low = self._first(start, stop, NO_TIME + 1)
            if low == stop:
                return stop
            begin, low = int(self._times[low]), low + 1
        roll = self._first(low, stop, min(begin + self._interval, _LATEST))
        return min(roll, self._first_change(start, roll)) if self._on_partition_change else roll

    def write(self, start: int, stop: int) -> None:
        """Take rows as written."""
        if self._interval is None:
            return
        if self._begin is None and (first := self._first(start, stop, NO_TIME + 1)) < stop:
            self._begin = int(self._times[first])
        if self._on_partition_change:
            last = int(np.searchsorted(self._moving, stop)) - 1
            if last >= 0 and self._moving[last] >= start:
                self._path = self._names[self._places[last]]

    def reset(self) -> None:
        """Begin anew: whenever all objects are closed."""
        self._begin = self._path = None

    def _first(self, start: int, stop: int, least: int) -> int:
        """The first row from ``start`` on whose time is ``least`` or later; ``stop`` if there is none before it."""
        edge = min(stop, -(-start // self._block) * self._block)
        if edge > start and (late := self._times[start:edge] >= least).any():
            return start + int(late.argmax())
        blocks = self._highest[edge // self._block : -(-stop // self._block)] >= least
        if edge == stop or not blocks.any():
            return stop
        low = edge + int(blocks.argmax()) * self._block
        return min(stop, low + int((self._times[low : low + self._block] >= least).argmax()))

    def _first_change(self, start: int, stop: int) -> int:
        """The first row whose encoded partition is not that of the record before it."""
        index = int(np.searchsorted(self._moving, start))
        if index == len(self._moving):
            return stop
        first = int(self._moving[index])
        if self._path is None or self._names[self._places[index]] == self._path:
            after = int(np.searchsorted(self._changes, first, side="right"))
            first = int(self._changes[after]) if after < len(self._changes) else stop
        return min(first, stop)
