"""A Spark connection that names a Spark Connect server."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from airflow_provider_kafka_s3.submit.job import JobOutcome

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

TOKEN = "canary-of-the-token"


class FakeServer:
    """Replaces the driver: executes plans as it would."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.specs: list[JobSpec] = []
        self.environments: list[Mapping[str, object]] = []
        self.warm_seconds: list[float] = []
        self.answers = True
        self.kill: Any = None

        def run(job: ConnectJob, spec: JobSpec) -> JobOutcome:
            self.specs.append(spec)
            self.environments.append(job.environment)
            self.warm_seconds.append(job.warm_seconds)
            if self.kill is not None:
                self.kill()
                return JobOutcome(None, "killed")
            if not self.answers:
                return JobOutcome(None, "Its exit code is -9.\nreading 4 slices")
            result = JobResult(topics=tuple(bench.spark._outcome(spec, ref) for ref in spec.plans))
            result.write(spec.result_path)
            return JobOutcome(result, "")

        monkeypatch.setattr(ConnectJob, "run", run)


@pytest.fixture
def server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """See the class; one record is not landed yet."""
    connection = {"conn_type": "spark_connect", "host": "spark", "port": 15002, "password": TOKEN, "login": "me"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    return FakeServer(bench, monkeypatch)


def test_a_job_runs_on_the_server_without_java_or_spark_submit(bench: Bench, server: FakeServer) -> None:
    """The records are landed; no command line was made, though there is no Java."""
    returned = bench.run(bench.task(conf={"spark.sql.shuffle.partitions": 3}, env_vars={"A": "b"}))
    assert (returned["status"], returned["records"]) == ("ok", 1)
    assert bench.spark.commands == []
    (spec,) = server.specs
    assert spec.connect is not None
    assert spec.connect.url == f"sc://spark:15002/;user_id=me;token={TOKEN}"
    assert spec.connect.conf == {"spark.sql.shuffle.partitions": "3"}
    assert server.environments == [{"A": "b"}]


@pytest.mark.parametrize(("value", "seconds"), [(None, 0), ("", 0), ("0", 0), ("3600", 3600)])
def test_jobs_are_warm_only_if_the_worker_is_configured_so(
    value: str | None, seconds: int, bench: Bench, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a number of seconds in Airflow's configuration."""
    if value is not None:
        monkeypatch.setenv("AIRFLOW__KAFKA_S3__WARM_DRIVER_SECONDS", value)
    bench.run(bench.task())
    assert server.warm_seconds == [seconds]


@pytest.mark.parametrize("value", ["-1", "1.5", "an hour", "86401", "\N{SUPERSCRIPT TWO}"])
def test_a_time_that_is_no_number_of_seconds_is_refused(
    value: str, bench: Bench, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is planned, with the section of Airflow's configuration."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    monkeypatch.setenv("AIRFLOW__KAFKA_S3__WARM_DRIVER_SECONDS", value)
    with pytest.raises(AirflowFailException, match=r"warm_driver_seconds='.*' of the section kafka_s3 .* 0 to 86,400"):
        bench.run(bench.task())
    assert [*bench.store.list("")] == []


def test_settings_that_only_a_new_spark_can_have_are_named(
    bench: Bench, server: FakeServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The task lands its records and warns of settings without effect."""
    with caplog.at_level(logging.WARNING):
        bench.run(bench.task(packages="g:a:1", executor_memory="9g", conf={"spark.executor.cores": 2}))
    # Airflow 3 writes the log of a task itself.
    shown = caplog.text + "".join(capfd.readouterr())
    assert "was started without: packages, executor_memory, spark.executor.cores" in shown
    assert TOKEN not in shown


def test_python_files_are_added_to_the_session(bench: Bench, server: FakeServer, tmp_path: Path) -> None:
    """Files of this worker with modules for the executors."""
    (tmp_path / "mine.zip").touch()
    bench.run(bench.task(py_files=str(tmp_path / "mine.zip")))
    (spec,) = server.specs
    assert spec.connect is not None
    assert spec.connect.py_files == (str(tmp_path / "mine.zip"),)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["s3://lake/mine.zip"], "py_files='s3://lake/mine.zip' is no .zip, .egg or .py file of this worker"),
        (["absent.zip"], "absent.zip' is no .zip, .egg or .py file of this worker"),
        (["mine.whl"], "mine.whl' is no .zip, .egg or .py file of this worker"),
        (["mine.zip", "more/mine.zip"], "py_files has two files of one name"),
    ],
)
def test_python_files_that_no_session_can_have_are_refused(
    bench: Bench, server: FakeServer, tmp_path: Path, names: list[str], message: str
) -> None:
    """Before anything is planned."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    (tmp_path / "more").mkdir()
    for name in ("mine.zip", "mine.whl", "more/mine.zip"):
        (tmp_path / name).touch()
    files = ",".join(name if "://" in name else str(tmp_path / name) for name in names)
    with pytest.raises(AirflowFailException, match=message):
        bench.run(bench.task(py_files=files))
    assert [*bench.store.list("")] == []


def test_after_a_driver_without_a_result_a_retry_succeeds(bench: Bench, server: FakeServer) -> None:
    """Its last output is in the message, and the next try lands the records."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    server.answers = False
    with pytest.raises(
        AirflowException, match=r"(?s)it was killed; .*\(exit code -9\)\. Its last output:\nreading 4 slices"
    ) as raised:
        bench.run(bench.task())
    assert not isinstance(raised.value, AirflowFailException)
    assert bench.objects() == {}
    server.answers = True
    assert bench.run(bench.task())["records"] == 1


def test_a_killed_task_kills_its_driver_and_fails(
    bench: Bench, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is landed and no other job is begun."""
    from airflow.providers.common.compat.sdk import AirflowException

    killed: list[ConnectJob] = []

    def kill(job: ConnectJob) -> None:
        killed.append(job)

    monkeypatch.setattr(ConnectJob, "kill", kill)
    task = bench.task()
    server.kill = task.on_kill
    with pytest.raises(AirflowException, match="killed"):
        bench.run(task)
    assert len(killed) == 1
    assert len(server.specs) == 1
    assert bench.objects() == {}


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ({"conn_type": "spark", "host": "sc://spark", "port": 15002}, "sc://spark:15002/"),
        ({"conn_type": "spark", "host": "sc://spark:15002"}, "sc://spark:15002/"),
        (
            {"conn_type": "spark_connect", "host": "sc://spark:1", "extra": {"use_ssl": True}},
            "sc://spark:1/;use_ssl=True",
        ),
    ],
)
def test_a_connection_names_a_server_as_airflows_own_hook_has_it(
    connection: dict[str, Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its host or by its type; text for the log has no token."""
    from airflow_provider_kafka_s3.airflow.connections import spark_target

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", json.dumps(connection))
    target = spark_target("spark_x")
    assert target.connect_url == url
    assert target.master == url.partition("/;")[0].rstrip("/")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", json.dumps(connection | {"password": TOKEN}))
    assert TOKEN not in repr(spark_target("spark_x"))
    assert TOKEN in str(spark_target("spark_x").connect_url)


@pytest.mark.parametrize("host", ["", "sc://", "sc://spark:1/path"])
def test_a_connection_without_a_server_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the setting."""
    from airflow_provider_kafka_s3.airflow.connections import spark_target

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", json.dumps({"conn_type": "spark_connect", "host": host}))
    with pytest.raises(ConfigurationError, match="Spark Connect server"):
        spark_target("spark_x")
