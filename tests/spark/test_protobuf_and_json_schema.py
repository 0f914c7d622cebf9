"""Protobuf and JSON values of a real schema registry, landed by Spark, and read by those that read such objects."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from airflow_provider_kafka_s3.config import AvroContainer, JsonLines, Layout, Parquet, parse_converter
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.testing.invariants import read_source
from dev.kafka_broker import KafkaBroker
from dev.s3_server import S3Server
from dev.schema_registry import SchemaRegistry
from tests.landed_rows import normal
from tests.spark.pipeline import Pipeline, land_together
from tests.spark.registry_values import RegistryValues, rows, send_documents, send_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SENDERS = {"protobuf": send_messages, "json_schema": send_documents}
FORMATS = {"json": JsonLines(), "avro": AvroContainer(codec="deflate"), "parquet": Parquet()}
CASES = list(itertools.product(SENDERS, FORMATS))

Landed = Mapping[tuple[str, str], tuple[Pipeline, RegistryValues]]


@pytest.fixture(scope="module")
def landed(
    spark: SparkSession,
    s3_server: S3Server,
    kafka_broker: KafkaBroker,
    registry: SchemaRegistry,
    login: RegistrySettings,
) -> Iterator[Landed]:
    """A pipeline and a topic of each converter and format, all landed by one job."""
    bucket = f"lake-{uuid.uuid4().hex}"

    def pipeline(converter: str, record_format: str) -> Pipeline:
        return Pipeline(
            kafka={"bootstrap.servers": kafka_broker.bootstrap_servers},
            endpoint=s3_server.endpoint,
            layout=Layout(
                format=FORMATS[record_format], value_converter=parse_converter(converter), errors="dead_letter"
            ),
            bucket=bucket,
            name=f"{converter}-{record_format}",
            registry=login,
        )

    cases = {case: (pipeline(*case), SENDERS[case[0]](kafka_broker, registry)) for case in CASES}
    land_together(spark, {each: sent.topic for each, sent in cases.values()})
    yield cases
    for each, _ in cases.values():
        each.close()


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_every_value_is_landed_once_or_set_aside(landed: Landed, case: tuple[str, str]) -> None:
    """Read by fastavro, pyarrow and json, and compared with Kafka; each dead letter has its reason."""
    pipeline, sent = landed[case]
    assert pipeline.check(sent.topic, decoder=rows, as_written=sent.decode).records == sent.count
    letters = pipeline.bodies(f"topics/{sent.topic}/_dead_letters/").values()
    found = [json.loads(line) for body in letters for line in body.splitlines()]
    reasons = {(letter["partition"], letter["offset"]): letter["reason"] for letter in found}
    assert set(reasons) == set(sent.bad)
    assert {place: words for place, words in sent.bad.items() if words not in reasons[place]} == {}, reasons


@pytest.mark.parametrize("converter", SENDERS)
def test_duckdb_reads_all_parquet_objects_of_a_topic(landed: Landed, converter: str, tmp_path: Path) -> None:
    """Messages of several types, too: a column that a message does not have is null."""
    pipeline, sent = landed[converter, "parquet"]
    for number, body in enumerate(pipeline.bodies(f"topics/{sent.topic}/partition=").values()):
        (tmp_path / f"{number}.parquet").write_bytes(body)
    with duckdb.connect() as database:
        read = database.sql(f"SELECT * FROM read_parquet('{tmp_path}/*.parquet', union_by_name = true)")
        found = [dict(zip(read.columns, row, strict=True)) for row in read.fetchall()]
    (records,) = read_source(pipeline.source, sent.topic).values()
    values = [v for p, by in records.items() for o, v in by.items() if v is not None and (p, o) not in sent.bad]
    expected = [json.loads(sent.decode(value)) for value in values]
    assert sorted(normal(_filled(row)) for row in found) == sorted(normal(_filled(row)) for row in expected)


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    """The columns that are not null."""
    return {name: value for name, value in row.items() if value is not None}
