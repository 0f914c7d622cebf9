"""Spark reads exactly the committed records of a topic, by the Python data source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    ByField,
    Csv,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    Parquet,
    RawBytes,
)
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading import Snapshot, spark_frame
from dev.kafka_broker import KafkaBroker, Message
from tests.spark.pipeline import CREDENTIALS, MakePipeline, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

JSON = JsonConverter()


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    """A session that has the format."""
    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    spark.dataSource.register(KafkaS3DataSource)
    return spark


def options_of(pipeline: Pipeline, topic: str) -> dict[str, str]:
    """Options of the format."""
    return {
        "bucket": pipeline.bucket,
        "topic": topic,
        "pipeline": pipeline.name,
        "endpoint_url": pipeline.endpoint,
        "region": "us-east-1",
        "addressing_style": "path",
    }


def produce(broker: KafkaBroker, topic: str, numbers: range) -> None:
    """Records with a number and a name that is a pattern to Spark's readers of files."""
    broker.produce(
        topic, [Message(json.dumps({"n": n, "name": f"{{{n % 2}}}[*]"}).encode(), partition=n % 2) for n in numbers]
    )


def numbers_of(frame: Any) -> list[int]:
    """The numbers of all rows."""
    return sorted(row.n for row in frame.collect())


def test_a_frame_has_the_committed_records_whatever_lands_between_two_actions(
    registered: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline
) -> None:
    """And none of a batch that is planned only; folders are not patterns."""
    topic = make_topic(2)
    produce(kafka_broker, topic, range(10))
    pipeline = make_pipeline(
        layout=Layout(format=JsonLines(compression="gzip"), value_converter=JSON, partitioner=ByField(names=("name",)))
    )
    pipeline.land_here(topic)
    lines = registered.read.format("kafka_s3").options(**options_of(pipeline, topic)).load()
    reader = registered.read.format("kafka_s3").options(**options_of(pipeline, topic))
    by_snapshot = registered.read.format("kafka_s3").options(
        **options_of(pipeline, topic), **{name: Snapshot(pipeline.log(topic)).options[name] for name in ("at", "since")}
    )
    fixed = by_snapshot.schema("n long").load()
    frame = reader.schema("n long, _kafka_partition int, _kafka_batch long").load()
    assert numbers_of(frame) == [*range(10)]
    produce(kafka_broker, topic, range(10, 20))
    assert isinstance(pipeline.topic_run(topic, "second").advance(), Plan)
    assert numbers_of(reader.schema("n long").load()) == [*range(10)]
    pipeline.land_here(topic, "second")
    assert numbers_of(frame) == [*range(10)]
    assert {(row["_kafka_partition"], row["_kafka_batch"]) for row in frame.collect()} == {(0, 1), (1, 1)}
    assert sorted(json.loads(row.value)["n"] for row in lines.collect()) == [*range(10)]
    assert numbers_of(fixed) == [*range(10)]
    latest = registered.read.format("kafka_s3").options(**options_of(pipeline, topic)).schema("n long")
    assert numbers_of(latest.load()) == [*range(20)]
    assert numbers_of(latest.option("since", "1").load()) == [*range(10, 20)]
    assert numbers_of(latest.option("since", "0").option("at", "1").load()) == [*range(10)]
    assert numbers_of(latest.option("at", "2").option("batches", "2").load()) == [*range(10, 20)]
    assert numbers_of(latest.option("batches", "").load()) == []


def test_complete_batches_that_are_named_are_read_also_behind_an_open_one(
    registered: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline
) -> None:
    """The open one is refused, with what completes it."""
    from pyspark.errors import PySparkException

    topic = make_topic(2)
    pipeline = make_pipeline(layout=Layout(format=JsonLines(), value_converter=JSON))
    pipeline.settings |= {"offsets": "data_interval", "starting": {0: 0, 1: 0}, "adopt_wait": 0}
    produce(kafka_broker, topic, range(6))

    def window(n: int) -> None:
        pipeline.settings["window"] = dict.fromkeys((0, 1), (n, n + 1))

    window(0)
    pipeline.land_here(topic, "first")
    window(1)
    assert isinstance(pipeline.topic_run(topic, "interrupted").advance(), Plan)
    window(2)
    assert [batch.batch for batch in pipeline.land_here(topic, "next").batches] == [3]
    reader = registered.read.format("kafka_s3").options(**options_of(pipeline, topic)).schema("n long")
    assert numbers_of(reader.load()) == [0, 1]
    assert numbers_of(reader.option("batches", "3").load()) == [4, 5]
    assert numbers_of(reader.option("batches", "3,1").load()) == [0, 1, 4, 5]
    with pytest.raises(PySparkException, match=r"no complete batches 2\. .*kafka-s3 recover"):
        reader.option("batches", "2,3").load().collect()


@pytest.mark.parametrize("record_format", [JsonLines(compression="gzip"), Parquet()], ids=["json", "parquet"])
def test_sparks_own_readers_get_exactly_the_committed_objects(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    record_format: Any,
) -> None:
    """Names with the characters of patterns, and objects of no batch beside them; folders are columns."""
    topic = make_topic(2)
    declared = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "n", "type": "long"}, {"name": "name", "type": "string"}],
    }
    converter = JsonConverter(schema=json.dumps(declared)) if isinstance(record_format, Parquet) else JSON
    layout = Layout(
        format=record_format,
        value_converter=converter,
        partitioner=ByField(names=("n",)),
        naming=Naming(file_delim="[x]{"),
    )
    produce(kafka_broker, topic, range(6))
    pipeline = make_pipeline(layout=layout)
    pipeline.land_here(topic)
    pipeline.save(tmp_path, in_flight=True)
    frame = spark_frame(spark, Snapshot(pipeline.log(topic)), root=str(tmp_path))
    assert sorted((row.n, row.name) for row in frame.collect()) == [(n, f"{{{n % 2}}}[*]") for n in range(6)]
    assert [row.name for row in frame.where("n = 3").collect()] == ["{1}[*]"]
    with pytest.raises(ConfigurationError, match="has no objects of this selection at batch 1"):
        spark_frame(spark, Snapshot(pipeline.log(topic)), root=str(tmp_path), partitions=[9])


def test_objects_of_other_settings_are_read_each_with_their_own(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """CSV with other separators and nulls, and JSON lines beside blocks of them, over time."""
    fields = [{"name": "n", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    typed = JsonConverter(schema=json.dumps({"type": "record", "name": "Row", "fields": fields}))
    for name, converter, formats in (
        ("csv", typed, (Csv(), Csv(separator=";", null="NULL"), Csv(separator="|", null="-", header=False))),
        ("json", JSON, (JsonLines(), BlockGzip(), JsonLines(compression="gzip"))),
    ):
        topic = make_topic(1)
        pipeline = make_pipeline(layout=Layout(format=JsonLines()))
        rows = [(2 * run + n, None if n else "a;b,c|NULL") for run in range(3) for n in range(2)]
        for run, record_format in enumerate(formats):
            pipeline.layout = Layout(format=record_format, value_converter=converter)
            values = [json.dumps({"n": n, "name": text}).encode() for n, text in rows[2 * run : 2 * run + 2]]
            kafka_broker.produce(topic, [Message(value, partition=0) for value in values])
            pipeline.land_here(topic, f"run-{run}")
        pipeline.save(tmp_path / name)
        snapshot = Snapshot(pipeline.log(topic))
        frame = spark_frame(spark, snapshot, root=str(tmp_path / name), schema="n long, name string")
        assert dict(frame.dtypes) == {"n": "bigint", "name": "string", "partition": "int"}
        assert sorted((row.n, row.name, row.partition) for row in frame.collect()) == [(*row, 0) for row in rows]
        if name == "csv":
            with pytest.raises(ConfigurationError, match=r"differ in _c0 string, .* n string.*Give a schema"):
                spark_frame(spark, snapshot, root=str(tmp_path / name))


@pytest.mark.parametrize(
    "record_format",
    [Parquet(), AvroContainer(), JsonLines(), Csv(null="NULL"), Csv(null="NULL", header=False)],
    ids=["parquet", "avro", "json", "csv", "csv-without-header"],
)
def test_spark_lands_and_reads_what_is_beside_the_declared_schema(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    record_format: Any,
) -> None:
    """As the last column; the manifest counts the records of all tasks, and the same plan has the same bytes here."""
    topic = make_topic(2)
    fields = [{"name": "n", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    schema = json.dumps({"type": "record", "name": "Row", "fields": fields})
    layout = Layout(format=record_format, value_converter=JsonConverter(schema=schema, unknown_fields="rescue"))
    values = [b'{"n": %d%s}' % (n, b', "vat": 1.10, "name": [%d]' % n if n % 3 == 0 else b"") for n in range(30)]
    kafka_broker.produce(topic, [Message(value, partition=n % 2) for n, value in enumerate(values)])
    pipeline, here = make_pipeline(layout=layout), make_pipeline(layout=layout)
    pipeline.land(spark, topic)
    here.land_here(topic)
    assert pipeline.bodies() == here.bodies()
    decision = pipeline.decision(topic)
    assert decision is not None
    assert decision.unknown_fields.records == 10
    assert sorted(decision.unknown_fields.names) == ["name", "vat"]
    pipeline.save(tmp_path)
    if isinstance(record_format, AvroContainer):
        return  # Spark needs a package for it
    columns = "n long, name string, _rescued string"
    frame = spark_frame(spark, Snapshot(pipeline.log(topic)), root=str(tmp_path), schema=columns)
    assert sorted((row.n, row.name, row._rescued) for row in frame.collect()) == [
        (n, None, f'{{"name":[{n}],"vat":1.10}}' if n % 3 == 0 else None) for n in range(30)
    ]


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        ((JsonLines(), RawBytes()), r"several of Spark's sources, json for \S+\.json, text for \S+\.bin\. Select"),
        ((BlockGzip(), BlockGzip(lines=RawBytes())), "several of Spark's sources, json for .*, text for "),
        ((RawBytes(separator="\x00"), RawBytes()), r"no source for \S+0000000000\.bin of topic .*, batch 1, with"),
    ],
    ids=["formats", "blocks", "separators"],
)
def test_objects_that_no_one_source_reads_are_refused(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    formats: Any,
    message: str,
) -> None:
    """With one object of each; batches of one source can be selected."""
    topic = make_topic(1)
    pipeline = make_pipeline(layout=Layout(format=JsonLines()))
    for run, record_format in enumerate(formats):
        pipeline.layout = Layout(format=record_format)
        kafka_broker.produce(topic, [Message(b"{}", partition=0)])
        pipeline.land_here(topic, f"run-{run}")
    with pytest.raises(ConfigurationError, match=message):
        spark_frame(spark, Snapshot(pipeline.log(topic)))


def test_a_frame_of_parquet_has_the_columns_of_all_schemas(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """A column that was added later is there, and one that became wider has the wider type."""
    topic = make_topic(2)
    name = {"name": "name", "type": "string"}
    pipeline = make_pipeline(layout=Layout(format=JsonLines()))
    for run, fields in enumerate(([{"name": "n", "type": "int"}], [{"name": "n", "type": "long"}, name])):
        produce(kafka_broker, topic, range(run * 4, run * 4 + 4))
        declared = json.dumps({"type": "record", "name": "Row", "fields": fields})
        pipeline.layout = Layout(format=Parquet(), value_converter=JsonConverter(schema=declared))
        pipeline.land_here(topic, f"run-{run}")
    pipeline.save(tmp_path)
    frame = spark_frame(spark, Snapshot(pipeline.log(topic)), root=str(tmp_path))
    assert dict(frame.dtypes) == {"n": "bigint", "name": "string", "partition": "int"}
    assert sorted((row.n, row.name) for row in frame.collect()) == [
        (n, None if n < 4 else f"{{{n % 2}}}[*]") for n in range(8)
    ]


@pytest.mark.parametrize("record_format", [RawBytes(), BlockGzip(lines=RawBytes())], ids=["bytes", "blocks"])
def test_a_frame_of_raw_bytes_keeps_carriage_returns(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    record_format: Any,
) -> None:
    """A value is one row, whatever it has before its separator."""
    topic = make_topic(1)
    sent = [b"one\rtwo", b"three\r", b"four"]
    kafka_broker.produce(topic, [Message(value, partition=0) for value in sent])
    pipeline = make_pipeline(layout=Layout(format=record_format))
    pipeline.land_here(topic, "run")
    pipeline.save(tmp_path)
    frame = spark_frame(spark, Snapshot(pipeline.log(topic)), root=str(tmp_path))
    assert sorted(row.value.encode() for row in frame.collect()) == sorted(sent)


@pytest.mark.parametrize("record_format", [BlockGzip(block_size=100), Parquet()], ids=["blocks", "parquet"])
def test_a_stream_has_each_landed_record_once(
    registered: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    record_format: Any,
) -> None:
    """Each run of it has what was landed since the one before."""
    topic = make_topic(2)
    declared = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}
    converter = JsonConverter(schema=json.dumps(declared)) if isinstance(record_format, Parquet) else JSON
    pipeline = make_pipeline(layout=Layout(format=record_format, value_converter=converter))
    stream = registered.readStream.format("kafka_s3").options(**options_of(pipeline, topic)).schema("n long").load()
    for run in range(3):
        produce(kafka_broker, topic, range(run * 10, run * 10 + 10))
        pipeline.land_here(topic, f"run-{run}")
        query = (
            stream.writeStream.format("json")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert numbers_of(registered.read.schema("n long").json(str(tmp_path / "out"))) == [*range(run * 10 + 10)]


def test_a_wrong_option_is_refused_when_the_frame_is_made(registered: SparkSession) -> None:
    """With the nearest known one; nothing is read."""
    from pyspark.errors import PySparkException

    for options, message in (
        ({"bucket": "b", "topic": "t"}, "needs the options pipeline"),
        ({"bucket": "b", "topic": "t", "pipeline": "p", "topic_dir": "x"}, "no option 'topic_dir'"),
        ({"bucket": "b", "topic": "t", "pipeline": "p", "at": "-1"}, "must be a whole number, 0 or more"),
    ):
        with pytest.raises(PySparkException, match=message):
            registered.read.format("kafka_s3").options(**options).load()


@pytest.mark.parametrize("name", ["at", "since", "batches", "partition_bytes"])
@pytest.mark.parametrize("given", ["7.9", "7.0", "true", "1e3", "-1", "", "x", "9" * 30])
def test_a_number_that_is_no_whole_number_is_refused(name: str, given: str) -> None:
    """And not cut to one: 7.9 would be batch 7."""
    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    value = f"3,{given or '-'}" if name == "batches" else given
    with pytest.raises(ConfigurationError, match=f"^{name}='.*' of the format kafka_s3 must be a whole number, 0"):
        KafkaS3DataSource({"bucket": "b", "topic": "t", "pipeline": "p", name: value})


def test_a_stream_with_an_end_is_refused(
    kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what is landed later as well, so it would ignore the end."""
    from pyspark.sql.types import StructType

    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS.secret_access_key)
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b"{}", partition=0)])
    pipeline = make_pipeline(layout=Layout(format=JsonLines()))
    pipeline.land_here(topic)
    for option in ({"at": "1"}, {"batches": "1"}):
        source = KafkaS3DataSource({**options_of(pipeline, topic), **option})
        with pytest.raises(ConfigurationError, match=f"has no option '{next(iter(option))}'; use 'since'"):
            source.streamReader(StructType())
