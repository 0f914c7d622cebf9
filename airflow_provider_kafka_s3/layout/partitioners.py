"""Partitioners: the encoded partition of each record.

A time partitioner works like Kafka Connect's: a record's local time is rounded down to a multiple of the duration,
counted from 1970 in local time, and formatted by the pattern. A bucket that would begin in the hour that daylight
saving time skips begins after it. (Connect rounds times before 1970 up, towards zero; here they are rounded down.)

A record without a valid timestamp (none at all, or outside the years 1 to 9999) is an error, or is put into a partition
of its own, in which every folder with a time has the same name: ``year=NAME/month=NAME``. So it has the same depth as
the others, and with Hive's name for "null" (``__HIVE_DEFAULT_PARTITION__``) readers of the table find the record with
null in the partition columns.
"""

from __future__ import annotations

import zoneinfo
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP, Int64Array, int64_values
from airflow_provider_kafka_s3.config.partitioners import DAY_MS
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.layout.patterns import Pattern, compile_pattern
from airflow_provider_kafka_s3.layout.zones import load_zone

__all__ = ["Codes", "KafkaPartitioner", "RecordPartitioner", "TimePartitioner", "make_partitioner"]

Codes: TypeAlias = npt.NDArray[np.intp]
"""Per record the index of its path."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
# Some days from the ends of the calendar, so that local times, and the days before, are valid in any time zone.
_EARLIEST: Final = (datetime(1, 1, 3, tzinfo=UTC) - _EPOCH) // _MS
_EARLIEST_BUCKET: Final = _EARLIEST - DAY_MS
_LATEST: Final = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MS
_CACHED: Final = 100_000
_LARGEST_PARTITION: Final = 2**31 - 1


class _Piece(NamedTuple):
    """An interval from ``start`` (UTC) with one UTC ``offset``, and the ``width`` of its buckets, in milliseconds."""

    start: int
    offset: int
    width: int


class RecordPartitioner(Protocol):
    """Maps records to encoded partitions, a batch at a time."""

    @property
    def longest(self) -> str:
        """The longest possible encoded partition."""
        ...

    def encode(self, records: pa.RecordBatch, *, topic: str, partition: int) -> tuple[Codes, list[str]]:
        """The encoded partitions of a batch (not empty): an index per record, and the distinct paths.

        Raises:
            RecordError: a record has no encoded partition; with topic, partition, offset and what to do.
        """
        ...


def make_partitioner(layout: config.Layout) -> RecordPartitioner:
    """The partitioner of a layout.

    Raises:
        ConfigurationError: the pattern is empty or cannot be compiled, or the time zone is unknown.
    """
    delim = layout.naming.directory_delim
    # The delimiter stands for itself, whatever letters or quotes it holds.
    quoted = delim.replace("'", "''")
    by_day = f"'year'=YYYY'{quoted}month'=MM'{quoted}day'=dd"
    settings, locale = layout.partitioner, config.ROOT_LOCALE
    match settings:
        case config.ByPartition():
            return KafkaPartitioner()
        case config.Daily():
            text = by_day
        case config.Hourly():
            text = f"{by_day}'{quoted}hour'=HH"
        case config.TimePattern():
            locale = settings.locale
            text = settings.path_format.removesuffix(delim)
            if not text.strip():
                raise ConfigurationError(
                    f"path_format={settings.path_format!r} is empty apart from the delimiter {delim!r}; give a pattern "
                    f"such as 'year'=YYYY/'month'=MM"
                )
    pattern, name = compile_pattern(text, locale=locale, timezone=settings.timezone), layout.on_bad_timestamp
    untimely = None if name == "fail" else pattern.without_time(name, separators=("/", delim))
    return TimePartitioner(pattern, load_zone(settings.timezone), duration_ms=settings.duration_ms, untimely=untimely)


class KafkaPartitioner:
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
        zone: of the local time.
        duration_ms: width of a bucket.
        untimely: the path of records without a valid timestamp; None: they are an error.
    """

    def __init__(
        self, pattern: Pattern, zone: zoneinfo.ZoneInfo, *, duration_ms: int, untimely: str | None = None
    ) -> None:
        self._pattern = pattern
        self._zone = zone
        self._duration = duration_ms
        self._untimely = untimely
        # If the duration divides the pattern's unit, wider buckets have the same paths, and there are fewer of them.
        self._wide = duration_ms if pattern.unit_ms % duration_ms else pattern.unit_ms
        self._paths: dict[int, str] = {}
        self._pieces: dict[int, list[_Piece]] = {}
        # The interval [from, until) of the last batch, and its path.
        self._known = (0, 0, "")

    @property
    def longest(self) -> str:
        """That of the last moment of the year 9999, or of records without a valid timestamp if it is longer."""
        return max(self._pattern.longest, self._untimely or "", key=lambda path: len(path.encode()))

    def encode(self, records: pa.RecordBatch, *, topic: str, partition: int) -> tuple[Codes, list[str]]:
        """The path of each record's bucket.

        Raises:
            RecordError: a record has no timestamp, or one outside the years 1 to 9999, and there is no path for it.
        """
        times = int64_values(records.column("timestamp"))
        first, last = int(times.min()), int(times.max())
        if not (self._known[0] <= first and last < self._known[1]):
            bad = self._bad(times, first)
            if bad.any():
                if self._untimely is None:
                    raise self._unusable(records, int(np.flatnonzero(bad)[0]), topic, partition)
                return self._encode_around(times, bad, self._untimely)
            self._known = self._interval(first)
        if self._known[0] <= first and last < self._known[1]:
            return np.zeros(len(times), np.intp), [self._known[2]]
        return self._encode_many(times)

    def _bad(self, times: Int64Array, first: int) -> npt.NDArray[np.bool_]:
        """Whether each timestamp is invalid, or its bucket begins before the calendar; ``first`` is the lowest."""
        bad: npt.NDArray[np.bool_] = (times == NO_TIMESTAMP) | (times < _EARLIEST) | (times >= _LATEST)
        if first < _EARLIEST_BUCKET + self._duration + DAY_MS:
            good = np.flatnonzero(~bad)
            if len(good):
                bad[good] = self._buckets(times[good]) < _EARLIEST_BUCKET
        return bad

    def _encode_around(self, times: Int64Array, bad: npt.NDArray[np.bool_], untimely: str) -> tuple[Codes, list[str]]:
        good = ~bad
        some, paths = self._encode_many(times[good]) if good.any() else (np.zeros(0, np.intp), [])
        # A pattern without letters has one path for all.
        paths = paths if untimely in paths else [*paths, untimely]
        codes = np.full(len(times), paths.index(untimely), np.intp)
        codes[good] = some
        return codes, paths

    def _encode_many(self, times: Int64Array) -> tuple[Codes, list[str]]:
        buckets, of_record = np.unique(self._buckets(times), return_inverse=True)
        # Several buckets may have the same path, such as the quarters of an hour in a path by the hour.
        codes: dict[str, int] = {}
        of_bucket = [codes.setdefault(self._path(b), len(codes)) for b in buckets.tolist()]
        return np.array(of_bucket, np.intp)[of_record], list(codes)

    def _buckets(self, times: Int64Array) -> Int64Array:
        """The local time at which the bucket of each record begins."""
        pieces = [p for day in np.unique(times // DAY_MS).tolist() for p in self._pieces_of(day)]
        starts, offsets, widths = np.array(pieces, np.int64).T
        piece = np.searchsorted(starts, times, side="right") - 1
        local = times + offsets[piece]
        begins: Int64Array = local - local % widths[piece]
        return begins

    def _interval(self, time: int) -> tuple[int, int, str]:
        """An interval around a time in which all times have the same path, and that path."""
        pieces = self._pieces_of(time // DAY_MS)
        index = max(i for i, piece in enumerate(pieces) if piece.start <= time)
        start, offset, width = pieces[index]
        end = pieces[index + 1].start if index + 1 < len(pieces) else (time // DAY_MS + 1) * DAY_MS
        bucket = (time + offset) // width * width
        start, end = max(start, bucket - offset), min(end, bucket - offset + width)
        # The millisecond before 1970 is no valid timestamp.
        start, end = (max(start, 0), end) if time >= 0 else (start, min(end, NO_TIMESTAMP))
        return start, end, self._path(bucket)

    def _path(self, bucket: int) -> str:
        """The path of a bucket that begins at this local time."""
        path = self._paths.get(bucket)
        if path is None:
            # The conversion to UTC and back moves a local time that the clocks skip behind the gap, and no other.
            begin = (_EPOCH + bucket * _MS).replace(tzinfo=self._zone).astimezone(UTC).astimezone(self._zone)
            path = self._pattern.format(begin)
            if len(self._paths) >= _CACHED:
                self._paths.clear()
            self._paths[bucket] = path
        return path

    def _pieces_of(self, day: int) -> list[_Piece]:
        """The intervals of one UTC offset of a UTC day, counted from 1970."""
        pieces = self._pieces.get(day)
        if pieces is None:
            before, changes = self._changes(day - 1), self._changes(day)
            # A bucket that would begin in a gap begins behind it, which differs for wide buckets. Its records follow
            # within a day at most.
            unchanged = len(before) == len(changes) == 1 and before[0][1] == changes[0][1]
            width = self._wide if unchanged else self._duration
            pieces = [_Piece(start, offset, width) for start, offset in changes]
            if len(self._pieces) >= _CACHED:
                self._pieces.clear()
            self._pieces[day] = pieces
        return pieces

    def _changes(self, day: int) -> list[tuple[int, int]]:
        """The beginnings (UTC) of the UTC offsets of a UTC day, and these offsets, in milliseconds."""
        start, last = day * DAY_MS, (day + 1) * DAY_MS - 1
        changes = [(start, self._offset(start))]
        # No zone ever changed its clocks twice within six days, so equal ends mean no change.
        if changes[0][1] != self._offset(last):
            at = bisect_left(range(start, last), True, key=lambda time: self._offset(time) != changes[0][1]) + start
            changes.append((at, self._offset(at)))
        return changes

    def _offset(self, time: int) -> int:
        offset = (_EPOCH + time * _MS).astimezone(self._zone).utcoffset()
        return 0 if offset is None else offset // _MS

    @staticmethod
    def _unusable(records: pa.RecordBatch, row: int, topic: str, partition: int) -> RecordError:
        time, offset = records.column("timestamp")[row].as_py(), records.column("offset")[row].as_py()
        what = (
            "the record has no timestamp"
            if time == NO_TIMESTAMP
            else f"the record's timestamp {time} (milliseconds since 1970) is outside the years 1 to 9999"
        )
        return RecordError(
            f"topic {topic!r}, partition {partition}, offset {offset}: {what}, so it has no time partition. Give such "
            f"records one of their own (on_bad_timestamp='__HIVE_DEFAULT_PARTITION__'), or use "
            f"partitioner='partition', since timestamps in milliseconds (or the topic's "
            f"message.timestamp.type=LogAppendTime) help later records only"
        )
