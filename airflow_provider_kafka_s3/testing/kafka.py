"""A Kafka cluster in memory, with the events that make offsets hard: retention, compaction, transactions, recreation.

It answers as :class:`~airflow_provider_kafka_s3.batch.source.Source`; its other methods tell it what happens to its
topics. It remembers every record there ever was, so a test can hold a bucket against it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP, RECORD_SCHEMA
from airflow_provider_kafka_s3.batch.source import Isolation, TimedOffset
from airflow_provider_kafka_s3.exceptions import DataLossError, TopicNotFoundError

__all__ = ["SimulatedKafka", "SimulatedRecord", "SimulatedTopic"]


@dataclass(frozen=True)
class SimulatedRecord:
    """A record; ``timestamp`` is milliseconds since the epoch, -1 for none."""

    offset: int
    timestamp: int
    value: bytes | None


@dataclass
class _Partition:
    # One entry per offset ever given out; None where a transaction marker or an aborted record lies.
    log: list[SimulatedRecord | None] = field(default_factory=list)
    start: int = 0
    compacted: set[int] = field(default_factory=set)
    # Offset of the first record of an open transaction: what a read_committed reader may not pass.
    open_from: int | None = None


@dataclass(frozen=True)
class SimulatedTopic:
    """One incarnation of a topic, as the broker describes it."""

    name: str
    topic_id: str | None
    cluster_id: str | None
    partitions: tuple[int, ...]


@dataclass
class _Incarnation:
    topic_id: str
    partitions: list[_Partition]


class SimulatedKafka:
    """A cluster in memory. Every question and every poll of a read is atomic; in between anything may happen."""

    def __init__(
        self,
        *,
        cluster_id: str = "simulated",
        topic_ids: bool = True,
        records_per_poll: int = 500,
        before_request: Callable[[str], None] = lambda operation: None,
    ) -> None:
        """Start an empty cluster.

        Args:
            cluster_id: what it calls itself.
            topic_ids: whether its brokers know topic ids (Kafka 2.8 and later).
            records_per_poll: a read asks again after this many offsets, so that it can see the topic change.
            before_request: told of every question before it is answered; may switch to another actor, or raise.
        """
        self._cluster_id = cluster_id
        self._topic_ids = topic_ids
        self._records_per_poll = records_per_poll
        self._before_request = before_request
        self._live: dict[str, _Incarnation] = {}
        self._ever: dict[str, _Incarnation] = {}

    # -- what happens to the cluster ----------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1) -> str:
        """Create a topic, or delete it and create it again with no records; returns its new id."""
        topic_id = hashlib.sha256(f"{self._cluster_id}/{len(self._ever)}".encode()).hexdigest()[:22]
        self._live[topic] = self._ever[topic_id] = _Incarnation(topic_id, [_Partition() for _ in range(partitions)])
        return topic_id

    def upgrade(self) -> None:
        """Let brokers without topic ids tell them from now on."""
        self._topic_ids = True

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        del self._live[topic]

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic ``count`` more partitions."""
        self._topic(topic).partitions.extend(_Partition() for _ in range(count))

    def append(self, topic: str, partition: int, value: bytes | None, timestamp: int = NO_TIMESTAMP) -> int:
        """Append a record and return its offset."""
        log = self._partition(topic, partition).log
        log.append(SimulatedRecord(len(log), timestamp, value))
        return len(log) - 1

    def append_marker(self, topic: str, partition: int) -> int:
        """Append what takes an offset and is never given to a reader: a transaction marker, an aborted record."""
        log = self._partition(topic, partition).log
        log.append(None)
        return len(log) - 1

    def open_transaction(self, topic: str, partition: int) -> None:
        """Let what is appended from now on be out of reach of ``read_committed`` readers."""
        log = self._partition(topic, partition)
        log.open_from = len(log.log)

    def commit_transaction(self, topic: str, partition: int) -> None:
        """End the open transaction; its marker takes an offset."""
        self._partition(topic, partition).open_from = None
        self.append_marker(topic, partition)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Let retention delete all records below an offset."""
        log = self._partition(topic, partition)
        log.start = max(log.start, min(before, len(log.log)))

    def compact(self, topic: str, partition: int, offset: int) -> None:
        """Let compaction remove one record; its offset stays a hole."""
        self._partition(topic, partition).compacted.add(offset)

    # -- what is true -------------------------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> str:
        """The id of the live incarnation, also if the brokers do not tell it."""
        return self._topic(topic).topic_id

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has, without asking as a client would."""
        return len(self._topic(topic).partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset that is there and one past the last, without asking as a client would."""
        log = self._partition(topic, partition)
        return log.start, len(log.log)

    def readable_ends(self, topic: str) -> dict[int, int]:
        """Per partition one past the last offset that may be read committed, without asking as a client would."""
        return {p: self._end(topic, p, "read_committed") for p in range(self.partition_count(topic))}

    def in_transaction(self, topic: str, partition: int) -> bool:
        """Whether a transaction is open."""
        return self._partition(topic, partition).open_from is not None

    def all_records(self) -> dict[str, dict[int, dict[int, bytes | None]]]:
        """Every record there ever was: topic id -> partition -> offset -> value, whatever became of it."""
        return {
            topic_id: {
                p: {r.offset: r.value for r in log.log if r is not None} for p, log in enumerate(incarnation.partitions)
            }
            for topic_id, incarnation in self._ever.items()
        }

    def all_times(self) -> dict[str, dict[int, dict[int, int]]]:
        """The timestamp of every record that retention has left: topic id -> partition -> offset -> milliseconds."""
        return {
            topic_id: {
                p: {r.offset: r.timestamp for r in log.log[log.start :] if r is not None}
                for p, log in enumerate(incarnation.partitions)
            }
            for topic_id, incarnation in self._ever.items()
        }

    def is_optional(self, topic_id: str, partition: int, offset: int) -> bool:
        """Whether a complete read may lack this offset: it was compacted at some time, or never held a record."""
        log = self._ever[topic_id].partitions[partition]
        return offset in log.compacted or log.log[offset] is None

    # -- Source -------------------------------------------------------------------------------------------------------

    def describe(self, topic: str) -> SimulatedTopic:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._before_request("describe")
        found = self._topic(topic)
        return SimulatedTopic(
            name=topic,
            topic_id=found.topic_id if self._topic_ids else None,
            cluster_id=self._cluster_id,
            partitions=tuple(range(len(found.partitions))),
        )

    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._before_request("earliest")
        return {p: self._partition(topic, p).start for p in partitions}

    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._before_request("ends")
        return {p: self._end(topic, p, isolation) for p in partitions}

    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._before_request("at_timestamp")
        found: dict[int, TimedOffset | None] = {}
        for p in partitions:
            log = self._partition(topic, p)
            young = (r for r in log.log[log.start :] if r is not None and r.timestamp >= timestamp_ms)
            found[p] = next((TimedOffset(r.offset, r.timestamp) for r in young), None)
        return found

    def read(self, topic: str, partition: int, start: int, end: int, isolation: Isolation) -> Iterator[pa.RecordBatch]:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        at = start
        while at < end:
            self._before_request("poll")
            log = self._partition(topic, partition)
            until = min(end, at + self._records_per_poll)
            readable = self._end(topic, partition, isolation)
            if at < log.start or until > readable:
                raise DataLossError(
                    f"topic {topic!r}, partition {partition}: offsets [{at}, {until}) cannot be read, the log holds "
                    f"[{log.start}, {readable})"
                )
            yield _to_arrow([r for r in log.log[at:until] if r is not None and r.offset not in log.compacted])
            at = until

    def _end(self, topic: str, partition: int, isolation: Isolation) -> int:
        log = self._partition(topic, partition)
        return len(log.log) if log.open_from is None or isolation == "read_uncommitted" else log.open_from

    def _topic(self, topic: str) -> _Incarnation:
        found = self._live.get(topic)
        if found is None:
            missing = TopicNotFoundError(f"topic {topic!r} does not exist in cluster {self._cluster_id!r}; create it")
            missing.cluster_id = self._cluster_id
            raise missing
        return found

    def _partition(self, topic: str, partition: int) -> _Partition:
        found = self._topic(topic).partitions
        if partition >= len(found):
            raise DataLossError(f"topic {topic!r} has no partition {partition}; it has {len(found)}")
        return found[partition]


def _to_arrow(records: list[SimulatedRecord]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "offset": [r.offset for r in records],
        "timestamp": [r.timestamp for r in records],
        "value": [r.value for r in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA)
