"""The committed objects of a snapshot, as its users see them."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects

__all__ = ["ObjectRange", "SnapshotObject", "snapshot_objects"]


@dataclass(frozen=True)
class ObjectRange:
    """The records of one Kafka partition in an object, ascending and one after another.

    Attributes:
        partition: the Kafka partition.
        min_offset: offset of the first record.
        max_offset: offset of the last record.
        records: number of records.
    """

    partition: int
    min_offset: int
    max_offset: int
    records: int

    @property
    def has_gaps(self) -> bool:
        """Whether offsets between the first and the last one are not in the object."""
        return self.records <= self.max_offset - self.min_offset


@dataclass(frozen=True)
class SnapshotObject:
    """A committed object.

    Attributes:
        topic: the Kafka topic.
        batch: number of its batch.
        generation: how many times the topic was created again before.
        key: in the bucket.
        url: ``s3://bucket/key``.
        layout: of its batch: format, content, converters.
        entry: it in the manifest.
        ranges: its records by Kafka partition, in their order.
        siblings: the objects beside it, by what their names have before the extension: ``.keys``, ``.headers``,
            ``.index``.
    """

    topic: str
    batch: int
    generation: int
    key: str
    url: str
    layout: Layout = field(repr=False)
    entry: ObjectEntry = field(repr=False)
    ranges: tuple[ObjectRange, ...]
    siblings: Mapping[str, ObjectEntry] = field(default_factory=dict, repr=False)

    @property
    def records(self) -> int:
        """Number of its records."""
        return self.entry.records

    @property
    def size(self) -> int:
        """Bytes."""
        return self.entry.size

    @property
    def partitions(self) -> tuple[int, ...]:
        """The Kafka partitions of its records."""
        return tuple(dict.fromkeys(one.partition for one in self.ranges))

    @property
    def offsets(self) -> Offsets:
        """The offsets of its records, from the first to the last one of each range."""
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for part in self.ranges:
            by_partition.setdefault(part.partition, []).append((part.min_offset, part.max_offset + 1))
        return Offsets(by_partition)

    @property
    def times(self) -> tuple[int, int] | None:
        """The lowest and the highest timestamp of its records, in milliseconds since the epoch; None: unknown."""
        return (self.entry.min_timestamp, self.entry.max_timestamp) if self.entry.has_times else None

    @property
    def folders(self) -> str:
        """The folders of the partitioner, such as ``year=2026/month=01``."""
        return _folders_parser(self.layout, self.topic)(self.key)

    @property
    def columns(self) -> dict[str, str]:
        """The folders that are columns of Hive's, ``name=value``, without the escapes of names."""
        parts = self.folders.split(self.layout.naming.directory_delim)
        named = (part.partition("=") for part in parts if "=" in part)
        return {urllib.parse.unquote(name): urllib.parse.unquote(value) for name, _, value in named}


def snapshot_objects(log: TopicLog, plan: Plan, decision: Manifest, lost: frozenset[str]) -> tuple[SnapshotObject, ...]:
    """The objects of a committed batch, in the order of Kafka partitions and offsets.

    Args:
        log: the control documents of the topic.
        plan: of the batch.
        decision: its manifest.
        lost: keys that were accepted as lost since.
    """
    objects = CommittedObjects(log, plan, decision)
    layout, endings = objects.layout, keys.siblings(objects.layout)
    there = {entry.key: entry for entry in decision.objects if entry.key not in lost}
    of_slice = {s.id: s.partition for s in plan.slices}
    listed = []
    for key, entry in there.items():
        if objects.is_dead_letters(entry) or objects.sibling(entry) is not None:
            continue
        beside = {name: there.get(keys.sibling_key(layout, key, name)) for name in endings}
        listed.append(
            SnapshotObject(
                topic=log.topic,
                batch=plan.batch,
                generation=plan.generation,
                key=key,
                url=objects.url(entry),
                layout=layout,
                entry=entry,
                ranges=tuple(
                    ObjectRange(of_slice[part.id], part.min_offset, part.max_offset, part.records)
                    for part in entry.by_slice
                ),
                siblings={name: other for name, other in beside.items() if other is not None},
            )
        )
    return tuple(sorted(listed, key=lambda one: (one.ranges[0].partition, one.ranges[0].min_offset, one.key)))


@functools.lru_cache(maxsize=16)
def _folders_parser(layout: Layout, topic: str) -> Callable[[str], str]:
    return keys.encoded_partition_parser(layout, topic)
