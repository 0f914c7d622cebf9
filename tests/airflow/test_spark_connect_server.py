"""Tasks whose Spark connection names a Spark Connect server: they need no JVM of their own."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from airflow_provider_kafka_s3.spark.warm_place import WarmPlace
from dev.airflow_connections import connection_variables
from dev.airflow_home import SPARK_JARS
from dev.certificates import Authority
from dev.spark_connect import SparkConnectServer
from dev.tls_front import TlsFront
from dev.waiting import wait_until
from tests.airflow.conftest import BUCKET

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from tests.airflow.conftest import Gate, TaskRun, Worker

TOKEN = "canary-4b7e-of-the-server"
FORKED: Final = "the driver is a fork of this worker's warm process"


@pytest.fixture(scope="module")
def server() -> Iterator[SparkConnectServer]:
    """One for all tests, with the Kafka connector."""
    with SparkConnectServer(sorted(SPARK_JARS.glob("*.jar"))) as started:
        yield started


@pytest.mark.any_airflow
@pytest.mark.newest_spark
def test_tasks_land_what_is_new_on_a_server_without_a_jvm(
    worker: Worker,
    server: SparkConnectServer,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
    store: S3Store,
) -> None:
    """Run after run by one warm server; bad records are named, its output is logged, and its token is shown nowhere."""
    topic = make_topic(1)
    # pyspark sends a token without TLS to this host name only.
    remote = {"conn_type": "spark_connect", "host": "sc://localhost", "port": server.port, "password": TOKEN}
    parameters: dict[str, Any] = {
        "topics": topic,
        "spark_conn_id": "spark_remote",
        "environment": connection_variables({"spark_remote": remote}),
        "jars": None,
    }
    landed = 0
    for count in (3, 2):
        produce(topic, [{"n": landed + n} for n in range(count)])
        run = worker.run(**parameters)
        assert run.succeeded, run.log
        landed += count
        assert check(topic).records == landed
        assert run.java_starts == 0
        assert f"Spark Connect server localhost:{server.port}, Spark " in run.log
    produce(topic, ["{broken"])
    run = worker.run(**parameters)
    assert not run.succeeded
    assert f" [topic '{topic}': RecordError]" in run.log
    assert run.java_starts == 0
    assert check(topic, complete=False, recovered=False).records == landed
    shown = {
        "log": worker.log_file.read_text(errors="replace"),
        "database": worker.database(),
        "objects": "".join(str(found and found.body) for found in map(store.get, _control_keys(store, topic))),
    }
    assert [place for place, text in shown.items() if TOKEN in text] == []
    assert BUCKET in shown["database"]
    assert topic in shown["objects"]


@pytest.mark.newest_spark
def test_tasks_of_a_worker_share_a_warm_process(
    worker: Worker,
    server: SparkConnectServer,
    authority: Authority,
    gate: Gate,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
    store: S3Store,
) -> None:
    """The same objects, also over TLS and after the server was restarted; a killed task interrupts its job at once."""
    own, warm = make_topic(1), make_topic(1)
    for topic in (own, warm):
        produce(topic, [{"n": n} for n in range(3)])
    tls = authority.server("spark-connect")
    with TlsFront(tls, server.port) as front:
        remote: dict[str, Any] = {"conn_type": "spark_connect", "host": "sc://localhost", "port": front.port}
        remote |= {"password": TOKEN, "extra": {"use_ssl": True}}
        environment = {
            **connection_variables({"spark_remote": remote}),
            "AIRFLOW__KAFKA_S3__WARM_DRIVER_SECONDS": "600",
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority.certificate),
        }

        def run(topic: str) -> TaskRun:
            return worker.run(topics=topic, spark_conn_id="spark_remote", environment=environment, jars=None)

        first = run(own)
        assert first.succeeded, first.log
        assert FORKED not in first.log
        process = wait_until(lambda: warm_process(worker), "a warm process to listen")
        second = run(warm)
        assert second.succeeded, second.log
        assert FORKED in second.log
        assert f"Spark Connect server localhost:{front.port}, Spark " in second.log
        assert _bodies(store, warm) == _bodies(store, own) != {}

        server.stop()
        front.upstream = server.start().port
        produce(warm, [{"n": n} for n in range(3, 5)])
        third = run(warm)
        assert third.succeeded, third.log
        assert FORKED in third.log
        assert check(warm).records == 5

        produce(warm, [{"n": n} for n in range(5, 9)])
        part = f"{warm}+0+0000000005.json"
        gate.hold("PUT", part)
        runs: list[TaskRun] = []
        task = threading.Thread(target=lambda: runs.append(run(warm)))
        task.start()
        gate.wait_for("PUT", part)
        (driver,) = process.children()
        worker.kill_task()
        wait_until(lambda: not driver.is_running(), "the driver to end", timeout=60)
        task.join(60)
        assert not runs[0].succeeded
        assert "the job is interrupted, nothing more is decided" in runs[0].log
        # The server may still send what was held: the next upload of the same part lets both go on.
        fourth = run(warm)
        assert fourth.succeeded, fourth.log
        assert FORKED in fourth.log
        assert check(warm).records == 9
        assert process.num_threads() == 1
        assert TOKEN not in str(process.environ())


def warm_process(worker: Worker) -> psutil.Process | None:
    """The process that forks drivers for a worker, once it listens; it is no child of the worker."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            arguments = process.cmdline()
            if any(argument.startswith(f"{worker.pid}:") for argument in arguments):
                values = dict(itertools.pairwise(arguments))
                place = WarmPlace(Path(values["--folder"]), values["--name"])
                return process if place.socket.exists() else None
    return None


def _bodies(store: S3Store, topic: str) -> dict[str, bytes]:
    """The data objects of a topic, by their names without it."""
    found = {info.key.replace(topic, ""): store.get(info.key) for info in store.list(f"topics/{topic}/")}
    return {key: stored.body for key, stored in found.items() if stored is not None}


def _control_keys(store: S3Store, topic: str) -> list[str]:
    return [info.key for info in store.list("topics/_kafka_s3/") if f"/{topic}/" in info.key]
