"""Partitioners: which encoded partition a record belongs to.

A time partitioner works as Kafka Connect's: a record's local time is cut down to a multiple of the duration, counted
from 1970 in local time, and the pattern is applied to what results. A bucket that would begin in the hour that
daylight saving skips begins after it. (Where Connect rounds times before 1970 up, towards zero, these are cut down.)
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.layout.arrays import Int64Array, int64_values
from airflow_provider_kafka_s3.layout.patterns import DAY_MS, Pattern, compile_pattern
from airflow_provider_kafka_s3.layout.zones import load_zone

__all__ = ["DefaultPartitioner", "Partitioner", "TimePartitioner", "make_partitioner"]

Codes: TypeAlias = npt.NDArray[np.intp]

_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
# A day from each end of the calendar, so that any time zone's local time is on it too.
_EARLIEST: Final = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // _MS
_LATEST: Final = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MS
_NO_TIMESTAMP: Final = -1
_LONGEST_DURATION: Final = 10_000 * 365 * DAY_MS
_CACHED: Final = 100_000
_LARGEST_PARTITION: Final = 2**31 - 1


class Partitioner(Protocol):
    """Maps records to encoded partitions, a batch at a time."""

    @property
    def longest(self) -> str:
        """An encoded partition that no other is longer than."""
        ...

    def encode(self, records: pa.RecordBatch, *, topic: str, partition: int) -> tuple[Codes, list[str]]:
        """The encoded partitions of a batch (not empty): an index per record, and the distinct paths they point to.

        Raises:
            RecordError: a record belongs nowhere; names topic, partition, offset and what to do.
        """
        ...


def make_partitioner(layout: Layout) -> Partitioner:
    """The partitioner of a layout.

    Raises:
        ConfigurationError: the pattern is empty or cannot be compiled, or the time zone is unknown.
    """
    settings = layout.partitioner
    if settings.kind == "default":
        return DefaultPartitioner()
    delim = layout.directory_delim
    if settings.kind == "time" and settings.path_format is not None and settings.duration_ms is not None:
        text = settings.path_format.removesuffix(delim)
        if not text.strip():
            raise ConfigurationError(
                f"path_format={settings.path_format!r} is empty apart from the delimiter {delim!r}; give a pattern "
                f"such as 'year'=YYYY/'month'=MM"
            )
        duration = settings.duration_ms
        if duration > _LONGEST_DURATION:
            raise ConfigurationError(
                f"duration_ms={duration} is longer than 10,000 years; it counts milliseconds: a day has {DAY_MS}"
            )
    else:
        # The delimiter stands for itself, whatever letters or quotes it holds.
        quoted = delim.replace("'", "''")
        text = f"'year'=YYYY'{quoted}month'=MM'{quoted}day'=dd"
        duration = DAY_MS
        if settings.kind == "hourly":
            text, duration = f"{text}'{quoted}hour'=HH", _HOUR_MS
    return TimePartitioner(compile_pattern(text), load_zone(settings.timezone), duration_ms=duration)


class DefaultPartitioner:
    """``partition=<Kafka partition>``."""

    @property
    def longest(self) -> str:
        """That of the largest partition number."""
        return f"partition={_LARGEST_PARTITION}"

    def encode(
        self,
        records: pa.RecordBatch,
        *,
        topic: str,  # noqa: ARG002 - the interface has it for errors
        partition: int,
    ) -> tuple[Codes, list[str]]:
        """One encoded partition for all records of a Kafka partition."""
        return np.zeros(records.num_rows, np.intp), [f"partition={partition}"]


class TimePartitioner:
    """A path pattern applied to the record's timestamp.

    Args:
        pattern: of the path.
        zone: whose local time counts.
        duration_ms: width of a bucket.
    """

    def __init__(self, pattern: Pattern, zone: zoneinfo.ZoneInfo, *, duration_ms: int) -> None:
        self._pattern = pattern
        self._zone = zone
        # Where the duration divides what the pattern can tell apart, wider buckets have the same paths, and are fewer.
        self._width = duration_ms if pattern.unit_ms % duration_ms else pattern.unit_ms
        self._paths: dict[int, str] = {}
        self._offsets: dict[int, list[tuple[int, int]]] = {}
        # The stretch of time [from, until) that the last batch fell into, and its path.
        self._known = (0, 0, "")

    @property
    def longest(self) -> str:
        """That of the last moment of the year 9999."""
        return self._pattern.longest

    def encode(self, records: pa.RecordBatch, *, topic: str, partition: int) -> tuple[Codes, list[str]]:
        """The path of each record's bucket.

        Raises:
            RecordError: a record has no timestamp, or one outside the years 1 to 9999.
        """
        times = int64_values(records.column("timestamp"))
        first, last = int(times.min()), int(times.max())
        if not (self._known[0] <= first and last < self._known[1]):
            bad = (times == _NO_TIMESTAMP) | (times < _EARLIEST) | (times >= _LATEST)
            if bad.any():
                raise self._unusable(records, int(np.flatnonzero(bad)[0]), topic, partition)
            self._known = self._stretch(first)
        if self._known[0] <= first and last < self._known[1]:
            return np.zeros(len(times), np.intp), [self._known[2]]
        return self._encode_many(records, times, topic, partition)

    def _encode_many(
        self, records: pa.RecordBatch, times: Int64Array, topic: str, partition: int
    ) -> tuple[Codes, list[str]]:
        pieces = [p for day in np.unique(times // DAY_MS).tolist() for p in self._offsets_of(day)]
        starts, offsets = np.array(pieces, np.int64).T
        local = times + offsets[np.searchsorted(starts, times, side="right") - 1]
        buckets, of_record = np.unique(local // self._width, return_inverse=True)
        too_early = buckets * self._width < _EARLIEST
        if too_early[0]:
            raise self._unusable(records, int(np.flatnonzero(too_early[of_record])[0]), topic, partition)
        # Different buckets may have one path, such as the quarters of an hour in a path by the hour.
        codes: dict[str, int] = {}
        of_bucket = [codes.setdefault(self._path(b * self._width), len(codes)) for b in buckets.tolist()]
        return np.array(of_bucket, np.intp)[of_record], list(codes)

    def _stretch(self, time: int) -> tuple[int, int, str]:
        """The times around this one that certainly have the same path; empty if it has none."""
        pieces = self._offsets_of(time // DAY_MS)
        ends = [start for start, _ in pieces[1:]] + [(time // DAY_MS + 1) * DAY_MS]
        start, offset, end = next((s, o, e) for (s, o), e in zip(pieces, ends, strict=True) if time < e)
        bucket = (time + offset) // self._width * self._width
        if bucket < _EARLIEST:
            return 0, 0, ""
        return max(start, bucket - offset), min(end, bucket - offset + self._width), self._path(bucket)

    def _path(self, bucket: int) -> str:
        """The path of a bucket that begins at this local time."""
        path = self._paths.get(bucket)
        if path is None:
            # To UTC and back moves a time that the clocks skip to where they went on, and no other.
            begin = (_EPOCH + bucket * _MS).replace(tzinfo=self._zone).astimezone(UTC).astimezone(self._zone)
            path = self._pattern.format(begin)
            if len(self._paths) >= _CACHED:
                self._paths.clear()
            self._paths[bucket] = path
        return path

    def _offsets_of(self, day: int) -> list[tuple[int, int]]:
        """From when on (UTC) which offset holds within a UTC day (counted from 1970), in milliseconds."""
        pieces = self._offsets.get(day)
        if pieces is None:
            start, end = day * DAY_MS, (day + 1) * DAY_MS
            pieces = [(start, self._offset(start))]
            # No zone ever changed its clocks twice within six days, so equal ends mean no change.
            while pieces[-1][1] != self._offset(end - 1):
                low, high = pieces[-1][0], end - 1
                while high - low > 1:
                    middle = (low + high) // 2
                    if self._offset(middle) == pieces[-1][1]:
                        low = middle
                    else:
                        high = middle
                pieces.append((high, self._offset(high)))
            if len(self._offsets) >= _CACHED:
                self._offsets.clear()
            self._offsets[day] = pieces
        return pieces

    def _offset(self, time: int) -> int:
        offset = (_EPOCH + time * _MS).astimezone(self._zone).utcoffset()
        return 0 if offset is None else offset // _MS

    @staticmethod
    def _unusable(records: pa.RecordBatch, row: int, topic: str, partition: int) -> RecordError:
        time, offset = records.column("timestamp")[row].as_py(), records.column("offset")[row].as_py()
        what = (
            "the record has no timestamp"
            if time == _NO_TIMESTAMP
            else f"the record's timestamp {time} (milliseconds since 1970) is outside the years 1 to 9999"
        )
        return RecordError(
            f"topic {topic!r}, partition {partition}, offset {offset}: {what}, so it has no time partition; produce "
            f"with timestamps in milliseconds (or set the topic's message.timestamp.type=LogAppendTime), or use "
            f"Partitioner(kind='default')"
        )
