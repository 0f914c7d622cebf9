"""The command line for each kind of cluster: made from a connection by Airflow's own hook, and nothing secret in it."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.airflow import connections as spark_connections
from airflow_provider_kafka_s3.submit import checks, jars, masters
from airflow_provider_kafka_s3.submit.versions import TESTED
from tests.unit.operators.conftest import CANARY, SMALL_JOB_JVM

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

EXECUTORS = "/opt/kafka-s3/bin/python"
YARN = {"conn_type": "spark", "host": "yarn", "extra": {"queue": "landing"}}
KUBERNETES = {
    "conn_type": "spark",
    "host": "k8s://https://kubernetes.example.com",
    "port": 6443,
    "extra": {"namespace": "landing"},
}
STANDALONE = {"conn_type": "spark", "host": "spark://master-1:7077,master-2:7077"}
CLUSTERS = {"yarn": YARN, "kubernetes": KUBERNETES, "standalone": STANDALONE}


@pytest.fixture(params=CLUSTERS)
def cluster(bench: Bench, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Every kind of cluster in turn, and a topic with something to land."""
    from airflow.providers.apache.spark.hooks import spark_submit

    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(CLUSTERS[request.param]))
    # Not in the lock. Airflow's hook uses it for drivers on the cluster only, but wants it to be there.
    monkeypatch.setattr(spark_connections.spark, "_has_kubernetes", lambda: True)
    if not hasattr(spark_submit, "kube_client"):
        monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    name: str = request.param
    return name


def settings_of(command: list[str]) -> dict[str, str]:
    """The --conf settings of a command line."""
    settings = [command[i + 1] for i, word in enumerate(command) if word == "--conf"]
    return dict(setting.split("=", 1) for setting in settings)


def after(command: list[str], option: str) -> str:
    """What stands behind an option."""
    return command[command.index(option) + 1]


def test_a_cluster_gets_its_master_the_zip_and_the_python_of_its_executors(bench: Bench, cluster: str) -> None:
    """The driver runs in the Python of the worker, and its only argument is the path of the job file."""
    bench.run(bench.task(conf={"spark.pyspark.python": EXECUTORS}, executor_memory="2g", spark_binary="spark3-submit"))
    (command,) = bench.spark.commands
    assert command[0] == "spark3-submit"
    masters = {
        "yarn": "yarn",
        "kubernetes": "k8s://https://kubernetes.example.com:6443",
        "standalone": "spark://master-1:7077,master-2:7077",
    }
    assert after(command, "--master") == masters[cluster]
    assert after(command, "--deploy-mode") == "client", "a file of properties, or DEPLOY_MODE, may say cluster"
    settings = settings_of(command)
    assert settings["spark.pyspark.python"] == EXECUTORS
    assert settings["spark.pyspark.driver.python"] == sys.executable
    assert settings.get("spark.kubernetes.namespace") == ("landing" if cluster == "kubernetes" else None)
    assert ("--queue" in command) == (cluster == "yarn")
    assert Path(after(command, "--py-files")).name.startswith("airflow_provider_kafka_s3-")
    assert after(command, "--executor-memory") == "2g"
    assert [Path(word).name for word in command[-3:]] == ["kafka_to_s3.py", "--job-file", "job.json"]
    assert bench.spark.environments == [SMALL_JOB_JVM]


def test_what_a_cluster_is_shipped_reaches_the_command_as_it_is(bench: Bench, cluster: str) -> None:
    """A packed environment for the executors, jars, files, and their variables."""
    conf = {"spark.pyspark.python": "./environment/bin/python", "spark.executorEnv.HTTPS_PROXY": "http://proxy:3128"}
    bench.run(
        bench.task(
            archives="hdfs:///envs/kafka-s3.tar.gz#environment",
            jars="local:///opt/jars/spark-sql-kafka.jar",
            files="/etc/ssl/lake-ca.pem",
            conf=conf,
        )
    )
    (command,) = bench.spark.commands
    assert after(command, "--archives") == "hdfs:///envs/kafka-s3.tar.gz#environment"
    assert after(command, "--jars") == "local:///opt/jars/spark-sql-kafka.jar"
    assert after(command, "--files") == "/etc/ssl/lake-ca.pem"
    assert settings_of(command).items() >= conf.items()


@pytest.mark.parametrize("cluster", ["standalone"], indirect=True)
def test_masters_of_which_none_can_be_reached_are_named_and_nothing_is_submitted(
    bench: Bench, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry lands the same batch once one is there; a run with nothing new needs none."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    task = bench.task()
    refuse: dict[str, str] = {"master-1:7077": "Connection refused", "master-2:7077": "Name or service not known"}
    monkeypatch.setattr(masters, "connection_error", refuse.get)
    with pytest.raises(AirflowException, match=r"^no Spark master can be reached: master-1:7077: C") as e:
        bench.run(task)
    assert not isinstance(e.value, AirflowFailException)
    assert bench.spark.commands == []
    del refuse["master-2:7077"]
    assert bench.run(task, try_number=2)["records"] == 1
    refuse["master-2:7077"] = "Connection refused"
    assert bench.run(task, run_id="later")["status"] == "empty"


def test_variables_of_the_job_are_those_of_its_driver_and_in_no_command_line(bench: Bench, cluster: str) -> None:
    """For YARN and Kubernetes Airflow's hook alone would show their values to every user of the machine."""
    secret = f"{CANARY}-in-a-variable"
    task = bench.task(env_vars={"SOME_TOKEN": secret, "HADOOP_CONF_DIR": "/etc/hadoop"})
    bench.run(task)
    (command,) = bench.spark.commands
    assert CANARY not in repr(command)
    assert "SOME_TOKEN" not in repr(command)
    assert bench.spark.environments == [{"SOME_TOKEN": secret, "HADOOP_CONF_DIR": "/etc/hadoop", **SMALL_JOB_JVM}]
    assert task.env_vars == {"SOME_TOKEN": secret, "HADOOP_CONF_DIR": "/etc/hadoop"}


def test_a_variable_that_is_none_is_not_set(bench: Bench, cluster: str) -> None:
    """The driver keeps the worker's value, and never has the text ``None``."""
    bench.run(bench.task(env_vars={"HADOOP_CONF_DIR": "/etc/hadoop", "SOME_TOKEN": None}))
    assert bench.spark.environments == [{"HADOOP_CONF_DIR": "/etc/hadoop", **SMALL_JOB_JVM}]


def test_no_secret_of_a_connection_is_in_the_command_or_the_environment(bench: Bench, cluster: str) -> None:
    """Whatever the master is, they travel in the private file."""
    bench.run(bench.task(kafka_options={"kafka.sasl.jaas.config": f"{CANARY}-jaas"}))
    assert CANARY not in repr(bench.spark.commands) + repr(bench.spark.environments)
    assert CANARY in repr(bench.spark.specs[0].kafka)
    assert bench.spark.modes == [(0o600, 0o700)]


@pytest.mark.parametrize("where", ["parameter", "conf", "connection"])
def test_a_driver_on_the_cluster_is_refused_with_the_reason(
    bench: Bench, cluster: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any setting: the job file would not exist there. A parameter of the DAG fails when the DAG is parsed."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    from airflow_provider_kafka_s3.exceptions import ConfigurationError

    parameters: dict[str, dict[str, Any]] = {
        "parameter": {"deploy_mode": "cluster"},
        "conf": {"conf": {"spark.submit.deployMode": "cluster"}},
        "connection": {},
    }
    if where == "connection":
        connection = json.loads(os.environ["AIRFLOW_CONN_SPARK_DEFAULT"])
        connection["extra"] = {**connection.get("extra", {}), "deploy-mode": "cluster"}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    reason = r"has to run on the Airflow worker, which has the private file.*use deploy mode 'client'"
    if where == "connection":
        with pytest.raises(AirflowFailException, match=reason):
            bench.run(bench.task())
    else:
        with pytest.raises(ConfigurationError, match=reason):
            bench.task(**parameters[where])
    assert bench.spark.commands == []
    assert list(bench.store.list("")) == []


@pytest.mark.parametrize("cluster", ["standalone"], indirect=True)
@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            "Standalone",
            "--master spark://master-1:7077,master-2:7077 --properties-file --jars --total-executor-cores --py-files",
        ),
        ("YARN", "--master yarn --queue --archives --packages --num-executors --executor-cores --py-files"),
        (
            "Kubernetes",
            "--master k8s://https://kubernetes.default.svc:443 spark.kubernetes.namespace=landing --num-executors",
        ),
    ],
)
def test_the_examples_of_the_documentation_submit_what_they_say(
    bench: Bench, cluster: str, monkeypatch: pytest.MonkeyPatch, section: str, words: str
) -> None:
    """Connection and operator of each kind of cluster, as they are on the page."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text()
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    (connection,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    # The jars of the page are on no machine but the reader's.
    monkeypatch.setattr(jars, "unreadable_jars", lambda jars: [])
    # They are written for the Spark that the extra installs.
    monkeypatch.setattr(checks, "installed_versions", lambda: {"pyspark": TESTED[-1]})
    names: dict[str, Any] = {}
    exec(code, names)
    bench.run(names["land"])
    (command,) = bench.spark.commands
    assert set(words.split()) <= set(command)
    assert settings_of(command).items() >= names["land"].conf.items()
    assert settings_of(command)["spark.pyspark.driver.python"] == sys.executable
    assert CANARY not in repr(command)


@pytest.mark.parametrize(
    ("conf", "env", "worker", "driver"),
    [
        ({}, {}, {}, sys.executable),
        ({"spark.pyspark.python": "x"}, {}, {}, sys.executable),
        ({"spark.pyspark.python": "x"}, {}, {"PYSPARK_PYTHON": "y"}, sys.executable),
        ({"spark.pyspark.driver.python": "mine"}, {}, {}, "mine"),
        ({}, {"PYSPARK_DRIVER_PYTHON": "mine"}, {}, None),
        ({}, {}, {"PYSPARK_DRIVER_PYTHON": "mine"}, None),
        ({}, {"PYSPARK_PYTHON": "everywhere"}, {}, None),
        ({}, {}, {"PYSPARK_PYTHON": "everywhere"}, None),
    ],
)
@pytest.mark.parametrize("cluster", ["standalone"], indirect=True)
def test_the_driver_runs_in_the_python_of_the_worker_unless_another_is_chosen(
    bench: Bench,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    conf: dict[str, str],
    env: dict[str, str],
    worker: dict[str, str],
    driver: str | None,
) -> None:
    """A Python for the executors is not used for the driver, which is on another machine."""
    for name, value in worker.items():
        monkeypatch.setenv(name, value)
    bench.run(bench.task(conf=conf, env_vars=env))
    (command,) = bench.spark.commands
    assert settings_of(command).get("spark.pyspark.driver.python") == driver
