"""A Kafka cluster in memory, with events that affect offsets: retention, transactions, elections, recreation and so on.

It implements :class:`~airflow_provider_kafka_s3.batch.source.Source`; its other methods change its topics. It keeps
every record that was ever appended, unless a leader has lost it, so that a test can compare a bucket with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP, RECORD_SCHEMA, WHOLE_RECORD_SCHEMA
from airflow_provider_kafka_s3.batch.source import Isolation, LogEnd, LogPosition, Source, TimedOffset
from airflow_provider_kafka_s3.exceptions import DataLossError, TopicNotFoundError
from airflow_provider_kafka_s3.overriding import override

__all__ = ["SimulatedKafka", "SimulatedRecord", "SimulatedTopic"]


@dataclass(frozen=True)
class SimulatedRecord:
    """A record; ``timestamp`` is milliseconds since the epoch, -1 for none."""

    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class _Partition:
    # One entry per offset ever assigned; None for a transaction marker or an aborted record.
    log: list[SimulatedRecord | None] = field(default_factory=list)
    start: int = 0
    compacted: set[int] = field(default_factory=set)
    # Offset of the first record of an open transaction, where a read_committed reader stops.
    open_from: int | None = None
    # The leader epochs that have records, and the first offset of each.
    epochs: dict[int, int] = field(default_factory=lambda: {0: 0})


@dataclass(frozen=True)
class SimulatedTopic:
    """Description of one incarnation of a topic."""

    name: str
    topic_id: str | None
    cluster_id: str | None
    partitions: tuple[int, ...]


@dataclass
class _Incarnation:
    topic_id: str
    partitions: list[_Partition]


class SimulatedKafka(Source):
    """A cluster in memory. Every request and every poll of a read is atomic; the cluster may change in between."""

    def __init__(
        self,
        *,
        cluster_id: str = "simulated",
        topic_ids: bool = True,
        leader_epochs: bool = True,
        records_per_poll: int = 500,
        before_request: Callable[[str], None] = lambda operation: None,
    ) -> None:
        """Start an empty cluster.

        Args:
            cluster_id: its cluster id.
            topic_ids: whether its brokers have topic ids (Kafka 2.8 and later).
            leader_epochs: whether its brokers report leader epochs.
            records_per_poll: offsets of one poll of a read; the topic may change between two polls.
            before_request: called with the name of every request before it is answered; may switch to another actor, or
                raise.
        """
        self._cluster_id = cluster_id
        self._topic_ids = topic_ids
        self._leader_epochs = leader_epochs
        self._records_per_poll = records_per_poll
        self._before_request = before_request
        self._live: dict[str, _Incarnation] = {}
        self._incarnations: dict[str, _Incarnation] = {}

    # -- events -------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1) -> str:
        """Create a topic, or delete it and create it again with no records; returns its new id."""
        topic_id = hashlib.sha256(f"{self._cluster_id}/{len(self._incarnations)}".encode()).hexdigest()[:22]
        self._live[topic] = self._incarnations[topic_id] = _Incarnation(
            topic_id, [_Partition() for _ in range(partitions)]
        )
        return topic_id

    def upgrade(self) -> None:
        """Make brokers without topic ids report them from now on."""
        self._topic_ids = True

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        del self._live[topic]

    def add_partitions(self, topic: str, count: int) -> None:
        """Add ``count`` partitions to a topic."""
        self._topic(topic).partitions.extend(_Partition() for _ in range(count))

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        timestamp: int = NO_TIMESTAMP,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Append a record and return its offset."""
        log = self._partition(topic, partition).log
        log.append(SimulatedRecord(len(log), timestamp, value, key, tuple(headers)))
        return len(log) - 1

    def append_marker(self, topic: str, partition: int) -> int:
        """Append an offset that readers never get: a transaction marker or an aborted record."""
        log = self._partition(topic, partition).log
        log.append(None)
        return len(log) - 1

    def open_transaction(self, topic: str, partition: int) -> None:
        """Hide records that are appended from now on from ``read_committed`` readers."""
        log = self._partition(topic, partition)
        log.open_from = len(log.log)

    def commit_transaction(self, topic: str, partition: int) -> None:
        """End the open transaction; its marker takes an offset."""
        self._partition(topic, partition).open_from = None
        self.append_marker(topic, partition)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete all records below an offset, as retention does."""
        log = self._partition(topic, partition)
        log.start = max(log.start, min(before, len(log.log)))

    def compact(self, topic: str, partition: int, offset: int) -> None:
        """Remove one record, as compaction does; its offset stays a hole."""
        self._partition(topic, partition).compacted.add(offset)

    def elect(self, topic: str, partition: int, *, end: int | None = None) -> int:
        """Elect another leader of a partition; returns its epoch.

        Args:
            topic: name of the topic.
            partition: number of the partition.
            end: where the log of the new leader ends, below that of the old one: an unclean election. The records from
                there on are lost. None: a clean election.
        """
        log = self._partition(topic, partition)
        if end is not None:
            del log.log[end:]
            log.start = min(log.start, end)
            log.compacted -= {*range(end, max(log.compacted, default=0) + 1)}
            if log.open_from is not None and log.open_from > end:
                log.open_from = None
        epoch = max(log.epochs) + 1
        log.epochs = {e: start for e, start in log.epochs.items() if start < len(log.log)} | {epoch: len(log.log)}
        return epoch

    # -- state, without requests --------------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> str:
        """The id of the live incarnation, also if the brokers do not report it."""
        return self._topic(topic).topic_id

    def partition_count(self, topic: str) -> int:
        """Number of partitions of a topic."""
        return len(self._topic(topic).partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First existing offset of a partition, and one past the last."""
        log = self._partition(topic, partition)
        return log.start, len(log.log)

    def log_epoch(self, topic: str, partition: int) -> int:
        """The epoch of the leader of a partition, also if the brokers do not report it."""
        return max(self._partition(topic, partition).epochs)

    def readable_ends(self, topic: str) -> dict[int, int]:
        """Per partition one past the last offset that a ``read_committed`` reader may read."""
        return {p: self._end(topic, p, "read_committed") for p in range(self.partition_count(topic))}

    def in_transaction(self, topic: str, partition: int) -> bool:
        """Whether a transaction is open."""
        return self._partition(topic, partition).open_from is not None

    def all_records(self) -> dict[str, dict[int, dict[int, bytes | None]]]:
        """Every record ever appended: topic id -> partition -> offset -> value, including deleted ones.

        Those that a leader has lost are left out.
        """
        return {
            topic_id: {
                p: {r.offset: r.value for r in log.log if r is not None} for p, log in enumerate(incarnation.partitions)
            }
            for topic_id, incarnation in self._incarnations.items()
        }

    def all_times(self) -> dict[str, dict[int, dict[int, int]]]:
        """The timestamp of every record not deleted by retention: topic id -> partition -> offset -> milliseconds."""
        return {
            topic_id: {
                p: {r.offset: r.timestamp for r in log.log[log.start :] if r is not None}
                for p, log in enumerate(incarnation.partitions)
            }
            for topic_id, incarnation in self._incarnations.items()
        }

    def is_optional(self, topic_id: str, partition: int, offset: int) -> bool:
        """Whether a complete read may lack this offset: it was compacted, a leader has lost it, or it had no record."""
        log = self._incarnations[topic_id].partitions[partition]
        return offset in log.compacted or offset >= len(log.log) or log.log[offset] is None

    # -- Source -------------------------------------------------------------------------------------------------------

    @override
    def describe(self, topic: str) -> SimulatedTopic:
        self._before_request("describe")
        live = self._topic(topic)
        return SimulatedTopic(
            name=topic,
            topic_id=live.topic_id if self._topic_ids else None,
            cluster_id=self._cluster_id,
            partitions=tuple(range(len(live.partitions))),
        )

    @override
    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        self._before_request("earliest")
        return {p: self._partition(topic, p).start for p in partitions}

    @override
    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        self._before_request("ends")
        return {p: self._end(topic, p, isolation) for p in partitions}

    @override
    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        return {p: LogEnd(end, self._epoch(topic, p)) for p, end in self.ends(topic, partitions, isolation).items()}

    @override
    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        if not reached:
            return {}
        self._before_request("divergences")
        ends = {p: self._end_of_epoch(topic, p, position.epoch) for p, position in reached.items()}
        return {p: end for p, end in ends.items() if end < reached[p].offset}

    @override
    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        self._before_request("at_timestamp")
        offsets: dict[int, TimedOffset | None] = {}
        for p in partitions:
            log = self._partition(topic, p)
            young = (r for r in log.log[log.start :] if r is not None and r.timestamp >= timestamp_ms)
            offsets[p] = next((TimedOffset(r.offset, r.timestamp) for r in young), None)
        return offsets

    @override
    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        first = start
        while first < end:
            self._before_request("poll")
            log = self._partition(topic, partition)
            until = min(end, first + self._records_per_poll)
            readable = self._end(topic, partition, isolation)
            if first < log.start or until > readable:
                raise DataLossError(
                    f"topic {topic!r}, partition {partition}: offsets [{first}, {until}) cannot be read, the log holds "
                    f"[{log.start}, {readable})"
                )
            yield _to_arrow([r for r in log.log[first:until] if r is not None and r.offset not in log.compacted], whole)
            first = until

    def _end(self, topic: str, partition: int, isolation: Isolation) -> int:
        log = self._partition(topic, partition)
        return len(log.log) if log.open_from is None or isolation == "read_uncommitted" else log.open_from

    def _epoch(self, topic: str, partition: int) -> int | None:
        return self.log_epoch(topic, partition) if self._leader_epochs else None

    def _end_of_epoch(self, topic: str, partition: int, epoch: int) -> int:
        log = self._partition(topic, partition)
        return min((start for later, start in log.epochs.items() if later > epoch), default=len(log.log))

    def _topic(self, topic: str) -> _Incarnation:
        live = self._live.get(topic)
        if live is None:
            missing = TopicNotFoundError(f"topic {topic!r} does not exist in cluster {self._cluster_id!r}; create it")
            missing.cluster_id = self._cluster_id
            raise missing
        return live

    def _partition(self, topic: str, partition: int) -> _Partition:
        partitions = self._topic(topic).partitions
        if partition >= len(partitions):
            raise DataLossError(f"topic {topic!r} has no partition {partition}; it has {len(partitions)}")
        return partitions[partition]


def _to_arrow(records: list[SimulatedRecord], whole: bool) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "offset": [r.offset for r in records],
        "timestamp": [r.timestamp for r in records],
        "value": [r.value for r in records],
        "key": [r.key for r in records],
        "headers": [[{"key": k, "value": v} for k, v in r.headers] or None for r in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=WHOLE_RECORD_SCHEMA if whole else RECORD_SCHEMA)
