"""The DAGs that people copy: each is parsed without connections, and runs on the real parts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source
from dev.airflow_home import AirflowHome
from dev.kafka_broker import Message
from tests.airflow.conftest import BUCKET

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
DAY = datetime(2026, 1, 5, tzinfo=UTC)

PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(dag_folder=sys.argv[1])
found = {}
for dag_id, dag in bag.dags.items():
    again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    found[dag_id] = [[task.task_id, task.task_type] for task in again.tasks]
print(json.dumps({"errors": {k: str(v) for k, v in bag.import_errors.items()}, "dags": found}))
"""


def parse(home: AirflowHome, folder: Path) -> dict[str, Any]:
    """What Airflow's DAG processor makes of a folder, without any connection."""
    environment = {n: v for n, v in home.environment.items() if not n.startswith("AIRFLOW_CONN_")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(folder)],
        cwd=home.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return parsed


def test_the_examples_are_parsed_and_serialised_without_connections(airflow_home: AirflowHome) -> None:
    """No error, and every DAG survives what Airflow does to store it."""
    assert parse(airflow_home, ROOT / "dags") == {
        "errors": {},
        "dags": {
            "flights_daily": [["land_day", "KafkaToS3Operator"]],
            "flights_incremental": [["land_new", "KafkaToS3Operator"]],
            "kafka_to_s3_daily": [["land_day", "KafkaToS3Operator"]],
            "kafka_to_s3_hourly": [["land", "KafkaToS3Operator"]],
            "kafka_to_s3_mapped": [["topics_of", "_PythonDecoratedOperator"], ["land", "KafkaToS3Operator"]],
        },
    }


def test_the_dags_of_the_documentation_are_some(airflow_home: AirflowHome, tmp_path: Path) -> None:
    """What a newcomer copies works as it stands: each snippet that makes a DAG is parsed as a file of its own."""
    written = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            if "DAG(" in code:
                written += 1
                (tmp_path / f"{page.stem.lower()}_{written}.py").write_text(code)
    parsed = parse(airflow_home, tmp_path)
    assert parsed["errors"] == {}
    assert ["land", "KafkaToS3Operator"] in parsed["dags"]["orders"]
    assert len(parsed["dags"]) >= written


@pytest.fixture(scope="module")
def examples(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    """An Airflow whose DAG folder is the examples'."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copy(airflow_home.folder / "airflow.db", folder)
    connections = {n: v for n, v in airflow_home.environment.items() if n.startswith("AIRFLOW_CONN_")}
    return AirflowHome(folder, ROOT / "dags", environment={"KAFKA_TO_S3_BUCKET": BUCKET, **connections})


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


def spark_jobs(home: AirflowHome) -> list[str]:
    """The command lines of the Spark drivers so far; spark-submit starts another JVM that only writes the command."""
    return [command for command in home.java_commands if "org.apache.spark.launcher.Main" not in command]


def folders(store: S3Store, prefix: str) -> set[str]:
    """The encoded partitions that objects lie in below a topic's prefix."""
    return {o.key.removeprefix(prefix).rpartition("/")[0] for o in store.list(prefix)}


def test_the_hourly_example_lands_what_is_new_and_then_nothing(
    examples: AirflowHome, kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """Two topics by one Spark job; the next hour finds nothing new, and starts no JVM."""
    for topic in ("orders", "payments"):
        fill(kafka_broker, topic)
    before = len(spark_jobs(examples))
    run = examples.test("kafka_to_s3_hourly")
    assert run.succeeded, run.output
    assert len(spark_jobs(examples)) - before == 1
    for topic in ("orders", "payments"):
        assert check(store, kafka_broker, "shop", topic).records == 24
        assert len(folders(store, f"topics/{topic}/")) == 24
    again = examples.test("kafka_to_s3_hourly")
    assert again.succeeded, again.output
    assert again.returned["land"]["status"] == "empty"
    assert again.java_starts == 0


def test_the_daily_example_lands_the_day_of_its_data_interval(
    examples: AirflowHome, kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """The records of that day, in that day's folder; the next day's stay in Kafka."""
    fill(kafka_broker, "clicks")
    add(kafka_broker, "clicks", day=DAY + timedelta(days=1))
    # The interval of a run by hand is the last one that is over at its date.
    run = examples.test("kafka_to_s3_daily", f"{DAY + timedelta(days=1):%Y-%m-%d}")
    assert run.succeeded, run.output
    assert run.returned["land_day"]["records"] == 24
    assert folders(store, "topics/clicks/") == {f"year={DAY:%Y}/month={DAY:%m}/day={DAY:%d}"}


def test_the_mapped_example_lands_each_topic_of_its_prefix(
    examples: AirflowHome, kafka_broker: KafkaBroker, store: S3Store
) -> None:
    """One task instance per topic; one that holds nothing yet costs no Spark job."""
    fill(kafka_broker, "device.heat")
    fill(kafka_broker, "device.light", hours=0)
    before = len(spark_jobs(examples))
    run = examples.test("kafka_to_s3_mapped")
    assert run.succeeded, run.output
    assert run.returned["topics_of"] == ["device.heat", "device.light"]
    assert len(spark_jobs(examples)) - before == 1
    assert check(store, kafka_broker, "devices", "device.heat").records == 24
    assert check(store, kafka_broker, "devices", "device.light").records == 0
