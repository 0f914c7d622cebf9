"""Spark Connect reads exactly the committed records of a topic, the same ones as a session with a JVM of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
)
from airflow_provider_kafka_s3.reading import Snapshot, spark_frame
from dev.kafka_broker import KafkaBroker, Message
from dev.spark_connect import SparkConnectServer
from tests.spark.pipeline import MakePipeline, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.newest_spark,
    pytest.mark.timeout(900),  # the first test starts a broker, a Spark and a server
]

DECLARED = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "n", "type": "long"}, {"name": "name", "type": "string"}],
}
DAY, HOUR = 86_400_000, 3_600_000
FORMATS = [JsonLines(compression="gzip"), BlockGzip(block_size=100), AvroContainer(), Parquet()]


@pytest.fixture(scope="module")
def remote(connect_server: SparkConnectServer) -> Iterator[SparkSession]:
    """A session of the server that has the format. Only one, since closing it ends threads that others share."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    session: Any = RemoteSession.builder.remote(connect_server.url).create()
    try:
        session.dataSource.register(KafkaS3DataSource)
        yield session
    finally:
        session.stop()


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    """A session with a JVM of its own that has the format."""
    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    spark.dataSource.register(KafkaS3DataSource)
    return spark


def layout_of(record_format: Format) -> Layout:
    """Folders of hours; values have a declared schema where the format needs one."""
    typed = isinstance(record_format, Parquet | AvroContainer)
    return Layout(
        format=record_format,
        value_converter=JsonConverter(schema=json.dumps(DECLARED)) if typed else JsonConverter(),
        partitioner=Hourly(),
    )


def options_of(pipeline: Pipeline, snapshot: Snapshot) -> dict[str, str]:
    """Options of the format for a snapshot."""
    return {
        **snapshot.options,
        "endpoint_url": pipeline.endpoint,
        "region": "us-east-1",
        "addressing_style": "path",
    }


def land(broker: KafkaBroker, pipeline: Pipeline, topic: str, numbers: range, run: str = "run") -> Snapshot:
    """Land numbers of two hours; returns the state after it."""
    broker.produce(
        topic,
        [
            Message(json.dumps({"n": n, "name": f"é{n}"}).encode(), partition=n % 2, timestamp=DAY + n % 2 * HOUR)
            for n in numbers
        ],
    )
    pipeline.land_here(topic, run)
    return Snapshot(pipeline.log(topic))


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    """All rows."""
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("record_format", FORMATS, ids=lambda one: type(one).__name__)
def test_both_sessions_read_the_same_records_and_places(
    remote: SparkSession,
    registered: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    record_format: Format,
) -> None:
    """By the format, with the fields of values and the place of each record in Kafka."""
    topic = make_topic(2)
    pipeline = make_pipeline(layout=layout_of(record_format))
    snapshot = land(kafka_broker, pipeline, topic, range(20))
    schema = "n long, name string, _kafka_topic string, _kafka_partition int, _kafka_offset long, _kafka_object string"

    def read(session: SparkSession) -> list[tuple[Any, ...]]:
        return rows_of(session.read.format("kafka_s3").options(**options_of(pipeline, snapshot)).schema(schema).load())

    found = read(remote)
    assert [row[:5] for row in found] == [(n, f"é{n}", topic, n % 2, n // 2) for n in range(20)]
    assert found == read(registered)


def test_lines_are_read_as_they_are_without_a_schema(
    remote: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline
) -> None:
    """Byte for byte."""
    topic = make_topic(2)
    pipeline = make_pipeline(layout=layout_of(JsonLines()))
    snapshot = land(kafka_broker, pipeline, topic, range(4))
    lines = remote.read.format("kafka_s3").options(**options_of(pipeline, snapshot)).load().select("value").collect()
    assert sorted(bytes(row.value) for row in lines) == sorted(pipeline.lines())


def test_actions_on_a_frame_with_the_options_of_a_snapshot_read_the_same_records(
    remote: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline
) -> None:
    """Although the server analyses the frame when the first action comes, after more was landed."""
    topic = make_topic(2)
    pipeline = make_pipeline(layout=layout_of(JsonLines()))
    first = land(kafka_broker, pipeline, topic, range(10), "first")

    def frame(snapshot: Snapshot) -> Any:
        return remote.read.format("kafka_s3").options(**options_of(pipeline, snapshot)).schema("n long").load()

    made_before = frame(first)
    both = land(kafka_broker, pipeline, topic, range(10, 20), "second")
    assert rows_of(made_before) == [(n,) for n in range(10)]
    assert made_before.count() == 10
    assert frame(both).count() == 20
    assert rows_of(frame(both.changes(first.batch))) == [(n,) for n in range(10, 20)]


@pytest.mark.parametrize("record_format", [JsonLines(compression="gzip"), Parquet()], ids=["json", "parquet"])
def test_sparks_own_readers_get_exactly_the_committed_objects(
    remote: SparkSession,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    record_format: Format,
) -> None:
    """With folders as columns, and objects of no batch beside them."""
    topic = make_topic(2)
    pipeline = make_pipeline(layout=layout_of(record_format))
    snapshot = land(kafka_broker, pipeline, topic, range(6))
    pipeline.save(tmp_path, in_flight=True)
    frame = spark_frame(remote, snapshot, root=str(tmp_path))
    assert [(row.n, row.name, row.hour) for row in sorted(frame.collect(), key=lambda row: row.n)] == [
        (n, f"é{n}", n % 2) for n in range(6)
    ]
    assert rows_of(frame) == rows_of(spark_frame(spark, snapshot, root=str(tmp_path)))


def test_a_stream_has_each_landed_record_once(
    remote: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
) -> None:
    """Each run of it has what was landed since the one before."""
    topic = make_topic(2)
    pipeline = make_pipeline(layout=layout_of(BlockGzip(block_size=100)))
    options = options_of(pipeline, land(kafka_broker, pipeline, topic, range(10), "run-0"))
    del options["at"]
    stream = remote.readStream.format("kafka_s3").options(**options).schema("n long").load()
    for run in range(1, 4):
        query = (
            stream.writeStream.format("json")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert rows_of(remote.read.schema("n long").json(str(tmp_path / "out"))) == [(n,) for n in range(run * 10)]
        land(kafka_broker, pipeline, topic, range(run * 10, run * 10 + 10), f"run-{run}")


def test_a_wrong_option_is_refused_with_its_name(remote: SparkSession) -> None:
    """By the server, when the frame is analysed."""
    from pyspark.errors import PySparkException

    options = {"bucket": "b", "topic": "t", "pipeline": "p", "topic_dir": "x"}
    with pytest.raises(PySparkException, match="no option 'topic_dir'; did you mean 'topics_dir'"):
        remote.read.format("kafka_s3").options(**options).load().collect()
