"""Finding Spark, Java and Python on a worker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.submit import spark_command


def executable(path: Path) -> Path:
    """Create an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize(
    ("master", "becomes"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("yarn", "yarn"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_local_masters_try_tasks_again(master: str, becomes: str) -> None:
    """Only a local master without a number of attempts is changed; others retry by default."""
    assert spark_command.local_master(master) == becomes


def test_a_local_master_runs_the_spark_of_this_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regardless of PATH; other masters use the spark-submit on PATH."""
    monkeypatch.setenv("PATH", str(executable(tmp_path / "spark-submit").parent))
    command = spark_command.find_spark_submit(local=True)
    assert command is not None
    assert Path(command).parts[-3:] == ("pyspark", "bin", "spark-submit")
    assert Path(command).is_relative_to(sys.prefix)
    assert spark_command.find_spark_submit(local=False) is None


def test_without_spark_the_error_has_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyspark-client has the package pyspark without the command, so the package alone proves nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"pip install 'airflow-provider-kafka-s3\[spark\]'"):
        spark_command.find_spark_submit(local=True)


def test_java_is_found_by_java_home_and_by_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As spark-submit finds it: JAVA_HOME first, of the job or of the worker."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = executable(tmp_path / "jre" / "bin" / "java")
    spark_command.require_java({"JAVA_HOME": tmp_path / "jre", "PATH": ""})
    spark_command.require_java({"PATH": java.parent})


def test_without_java_the_error_has_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The two ways in which Java can be missing have distinct errors."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"no java on PATH.*openjdk-17-jre-headless"):
        spark_command.require_java({"PATH": str(tmp_path)})
    with pytest.raises(ConfigurationError, match=r"JAVA_HOME=\S+ holds no bin/java.*openjdk-17-jre-headless"):
        spark_command.require_java({"JAVA_HOME": str(tmp_path)})


def test_workers_of_a_local_master_run_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user chose one: in the job's environment, in the worker's, or in Spark's configuration."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    here = sys.executable
    assert spark_command.python_of_local_master({}, {}) == {"PYSPARK_PYTHON": here, "PYSPARK_DRIVER_PYTHON": here}
    assert spark_command.python_of_local_master({}, {"PYSPARK_PYTHON": "x"}) == {"PYSPARK_DRIVER_PYTHON": here}
    assert spark_command.python_of_local_master({"spark.pyspark.driver.python": "x"}, {}) == {"PYSPARK_PYTHON": here}
    monkeypatch.setenv("PYSPARK_PYTHON", "x")
    assert spark_command.python_of_local_master({}, {}) == {"PYSPARK_DRIVER_PYTHON": here}
