"""Conditions of the sensors, polled with blocking clients: in a worker, or in a thread of the triggerer.

A condition has names only, so it can be stored in Airflow's database. Connections are looked up at every poll: a
changed password takes effect at once, and credentials of a role cannot expire while a sensor waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config.runs import Seconds
from airflow_provider_kafka_s3.config.values import Value
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.messages import count

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.kafka.source import KafkaSource

__all__ = ["Condition", "LagCondition", "PollResult", "WindowCondition"]


@dataclass(frozen=True)
class PollResult:
    """Result of one poll of a condition.

    Attributes:
        done: whether the condition is met.
        result: XCom of the sensor, if it is met; JSON.
        summary: the result as a line of the log.
    """

    done: bool
    result: Mapping[str, Any]
    summary: str


class Condition(Protocol):
    """A condition that a sensor polls until it is met."""

    def poll(self) -> PollResult:
        """Poll once; this blocks.

        Raises:
            TerminalError: a retry cannot succeed.
            TransientError: a retry may succeed.
        """
        ...

    def to_json(self) -> dict[str, Any]:
        """The keyword arguments of its constructor; JSON, and nothing secret."""
        ...


class LagCondition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topics have a lag of at least ``min_records`` offsets, all topics together.

    Attributes:
        topics: names of the topics.
        bucket: name of the pipeline's bucket.
        pipeline: name of the pipeline.
        topics_dir: prefix of the pipeline's keys.
        min_records: lag from which the condition is met.
        isolation: isolation level of the operator that will read them.
        kafka_conn_id: connection of type ``kafka``.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
    """

    topics: tuple[str, ...]
    bucket: str
    pipeline: str
    topics_dir: str
    min_records: Annotated[int, Meta(ge=1, description="records")]
    isolation: Isolation
    kafka_conn_id: str
    aws_conn_id: str | None

    def to_json(self) -> dict[str, Any]:
        """See :class:`Condition`."""
        return msgspec.structs.asdict(self) | {"topics": list(self.topics)}

    def poll(self) -> PollResult:
        """See :class:`Condition`; the result is the lag per topic."""
        from airflow_provider_kafka_s3.pipeline import open_topic
        from airflow_provider_kafka_s3.storage import bucket as s3_bucket

        source = _source(self.kafka_conn_id)
        access = connections.s3_access(self.aws_conn_id)
        store = s3_bucket.open_bucket(self.bucket, access.settings, access.credentials)
        connection_options = connections.connection_options(self.kafka_conn_id, self.aws_conn_id)
        lags = {}
        for topic in self.topics:
            address = TopicAddress(topics_dir=self.topics_dir, pipeline=self.pipeline, topic=topic)
            opened = open_topic(store, address, source, connection_options=connection_options)
            lags[topic] = opened.lag(self.isolation)
        total = sum(lags.values())
        by_topic = ", ".join(f"{topic}: {count:,}" for topic, count in lags.items())
        summary = f"{total:,} of {count(self.min_records, 'offset')} wait to be landed ({by_topic})"
        return PollResult(total >= self.min_records, lags, summary)


class WindowCondition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every partition of every topic has passed the end of a window.

    Attributes:
        topics: names of the topics.
        start: start of the window, in epoch milliseconds.
        end: end of the window, excluded, in epoch milliseconds.
        grace: seconds after ``end`` from which a partition without a later record counts as quiet.
        isolation: isolation level of the operator that will read the window.
        kafka_conn_id: connection of type ``kafka``.
    """

    topics: tuple[str, ...]
    start: int
    end: int
    grace: Seconds
    isolation: Isolation
    kafka_conn_id: str

    def to_json(self) -> dict[str, Any]:
        """See :class:`Condition`."""
        return msgspec.structs.asdict(self) | {"topics": list(self.topics)}

    def poll(self) -> PollResult:
        """See :class:`Condition`; the result has the window, and per topic the partitions that passed or are quiet."""
        from airflow_provider_kafka_s3.inspect.lag import window_state

        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (self.start, self.end))
        now = datetime.now(UTC)
        overdue, now_ms = now >= end + timedelta(seconds=self.grace), int(now.timestamp() * 1000)
        source = _source(self.kafka_conn_id)
        states = {
            topic: window_state(source, topic, self.end, isolation=self.isolation, overdue=overdue, now_ms=now_ms)
            for topic in self.topics
        }
        result = {
            "window": [start.isoformat(), end.isoformat()],
            "topics": {topic: {"passed": list(s.passed), "quiet": list(s.quiet)} for topic, s in states.items()},
        }
        waiting = {topic: s.open for topic, s in states.items() if not s.closed}
        behind = "; ".join(f"topic {topic}: partitions {', '.join(map(str, ps))}" for topic, ps in waiting.items())
        summary = (
            f"not yet past {end.isoformat()}: {behind}" if waiting else f"all partitions are past {end.isoformat()}"
        )
        return PollResult(not waiting, result, summary)


def _source(kafka_conn_id: str) -> KafkaSource:
    from airflow_provider_kafka_s3.kafka.source import KafkaSource

    return KafkaSource(connections.kafka_config(kafka_conn_id), connection=connections.kafka_name(kafka_conn_id))
