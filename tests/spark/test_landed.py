"""A pipeline over what another pipeline has landed, by Spark."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import Daily, Hourly, JsonLines, Landed, Layout, Limits, Rotation
from dev.kafka_broker import KafkaBroker, Message
from tests.spark.pipeline import MakePipeline, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DAY = 86_400_000
START = 1_767_225_600_000
GZIP = JsonLines(compression="gzip")


def produce(broker: KafkaBroker, topic: str, first: int, count: int) -> None:
    """Records of two partitions, half an hour apart, some of them late."""
    late = 3 * 3_600_000
    broker.produce(
        topic,
        [
            Message(
                json.dumps({"n": n}).encode(),
                partition=n % 2,
                timestamp=START + n * 1_800_000 - (late if n % 7 == 6 else 0),
            )
            for n in range(first, first + count)
        ],
    )


@pytest.fixture
def hourly(make_pipeline: MakePipeline, kafka_broker: KafkaBroker, spark: SparkSession) -> tuple[Pipeline, str]:
    """A pipeline that has landed a topic in three batches, and the topic."""
    topic = kafka_broker.create_topic(f"landed-{uuid.uuid4()}", 2)
    pipeline = make_pipeline(layout=Layout(topics_dir="raw", format=GZIP, partitioner=Hourly()), name="raw")
    for batch in range(3):
        produce(kafka_broker, topic, batch * 40, 40)
        pipeline.land(spark, topic, run=f"batch {batch}")
    return pipeline, topic


def over(make_pipeline: MakePipeline, source: Pipeline, name: str, **layout: Any) -> Pipeline:
    """A pipeline that reads another one."""
    return make_pipeline(
        layout=Layout(topics_dir=name, format=GZIP, partitioner=Daily(), **layout),
        bucket=source.bucket,
        name=name,
        reads=Landed(pipeline="raw", topics_dir="raw"),
    )


@pytest.mark.newest_spark
@pytest.mark.parametrize("merge", [False, True])
def test_hours_become_days_with_the_same_bytes_as_without_spark(
    make_pipeline: MakePipeline, hourly: tuple[Pipeline, str], spark: SparkSession, *, merge: bool
) -> None:
    """An object for each day, and for each Kafka partition unless they share it; all records are there once."""
    raw, topic = hourly
    rotation = Rotation(merge_partitions=merge)
    by_spark, here = (over(make_pipeline, raw, name, rotation=rotation) for name in ("spark", "here"))
    by_spark.land(spark, topic)
    here.land_here(topic)
    rows = sorted(
        json.loads(line)["n"] for key in by_spark.data_keys("spark/") for line in by_spark.body(key).splitlines()
    )
    assert rows == [*range(120)]
    of_spark = {key.removeprefix("spark/"): body for key, body in by_spark.bodies("spark/").items()}
    assert of_spark == {key.removeprefix("here/"): body for key, body in here.bodies("here/").items()}
    assert len(of_spark) == 3 * (1 if merge else 2)


@pytest.mark.newest_spark
def test_a_task_reads_whole_batches_and_later_runs_read_the_rest(
    make_pipeline: MakePipeline, hourly: tuple[Pipeline, str], kafka_broker: KafkaBroker, spark: SparkSession
) -> None:
    """However small slices may be; a run behind more batches of the source lands these alone."""
    raw, topic = hourly
    daily = over(make_pipeline, raw, "daily")
    daily.settings = {"limits": Limits(records_per_slice=1)}
    daily.land(spark, topic, run="first")
    plan = daily.log(topic).require_plan(1)[0]
    assert len(plan.slices) == 6
    produce(kafka_broker, topic, 120, 10)
    raw.land(spark, topic, run="more")
    daily.land(spark, topic, run="second")
    rows = sorted(json.loads(line)["n"] for key in daily.data_keys("daily/") for line in daily.body(key).splitlines())
    assert rows == [*range(130)]
