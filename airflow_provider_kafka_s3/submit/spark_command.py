"""The command ``spark-submit`` on the Airflow worker: its path, its environment, and the Python of its driver."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "environment_of",
    "find_java",
    "find_spark_submit",
    "local_master",
    "pyspark_home",
    "python_of_driver",
    "python_of_local_master",
    "require_client_deploy_mode",
    "require_command",
    "require_java",
    "spark_conf_folder",
    "spark_home",
]

_TASK_TRIES: Final = 4
"""Attempts of a Spark task at most; Spark's default, except on local masters."""


def environment_of(env: Mapping[str, object]) -> dict[str, str]:
    """The environment of a job: the worker's variables and the job's own."""
    return {**os.environ, **{name: str(value) for name, value in env.items()}}


def require_command(command: str, conn_id: str, env: Mapping[str, object]) -> None:
    """Check that a configured command can be executed.

    Args:
        command: submit command.
        conn_id: of the Spark connection, which may contain it.
        env: the job's own environment variables, in addition to the worker's.

    Raises:
        ConfigurationError: it is not on PATH, or may not be executed.
    """
    if shutil.which(command, path=environment_of(env).get("PATH")) is None:
        raise ConfigurationError(
            f"there is no command {command!r} that the Airflow worker can execute: install it, or correct spark_binary "
            f"or the spark-binary of the connection {conn_id!r} (spark_conn_id)"
        )


def local_master(master: str) -> str:
    """A local master that retries tasks, as other masters do: ``local[2]`` -> ``local[2,4]``."""
    threads = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return master if threads is None else f"local[{threads[1] or 1},{_TASK_TRIES}]"


def python_of_local_master(conf: Mapping[str, object], env: Mapping[str, object]) -> dict[str, str]:
    """Environment variables that make a local master use the Python of the Airflow worker.

    Spark would use the first ``python3`` on PATH, in which this package may not be installed.

    Args:
        conf: the job's Spark configuration.
        env: the job's own environment variables. Values set in either, or in the worker's environment, have precedence.
    """
    variables = {"PYSPARK_PYTHON": "spark.pyspark.python", "PYSPARK_DRIVER_PYTHON": "spark.pyspark.driver.python"}
    return {
        name: sys.executable
        for name, setting in variables.items()
        if name not in env and name not in os.environ and setting not in conf
    }


def python_of_driver(conf: Mapping[str, object], env: Mapping[str, object]) -> dict[str, str]:
    """Settings that make the driver use the Python of the Airflow worker when the executors are on other machines.

    Spark would run the driver with the executors' ``spark.pyspark.python``, which may not exist on this machine, or
    with the first ``python3`` on PATH.

    Args:
        conf: the job's Spark configuration.
        env: the job's own environment variables. A Python set for the driver has precedence: in either, in the worker's
            environment, or as a ``PYSPARK_PYTHON`` for all machines.
    """
    chosen = "spark.pyspark.driver.python" in conf or "PYSPARK_DRIVER_PYTHON" in (variables := environment_of(env))
    if chosen or ("spark.pyspark.python" not in conf and "PYSPARK_PYTHON" in variables):
        return {}
    return {"spark.pyspark.driver.python": sys.executable}


def find_spark_submit(*, local: bool) -> str | None:
    """The command to submit with if none is configured; None: the Spark hook's default (``spark-submit`` on PATH).

    Args:
        local: whether the master is a local one; it runs the worker's own pyspark, regardless of PATH.

    Raises:
        ConfigurationError: Spark is not installed.
    """
    on_path = shutil.which("spark-submit")
    if on_path is not None and not local:
        return None
    # Not imported: pyspark takes half a second, and pyspark-client alone has the package without the command.
    home = pyspark_home()
    if home is not None and (command := home / "bin" / "spark-submit").is_file():
        return str(command)
    if on_path is not None:
        return None
    raise ConfigurationError(
        "there is no spark-submit, neither in this Python environment nor on PATH; install Spark with "
        "`pip install 'airflow-provider-kafka-s3[spark]'`, or set the command with spark_binary"
    )


def require_client_deploy_mode(*modes: object) -> None:
    """Refuse a driver that does not run on the Airflow worker.

    Args:
        modes: deploy modes in order of precedence; empty ones are skipped.

    Raises:
        ConfigurationError: the mode is not ``client``.
    """
    mode = next((m for m in modes if m), "client")
    if mode != "client":
        raise ConfigurationError(
            f"deploy mode {mode!r}: the Spark driver has to run on the Airflow worker, which has the private file with "
            f"the credentials of the job; use deploy mode 'client'"
        )


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The path of ``java`` as Spark's scripts find it; that of ``JAVA_HOME`` may not exist. None: there is none."""
    if home := environment.get("JAVA_HOME"):
        return Path(home, "bin", "java").resolve()
    executable = shutil.which("java", path=environment.get("PATH"))
    return None if executable is None else Path(executable).resolve()


def require_java(env: Mapping[str, object]) -> None:
    """Check that ``spark-submit`` will find Java.

    Args:
        env: the job's own environment variables, in addition to the worker's.

    Raises:
        ConfigurationError: there is none.
    """
    environment = environment_of(env)
    java = find_java(environment)
    if java is not None and os.access(java, os.X_OK):
        return
    home = environment.get("JAVA_HOME")
    problem = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on PATH and JAVA_HOME is not set"
    raise ConfigurationError(
        f"Spark needs Java 17 or 21 on the Airflow worker: {problem}. Install a JRE (Debian: openjdk-17-jre-headless) "
        f"or set JAVA_HOME"
    )


def spark_home(command: str, environment: Mapping[str, str]) -> Path | None:
    """The home folder of the Spark that a command starts; None if unknown.

    Args:
        command: submit command.
        environment: of the command.
    """
    # Spark's scripts use it, including those of pyspark.
    if home := environment.get("SPARK_HOME"):
        return Path(home)
    path = shutil.which(command, path=environment.get("PATH"))
    if path is None:
        return None
    folder = Path(path).resolve().parent
    # The command that pip installs for pyspark locates the package with Python.
    return pyspark_home() if folder == Path(sysconfig.get_path("scripts")).resolve() else folder.parent


def spark_conf_folder(home: Path, environment: Mapping[str, str]) -> Path:
    """The folder of the settings of the Spark in a home folder."""
    return Path(environment.get("SPARK_CONF_DIR") or home / "conf")


def pyspark_home() -> Path | None:
    """The home folder of this environment's pyspark; None if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None
