"""Partitioners: the encoded partition of each record.

A time partitioner works like Kafka Connect's: a record's local time is rounded down to a multiple of the duration,
counted from 1970 in local time, and formatted by the pattern. A bucket that would begin in the hour that daylight
saving time skips begins after it. Times before 1970 are rounded down too; with ``kafka_connect_names`` they are rounded
up, towards zero, as in Connect.

A record without a valid timestamp (none at all, or outside the years 1 to 9999) is an error, or is put into a partition
of its own, in which every folder with a time has the same name: ``year=NAME/month=NAME``. So it has the same depth as
the others, and with Hive's name for "null" (``__HIVE_DEFAULT_PARTITION__``) readers of the table find the record with
null in the partition columns.

A record without a usable field is left out: its code is
:data:`~airflow_provider_kafka_s3.extensions.partitioners.REFUSED`, and the reason is beside the codes.
"""

from __future__ import annotations

import zoneinfo
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP, Int64Array, int64_values
from airflow_provider_kafka_s3.config.partitioners import DAY_MS
from airflow_provider_kafka_s3.converters.field_values import FieldValue, FieldValues, Unusable, key_values
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.extensions.partitioners import NO_TIME, REFUSED, Encoded
from airflow_provider_kafka_s3.extensions.records import Batch
from airflow_provider_kafka_s3.layout.custom import CheckedPartitioner
from airflow_provider_kafka_s3.layout.folders import Folders
from airflow_provider_kafka_s3.layout.patterns import Pattern, time_pattern
from airflow_provider_kafka_s3.layout.timestamps import milliseconds
from airflow_provider_kafka_s3.layout.zones import load_zone
from airflow_provider_kafka_s3.times import EPOCH

__all__ = [
    "ChainPartitioner",
    "FieldPartitioner",
    "KafkaPartitioner",
    "KeyPartitioner",
    "RecordPartitioner",
    "TimePartitioner",
    "make_partitioner",
    "record_times",
]

_MS: Final = timedelta(milliseconds=1)
# Some days from the ends of the calendar, so that local times, and the days before, are valid in any time zone.
_EARLIEST: Final = (datetime(1, 1, 3, tzinfo=UTC) - EPOCH) // _MS
_EARLIEST_BUCKET: Final = _EARLIEST - DAY_MS
_LATEST: Final = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // _MS
_CACHED: Final = 100_000
_DENSE: Final = 65_536
_SAMPLED: Final = 64
_FEW_DAYS: Final = 40
"""So many days are looked at without finding those that times are in."""
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

    def encode(self, batch: Batch) -> Encoded:
        """The encoded partitions of a batch.

        Raises:
            RecordError: a record has no encoded partition; with topic, partition, offset and what to do.
        """
        ...


def record_times(records: pa.RecordBatch) -> Int64Array:
    """The timestamp of each Kafka record, or :data:`NO_TIME` if it has none in the years 1 to 9999."""
    times = int64_values(records.column("timestamp"))
    return np.where((times < _EARLIEST) | (times >= _LATEST) | (times == NO_TIMESTAMP), NO_TIME, times)


def make_partitioner(layout: config.Layout) -> RecordPartitioner:
    """The partitioner of a layout.

    Raises:
        ConfigurationError: the pattern is empty or cannot be compiled, or the time zone is unknown.
    """
    links = [_make(layout, settings, alone=_is_alone(layout)) for settings in layout.partitioners]
    made = [partitioner for link in links for partitioner in link]
    return made[0] if len(made) == 1 else ChainPartitioner(made, layout.naming.directory_delim)


def _is_alone(layout: config.Layout) -> bool:
    """Whether an encoded partition is one folder."""
    return len(layout.partitioners) == 1 and len(layout.field_names) <= 1 and layout.naming.schema_affix is None


def _make(layout: config.Layout, settings: config.Partitioner, *, alone: bool) -> list[RecordPartitioner]:
    """One partitioner for each folder, or for all folders of a time."""
    match settings:
        case config.ByPartition():
            return [KafkaPartitioner()]
        case config.ByField(names=names, missing=missing, max_value_bytes=most):
            return [
                FieldPartitioner(
                    name, Folders(name, layout.naming, max_bytes=most, alone=alone), missing_is_null=missing == "null"
                )
                for name in names
            ]
        case config.ByKey(max_value_bytes=most):
            return [KeyPartitioner(Folders("key", layout.naming, max_bytes=most, alone=alone))]
        case config.Daily() | config.Hourly() | config.TimePattern():
            return [_by_time(layout, settings)]
        case config.CustomPartitioner():
            return [CheckedPartitioner(settings, layout.naming)]
        case config.Chain():
            raise ConfigurationError("a chain in a chain; put its partitioners into one")
        case _:
            assert_never(settings)


def _by_time(layout: config.Layout, settings: config.Daily | config.Hourly | config.TimePattern) -> TimePartitioner:
    delim, naming = layout.naming.directory_delim, layout.naming
    pattern, name = time_pattern(settings, delim), layout.on_bad_timestamp
    untimely = None if name == "fail" else pattern.without_time(name, separators=("/", delim))
    if untimely is not None and naming.lowercase_paths:
        # The name itself is one that readers take for null.
        untimely = name.join(part.lower() for part in untimely.split(name))
    return TimePartitioner(
        pattern,
        load_zone(settings.timezone),
        duration_ms=settings.duration_ms,
        untimely=untimely,
        times_from=settings.timestamp_from,
        toward_zero=naming.kafka_connect_names,
        lower=naming.lowercase_paths,
    )


class KafkaPartitioner:
    """``partition=<Kafka partition>``."""

    @property
    def longest(self) -> str:
        """That of the largest partition number."""
        return f"partition={_LARGEST_PARTITION}"

    def encode(self, batch: Batch) -> Encoded:
        """One encoded partition for all records of a Kafka partition."""
        return Encoded(np.zeros(batch.records.num_rows, np.intp), [f"partition={batch.partition}"])


class FieldPartitioner:
    """``name=value`` of a field.

    Args:
        name: of the field.
        folders: of its values.
        missing_is_null: whether a record without the field is one whose field is null.
    """

    def __init__(self, name: str, folders: Folders, *, missing_is_null: bool) -> None:
        self._name = name
        self._folders = folders
        self._missing_is_null = missing_is_null

    @property
    def longest(self) -> str:
        """That of a value that is cut."""
        return self._folders.longest

    def encode(self, batch: Batch) -> Encoded:
        """The folder of the value of each record."""
        return _of_values(batch.fields[self._name], self._folder, f"field {self._name!r}")

    def _folder(self, value: FieldValue) -> str | Unusable:
        if self._missing_is_null and isinstance(value, Unusable) and value.missing:
            value = None
        return self._folders.of(value)


class KeyPartitioner:
    """``key=<key of the record>``."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    @property
    def longest(self) -> str:
        """That of a key that is cut."""
        return self._folders.longest

    def encode(self, batch: Batch) -> Encoded:
        """The folder of the key of each record."""
        return _of_values(key_values(batch.records.column("key")), self._folders.of, "the key")


def _of_values(values: FieldValues, folder: Callable[[FieldValue], str | Unusable], what: str) -> Encoded:
    used, of_record = _used(values.codes, len(values.values))
    codes: dict[str, int] = {}
    of_value, reasons = np.full(len(used), REFUSED, np.intp), dict[int, str]()
    for i, value in enumerate(used.tolist()):
        # Several values may have the same folder, such as texts that differ in case.
        path = folder(values.values[value])
        if isinstance(path, Unusable):
            reasons[i] = f"{what} {path.reason}"
        else:
            of_value[i] = codes.setdefault(path, len(codes))
    refused = {}
    if reasons:
        rows = np.flatnonzero(of_value[of_record] == REFUSED)
        refused = {row: reasons[int(of_record[row])] for row in rows.tolist()}
    return Encoded(of_value[of_record], list(codes), refused)


def _used(codes: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """The codes that occur, ascending, and of each record the index of its code; all are less than ``count``.

    As :func:`numpy.unique`, which sorts.
    """
    occurs = np.zeros(count, np.bool_)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def _distinct(numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The distinct numbers, ascending, and of each number the index of an equal one.

    As :func:`numpy.unique`, which sorts; these are mostly few numbers a step apart.
    """
    first = int(numbers.min())
    step = int(np.gcd.reduce(numbers[:_SAMPLED] - first)) or 1
    count = (int(numbers.max()) - first) // step + 1
    if count > _DENSE:
        return np.unique(numbers, return_inverse=True)
    codes = (numbers - first) // step
    if (codes * step + first != numbers).any():
        return np.unique(numbers, return_inverse=True)
    used, of_number = _used(codes, count)
    return used * step + first, of_number


class ChainPartitioner:
    """The folders of several partitioners, one after another.

    Args:
        links: these partitioners.
        delim: between their folders.
    """

    def __init__(self, links: Sequence[RecordPartitioner], delim: str) -> None:
        self._links = links
        self._delim = delim

    @property
    def longest(self) -> str:
        """The longest of each."""
        return self._delim.join(link.longest for link in self._links)

    def encode(self, batch: Batch) -> Encoded:
        """The folders of each record; one that a partitioner refuses has none."""
        first, *others = (link.encode(batch) for link in self._links)
        codes, paths, refused, times = first.codes, first.paths, dict(first.refused), first.times
        for other in others:
            refused = {**other.refused, **refused}
            pairs = codes * len(other.paths) + other.codes
            pairs[(codes == REFUSED) | (other.codes == REFUSED)] = REFUSED
            used, of_record = _distinct(pairs)
            named = [divmod(pair, len(other.paths)) for pair in used.tolist() if pair != REFUSED]
            paths = [f"{paths[a]}{self._delim}{other.paths[b]}" for a, b in named]
            codes = of_record - (len(used) - len(named))  # the pair of refused records is the lowest one
            times = other.times if times is None else times
        return Encoded(codes, paths, refused, times)


class TimePartitioner:
    """A path pattern applied to the record's timestamp.

    Args:
        pattern: of the path.
        zone: of the local time.
        duration_ms: width of a bucket.
        untimely: the path of records without a valid timestamp; None: they are an error.
        times_from: where the times are from.
        toward_zero: whether times before 1970 are rounded up.
        lower: whether paths are made lower case.
    """

    def __init__(
        self,
        pattern: Pattern,
        zone: zoneinfo.ZoneInfo,
        *,
        duration_ms: int,
        untimely: str | None = None,
        times_from: config.TimestampFrom = config.RecordTime(),  # noqa: B008 - a value
        toward_zero: bool = False,
        lower: bool = False,
    ) -> None:
        self._pattern = pattern
        self._zone = zone
        self._duration = duration_ms
        self._untimely = untimely
        self._times_from = times_from
        self._toward_zero = toward_zero
        self._lower = lower
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

    def encode(self, batch: Batch) -> Encoded:
        """The path of each record's bucket.

        Raises:
            RecordError: a record of Kafka has no timestamp, or one outside the years 1 to 9999, and there is no path
                for it.
        """
        times, reasons = self._times(batch)
        first, last = int(times.min()), int(times.max())
        if not (self._known[0] <= first and last < self._known[1]):
            bad = self._bad(times, first)
            if bad.any():
                if self._untimely is not None:
                    return self._encode_around(times, bad, self._untimely)
                if reasons is None:
                    raise self._unusable(batch, int(np.flatnonzero(bad)[0]))
                return self._encode_some(times, bad, reasons)
            if self._toward_zero and first < DAY_MS:
                return self._encode_many(times)
            self._known = self._interval(first)
        if self._known[0] <= first and last < self._known[1]:
            return Encoded(np.zeros(len(times), np.intp), [self._known[2]], times=times)
        return self._encode_many(times)

    def _times(self, batch: Batch) -> tuple[Int64Array, Callable[[int], str] | None]:
        """The time of each record, and why one of them is outside the calendar; None: these are of Kafka records."""
        match self._times_from:
            case config.RecordTime():
                return int64_values(batch.records.column("timestamp")), None
            case config.ClockTime(at_ms=at_ms):
                if at_ms is None:
                    raise ConfigurationError("timestamp_from='wallclock' has no time: the plan of a batch has it")
                return np.full(batch.records.num_rows, at_ms, np.int64), None
            case config.FieldTime(name=name, unit=unit):
                values = batch.fields[name]
                used, of_record = _used(values.codes, len(values.values))
                parsed = [milliseconds(values.values[code], unit) for code in used.tolist()]
                times = np.array([NO_TIME if isinstance(time, Unusable) else time for time in parsed], np.int64)

                def reason(row: int) -> str:
                    time = parsed[int(of_record[row])]
                    why = time.reason if isinstance(time, Unusable) else "is a time outside the years 1 to 9999"
                    return f"field {name!r} {why}, so the record has no time partition"

                return times[of_record], reason
            case _:
                assert_never(self._times_from)

    def _bad(self, times: Int64Array, first: int) -> npt.NDArray[np.bool_]:
        """Whether each timestamp is invalid, or its bucket begins before the calendar; ``first`` is the lowest."""
        bad: npt.NDArray[np.bool_] = (times < _EARLIEST) | (times >= _LATEST)
        if isinstance(self._times_from, config.RecordTime):
            bad |= times == NO_TIMESTAMP
        if first < _EARLIEST_BUCKET + self._duration + DAY_MS:
            good = np.flatnonzero(~bad)
            if len(good):
                bad[good] = self._buckets(times[good]) < _EARLIEST_BUCKET
        return bad

    def _encode_some(self, times: Int64Array, bad: npt.NDArray[np.bool_], reason: Callable[[int], str]) -> Encoded:
        """The records whose times are valid; the others are refused."""
        codes, paths = np.full(len(times), REFUSED, np.intp), list[str]()
        if not bad.all():
            encoded = self._encode_many(times[~bad])
            codes[~bad], paths = encoded.codes, encoded.paths
        reasons = {row: reason(row) for row in np.flatnonzero(bad).tolist()}
        return Encoded(codes, paths, reasons, np.where(bad, NO_TIME, times))

    def _encode_around(self, times: Int64Array, bad: npt.NDArray[np.bool_], untimely: str) -> Encoded:
        good = ~bad
        known = self._encode_many(times[good]) if good.any() else Encoded(np.zeros(0, np.intp), [])
        known_codes, paths = known.codes, known.paths
        # A pattern without letters has one path for all.
        paths = paths if untimely in paths else [*paths, untimely]
        codes = np.full(len(times), paths.index(untimely), np.intp)
        codes[good] = known_codes
        return Encoded(codes, paths, times=np.where(bad, NO_TIME, times))

    def _encode_many(self, times: Int64Array) -> Encoded:
        buckets, of_record = _distinct(self._buckets(times))
        # Several buckets may have the same path, such as the quarters of an hour in a path by the hour.
        codes: dict[str, int] = {}
        of_bucket = [codes.setdefault(self._path(b), len(codes)) for b in buckets.tolist()]
        return Encoded(np.array(of_bucket, np.intp)[of_record], list(codes), times=times)

    def _buckets(self, times: Int64Array) -> Int64Array:
        """The local time at which the bucket of each record begins."""
        first, last = int(times.min()) // DAY_MS, int(times.max()) // DAY_MS
        days = range(first, last + 1) if last - first < _FEW_DAYS else np.unique(times // DAY_MS).tolist()
        pieces = [p for day in days for p in self._pieces_of(day)]
        local: Int64Array
        begins: Int64Array
        if len({(piece.offset, piece.width) for piece in pieces}) == 1:
            local = times + pieces[0].offset
            begins = local - local % pieces[0].width
        else:
            starts, offsets, widths = np.array(pieces, np.int64).T
            piece = np.searchsorted(starts, times, side="right") - 1
            local = times + offsets[piece]
            begins = local - local % widths[piece]
        if self._toward_zero:
            early = np.flatnonzero(local < 0)
            begins[early] = -(-local[early] // self._duration * self._duration)
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
            begin = (EPOCH + bucket * _MS).replace(tzinfo=self._zone).astimezone(UTC).astimezone(self._zone)
            path = self._pattern.format(begin)
            path = path.lower() if self._lower else path
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
            change = bisect_left(range(start, last), True, key=lambda time: self._offset(time) != changes[0][1]) + start
            changes.append((change, self._offset(change)))
        return changes

    def _offset(self, time: int) -> int:
        offset = (EPOCH + time * _MS).astimezone(self._zone).utcoffset()
        return 0 if offset is None else offset // _MS

    @staticmethod
    def _unusable(batch: Batch, row: int) -> RecordError:
        records, topic, partition = batch.records, batch.topic, batch.partition
        time, offset = records.column("timestamp")[row].as_py(), records.column("offset")[row].as_py()
        cause = (
            "the record has no timestamp"
            if time == NO_TIMESTAMP
            else f"the record's timestamp {time} (milliseconds since 1970) is outside the years 1 to 9999"
        )
        return RecordError(
            f"topic {topic!r}, partition {partition}, offset {offset}: {cause}, so it has no time partition. Give such "
            f"records one of their own (on_bad_timestamp='__HIVE_DEFAULT_PARTITION__'), or use "
            f"partitioner='partition', since timestamps in milliseconds (or the topic's "
            f"message.timestamp.type=LogAppendTime) help later records only"
        )
