"""The questions of the sensors, asked with blocking clients: in a worker, or in a thread of the triggerer.

A question holds names only. Connections are looked up whenever it is asked, so it can be stored in Airflow's database,
a changed password counts at once, and credentials of a role cannot run out while a sensor waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.operators import connections

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.kafka.source import KafkaSource

__all__ = ["Answer", "LagQuestion", "Question", "WindowQuestion"]


@dataclass(frozen=True)
class Answer:
    """What is known now.

    Attributes:
        done: whether the sensor has nothing more to wait for.
        result: XCom of the sensor, if it is done; JSON.
        said: the same for the log.
    """

    done: bool
    result: Mapping[str, Any]
    said: str


class Question(Protocol):
    """Something a sensor asks again and again."""

    def ask(self) -> Answer:
        """Ask now; it blocks.

        Raises:
            TerminalError: asking again cannot help.
            TransientError: it may.
        """
        ...

    def to_wire(self) -> dict[str, Any]:
        """The keyword arguments it was made of; JSON, and nothing secret."""
        ...


@dataclass(frozen=True, kw_only=True)
class LagQuestion:
    """Do at least ``min_records`` offsets wait to be landed, all topics together?

    Attributes:
        topics: their names.
        bucket: of the pipeline.
        pipeline: its name.
        topics_dir: of the pipeline.
        min_records: how many offsets are enough.
        isolation: of the operator that will read them.
        kafka_conn_id: connection of type ``kafka``.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
    """

    topics: tuple[str, ...]
    bucket: str
    pipeline: str
    topics_dir: str
    min_records: int
    isolation: Isolation
    kafka_conn_id: str
    aws_conn_id: str | None

    def to_wire(self) -> dict[str, Any]:
        """See :class:`Question`."""
        return asdict(self) | {"topics": list(self.topics)}

    def ask(self) -> Answer:
        """See :class:`Question`; the result is the lag per topic."""
        from airflow_provider_kafka_s3.batch.log import TopicLog
        from airflow_provider_kafka_s3.inspect.lag import lag
        from airflow_provider_kafka_s3.operators.work import open_store
        from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
        from airflow_provider_kafka_s3.storage.durable import DurableStore

        source = _source(self.kafka_conn_id)
        store = DurableStore(open_store(connections.s3_access(self.aws_conn_id), self.bucket), Retrier(RetryPolicy()))
        cli_options = connections.cli_options(self.kafka_conn_id, self.aws_conn_id)
        lags = {}
        for topic in self.topics:
            log = TopicLog(
                store, topics_dir=self.topics_dir, pipeline=self.pipeline, topic=topic, cli_options=cli_options
            )
            lags[topic] = lag(log, source, self.isolation)
        total = sum(lags.values())
        told = ", ".join(f"{topic}: {count:,}" for topic, count in lags.items())
        said = f"{total:,} of {self.min_records:,} offsets wait to be landed ({told})"
        return Answer(total >= self.min_records, lags, said)


@dataclass(frozen=True, kw_only=True)
class WindowQuestion:
    """Has every partition of every topic passed the end of a window?

    Attributes:
        topics: their names.
        start: of the window, in epoch milliseconds.
        end: of the window, in epoch milliseconds.
        grace: seconds after ``end`` from which a partition without a younger record counts as quiet.
        isolation: of the operator that will read the window.
        kafka_conn_id: connection of type ``kafka``.
    """

    topics: tuple[str, ...]
    start: int
    end: int
    grace: float
    isolation: Isolation
    kafka_conn_id: str

    def to_wire(self) -> dict[str, Any]:
        """See :class:`Question`."""
        return asdict(self) | {"topics": list(self.topics)}

    def ask(self) -> Answer:
        """See :class:`Question`; the result is the window, and per topic which partitions have passed or are quiet."""
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
        told = "; ".join(f"topic {topic}: partitions {', '.join(map(str, ps))}" for topic, ps in waiting.items())
        said = f"not yet past {end.isoformat()}: {told}" if waiting else f"all partitions are past {end.isoformat()}"
        return Answer(not waiting, result, said)


def _source(kafka_conn_id: str) -> KafkaSource:
    from airflow_provider_kafka_s3.kafka.source import KafkaSource

    return KafkaSource(connections.kafka_config(kafka_conn_id))
