"""Events of OpenLineage that a real Airflow sends over HTTP, by the real provider, of tasks that have really run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client.naming import dataset as naming

from airflow_provider_kafka_s3.tables.iceberg.catalog import open_catalog
from dev.airflow_connections import connection_variables
from dev.airflow_home import AirflowHome
from dev.iceberg_catalog import IcebergCatalog
from dev.kafka_broker import Message
from tests.airflow.conftest import BUCKET, SECRET_KEY, Worker
from tests.conftest import PASSWORD
from tests.lineage_events import lineage_server

if TYPE_CHECKING:
    from dev.kafka_broker import KafkaBroker

DAG = Path(__file__).with_name("lineage_dag.py")
TOPIC = "traced"
SECONDS = 60
"""Airflow's process is slow to send on a busy machine; the provider's own limit is ten."""


@pytest.fixture(scope="module")
def traced(
    airflow_home: AirflowHome, kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, dict[str, Any]], str, str]]:
    """The last event of each task of the DAG, the address of the catalog, and the location of the table in it."""
    folder, dags = tmp_path_factory.mktemp("airflow-lineage"), tmp_path_factory.mktemp("lineage-dags")
    shutil.copy(airflow_home.folder / "airflow.db", folder)
    shutil.copy(DAG, dags)
    kafka_broker.create_topic(TOPIC, 2)
    kafka_broker.create_topic(f"{TOPIC}-again", 2)
    kafka_broker.produce(TOPIC, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(5)])
    with IcebergCatalog() as catalog, lineage_server() as (url, events):
        environment = {
            **airflow_home.connections,
            **connection_variables({"iceberg_default": {"conn_type": "iceberg", "host": catalog.url}}),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "http", "url": url}),
            "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": str(SECONDS),
            "LINEAGE_BUCKET": BUCKET,
            "LINEAGE_TOPIC": TOPIC,
        }
        opened = open_catalog("tests", {"uri": catalog.url})
        opened.create_namespace("lake")
        with Worker(AirflowHome(folder, dags, environment=environment)) as worker:
            run = worker.run_dag(dags, "lineage")
        assert run.succeeded, run.output
        of_tasks = {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}
        yield of_tasks, catalog.url, opened.load_table(f"lake.{TOPIC}").location()


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Namespaces and names."""
    return [(each["namespace"], each["name"]) for each in datasets]


@pytest.mark.newest_spark
def test_lineage_leads_from_a_topic_through_its_prefix_to_a_table_and_a_topic(
    traced: tuple[dict[str, dict[str, Any]], str, str], kafka_broker: KafkaBroker
) -> None:
    """What a task reads has the name under which another one wrote it."""
    events, catalog, location = traced
    land, add, replay = (events[f"lineage.{task}"] for task in ("land", "add", "replay"))
    host, port = kafka_broker.sasl_bootstrap_servers.split(":")
    cluster = naming.Kafka(host, port, TOPIC).get_namespace()
    assert names(land["inputs"]) == [(cluster, TOPIC)]
    assert (
        names(land["outputs"])
        == names(add["inputs"])
        == names(replay["inputs"])
        == [(f"s3://{BUCKET}", f"topics/{TOPIC}")]
    )
    assert names(add["outputs"]) == [("file", location.removeprefix("file://"))]
    assert add["outputs"][0]["facets"]["symlinks"]["identifiers"] == [
        {"namespace": catalog, "name": f"lake.{TOPIC}", "type": "TABLE"}
    ]
    assert names(replay["outputs"]) == [(cluster, f"{TOPIC}-again")]


@pytest.mark.newest_spark
def test_events_have_fields_offsets_and_counts(traced: tuple[dict[str, dict[str, Any]], str, str]) -> None:
    """Read from the bucket by the process that the provider forks; those of the table have the types of the objects."""
    events, _, _ = traced
    land, add, replay = (events[f"lineage.{task}"] for task in ("land", "add", "replay"))
    assert land["inputs"][0]["inputFacets"]["kafkaS3_offsets"]["offsets"] == {"0": [[0, 3]], "1": [[0, 2]]}
    assert land["run"]["facets"]["kafkaS3_landing"]["records"] == 5
    schemas = [
        dataset["facets"]["schema"]["fields"]
        for dataset in (land["outputs"][0], add["inputs"][0], add["outputs"][0], replay["inputs"][0])
    ]
    types = {field["name"]: field["type"] for field in schemas[0]}
    assert types["value"] == "binary"
    assert (types["offset"], types["timestamp"], types["headers"]) == ("long", "timestamp", "array")
    assert schemas == [schemas[0]] * 4
    for event in (land, add, replay):
        assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 5


@pytest.mark.newest_spark
def test_no_secret_is_in_an_event(traced: tuple[dict[str, dict[str, Any]], str, str]) -> None:
    """Neither a password nor a key."""
    text = json.dumps(traced[0])
    assert not [secret for secret in (PASSWORD, SECRET_KEY) if json.dumps(secret)[1:-1] in text]
