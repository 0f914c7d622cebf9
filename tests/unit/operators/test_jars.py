"""The jars of an operator are checked before anything is planned, as far as possible."""

from __future__ import annotations

import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.submit.jars import CONNECTOR_JARS, missing_jars

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

SPARK = version("pyspark")
VERSIONED = (
    f"spark-sql-kafka-0-10_2.13-{SPARK}.jar",
    f"spark-token-provider-kafka-0-10_2.13-{SPARK}.jar",
    "kafka-clients-3.9.0.jar",
    "commons-pool2-2.12.0.jar",
)


@pytest.fixture
def folder(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the four jars; a topic has one record that is not landed yet."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    for name in VERSIONED:
        (tmp_path / name).touch()
    return tmp_path


def run(bench: Bench, **parameters: Any) -> str:
    """Run a task; returns its error, or an empty text."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    try:
        bench.run(bench.task(**parameters))
    except AirflowFailException as e:
        assert list(bench.store.list("")) == [], "something was planned"
        assert bench.spark.commands == []
        return str(e)
    assert len(bench.spark.commands) == 1
    return ""


def test_a_jar_that_is_not_there_is_named_before_anything_is_planned(bench: Bench, folder: Path) -> None:
    """Spark would continue without it, and fail later with another error."""
    absent = folder / "absent.jar"
    for jars in (f"{folder / VERSIONED[0]},{absent}", f"file://{absent}"):
        assert run(bench, jars=jars).startswith(f"jars: {absent} cannot be read on this worker.")
    assert str(folder / "*.zip") in run(bench, jars=f"{folder}/*.zip")
    assert run(bench, conf={"spark.jars": str(absent)}).startswith(f"jars: {absent} cannot be read")


def test_one_jar_of_four_is_an_error_that_names_the_others(bench: Bench, folder: Path) -> None:
    """The Spark of this environment has none of them."""
    message = run(bench, jars=str(folder / VERSIONED[0]))
    assert message.startswith("jars: spark-token-provider-kafka-0-10, kafka-clients, commons-pool2 is missing.")
    assert run(bench, jars=",".join(str(folder / name) for name in VERSIONED)) == ""


def test_a_pattern_names_all_four(bench: Bench, folder: Path) -> None:
    """As Spark reads it."""
    assert run(bench, jars=f"{folder}/*.jar") == ""


@pytest.mark.parametrize(
    "more",
    [
        {"packages": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}"},
        {"conf": {"spark.jars.packages": "g:a:1"}},
        {"conf": {"spark.driver.extraClassPath": "/opt/jars/*"}},
        {"driver_class_path": "/opt/jars/*"},
        {"properties_file": "/etc/spark/landing.conf"},
    ],
)
def test_jars_that_may_come_by_another_way_are_not_missed(bench: Bench, folder: Path, more: dict[str, Any]) -> None:
    """Jars that cannot be checked are left to Spark."""
    assert run(bench, jars=str(folder / VERSIONED[0]), **more) == ""


def test_jars_of_another_spark_are_not_missed(bench: Bench, folder: Path, tmp_path: Path) -> None:
    """Its folder of jars counts; with settings of its own, its jars are unknown."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for name in VERSIONED[1:]:
        (home / "jars" / name).touch()
    env = {"SPARK_HOME": str(home)}
    (home / "jars" / VERSIONED[1]).unlink()
    assert "spark-token-provider-kafka-0-10 is missing" in run(bench, jars=str(folder / VERSIONED[0]), env_vars=env)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("spark.jars /opt/connector.jar\n")
    assert run(bench, jars=str(folder / VERSIONED[0]), env_vars=env) == ""


def test_jars_elsewhere_and_jars_of_other_names_may_hold_the_connector(tmp_path: Path) -> None:
    """A URL with an unknown name, and a jar with all classes; a URL with a known name counts as a file."""
    assert missing_jars("s3a://lake/jars/everything.jar") == []
    assert missing_jars("hdfs:///jars/kafka-clients-3.9.0.jar") == [
        jar for jar in CONNECTOR_JARS if jar != "kafka-clients"
    ]
    with zipfile.ZipFile(tmp_path / "everything.jar", "w") as jar:
        for name in list(CONNECTOR_JARS.values())[:3]:
            jar.writestr(name, b"")
    assert missing_jars(str(tmp_path / "everything.jar")) == ["commons-pool2"]
