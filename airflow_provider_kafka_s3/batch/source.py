"""The interface through which the protocol reads Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from airflow_provider_kafka_s3.kafka.divergence import LogPosition
from airflow_provider_kafka_s3.kafka.offsets import LogEnd, TimedOffset
from airflow_provider_kafka_s3.kafka.options import Isolation

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Isolation", "LogEnd", "LogPosition", "Source", "TimedOffset", "TopicView"]


class TopicView(Protocol):
    """Description of a topic; ``topic_id`` is None if the brokers have no topic ids (before Kafka 2.8)."""

    @property
    def topic_id(self) -> str | None:
        """Incarnation of the topic."""
        ...

    @property
    def cluster_id(self) -> str | None:
        """ID of the Kafka cluster; None if the brokers return none."""
        ...

    @property
    def partitions(self) -> tuple[int, ...]:
        """Numbers of its partitions, ascending."""
        ...


class Source(Protocol):
    """The topics of one Kafka cluster. Errors are those of :mod:`airflow_provider_kafka_s3.exceptions`."""

    def describe(self, topic: str) -> TopicView:
        """Look a topic up; TopicNotFoundError if it does not exist."""
        ...

    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The first offset that still exists, per partition."""
        ...

    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        """One past the last offset that a reader of this isolation level may read, per partition."""
        ...

    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        """The same with the epoch of the leader that gave each end; None on brokers without epochs."""
        ...

    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        """The first offset that was replaced or is gone since the log reached a position, per partition.

        Partitions whose log is the same up to the position are left out, and those of which the brokers do not know it.
        """
        ...

    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        """The first offset whose record is not older, and its timestamp, per partition; None if there is none."""
        ...

    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """All records of ``[start, end)``, never fewer: DataLossError if some of the range is gone.

        Batches of :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA`; with ``whole``, of
        :data:`~airflow_provider_kafka_s3.arrays.WHOLE_RECORD_SCHEMA`.
        """
        ...
