"""The interface through which the protocol reads Kafka, or what another pipeline has landed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import UNSET

from airflow_provider_kafka_s3.config import Landed, Layout
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import LandedRange, Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.divergence import LogPosition
from airflow_provider_kafka_s3.kafka.offsets import LogEnd, TimedOffset
from airflow_provider_kafka_s3.kafka.options import Isolation

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Isolation",
    "LogEnd",
    "LogPosition",
    "PipelineSource",
    "Source",
    "SourceOfLog",
    "TimedOffset",
    "TopicView",
    "pipeline_source",
    "source_of_plan",
]


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


@runtime_checkable
class PipelineSource(Source, Protocol):
    """What another pipeline has landed, in place of Kafka. Its offsets are those of the topic, and may have gaps."""

    @property
    def landed(self) -> Landed:
        """The pipeline."""
        ...

    @abstractmethod
    def readable(self, topic: str) -> Offsets:
        """The offsets that the pipeline has landed, or has recorded as lost."""

    @abstractmethod
    def gone(self, topic: str) -> Offsets:
        """The offsets of these whose batches have deleted objects on purpose, or will."""

    @abstractmethod
    def of_plan(self, plan: Plan) -> Source:
        """The batches that a plan names.

        Raises:
            ConfigurationError: the plan has read Kafka.
        """

    @abstractmethod
    def ranges(self, topic: str, offsets: Offsets, layout: Layout) -> Sequence[LandedRange]:
        """The ranges that have offsets; each has to be read as a whole. They are in the order of partition and offset.

        Args:
            topic: name of the topic.
            offsets: readable ones.
            layout: that they are landed with.

        Raises:
            ConfigurationError: the layout needs something that the objects do not have.
        """


@runtime_checkable
class SourceOfLog(Source, Protocol):
    """The source of a topic whose log shows which one it is, when it is used for the first time."""

    def current(self) -> Source:
        """The source of the newest batch."""
        ...

    def of_plan(self, plan: Plan) -> Source:
        """The source of a plan."""
        ...


def pipeline_source(source: Source) -> PipelineSource | None:
    """The source if it is another pipeline; None: it is Kafka."""
    current = source.current() if isinstance(source, SourceOfLog) else source
    return current if isinstance(current, PipelineSource) else None


def source_of_plan(source: Source, plan: Plan) -> Source:
    """What has the records of a plan, which may be another source than that of the next plan.

    Raises:
        ConfigurationError: it is another one, which this process does not have.
    """
    if isinstance(source, SourceOfLog | PipelineSource):
        return source.of_plan(plan)
    if plan.source is not UNSET:
        raise ConfigurationError(
            f"batch {plan.batch} of topic {plan.topic!r} has the records of pipeline {plan.source.pipeline!r}, and "
            f"this process reads Kafka. Run it with source={plan.source.landed!r}"
        )
    return source
