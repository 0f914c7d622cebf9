"""The operator in a real Airflow, with a real broker, real Spark, and an S3 server over HTTP."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from dev.airflow_home import SPARK_JARS
from dev.waiting import wait_for_end
from tests.airflow.conftest import BUCKET, PIPELINE, SECRET_KEY
from tests.conftest import PASSWORD

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Gate, TaskRun, Worker

JANUARY_1 = 1_356_998_400_000
DAY = 86_400_000


def offsets(run: TaskRun, topic: str) -> dict[str, list[list[int]]]:
    """The offsets of the one batch that a run reports about a topic."""
    assert run.returned is not None
    (batch,) = run.returned["topics"][topic]["batches"]
    landed: dict[str, list[list[int]]] = batch["offsets"]
    return landed


@pytest.mark.any_airflow
def test_a_topic_is_landed_run_by_run_from_latest_to_a_new_partition(
    worker: Worker,
    store: S3Store,
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
) -> None:
    """Runs over one topic: nothing at first, then the new records, then nothing, then a partition that was added.

    The second job maps the classes that the first one, or one of another test, has stored.
    """
    topic = make_topic(2)
    produce(topic, [{"before": 1}])
    run = functools.partial(worker.run, topics=topic, starting_offsets="latest")
    first = run()
    assert first.succeeded, first.log
    assert (first.returned or {})["status"] == "empty"
    assert first.java_starts == 0

    produce(topic, [{"n": 1}, {"n": 2}])
    produce(topic, [{"n": 3}], partition=1)
    second = run()
    assert second.succeeded, second.log
    assert offsets(second, topic) == {"0": [[1, 3]], "1": [[0, 1]]}
    assert second.java_starts > 0
    assert check(topic).records == 3

    before = snapshot(store)
    third = run()
    assert third.succeeded, third.log
    assert ((third.returned or {})["status"], third.java_starts) == ("empty", 0)
    check_unchanged(before, snapshot(store))

    kafka_broker.add_partitions(topic, 3)
    produce(topic, [{"n": 4}], partition=2)
    fourth = run()
    assert fourth.succeeded, fourth.log
    assert offsets(fourth, topic) == {"2": [[0, 1]]}
    assert any("-XX:SharedArchiveFile=" in c for c in worker.home.java_commands[-fourth.java_starts :])
    assert check(topic).records == 4


def test_a_bad_an_empty_and_a_missing_topic_do_not_affect_the_others(
    worker: Worker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
) -> None:
    """One job for all; the good ones are committed, and the task fails terminally with the error of each bad one."""
    good, better, empty, broken = (make_topic(1) for _ in range(4))
    for topic in (good, better):
        produce(topic, [{"n": 1}])
    produce(broken, [{"n": 1}, "not JSON"])
    run = worker.run(topics=[good, broken, empty, better, "never-made"])
    assert not run.succeeded
    assert "AirflowFailException" in run.log
    assert f" [topic '{broken}': RecordError]" in run.log
    assert "offset 1" in run.log
    assert " [topic 'never-made': TopicNotFoundError]" in run.log
    assert all(check(topic).records == 1 for topic in (good, better))
    assert check(broken, complete=False, recovered=False).records == 0


def test_an_interval_is_landed_once_however_often_it_is_run(
    worker: Worker,
    store: S3Store,
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    check: Callable[..., BucketSummary],
) -> None:
    """A day lands the records of that day; the same day again names the batch, writes nothing and starts no JVM."""
    from dev.kafka_broker import Message

    topic = make_topic(1)
    values = [Message(json.dumps({"n": n}).encode(), timestamp=JANUARY_1 + n * DAY // 2) for n in range(4)]
    kafka_broker.produce(topic, values)
    parameters = {"topics": topic, "offsets": "data_interval", "partitioner": "daily", "dag_id": "daily"}
    first = worker.run(date="2013-01-02T00:00:00+00:00", **parameters)
    assert first.succeeded, first.log
    assert offsets(first, topic) == {"0": [[0, 2]]}
    before = snapshot(store)
    again = worker.run(date="2013-01-02T00:00:00+00:00", **parameters)
    assert again.succeeded, again.log
    check_unchanged(before, snapshot(store))
    assert (offsets(again, topic), again.java_starts) == ({"0": [[0, 2]]}, 0)
    (info,) = store.list(f"topics/{topic}/")
    assert info.key.startswith(f"topics/{topic}/year=2013/month=01/day=01/")
    assert check(topic, complete=False).records == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kafka_conn_id": "kafka_nowhere"}, "there is no connection 'kafka_nowhere'"),
        ({"aws_conn_id": "aws_nowhere"}, "there is no connection 'aws_nowhere'"),
        ({"spark_conn_id": "spark_nowhere"}, "there is no connection 'spark_nowhere'"),
        ({"bucket": "never-made-bucket"}, r"never-made-bucket.*: BucketNotFoundError\]"),
        ({"topics": "never-made"}, "topic 'never-made': TopicNotFoundError"),
        ({"offsets": "data_interval"}, "schedule the DAG with CronDataIntervalTimetable"),
    ],
)
def test_what_is_missing_is_named_and_not_retried(
    worker: Worker, make_topic: Callable[..., str], parameters: dict[str, str], message: str
) -> None:
    """A missing connection, bucket, topic or interval is a terminal error that names it."""
    run = worker.run(**{"topics": make_topic(1), **parameters})
    assert not run.succeeded
    assert "AirflowFailException" in run.log
    assert re.search(message, run.log), run.log
    assert run.java_starts == 0


@pytest.mark.any_airflow
def test_two_runs_that_send_the_same_requests_at_once_land_every_record_once(
    worker: Worker,
    second_worker: Worker,
    gate: Gate,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
) -> None:
    """Two Airflows that plan at the same moment, both read everything, and both decide at the same moment."""
    topic = make_topic(2)
    for partition in (0, 1):
        produce(topic, [{"p": partition, "n": n} for n in range(500)], partition=partition)
    log = f"/_kafka_s3/{PIPELINE}/{topic}/batches/0000000001"
    gate.hold("PUT", f"{log}.plan.json")
    gate.hold("PUT", f"{log}.manifest.json")
    runs: dict[str, TaskRun] = {}

    def land(name: str, where: Worker) -> None:
        runs[name] = where.run(dag_id=name, topics=topic, adopt_wait=0.0)

    threads = [threading.Thread(target=land, args=it) for it in (("one", worker), ("two", second_worker))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gate.met[-2:] == [f"{log}.plan.json", f"{log}.manifest.json"]
    assert all(run.succeeded for run in runs.values()), "\n".join(run.log for run in runs.values())
    assert {json.dumps(offsets(run, topic)) for run in runs.values()} == {'{"0": [[0, 500]], "1": [[0, 500]]}'}
    assert sorted((run.returned or {})["topics"][topic]["shared"] for run in runs.values()) == [False, True]
    assert sorted((run.returned or {})["landed"]["records"] for run in runs.values()) == [0, 1000]
    summary = check(topic)
    assert (summary.records, summary.batches) == (1000, 1)


def test_killing_a_task_ends_its_driver_and_the_next_run_completes_the_batch(
    worker: Worker,
    gate: Gate,
    store: S3Store,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
) -> None:
    """Killed while it decides: its driver ends, nothing is visible, and its late request uses up no batch number."""
    topic = make_topic(1)
    produce(topic, [{"n": n} for n in range(100)])
    manifest = f"topics/_kafka_s3/{PIPELINE}/{topic}/batches/0000000001.manifest.json"
    runs: list[TaskRun] = []
    before = worker.descendants()
    gate.hold("PUT", manifest)
    task = threading.Thread(target=lambda: runs.append(worker.run(topics=topic)))
    task.start()
    gate.wait_for("PUT", manifest)
    spark = [process for process in worker.descendants() if process not in before]
    assert {process.name().rstrip("0123456789.") for process in spark} >= {"java", "python"}
    worker.kill_task()
    # On Airflow 2 the task ends by an exception, and the hook does not wait for its ended child.
    wait_for_end(spark, "the driver")
    task.join()
    assert not runs[0].succeeded
    assert store.head(manifest) is None
    assert list(store.list(f"topics/{topic}/")) == []
    again = worker.run(topics=topic, adopt_wait=60.0)
    assert again.succeeded, again.log
    # The process that ran the task continues in these tests; in the database of Airflow the task has ended.
    assert "which has ended: its Airflow task is not running. It is executed now" in again.log
    assert gate.met[-1] == manifest
    assert offsets(again, topic) == {"0": [[0, 100]]}
    assert [batch["batch"] for batch in (again.returned or {})["topics"][topic]["batches"]] == [1]
    summary = check(topic)
    assert (summary.records, summary.batches) == (100, 1)


def test_a_clock_before_the_end_of_the_interval_is_refused(worker: Worker, make_topic: Callable[..., str]) -> None:
    """A run by hand for a day of the future fails, because its records do not exist yet."""
    date = datetime(datetime.now(UTC).year + 2, 1, 2, tzinfo=UTC).isoformat()
    run = worker.run(topics=make_topic(1), offsets="data_interval", date=date)
    assert not run.succeeded
    assert "ends in the future" in run.log


@pytest.mark.any_airflow
def test_a_missing_connector_is_terminal_and_names_the_package(
    worker: Worker, make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    """If a given class path lacks the connector, nothing is added to it; the error has the parameter to set."""
    topic = make_topic(1)
    produce(topic, [{"n": 1}])
    class_path = {"spark.driver.extraClassPath": "/nowhere/*"}
    run = worker.run(topics=topic, jars=None, spark_conf=class_path)
    assert not run.succeeded
    assert "AirflowFailException" in run.log
    assert re.search(r"ConfigurationError: .*packages='org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.", run.log)


@pytest.mark.any_airflow
@pytest.mark.newest_spark
def test_a_task_without_connector_settings_downloads_the_connector_of_its_spark(
    worker: Worker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
    tmp_path: Path,
) -> None:
    """By Ivy, from one repository: a folder with the connector and its dependencies."""
    settings = ivy_repository(tmp_path)
    topic = make_topic(1)
    produce(topic, [{"n": n} for n in range(3)])
    conf = {"spark.jars.ivySettings": str(settings), "spark.jars.ivy": str(tmp_path / "cache")}
    run = worker.run(topics=topic, jars=None, spark_conf=conf)
    assert run.succeeded, run.log
    assert check(topic).records == 3


def ivy_repository(folder: Path) -> Path:
    """Put the jars of the connector of this Spark into a Maven repository; returns a file of Ivy's settings for it."""
    groups = {"spark": "org.apache.spark", "kafka": "org.apache.kafka", "commons": "org.apache.commons"}
    repository = folder / "repository"
    coordinates = {}
    for jar in SPARK_JARS.glob("*.jar"):
        artifact, _, version = jar.stem.rpartition("-")
        group = groups[artifact.partition("-")[0]]
        coordinates[jar] = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        place = repository / group.replace(".", "/") / artifact / version
        place.mkdir(parents=True)
        shutil.copy(jar, place)
    for jar, own in coordinates.items():
        others = [other for other in coordinates if other != jar and jar.name.startswith("spark-sql-")]
        needed = "".join(f"<dependency>{coordinates[other]}</dependency>" for other in others)
        (copy,) = repository.rglob(jar.name)
        copy.with_suffix(".pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{needed}</dependencies></project>"
        )
    settings = folder / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{repository.as_uri()}/"/></resolvers></ivysettings>'
    )
    return settings


def test_no_secret_is_in_logs_commands_templates_xcoms_or_objects(
    worker: Worker, make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    """After a run with Spark, no log, command line, rendered template, XCom or object contains a password or a key."""
    topic = make_topic(1)
    produce(topic, [{"n": 1}])
    run = worker.run(topics=topic, kafka_options={"kafka.fetch.max.bytes": "1048576"})
    assert run.succeeded, run.log
    assert len(worker.home.java_commands) >= 2
    written = {
        "log": worker.log_file.read_text(errors="replace"),
        "command lines": "\n".join(worker.home.java_commands),
        "database": worker.database(),
    }
    for secret in (PASSWORD, SECRET_KEY):
        escaped_forms = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        found = [place for place, text in written.items() if any(escaped in text for escaped in escaped_forms)]
        assert found == []
    assert BUCKET in written["database"]
