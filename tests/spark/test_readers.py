"""Landed objects, read by Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.config import JsonLines, Layout, Naming
from dev.kafka_broker import KafkaBroker, Message
from tests.spark.pipeline import MakePipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.mark.newest_spark
@pytest.mark.parametrize("beginning", ["_", "."])
def test_spark_reads_a_topic_that_begins_with_an_underscore_or_a_dot_only_with_a_prefix(
    spark: SparkSession, kafka_broker: KafkaBroker, make_pipeline: MakePipeline, tmp_path: Path, beginning: str
) -> None:
    """All records, from its own folder and from the one above; without the prefix it silently reads none."""
    topic = f"{beginning}hidden-{uuid.uuid4().hex}"
    kafka_broker.create_topic(topic, 1)
    kafka_broker.produce(topic, [Message(b'{"n": %d}' % n, partition=0) for n in range(5)])

    def read(prefix: str) -> list[list[int]]:
        pipeline = make_pipeline(layout=Layout(format=JsonLines(), naming=Naming(topic_prefix=prefix)))
        pipeline.land_here(topic)
        for key, body in pipeline.bodies().items():
            file = tmp_path / prefix / key
            file.parent.mkdir(parents=True)
            file.write_bytes(body)
        folders = [tmp_path / prefix / "topics" / f"{prefix}{topic}", tmp_path / prefix / "topics"]
        return [sorted(row.n for row in spark.read.schema("n long").json(str(f)).collect()) for f in folders]

    assert read("topic=") == [[0, 1, 2, 3, 4]] * 2
    assert read("") == [[], []]
