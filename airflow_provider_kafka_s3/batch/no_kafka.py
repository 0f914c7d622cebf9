"""Stands for Kafka where there is no connection to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from airflow_provider_kafka_s3.batch.source import Isolation, LogEnd, LogPosition, Source, TimedOffset, TopicView
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.overriding import override

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NoKafka"]


class NoKafka(Source):
    """The source of a place where no Kafka cluster is known: each request is refused.

    Attributes:
        reason: why there is none, and what to do, for the error.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    @override
    def describe(self, topic: str) -> TopicView:
        self._refuse(topic)

    @override
    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        self._refuse(topic)

    @override
    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        self._refuse(topic)

    @override
    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        self._refuse(topic)

    @override
    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        self._refuse(topic)

    @override
    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        self._refuse(topic)

    @override
    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        isolation: Isolation,
        *,
        whole: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        self._refuse(topic)

    def _refuse(self, topic: str) -> NoReturn:
        raise ConfigurationError(f"topic {topic!r} has to be looked up in Kafka, and {self.reason}")
