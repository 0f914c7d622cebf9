"""The summary of a topic: its marker, and what its batches have landed together, in one document.

Those of all topics of a ``topics_dir`` are in one folder, so one listing shows which have changed. A summary follows
the log and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from airflow_provider_kafka_s3.documents.codec import MAX_BATCH, Document
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Ranges, parse_ranges

__all__ = ["SMALL_OBJECT", "Activity", "HourOfRecords", "LastBatch", "TopicSummary"]

SMALL_OBJECT: Final = 16 * 1024 * 1024
"""Bytes below which the objects of a batch are small, by their mean."""

_HOURS: Final = 48
"""Hours that a summary has. Those without records are left out, so one record from the future hides no other hour."""

_HOUR_MS: Final = 3_600_000


class HourOfRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batches whose newest record is of one hour.

    Attributes:
        hour: hours since the epoch; negative before it.
        records: number of records in their data objects.
        size: bytes of their objects.
    """

    hour: int
    records: int
    size: int

    def __post_init__(self) -> None:
        # Times before 1970 are negative.
        if min(self.records, self.size) < 0:
            raise ValueError(f"hour {self.hour} has negative records ({self.records}) or bytes ({self.size})")


class Activity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sums over the committed batches of a topic. Objects that were accepted as lost later are counted.

    Attributes:
        batches: number of committed batches.
        objects: number of objects, those of keys, headers and dead letters included.
        records: number of records in the data objects.
        tombstones: number of these whose value is null and that have no object of values.
        ignored: number of null values that were left out.
        dead_letters: number of records in the objects of dead letters.
        size: bytes of all objects.
        small_objects: number of objects of batches whose objects have less than :data:`SMALL_OBJECT` bytes on average.
        newest: timestamp of the newest record in milliseconds since the epoch; None: it is unknown.
        hours: the newest 48 that have records, ascending.
    """

    batches: int = 0
    objects: int = 0
    records: int = 0
    tombstones: int = 0
    ignored: int = 0
    dead_letters: int = 0
    size: int = 0
    small_objects: int = 0
    newest: int | None = None
    hours: tuple[HourOfRecords, ...] = ()

    def __post_init__(self) -> None:
        if min(getattr(self, name) for name in _SUMS) < 0 or len(self.hours) > _HOURS:
            raise ValueError(f"sums below zero, or more than {_HOURS} hours")

    def plus(self, batches: Iterable[IndexedBatch]) -> Activity:
        """The sums with some more batches, of which few are in memory together; in any order they are the same."""
        sums = {name: getattr(self, name) for name in _SUMS}
        hours = {hour.hour: (hour.records, hour.size) for hour in self.hours}
        newest = -1 if self.newest is None else self.newest
        for batch in batches:
            if batch.status != "commit":
                continue
            sums["batches"] += 1
            for name in _SUMS_OF_BATCHES:
                sums[name] += getattr(batch, name)
            if batch.size < batch.objects * SMALL_OBJECT:
                sums["small_objects"] += batch.objects
            if batch.has_times:
                newest = max(newest, batch.max_timestamp)
                hour = batch.max_timestamp // _HOUR_MS
                records, size = hours.get(hour, (0, 0))
                hours[hour] = (records + batch.records, size + batch.size)
        return Activity(
            **sums,
            newest=None if newest < 0 else newest,
            hours=tuple(
                HourOfRecords(hour=hour, records=records, size=size)
                for hour, (records, size) in sorted(hours.items())[-_HOURS:]
            ),
        )

    def since(self, milliseconds: int) -> tuple[int, int]:
        """Records and bytes of the batches whose newest record is of a later hour than a time, of those known."""
        later = [hour for hour in self.hours if hour.hour > milliseconds // _HOUR_MS]
        return sum(hour.records for hour in later), sum(hour.size for hour in later)


_SUMS_OF_BATCHES: Final = ("objects", "records", "tombstones", "ignored", "dead_letters", "size")
_SUMS: Final = ("batches", "small_objects", *_SUMS_OF_BATCHES)


class LastBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The committed batch with the highest number.

    Attributes:
        batch: its number.
        plan_sha256: checksum of its plan, which is unique: another log has another one.
        claimed: number of offsets that it claims.
        objects: number of objects.
        size: bytes of these.
        planned_by: try, host and time of its plan, for people.
        dag_id: of the task that planned it; empty: no task did.
    """

    batch: int
    plan_sha256: str
    claimed: int
    objects: int
    size: int
    planned_by: str
    dag_id: str

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MAX_BATCH or min(self.claimed, self.objects, self.size) < 0:
            raise ValueError(f"batch {self.batch} is out of range")

    @property
    def is_small(self) -> bool:
        """Whether its objects are small."""
        return self.size < self.objects * SMALL_OBJECT


class TopicSummary(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One topic of a pipeline.

    Attributes:
        pipeline: its name.
        topic: the Kafka topic.
        marker: that the sums are of.
        activity: of its resolved batches.
        last: see :class:`LastBatch`; None: no batch was committed.
        amended: numbers of the batches with objects that were accepted as lost.
    """

    pipeline: str
    topic: str
    marker: Marker
    activity: Activity
    last: LastBatch | None
    amended: Ranges

    def __post_init__(self) -> None:
        parse_ranges(self.amended)
        if self.amended and not (self.amended[0][0] >= 1 and self.amended[-1][1] <= MAX_BATCH + 1):
            raise ValueError(f"batches are numbers from 1 to {MAX_BATCH}")
