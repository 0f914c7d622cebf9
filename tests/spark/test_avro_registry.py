"""Avro values of a real schema registry, landed by Spark, and read by those that read such objects."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.config import AvroContainer, AvroConverter, JsonLines, Layout, Limits, Parquet, Rotation
from airflow_provider_kafka_s3.documents.pinned_schema import decode_pinned_schema
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import RetryPolicy
from dev.kafka_broker import KafkaBroker
from dev.s3_server import S3Server
from dev.schema_registry import SchemaRegistry
from tests.spark.avro_orders import BAD, COUNT, SUBJECT, V1, V2, Orders, normal, order, rows, send_orders
from tests.spark.conftest import REGISTRY_PASSWORD
from tests.spark.pipeline import MakePipeline, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

BATCH_SIZE = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(scope="module")
def orders(registry: SchemaRegistry, kafka_broker: KafkaBroker) -> Orders:
    """A topic of both schemas."""
    return send_orders(kafka_broker, registry)


def layout(record_format: Any, **more: Any) -> Layout:
    """Of Avro values; those that cannot be decoded are set aside."""
    return Layout(format=record_format, value_converter=AvroConverter(), errors="dead_letter", **more)


@pytest.fixture(
    scope="module", params=[AvroContainer(), Parquet(), JsonLines()], ids=lambda given: type(given).__name__
)
def landed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    s3_server: S3Server,
    kafka_broker: KafkaBroker,
    orders: Orders,
    login: RegistrySettings,
) -> Iterator[Pipeline]:
    """A pipeline of each format that Spark has landed."""
    pipeline = Pipeline(
        kafka={"bootstrap.servers": kafka_broker.bootstrap_servers},
        endpoint=s3_server.endpoint,
        layout=layout(request.param),
        settings={"limits": Limits(records_per_slice=20)},
        registry=login,
    )
    (result,) = pipeline.land(spark, orders.topic)
    (batch,) = result.batches
    assert (batch.records, batch.dead_letters) == (COUNT - len(BAD), len(BAD))
    yield pipeline
    pipeline.close()


def dead_letters(pipeline: Pipeline) -> list[dict[str, Any]]:
    """In the order of their records' numbers."""
    bodies = [body for key, body in pipeline.bodies().items() if "/_dead_letters/" in key]
    found = [json.loads(line) for body in bodies for line in body.splitlines()]
    return sorted(found, key=lambda letter: int(base64.b64decode(letter["key"])))


@pytest.mark.newest_spark
def test_every_value_is_landed_once_or_set_aside(landed: Pipeline, orders: Orders) -> None:
    """Read back by fastavro, pyarrow and json, and compared with Kafka; each dead letter has its reason."""
    assert landed.check(orders.topic, decoder=rows, as_written=orders.decode).records == COUNT
    letters = dead_letters(landed)
    assert [base64.b64decode(letter["key"]) for letter in letters] == [b"%d" % number for number in BAD]
    assert all(words in letter["reason"] for words, letter in zip(BAD.values(), letters, strict=True)), letters
    assert {json.dumps(letter["headers"]) for letter in letters} == {'[{"key": "n", "value": null}]'}


def test_schemas_are_pinned_beside_the_batches(landed: Pipeline, orders: Orders) -> None:
    """Those of the records that were decoded, with the version of their subject, and no other."""
    prefix = f"topics/_kafka_s3/{landed.name}/{orders.topic}/schemas/"
    stored = {info.key: landed.store.get(info.key) for info in landed.store.list(prefix)}
    assert set(stored) == {f"{prefix}{schema_id}.json" for schema_id in orders.ids}
    for version, schema_id, schema in zip((1, 2), orders.ids, (V1, V2), strict=True):
        document = stored[f"{prefix}{schema_id}.json"]
        assert document is not None
        pinned = decode_pinned_schema(document.body, schema_id, prefix)
        assert (json.loads(pinned.text), pinned.versions) == (schema, {SUBJECT: version})


def test_another_run_writes_the_same_bytes_to_another_bucket(
    landed: Pipeline, orders: Orders, spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    """By Spark with other boundaries of its batches, and by a driver without Spark."""
    settings = {"layout": landed.layout, "settings": landed.settings, "registry": landed.registry}
    again, by_driver = make_pipeline(**settings), make_pipeline(**settings)
    usual = spark.conf.get(BATCH_SIZE)
    spark.conf.set(BATCH_SIZE, "3")
    again.land(spark, orders.topic)
    spark.conf.set(BATCH_SIZE, usual)
    by_driver.land_here(orders.topic)
    assert again.bodies() == landed.bodies()
    assert by_driver.bodies() == landed.bodies()


@pytest.mark.newest_spark
@pytest.mark.parametrize("landed", [Parquet()], ids=["Parquet"], indirect=True)
def test_duckdb_and_spark_read_a_topic_of_parquet(
    landed: Pipeline, spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    """Both schemas together, with null in the columns that the first one lacks; dead letters are skipped."""
    landed.save(tmp_path)
    folder = tmp_path / "topics" / orders.topic
    expected = sorted(normal(order(n)) for n in range(COUNT) if n not in BAD)

    frame = spark.read.option("mergeSchema", "true").parquet(str(folder))
    by_spark = [row.asDict(recursive=True) for row in frame.withColumn("at", _milliseconds()).collect()]
    with duckdb.connect() as database:
        files = f"read_parquet('{folder}/partition=*/*', union_by_name = true)"
        read = database.sql(f'SELECT * REPLACE (epoch_ms("at") AS "at") FROM {files}')
        by_duckdb = [dict(zip(read.columns, row, strict=True)) for row in read.fetchall()]
    assert sorted(normal(_as_written(row)) for row in by_spark) == expected
    assert sorted(normal(_as_written(row)) for row in by_duckdb) == expected


def _as_written(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the column of the folder, and without those that its own schema lacks."""
    added = {name for name in ("tags", "counts") if row[name] is None}
    return {name: value for name, value in row.items() if name not in {*added, "partition"}}


def _milliseconds() -> Any:
    from pyspark.sql.functions import expr

    return expr("unix_millis(at)")


def test_older_values_are_projected_and_newer_ones_begin_objects(
    orders: Orders, login: RegistrySettings, spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    """With BACKWARD, by the versions of the registry; an object that was deleted is written again with its bytes."""
    backward = layout(Parquet(), schema_compatibility="BACKWARD", rotation=Rotation(flush_size=10))
    pipeline = make_pipeline(layout=backward, registry=login)
    pipeline.land(spark, orders.topic)
    objects = {key: body for key, body in pipeline.bodies().items() if "/_dead_letters/" not in key}
    columns = [[field["name"] for field in schema["fields"]] for schema in (V1, V2)]
    counts: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    found = []
    for entry in sorted(pipeline.objects(orders.topic), key=lambda entry: entry.min_offset):
        if entry.key in objects:
            version = 1 + columns.index(pq.read_schema(io.BytesIO(objects[entry.key])).names)
            numbers = [json.loads(row)["id"] for row in rows(entry.key, objects[entry.key])]
            counts[numbers[0] // 2 % 2].append((len(numbers), version))
            added = {"tags": [], "counts": {}} if version == 2 else {}
            assert rows(entry.key, objects[entry.key]) == [normal(added | order(number)) for number in numbers]
            found += numbers
    assert sorted(found) == [number for number in range(COUNT) if number not in BAD]
    # An object that begins with the older version ends at the next record. Dead letters change turns in partition 0.
    assert counts == {0: [(1, 1), (10, 2), (1, 1), (10, 2), (1, 1), (5, 2)], 1: [(1, 1), (10, 2), (10, 2), (9, 2)]}

    for key in objects:
        pipeline.client.delete_object(Bucket=pipeline.bucket, Key=key)
    pipeline.settings = {"action": "restore"}
    pipeline.topic_run(orders.topic, "again").advance()
    assert {key: body for key, body in pipeline.bodies().items() if "/_dead_letters/" not in key} == objects


def test_a_registry_that_does_not_answer_decides_nothing(
    orders: Orders, login: RegistrySettings, registry: SchemaRegistry, spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    """The error is one to try again after, and nothing is left behind; then the same plan is landed."""
    pipeline = make_pipeline(layout=layout(Parquet()), registry=msgspec.structs.replace(login, timeout=0.3))
    plan = pipeline.plan(orders.topic, "run")
    once = RetryPolicy(max_retries=0)
    with registry.paused():
        (outcome,) = pipeline.job(pipeline.spec({orders.topic: plan}, "run", "unused", retry=once), spark).topics
        # Still paused: a task that Spark has not ended yet could begin uploads.
        assert list(pipeline.store.pending_uploads("")) == []
    assert outcome.kind == "spark_job"
    assert "no usable answer of the schema registry" in str(outcome.message)
    assert REGISTRY_PASSWORD not in str(outcome.message)
    assert (pipeline.decision(orders.topic), pipeline.data_keys()) == (None, [])

    pipeline.registry = login
    (result,) = pipeline.land(spark, orders.topic)
    assert result.batches[0].records == COUNT - len(BAD)


def test_a_wrong_password_of_the_registry_is_terminal(
    orders: Orders, login: RegistrySettings, spark: SparkSession, make_pipeline: MakePipeline
) -> None:
    """No record becomes a dead letter because of it; the message names the cause and not the password."""
    wrong = msgspec.structs.replace(login, password="canary-wrong")
    pipeline = make_pipeline(layout=layout(AvroContainer()), registry=wrong)
    plan = pipeline.plan(orders.topic, "run")
    (outcome,) = pipeline.job(pipeline.spec({orders.topic: plan}, "run", "unused"), spark).topics
    assert outcome.kind == "access_denied"
    assert "status 401; check the credentials" in str(outcome.message)
    assert "canary" not in str(outcome.message)
    assert (pipeline.decision(orders.topic), pipeline.data_keys()) == (None, [])
