"""OpenLineage events of tasks, received over HTTP from the real provider and its client.

They run where the provider is installed: with the newest Spark, see ``conftest.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowFailException,
    Asset,
)
from airflow.providers.openlineage.extractors.manager import ExtractorManager  # noqa: TID253 - likewise
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter  # noqa: TID253 - likewise
from airflow.utils.state import TaskInstanceState  # noqa: TID253 - likewise
from openlineage.client import OpenLineageClient
from openlineage.client.naming import dataset as naming

from airflow_provider_kafka_s3 import S3ToKafkaOperator
from airflow_provider_kafka_s3.airflow import lineage
from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.config import DeviantArtNaming, JsonConverter, Parquet
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import TransientError
from airflow_provider_kafka_s3.replay import run as replay_run
from airflow_provider_kafka_s3.replay.run import Replayed
from tests.lineage_events import lineage_server
from tests.unit.operators.conftest import CANARY

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "at", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "null"]},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {
                            "name": "price",
                            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
                        },
                    ],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
ORDERS = [{"n": 1, "at": 0, "lines": [], "tags": {"a": 1}, "vat": 3}, {"n": 2, "at": None, "lines": [], "tags": {}}]


class Events:
    """Sends the lineage of ended tasks, as the provider's listener does.

    Attributes:
        received: what the server has received.
    """

    def __init__(self, url: str, received: list[dict[str, Any]]) -> None:
        self.received = received
        self._adapter = OpenLineageAdapter(OpenLineageClient(config={"transport": {"type": "http", "url": url}}))

    def of(self, task: Any, state: Any = TaskInstanceState.SUCCESS) -> dict[str, Any]:
        """The event of a task."""
        ti = SimpleNamespace(task=task)
        extracted = ExtractorManager().extract_metadata(SimpleNamespace(run_id="run"), task, state, ti)
        common = {"run_id": str(uuid.uuid4()), "job_name": "dag.land", "end_time": "2026-01-01T00:00:00+00:00"}
        more = dict.fromkeys(("nominal_start_time", "nominal_end_time", "owners", "tags", "job_description"))
        self._adapter.complete_task(**common, task=extracted, **more)  # type: ignore[arg-type]
        return self.received[-1]


@pytest.fixture
def events() -> Iterator[Events]:
    """See the class."""
    with lineage_server() as (url, received):
        yield Events(url, received)


def named(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Namespaces and names."""
    return [(each["namespace"], each["name"]) for each in datasets]


def of(naming_class: Any) -> tuple[str, str]:
    """The name by the client's own rule."""
    return naming_class.get_namespace(), naming_class.get_name()


def test_lineage_leads_from_topics_to_prefixes(topics: Bench, events: Events) -> None:
    """By the names of OpenLineage's rules, with counts per topic and of the run; of the connections only the broker."""
    task = topics.task(topics="orders,clicks")
    topics.run(task)
    event = events.of(task)
    assert named(event["inputs"]) == [of(naming.Kafka("broker", "9092", topic)) for topic in ("orders", "clicks")]
    assert named(event["outputs"]) == [of(naming.S3("lake", f"topics/{topic}")) for topic in ("orders", "clicks")]
    counts = event["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (counts["rowCount"], counts["fileCount"], counts["size"] > 0) == (2, 1, True)
    facet = event["run"]["facets"]["kafkaS3_landing"]
    assert (facet["records"], facet["objects"], facet["status"]) == (3, 2, "ok")
    assert CANARY not in json.dumps(event)


def test_a_pipeline_over_another_one_has_its_prefix_as_input(topics: Bench, events: Events) -> None:
    """And no topic of Kafka."""
    topics.run(topics.task(topics="orders"))
    source = {"pipeline": "orders-to-lake", "topics_dir": "topics"}
    task = topics.task(topics="orders", pipeline="compacted", topics_dir="compacted", source=source)
    topics.run(task, run_id="manual__2")
    event = events.of(task)
    assert named(event["inputs"]) == [("s3://lake", "topics/orders")]
    assert named(event["outputs"]) == [("s3://lake", "compacted/orders")]


def test_the_name_of_a_prefix_is_that_of_its_asset(topics: Bench, events: Events) -> None:
    """A consumer that has the asset as inlet is linked to the landing task."""
    from airflow.providers.common.compat.openlineage.utils.utils import translate_airflow_asset

    task = topics.task()
    topics.run(task)
    (output,) = events.of(task)["outputs"]
    asset = translate_airflow_asset(Asset("s3://lake/topics/orders"), None)
    assert asset is not None
    assert (output["namespace"], output["name"]) == (asset.namespace, asset.name)


def test_an_input_has_the_offsets_that_the_run_landed(topics: Bench, events: Events) -> None:
    """Another run, which finds nothing new, has none: of all runs, one has an offset."""
    task = topics.task()
    topics.run(task)
    assert events.of(task)["inputs"][0]["inputFacets"]["kafkaS3_offsets"]["offsets"] == {"0": [[0, 2]]}
    again = topics.task()
    topics.run(again, run_id="manual__2")
    assert events.of(again)["inputs"][0]["inputFacets"]["kafkaS3_offsets"]["offsets"] == {}


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_an_output_has_the_fields_of_its_objects(bench: Bench, events: Events, kind: str) -> None:
    """Of the files or of the declared schema, with the types of Spark's events; and what records have beside them."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", ORDERS)
    task = bench.task(format=kind, value_converter=JsonConverter(schema=json.dumps(ORDER)))
    bench.run(task)
    event = events.of(task)
    is_json = kind == "json"
    price = {"name": "price", "type": "string" if is_json else "decimal(10,2)"}
    assert without_empty(event["outputs"][0]["facets"]["schema"]["fields"]) == [
        {"name": "n", "type": "long"},
        {"name": "at", "type": "long" if is_json else "timestamp"},
        {
            "name": "lines",
            "type": "array",
            "fields": [{"name": "_element", "type": "struct", "fields": [price]}],
        },
        {
            "name": "tags",
            "type": "map",
            "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "integer"}],
        },
    ]
    unknown = {"records": 1, "landed": 1, "names": ["vat"]}
    assert event["run"]["facets"]["kafkaS3_landing"]["unknown_fields"] == unknown


def without_empty(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields without lists of no fields."""
    return [
        {name: without_empty(each) if name == "fields" else each for name, each in field.items() if each}
        for field in fields
    ]


def test_documents_of_any_shape_have_no_fields(topics: Bench, events: Events) -> None:
    """No facet says that there are none."""
    task = topics.task()
    topics.run(task)
    assert "schema" not in events.of(task)["outputs"][0].get("facets", {})


def test_topics_in_one_prefix_are_one_dataset(topics: Bench, events: Events) -> None:
    """With the counts of both, and the fields of neither."""
    task = topics.task(topics="orders,clicks", naming=DeviantArtNaming(), topics_dir="lake")
    topics.run(task)
    (output,) = events.of(task)["outputs"]
    assert (output["name"], output["outputFacets"]["outputStatistics"]["rowCount"]) == ("lake", 3)


def test_a_failed_run_has_no_counts(topics: Bench, events: Events) -> None:
    """It has inputs and outputs all the same."""
    task = topics.task()
    topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(task)
    event = events.of(task, TaskInstanceState.FAILED)
    assert (named(event["inputs"]), named(event["outputs"])) == (
        [("kafka://broker:9092", "orders")],
        [("s3://lake", "topics/orders")],
    )
    assert "kafkaS3_landing" not in event["run"]["facets"]


def test_a_task_that_has_not_begun_has_no_lineage(topics: Bench) -> None:
    """Its connections are not known."""
    assert topics.task().get_openlineage_facets_on_complete(None) is None


def test_a_bucket_that_does_not_answer_leaves_out_the_fields(
    bench: Bench, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is known without it."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", ORDERS)
    task = bench.task(format=Parquet(), value_converter=JsonConverter(schema=json.dumps(ORDER)))
    bench.run(task)

    def get(*_: object, **__: object) -> None:
        raise TransientError("no answer")

    monkeypatch.setattr(bench.store, "get", get)
    (output,) = events.of(task)["outputs"]
    assert (output["outputFacets"]["outputStatistics"]["rowCount"], output.get("facets", {})) == (2, {})


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("b1:9092,b2:9092", "kafka://b1:9092"),
        (" SASL_SSL://b1:9093 , b2:9092", "kafka://b1:9093"),
        ("b1", "kafka://b1:9092"),
        ("[::1]:9094", "kafka://[::1]:9094"),
        ("[::1]", "kafka://[::1]:9092"),
    ],
)
def test_a_cluster_is_named_by_its_first_broker(servers: str, namespace: str) -> None:
    """With the port, and without the protocol, as the integration of Spark does."""
    assert lineage._kafka({"bootstrap.servers": servers}) == namespace


@pytest.mark.parametrize(
    ("setting", "identifier"),
    [
        ({"kind": "hive", "table": "lake.{topic}"}, of(naming.Hive("metastore", "9083", "lake", "orders"))),
        (
            {"kind": "glue", "table": "lake.{topic}", "region": "eu-central-1", "catalog_id": "998877665544"},
            of(naming.AWSGlue("eu-central-1", "998877665544", "lake", "orders")),
        ),
    ],
)
def test_the_table_over_the_folders_is_the_same_dataset(
    topics: Bench,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    setting: dict[str, str],
    identifier: tuple[str, str],
) -> None:
    """By a symlink to its name in Hive or Glue."""
    monkeypatch.setenv("AIRFLOW_CONN_METASTORE_DEFAULT", "hive-metastore://metastore")
    monkeypatch.setattr("airflow_provider_kafka_s3.operators.kafka_to_s3.add_partitions", lambda *_: None)
    task = topics.task(partitions_in=setting, partitioner="daily")
    topics.run(task)
    (symlink,) = events.of(task)["outputs"][0]["facets"]["symlinks"]["identifiers"]
    assert (symlink["namespace"], symlink["name"], symlink["type"]) == (*identifier, "TABLE")


def test_a_replay_leads_from_the_prefix_to_its_target(
    bench: Bench, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fields of the objects, and the number of records that were sent."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", ORDERS)
    landing = bench.task(format=Parquet(), value_converter=JsonConverter(schema=json.dumps(ORDER)))
    bench.run(landing)
    replayed = Replayed("id", "again", 1, {0: 2}, {0: 2})
    monkeypatch.setattr(replay_run, "replay", lambda *_, **__: replayed)
    task = S3ToKafkaOperator(task_id="replay", bucket="lake", topic="orders", pipeline="orders-to-lake", target="again")
    ti = SimpleNamespace(dag_id="dag", task_id="replay", run_id="run", map_index=-1)
    task.execute({"ti": ti})  # type: ignore[typeddict-item]
    event = events.of(task)
    (landed,) = events.of(landing)["outputs"]
    assert named(event["inputs"]) == named([landed])
    assert event["inputs"][0]["facets"]["schema"] == landed["facets"]["schema"]
    assert named(event["outputs"]) == [("kafka://broker:9092", "again")]
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert CANARY not in json.dumps(event)


def test_a_replay_that_failed_has_the_prefix_of_what_is_landed(
    topics: Bench, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the last complete batch; without counts."""
    topics.run(topics.task())

    def replay(*_: object, **__: object) -> None:
        raise TransientError("no answer")

    monkeypatch.setattr(replay_run, "replay", replay)
    task = S3ToKafkaOperator(task_id="replay", bucket="lake", topic="orders", pipeline="orders-to-lake", target="again")
    ti = SimpleNamespace(dag_id="dag", task_id="replay", run_id="run", map_index=-1)
    with pytest.raises(Exception, match="no answer"):
        task.execute({"ti": ti})  # type: ignore[typeddict-item]
    event = events.of(task, TaskInstanceState.FAILED)
    assert (named(event["inputs"]), named(event["outputs"])) == (
        [("s3://lake", "topics/orders")],
        [("kafka://broker:9092", "again")],
    )
    assert "outputFacets" not in event["outputs"][0] or event["outputs"][0]["outputFacets"] == {}


@pytest.mark.parametrize(("sink", "name"), [("confluent", "sink/orders"), ("deviantart", "sink")])
def test_a_replay_of_another_sink_reads_its_folder(sink: str, name: str) -> None:
    """It has no log; DeviantArt's topics share a folder."""
    place = TopicLocation("lake", TopicAddress(topics_dir="sink", pipeline="p", topic="orders"))
    found = lineage.replay_lineage(place, {"bootstrap.servers": "broker:9092"}, "again", sink, None)
    assert [(each.namespace, each.name) for each in found.inputs] == [of(naming.S3("lake", name))]


@pytest.mark.parametrize(
    ("location", "names"),
    [
        ("s3://warehouse/lake/orders", of(naming.S3("warehouse", "lake/orders"))),
        ("s3a://warehouse/lake/orders/", of(naming.S3("warehouse", "lake/orders"))),
        ("file:///warehouse/lake/orders", of(naming.LocalFileSystem("/warehouse/lake/orders"))),
        ("gs://warehouse/lake/orders", of(naming.GCS("warehouse", "lake/orders"))),
    ],
)
def test_a_table_is_named_by_its_folder(location: str, names: tuple[str, str]) -> None:
    """As the integration of Spark names tables of Iceberg."""
    assert lineage._location(location) == names


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"type": "rest", "uri": "https://u:secret@catalog:8181/v1"}, ("https://catalog:8181/v1", "lake.orders")),
        ({"type": "hive", "uri": "thrift://a:9083,thrift://b:9083"}, of(naming.Hive("a", "9083", "lake", "orders"))),
        (
            {"type": "glue", "glue.region": "eu-central-1", "glue.id": "998877665544"},
            of(naming.AWSGlue("eu-central-1", "998877665544", "lake", "orders")),
        ),
        ({"type": "glue", "glue.region": "eu-central-1"}, None),
        ({"type": "sql", "uri": "postgresql://u:secret@db/catalog"}, None),
    ],
)
def test_a_table_has_the_name_in_its_catalog_besides(properties: dict[str, str], names: tuple[str, str] | None) -> None:
    """As the integration of Spark does; without a login, and not if it is only a part of one."""
    assert lineage._catalog_table(properties, "lake.orders") == names


def test_operators_load_no_client() -> None:
    """Not before they are asked for their lineage; the base class of the landing one loads it, if it is there."""
    code = (
        "import sys\n"
        "from airflow_provider_kafka_s3.operators import kafka_s3_to_iceberg, s3_to_kafka\n"
        "print([name for name in sys.modules if name.startswith('openlineage')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
