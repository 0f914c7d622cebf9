"""Landed objects, read by Spark."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from airflow_provider_kafka_s3.config import AvroContainer, BlockGzip, Csv, JsonConverter, JsonLines, Layout, Naming
from airflow_provider_kafka_s3.reading import Snapshot, spark_frame
from airflow_provider_kafka_s3.reading.seek import seek
from dev.kafka_broker import KafkaBroker, Message
from tests.documentation import ROOT, snippets
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
        pipeline.save(tmp_path / prefix)
        folders = [tmp_path / prefix / "topics" / f"{prefix}{topic}", tmp_path / prefix / "topics"]
        return [sorted(row.n for row in spark.read.schema("n long").json(str(f)).collect()) for f in folders]

    assert read("topic=") == [[0, 1, 2, 3, 4]] * 2
    assert read("") == [[], []]


CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "balance", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "since", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NOTES = ("plain", "", None, 'say "no"', '"', "1\n2", "1\r\n2", "\r", "a,b", " é\t☃ ", "\\", 'x\\"y', "NULL", "#")


@pytest.mark.newest_spark
def test_duckdb_and_spark_read_csv_with_the_documented_options(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """Quotes, line breaks, empty texts and nulls in compressed CSV, which Spark has landed."""
    topic = make_topic(2)
    rows = [
        (n, note, Decimal(n * 25 - 100).scaleb(-2), dt.datetime(2026, 1, 2, 3, n, tzinfo=dt.UTC))
        for n, note in enumerate(NOTES)
    ]
    values = [
        {"id": n, "note": note, "balance": str(balance), "since": since.isoformat()} for n, note, balance, since in rows
    ]
    kafka_broker.produce(topic, [Message(json.dumps(v).encode(), partition=n % 2) for n, v in enumerate(values)])
    converter = JsonConverter(schema=json.dumps(CUSTOMER), decimal_format="NUMERIC")
    pipeline = make_pipeline(layout=Layout(format=Csv(null="\\N", compression="gzip"), value_converter=converter))
    pipeline.land(spark, topic)
    pipeline.save(tmp_path)
    (tmp_path / "topics" / topic).rename(tmp_path / "topics" / "customers")

    section = tmp_path / "section.md"
    section.write_text((ROOT / "docs" / "reading.md").read_text().split("\n## CSV\n")[1].split("\n## ")[0])
    (view,), (options,) = (snippets(section, language) for language in ("sql", "python"))
    with duckdb.connect() as database:
        database.execute(view.replace("s3://lake/", f"{tmp_path}/"))
        by_duckdb = database.sql("SELECT id, note, balance, epoch_ms(since) FROM customers ORDER BY id").fetchall()
    namespace: dict[str, Any] = {}
    exec(options.replace("s3a://lake/", f"{tmp_path}/"), namespace)
    frame = namespace["customers"].selectExpr("id", "note", "balance", "unix_millis(since)").orderBy("id")
    expected = [(n, note, balance, round(since.timestamp() * 1000)) for n, note, balance, since in rows]
    assert by_duckdb == expected
    assert [tuple(row) for row in frame.collect()] == expected


@pytest.mark.newest_spark
def test_java_spark_and_a_reader_of_the_index_read_objects_of_blocks(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """Java reads each object as one gzip file; Spark a folder by the documented option; one range is one block."""
    topic, count = make_topic(2), 200
    kafka_broker.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(count)])
    pipeline = make_pipeline(layout=Layout(format=BlockGzip(block_size=300)))
    pipeline.land(spark, topic)
    assert pipeline.check(topic).records == count
    bodies = pipeline.bodies()
    pipeline.save(tmp_path)

    java = spark._jvm.java
    by_java: list[int] = []
    for path in sorted(tmp_path.rglob("*.gz")):
        stream = java.util.zip.GZIPInputStream(java.io.FileInputStream(str(path)))
        by_java += [json.loads(line)["n"] for line in bytes(stream.readAllBytes()).splitlines()]
        stream.close()
    assert by_java == [*range(0, count, 2), *range(1, count, 2)]

    frame = spark.read.schema("n long").option("pathGlobFilter", "*.gz").json(f"{tmp_path}/topics/{topic}/")
    assert sorted(row.n for row in frame.collect()) == list(range(count))

    by_index: list[int] = []
    for key in sorted(key for key in bodies if key.endswith(".index.json")):
        chunks = json.loads(bodies[key])["chunks"]
        assert len(chunks) == 4
        for chunk in chunks:
            begin = chunk["byte_offset"]
            block = pipeline.store.get(
                key.replace(".index.json", ".json.gz"), start=begin, end=begin + chunk["byte_length"]
            )
            assert block is not None
            values = [json.loads(line)["n"] for line in gzip.decompress(block.body).splitlines()]
            offsets = range(chunk["first_record_offset"], chunk["next_record_offset"])
            assert [n // 2 for n in values] == [*offsets]
            by_index += values
    assert by_index == by_java
    for n in (0, 123, 199):
        (record,) = seek(pipeline.log(topic), n % 2, n // 2)
        assert record.raw == b'{"n": %d}' % n


def test_spark_avro_reads_exactly_the_committed_objects(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: Any, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """Logical types included; a file that is in flight, and columns of folders, as for the other formats."""
    topic = make_topic(2)
    pipeline = make_pipeline(
        layout=Layout(format=AvroContainer(codec="snappy"), value_converter=JsonConverter(schema=json.dumps(CUSTOMER)))
    )
    rows = [{"id": n, "note": note, "balance": n, "since": 1_700_000_000_000 + n} for n, note in enumerate(NOTES)]
    kafka_broker.produce(topic, [Message(json.dumps(row).encode(), partition=row["id"] % 2) for row in rows])
    pipeline.land_here(topic)
    pipeline.save(tmp_path, in_flight=True)
    frame = spark_frame(spark, Snapshot(pipeline.log(topic)), root=str(tmp_path))
    assert dict(frame.dtypes) == {
        "id": "bigint",
        "note": "string",
        "balance": "decimal(9,2)",
        "since": "timestamp",
        "partition": "int",
    }
    found = sorted((row.id, row.note, row.balance, row.since.timestamp(), row.partition) for row in frame.collect())
    assert found == [(n, note, Decimal(n), 1_700_000_000 + n / 1000, n % 2) for n, note in enumerate(NOTES)]
