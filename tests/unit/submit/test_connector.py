"""The default package of the Kafka connector of a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.submit.connector import connector_packages
from airflow_provider_kafka_s3.submit.settings import SparkSettings
from airflow_provider_kafka_s3.submit.spark_command import find_spark_submit
from airflow_provider_kafka_s3.submit.versions import installed_versions

PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.2"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark 4.1.2 without settings of its own."""
    spark = tmp_path / "spark"
    (spark / "bin").mkdir(parents=True)
    (spark / "bin" / "spark-submit").touch(mode=0o755)
    (spark / "conf").mkdir()
    add_jars(spark / "jars", "spark-core_2.13-4.1.2.jar", "spark-streaming_2.13-4.1.2.jar", "kafka-clients-3.9.1.jar")
    return spark


def add_jars(folder: Path, *names: str) -> Path:
    """Create files in a folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


JOB: Final = SparkSettings(conn_id="spark_default")


def packages(home: Path, environment: dict[str, str] | None = None, **settings: Any) -> str | None:
    """The default packages for a job of that Spark."""
    return connector_packages(str(home / "bin" / "spark-submit"), environment or {}, replace(JOB, **settings))


def test_the_connector_is_of_the_version_of_the_spark_that_is_started(home: Path) -> None:
    """By the command, or by ``SPARK_HOME``, which Spark's scripts use; without a vendor's suffix."""
    assert packages(home) == PACKAGE
    assert connector_packages("spark-submit", {"SPARK_HOME": str(home), "PATH": ""}, JOB) == PACKAGE
    assert connector_packages("spark-submit", {"PATH": str(home / "bin")}, JOB) == PACKAGE
    (home / "jars" / "spark-core_2.13-4.1.2.jar").rename(home / "jars" / "spark-core_2.12-3.5.6-vendor-1.jar")
    assert packages(home) == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"


def test_the_spark_of_this_environment_gets_the_connector_of_pyspark() -> None:
    """It is found by its own command."""
    command = find_spark_submit(local=True)
    assert command is not None
    version = installed_versions()["pyspark"]
    assert connector_packages(command, {}, JOB) == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


@pytest.mark.parametrize(
    "settings",
    [
        {"jars": "/opt/connector.jar"},
        {"packages": "g:a:1"},
        {"driver_class_path": "/opt/*"},
        {"conf": {"spark.jars": "/opt/connector.jar"}},
        {"conf": {"spark.jars.packages": "g:a:1"}},
        {"conf": {"spark.driver.extraClassPath": "/opt/*"}},
    ],
)
def test_settings_of_the_job_have_precedence(home: Path, settings: dict[str, Any]) -> None:
    """Jars, packages and class paths, as parameters and in the configuration."""
    assert packages(home, **settings) is None


def test_empty_or_other_settings_are_ignored(home: Path) -> None:
    """A parameter that was not given, and the repositories of packages."""
    conf = {"spark.jars": "", "spark.jars.ivy": "/tmp/ivy", "spark.executor.extraClassPath": "/opt/*"}
    assert packages(home, jars=None, driver_class_path="", conf=conf) == PACKAGE


@pytest.mark.parametrize(
    "line", ["spark.jars /a.jar", "spark.jars.packages=g:a:1", " spark.driver.extraClassPath\t: /a/*"]
)
def test_settings_of_the_worker_have_precedence(home: Path, tmp_path: Path, line: str) -> None:
    """Of Spark's own folder, of ``SPARK_CONF_DIR``, and a file of properties, which Spark reads in their place."""
    file = tmp_path / "settings" / "spark-defaults.conf"
    file.parent.mkdir()
    file.write_text(f"# of the worker\nspark.ui.enabled false\n{line}\n")
    assert packages(home, {"SPARK_CONF_DIR": str(file.parent)}) is None
    assert packages(home, properties_file=str(file)) is None
    assert packages(home) == PACKAGE
    (home / "conf" / "spark-defaults.conf").write_text(file.read_text())
    assert packages(home) is None
    file.write_text(f"#{line}\nspark.jars.ivy /tmp/ivy\nspark.jars\n")
    assert packages(home, properties_file=str(file)) == PACKAGE
    assert packages(home, properties_file=str(tmp_path / "absent.conf")) is None


def test_a_spark_that_brings_the_connector_gets_no_other(home: Path, tmp_path: Path) -> None:
    """In its own folder, or on the class path that its environment adds."""
    jar = "spark-sql-kafka-0-10_2.13-4.1.2.jar"
    added = add_jars(tmp_path / "added", jar)
    assert packages(home, {"SPARK_DIST_CLASSPATH": f"/etc/hadoop/conf:{added}/*"}) is None
    assert packages(home, {"SPARK_DIST_CLASSPATH": f"{added / jar}"}) is None
    assert packages(home, {"SPARK_DIST_CLASSPATH": "/etc/hadoop/conf"}) == PACKAGE
    add_jars(home / "jars", jar)
    assert packages(home) is None


def test_a_spark_of_an_unknown_version_gets_none(tmp_path: Path) -> None:
    """A script of the machine, and a missing command."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-submit"
    script.touch(mode=0o755)
    assert connector_packages(str(script), {}, JOB) is None
    assert connector_packages("no-such-submit", {"PATH": ""}, JOB) is None
