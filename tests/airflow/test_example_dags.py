"""The example DAGs: each is parsed without connections, and runs on the real parts."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.tables.iceberg.catalog import open_catalog
from airflow_provider_kafka_s3.testing.invariants import check_bucket, check_unchanged, read_source, snapshot
from dev import flights
from dev.airflow_connections import connection_variables
from dev.airflow_home import spark_with_connector
from dev.iceberg_catalog import IcebergCatalog
from dev.kafka_broker import Message
from dev.schema_registry import SchemaRegistry
from tests.airflow.conftest import BUCKET

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.airflow_home import AirflowHome, DagRun
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Worker

ROOT = Path(__file__).resolve().parents[2]
DAY = datetime(2026, 1, 5, tzinfo=UTC)
JVMS_OF_A_JOB = 2
"""spark-submit starts one JVM that only prints the command of the other."""

PARSE = """
import json, sys
try:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 2.11
    from airflow.models.dagbag import DagBag
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization
found = {}
for folder in sys.argv[1:]:
    bag = DagBag(dag_folder=folder)
    dags = {}
    for dag_id, dag in bag.dags.items():
        again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
        dags[dag_id] = [[task.task_id, task.task_type] for task in again.tasks]
    found[folder] = {"errors": {k: str(v) for k, v in bag.import_errors.items()}, "dags": dags}
print(json.dumps(found))
"""


def parse(home: AirflowHome, *folders: Path) -> dict[Path, dict[str, Any]]:
    """Parse folders as Airflow's DAG processor does, each separately, without any connection."""
    environment = {n: v for n, v in home.environment.items() if not n.startswith("AIRFLOW_CONN_")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *map(str, folders)],
        cwd=home.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {Path(folder): parsed for folder, parsed in json.loads(done.stdout.splitlines()[-1]).items()}


def test_the_examples_are_parsed_and_serialised_without_connections(airflow_home: AirflowHome) -> None:
    """No error, and every DAG can be serialised and read back."""
    assert parse(airflow_home, ROOT / "dags")[ROOT / "dags"] == {
        "errors": {},
        "dags": {
            "flights_compact": [["compact", "KafkaToS3Operator"]],
            "flights_daily": [["land_day", "KafkaToS3Operator"]],
            "flights_incremental": [["land_new", "KafkaToS3Operator"]],
            "kafka_to_s3_avro_to_parquet": [["land", "KafkaToS3Operator"]],
            "kafka_to_s3_daily": [["land_day", "KafkaToS3Operator"]],
            "kafka_to_s3_hourly": [["land", "KafkaToS3Operator"]],
            "kafka_to_s3_compact": [["compact", "KafkaToS3Operator"], ["expire", "KafkaS3ExpireOperator"]],
            "kafka_to_s3_complete_hours": [
                ["complete", "KafkaWindowClosedSensor"],
                ["land_hour", "KafkaToS3Operator"],
            ],
            "kafka_to_s3_enough_records": [["enough", "KafkaLagSensor"], ["land_events", "KafkaToS3Operator"]],
            "kafka_to_s3_mapped": [["topics_of", "_PythonDecoratedOperator"], ["land", "KafkaToS3Operator"]],
            "kafka_to_s3_new_layout": [["land_again", "KafkaToS3Operator"]],
            "kafka_to_s3_then_aggregate": [
                ["land", "KafkaToS3Operator"],
                ["total_by_shop", "_PythonDecoratedOperator"],
            ],
            "kafka_to_s3_then_table": [
                ["land", "KafkaToS3Operator"],
                ["add", "KafkaS3ToIcebergOperator"],
                ["total_by_shop", "_PythonDecoratedOperator"],
            ],
            "kafka_to_s3_to_compact": [["land", "KafkaToS3Operator"]],
            "s3_to_kafka_day": [["replay", "S3ToKafkaOperator"]],
        },
    }


def test_the_dags_of_the_documentation_are_parsed(airflow_home: AirflowHome, tmp_path: Path) -> None:
    """Each snippet that defines a DAG is parsed as a file of its own."""
    folders = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            if "DAG(" in code:
                folders.append(tmp_path / f"{page.stem}_{len(folders)}")
                folders[-1].mkdir()
                (folders[-1] / "snippet.py").write_text(code)
    parsed = parse(airflow_home, *folders)
    assert {folder.name: p["errors"] for folder, p in parsed.items() if p["errors"]} == {}
    assert parsed[tmp_path / "README_0"]["dags"] == {"orders": [["land", "KafkaToS3Operator"]]}


@pytest.fixture
def example(worker: Worker) -> Callable[..., DagRun]:
    """Run an example, all its tasks: ``example(dag_id, date)``. Spark's own folder has the Kafka connector.

    Keywords are more variables of the environment.
    """
    settings = {"KAFKA_TO_S3_BUCKET": BUCKET, **spark_with_connector()}

    def run(dag_id: str, date: datetime | None = None, **more: str) -> DagRun:
        done = worker.run_dag(
            ROOT / "dags",
            dag_id,
            None if date is None else date.isoformat(),
            environment={**settings, **more},
        )
        assert done.succeeded, done.output
        return done

    return run


def fill(broker: KafkaBroker, topic: str, *, day: datetime = DAY, hours: int = 24) -> None:
    """Make a topic of two partitions with one record per hour, from the beginning of a day on."""
    broker.create_topic(topic, 2)
    add(broker, topic, day=day, hours=hours)


def add(broker: KafkaBroker, topic: str, *, day: datetime = DAY, hours: int = 24) -> None:
    """Append one record per hour, from the beginning of a day on."""
    times = [int((day + timedelta(hours=h)).timestamp() * 1000) for h in range(hours)]
    broker.produce(
        topic, [Message(b'{"hour": %d}' % h, partition=h % 2, timestamp=when) for h, when in enumerate(times)]
    )


def check(store: S3Store, broker: KafkaBroker, pipeline: str, topic: str, topics_dir: str = "topics") -> BucketSummary:
    """Compare the bucket with Kafka: every record of the topic is in exactly one object, and nothing else is there."""
    source = read_source(KafkaSource({"bootstrap.servers": broker.bootstrap_servers}), topic)
    return check_bucket(
        store, topics_dir=topics_dir, pipeline=pipeline, topic=topic, source=source, recovered=True, complete=True
    )


def folders(store: S3Store, prefix: str) -> set[str]:
    """The encoded partitions of the objects below a topic's prefix."""
    return {o.key.removeprefix(prefix).rpartition("/")[0] for o in store.list(prefix)}


@pytest.mark.any_airflow
def test_the_hourly_example_lands_what_is_new_and_then_nothing(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """Two topics by one Spark job; the next hour finds nothing new, and starts no JVM."""
    for topic in ("orders", "payments"):
        fill(kafka_broker, topic)
    run = example("kafka_to_s3_hourly")
    assert run.java_starts == JVMS_OF_A_JOB
    for topic in ("orders", "payments"):
        assert check(store, kafka_broker, "shop", topic).records == 24
        assert len(folders(store, f"topics/{topic}/")) == 24
    again = example("kafka_to_s3_hourly")
    assert again.returned["land"]["status"] == "empty"
    assert again.java_starts == 0


@pytest.mark.any_airflow
def test_a_day_is_landed_and_later_again_with_another_layout(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """The records of a data interval, by day; then those of January, by hour and beside the first ones."""
    fill(kafka_broker, "clicks")
    # The interval of a run by hand is the last one that is over at its date.
    example("kafka_to_s3_daily", DAY + timedelta(days=1))
    assert check(store, kafka_broker, "clicks", "clicks").records == 24
    assert folders(store, "topics/clicks/") == {"year=2026/month=01/day=05"}
    before = snapshot(store, "topics/")

    add(kafka_broker, "clicks", day=DAY + timedelta(days=30))
    run = example("kafka_to_s3_new_layout")
    assert run.returned["land_again"]["records"] == 24
    assert folders(store, "topics-by-hour/clicks/") == {f"year=2026/month=01/day=05/hour={h:02}" for h in range(24)}
    check_unchanged(before, snapshot(store, "topics/"))


def test_the_mapped_example_lands_each_topic_of_its_prefix(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """One task instance per topic; one that holds nothing yet costs no Spark job."""
    fill(kafka_broker, "device.heat")
    fill(kafka_broker, "device.light", hours=0)
    run = example("kafka_to_s3_mapped")
    assert run.returned["topics_of"] == ["device.heat", "device.light"]
    assert run.java_starts == JVMS_OF_A_JOB
    assert check(store, kafka_broker, "devices", "device.heat").records == 24
    assert check(store, kafka_broker, "devices", "device.light").records == 0


def test_an_hour_is_landed_when_every_partition_has_passed_it(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """One partition has a record of the next hour, the other has no new records."""
    fill(kafka_broker, "returns", hours=11)
    run = example("kafka_to_s3_complete_hours", DAY + timedelta(hours=10))
    assert run.returned["complete"]["topics"] == {"returns": {"passed": [0], "quiet": [1]}}
    assert run.returned["land_hour"]["records"] == 1
    assert folders(store, "topics/returns/") == {"year=2026/month=01/day=05/hour=09"}


@pytest.mark.any_airflow
def test_records_are_landed_when_there_are_enough_of_them(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """All of them, by one Spark job."""
    kafka_broker.create_topic("events", 2)
    kafka_broker.produce("events", [Message(b"{}", partition=n % 2) for n in range(10_000)])
    run = example("kafka_to_s3_enough_records")
    assert run.returned["enough"] == {"events": 10_000}
    assert run.returned["land_events"]["records"] == 10_000
    assert check(store, kafka_broker, "events", "events").records == 10_000


@pytest.mark.any_airflow
def test_avro_of_a_registry_is_landed_as_parquet(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """Every flight is a row, with the values that were produced; the schema comes from a real registry."""
    given = list(itertools.islice(flights.flights(), 100))
    with SchemaRegistry() as registry:
        schema_id = registry.register("flights-avro-value", json.dumps(flights.AVRO_SCHEMA))
        kafka_broker.create_topic("flights-avro", 2)
        kafka_broker.produce("flights-avro", itertools.islice(flights.avro_messages(schema_id), len(given)))
        connection = connection_variables({"registry_default": {"conn_type": "http", "host": registry.url}})
        run = example("kafka_to_s3_avro_to_parquet", **connection)
    assert run.java_starts == JVMS_OF_A_JOB
    assert run.returned["land"]["records"] == len(given)
    landed = []
    for info in store.list("topics/flights-avro/"):
        assert info.key.endswith(".zstd.parquet")
        stored = store.get(info.key)
        assert stored is not None
        landed += pq.read_table(io.BytesIO(stored.body)).to_pylist()
    expected = [{**flight, "time_hour": datetime.fromisoformat(str(flight["time_hour"]))} for flight in given]
    assert sorted(landed, key=in_order) == sorted(expected, key=in_order)


def credentials_of_boto3(worker: Worker) -> dict[str, str]:
    """Variables by which readers without a connection reach the bucket."""
    connection = json.loads(worker.home.environment["AIRFLOW_CONN_AWS_DEFAULT"])
    return {
        "AWS_ACCESS_KEY_ID": connection["login"],
        "AWS_SECRET_ACCESS_KEY": connection["password"],
        "AWS_ENDPOINT_URL": connection["extra"]["endpoint_url"],
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@pytest.mark.any_airflow
def test_exactly_the_landed_records_are_aggregated_in_whatever_order_hours_are_run(
    example: Callable[..., DagRun], worker: Worker, kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """Each run has the totals of its batches, which are the same in all runs of a batch."""
    reached = credentials_of_boto3(worker)
    kafka_broker.create_topic("sales", 2)

    def sell(hour: int, amount: int) -> None:
        values = [b'{"shop":"%s","amount":%d}' % (shop, amount) for shop in (b"north", b"south", b"north")]
        time = int((DAY + timedelta(hours=hour)).timestamp() * 1000)
        kafka_broker.produce(
            "sales", [Message(value, partition=n % 2, timestamp=time) for n, value in enumerate(values)]
        )

    for hour, amount in enumerate((1, 10, 100, 1000)):
        sell(hour, amount)
    totals: dict[str, dict[str, int]] = {}
    for hour, amount in ((0, 1), (2, 110), (1, 110)):
        run = example("kafka_to_s3_then_aggregate", DAY + timedelta(hours=hour + 1), **reached)
        (batch,) = run.returned["land"]["topics"]["sales"]["batches"]
        assert run.returned["total_by_shop"] == {str(batch["batch"]): {"north": 2 * amount, "south": amount}}
        totals |= run.returned["total_by_shop"]
    assert run.returned["land"]["wrote"] is False
    assert sum(found["south"] for found in totals.values()) == 111
    assert check_bucket(store, topics_dir="topics", pipeline="sales", topic="sales", recovered=True).records == 9


@pytest.mark.any_airflow
def test_landed_hours_are_compacted_to_a_day(
    example: Callable[..., DagRun], kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """Each record once, in one object of the day, without Kafka; a run with nothing new writes nothing."""
    fill(kafka_broker, "searches")
    example("kafka_to_s3_to_compact")
    run = example("kafka_to_s3_compact")
    assert run.returned["compact"]["records"] == 24
    nothing = {
        "recorded": 0,
        "recorded_size": 0,
        "deleted": 0,
        "deleted_size": 0,
        "waiting": 0,
        "refused": 0,
        "kept": {},
    }
    assert run.returned["expire"] == {"searches": nothing}
    (key,) = [info.key for info in store.list("compacted/searches/")]
    assert key == "compacted/searches/year=2026/month=01/day=05/searches+0+0000000000.json.zst"
    landed = check_bucket(store, topics_dir="compacted", pipeline="searches-by-day", topic="searches", recovered=True)
    assert landed.records == 24
    again = example("kafka_to_s3_compact")
    assert (again.returned["compact"]["status"], again.java_starts) == ("empty", 0)


@pytest.mark.any_airflow
def test_landed_records_are_rows_of_a_table_once(
    example: Callable[..., DagRun], worker: Worker, kafka_broker: KafkaBroker
) -> None:
    """By a real catalog: what a run lands is added and queried by it, and nothing by one that lands nothing."""
    kafka_broker.create_topic("sold", 2)

    def sell(*numbers: int) -> None:
        values = [b'{"id":%d,"shop":"north","amount":%d}' % (n, n) for n in numbers]
        kafka_broker.produce("sold", [Message(value, partition=n % 2) for n, value in enumerate(values)])

    with IcebergCatalog() as server:
        opened = open_catalog("tests", {"uri": server.url})
        opened.create_namespace("lake")
        connection = connection_variables({"iceberg_default": {"conn_type": "iceberg", "host": server.url}})
        connection |= credentials_of_boto3(worker)
        sell(0, 1, 2)
        run = example("kafka_to_s3_then_table", **connection)
        assert run.returned["add"]["sold"]["batches"] == [1, 1]
        assert run.returned["total_by_shop"] == {"north": 3.0}
        again = example("kafka_to_s3_then_table", **connection)
        assert (again.returned["land"]["status"], again.returned["add"]["sold"]["batches"]) == ("empty", None)
        assert again.returned["total_by_shop"] == {}
        files = [task.file.record_count for task in opened.load_table("lake.sold").scan().plan_files()]
        assert sum(files) == 3


@pytest.mark.any_airflow
def test_a_day_is_sent_back_to_kafka_once(
    example: Callable[..., DagRun], worker: Worker, kafka_broker: KafkaBroker
) -> None:
    """Whole records of the day, and none of the next one; a rerun adds none."""
    fill(kafka_broker, "visits", hours=30)
    kafka_broker.create_topic("visits-again", 2, {"retention.ms": "-1"})
    landed = worker.run(
        topics="visits", pipeline="visits", starting_offsets="earliest", content="envelope", format="json"
    )
    assert landed.succeeded, landed.log
    source = KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for _ in range(2):
        run = example("s3_to_kafka_day", DAY + timedelta(days=1))
        assert run.returned["replay"]["records"] == 24
        assert run.java_starts == 0
        (partitions,) = read_source(source, "visits-again").values()
        values = [value for records in partitions.values() for value in records.values()]
        assert sorted(json.loads(value or b"")["hour"] for value in values) == [*range(24)]


def in_order(flight: dict[str, Any]) -> str:
    """A key that sorts equal flights next to each other."""
    return str(sorted(flight.items()))
