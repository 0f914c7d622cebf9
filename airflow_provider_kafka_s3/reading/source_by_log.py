"""The source of a topic, by its log."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import (
    Isolation,
    LogEnd,
    LogPosition,
    Source,
    SourceOfLog,
    TimedOffset,
    TopicView,
)
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ControlError
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.landed_source import LandedSource, PlannedSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SourceByLog"]


class SourceByLog(SourceOfLog):
    """The source that the log of a topic shows: for commands, which are not told it.

    Args:
        kafka: the cluster.
        topic_log: of the topic.
    """

    def __init__(self, kafka: Source, topic_log: TopicLog) -> None:
        self._kafka = kafka
        self._log = topic_log

    @override
    def current(self) -> Source:
        return self._current

    @functools.cached_property
    def _current(self) -> Source:
        try:
            stored = self._log.read_marker()
        except ControlError:  # a repair writes it again
            stored = None
        newest = 1 if stored is None else stored[0].last_resolved + 1
        for batch in range(newest, 0, -1):
            plan = self._log.read_plan(batch)
            if plan is not None and plan.slices:  # a reset, and what is accepted as gone, reads nothing
                return self._kafka if plan.source is UNSET else LandedSource(self._log.store, plan.source.landed)
        return self._kafka

    @override
    def of_plan(self, plan: Plan) -> Source:
        return self._kafka if plan.source is UNSET else PlannedSource(self._log.store, plan)

    @override
    def describe(self, topic: str) -> TopicView:
        return self._current.describe(topic)

    @override
    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return self._current.earliest(topic, partitions)

    @override
    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        return self._current.ends(topic, partitions, isolation)

    @override
    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        return self._current.log_ends(topic, partitions, isolation)

    @override
    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        return self._current.divergences(topic, reached)

    @override
    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        return self._current.at_timestamp(topic, partitions, timestamp_ms)

    @override
    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        return self._current.read(topic, partition, start, end, isolation, whole=whole)
