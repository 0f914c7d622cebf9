"""Windows against a real broker: late records, partitions that come later, records of the future: none is left out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source
from dev.kafka_broker import KafkaBroker, Message

MakeTopic = Callable[..., str]

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Settings of a topic that accepts records of the future, as brokers before Kafka 4.0 do."""
YEAR_2500 = 16_725_225_600_000


class Pipeline:
    """Lands a topic of a real broker into a bucket in memory, without Spark."""

    def __init__(self, kafka: KafkaBroker, config: dict[str, object], topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.store = DurableStore(MemoryStore(), Retrier())
        self.source = KafkaSource(config)

    def records(self, *times: int, partition: int = 0) -> None:
        for timestamp in times:
            value = f'{{"id":"{uuid.uuid4()}"}}'.encode()
            self.kafka.produce(self.topic, [Message(value, partition=partition, timestamp=timestamp)])

    def lands(self, run: str, window: tuple[int, int] | None = None, **settings: Any) -> TopicResult:
        pipeline = TopicPipeline(self.store, self.source, topics_dir="topics", pipeline="p", topic=self.topic)
        request = RunRequest(
            **{
                "run": run,
                "offsets": "incremental" if window is None else "data_interval",
                "window": window,
                "layout": Layout(format=JsonLines()),
                "starting": "earliest" if window is None else None,
                **settings,
            }
        )
        return pipeline.land(request)

    def check(self) -> None:
        """Every record is landed once, and none is left out."""
        where: dict[str, Any] = {"topics_dir": "topics", "pipeline": "p", "topic": self.topic}
        source = read_source(self.source, self.topic)
        check_bucket(self.store.store, **where, source=source, complete=True, recovered=True)


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, kafka_config: dict[str, object], make_topic: MakeTopic) -> Pipeline:
    """A pipeline over a topic of two partitions."""
    return Pipeline(kafka_broker, kafka_config, make_topic(2, ANY_TIME))


def test_late_records_of_idle_empty_and_added_partitions_belong_to_the_next_run(pipeline: Pipeline) -> None:
    """The second window also lands the offsets below it in partitions that the first did not touch."""
    pipeline.records(1_000, 1_001)
    assert pipeline.lands("first", (1_000, 2_000)).target == Offsets({0: [(0, 2)]})
    pipeline.kafka.add_partitions(pipeline.topic, 3)
    pipeline.records(1_500, 2_500, partition=1)
    pipeline.records(1_600, 2_600, partition=2)
    pipeline.records(2_001, 3_001)
    assert pipeline.lands("second", (2_000, 3_000)).target == Offsets({0: [(2, 3)], 1: [(0, 2)], 2: [(0, 2)]})
    pipeline.lands("third", (3_000, 4_000))
    pipeline.check()


def test_a_first_run_with_a_window_of_its_own_lands_an_incremental_pipeline_from_its_start(pipeline: Pipeline) -> None:
    """All history below the window belongs to the run that comes first."""
    pipeline.records(1_000, 2_000, 3_000)
    assert pipeline.lands("window", (2_000, 3_000), starting="earliest").target == Offsets({0: [(0, 2)]})
    pipeline.lands("the rest")
    pipeline.check()


def test_records_of_an_open_transaction_in_the_first_window_belong_to_the_next_run(pipeline: Pipeline) -> None:
    """The pipeline begins at the last stable offset. The marker of a transaction has the time of the broker."""
    now, hour = int(time.time() * 1000), 3_600_000
    hidden = [Message(b'{"id":"hidden"}', partition=0, timestamp=now - 2 * hour)]
    with pipeline.kafka.open_transaction(pipeline.topic, hidden) as producer:
        assert pipeline.lands("first", (now - 3 * hour, now - hour)).status == "empty"
        producer.commit_transaction()
    pipeline.records(now - hour)
    assert pipeline.lands("second", (now - hour, now + hour // 2)).target == Offsets({0: [(0, 3)]})
    pipeline.check()


def test_a_record_of_the_future_never_ends_windows_silently(pipeline: Pipeline) -> None:
    """An error names it; read to the end, each record behind it is landed once."""
    pipeline.records(1_000, YEAR_2500, 2_000, 2_001)
    with pytest.raises(RecordError, match=r"partition 0, offset 1, timestamp 2500-01-01"):
        pipeline.lands("second", (2_000, 3_000))
    later = {"on_future_timestamp": "read_to_end"}
    assert pipeline.lands("first", (1_000, 2_000), **later).target == Offsets({0: [(0, 4)]})
    pipeline.records(2_002, 3_001)
    assert pipeline.lands("second", (2_000, 3_000), **later).target == Offsets({0: [(4, 6)]})
    pipeline.check()
