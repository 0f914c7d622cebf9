"""Landed objects, read by Spark."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from airflow_provider_kafka_s3.config import Csv, JsonConverter, JsonLines, Layout, Naming
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
        for key, body in pipeline.bodies().items():
            file = tmp_path / prefix / key
            file.parent.mkdir(parents=True)
            file.write_bytes(body)
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
    for key, body in pipeline.bodies().items():
        file = tmp_path / key.replace(topic, "customers")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)

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
