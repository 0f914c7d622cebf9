"""A throw-away Airflow for the demo and for tests: SQLite, no servers, runs DAGs by ``airflow dags test``.

Java is wrapped by a script that records the command line of every start. So a test can check that a run with nothing
new starts no JVM.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.submit.spark_command import pyspark_home
from dev.java import find_java

__all__ = ["AVRO_JARS", "SPARK_JARS", "AirflowHome", "DagRun", "spark_defaults", "spark_with_connector"]

_SPARK: Final = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
SPARK_JARS: Final = Path(__file__).resolve().parent.parent / ".build" / "jars" / f"spark-{_SPARK}"
"""The Kafka connector of the Spark in this environment, and what it needs."""

_FOREIGN: Final = ("AIRFLOW", "AWS_", "KAFKA_", "PYSPARK_", "SPARK_")
"""Prefixes of environment variables that could override the settings of the caller."""

AVRO_JARS: Final = SPARK_JARS.parent / "avro"
"""Jars of Avro's command line, and of Spark's reader of Avro for the oldest version of Spark."""
_CLASS_ARCHIVES: Final = SPARK_JARS.parent.parent / "class-archives"
"""Folder of archives of Spark's classes; the first job with a Spark makes its one, and later test runs have it."""

_JAVA: Final = """#!/bin/sh
case "$*" in
  *VerifySharedSpaces*|*ArchiveClassesAtExit*-version) ;;  # looks whether archives can be made, or used
  *) echo "$(printf '%s ' "$@" | tr '\\n' ' ')" >>'{starts}' ;;
esac
exec '{java}' -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "$@"
"""
"""Spark runs for seconds here: optimising its code and collecting garbage in parallel costs more than it saves."""


@dataclass(frozen=True)
class DagRun:
    """Result of a run of a DAG.

    Attributes:
        succeeded: whether all its tasks succeeded.
        output: output of Airflow and Spark.
        returned: XCom of each task with a return value.
        java_starts: number of JVMs that it started.
    """

    succeeded: bool
    output: str
    returned: dict[str, Any]
    java_starts: int


def spark_defaults(folder: Path, jars: Path = SPARK_JARS) -> dict[str, str]:
    """Environment of a worker whose Spark has the Kafka connector by its own settings, so that no DAG names it.

    With these settings on its class path, Java can share no classes: see :func:`spark_with_connector`.

    Args:
        folder: folder for the settings; it may exist.
        jars: folder of the connector.
    """
    folder.mkdir(exist_ok=True)
    named = ",".join(map(str, sorted(jars.glob("*.jar"))))
    (folder / "spark-defaults.conf").write_text(f"spark.jars {named}\n")
    return {"SPARK_CONF_DIR": str(folder)}


def spark_with_connector() -> dict[str, str]:
    """Environment of a worker whose Spark has the Kafka connector among its own jars, so that no DAG names it.

    The Spark is that of this environment, by links. All who use it share one archive of its classes.
    """
    pyspark = pyspark_home()
    assert pyspark is not None, "it is in every environment of this project"
    jars = [*sorted((pyspark / "jars").glob("*.jar")), *sorted(SPARK_JARS.glob("*.jar"))]
    digest = hashlib.sha256("\n".join(map(str, jars)).encode()).hexdigest()[:16]
    home = SPARK_JARS.parent.parent / "spark-homes" / digest
    if not home.exists():
        home.parent.mkdir(exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=home.parent))
        (new / "jars").mkdir()
        for jar in jars:
            (new / "jars" / jar.name).symlink_to(jar)
        for path in pyspark.iterdir():
            if path.name != "jars":
                (new / path.name).symlink_to(path)
        with contextlib.suppress(OSError):  # another process was faster
            new.rename(home)
    return {"SPARK_HOME": str(home)}


class AirflowHome:
    """An Airflow installation's state in a folder."""

    def __init__(
        self,
        folder: Path,
        dags: Path,
        *,
        environment: Mapping[str, str] | None = None,
        python: Path = Path(sys.executable),
    ) -> None:
        """Describe it; :meth:`migrate` creates its database.

        Args:
            folder: an existing folder; the caller removes it.
            dags: folder with DAG files.
            environment: more variables for every command; connections are ``AIRFLOW_CONN_…``.
            python: the interpreter of the environment with Airflow.
        """
        self.folder = folder
        self._python = python
        java = folder / "java" / "bin" / "java"
        self._starts = folder / "java-starts"
        self._starts.touch()
        java.parent.mkdir(parents=True)
        java.write_text(_JAVA.format(starts=self._starts, java=find_java()))
        java.chmod(0o755)
        # By this file all homes have the same Java, and so one archive of Spark's classes.
        if (release := Path(find_java()).resolve().parent.parent / "release").exists():
            shutil.copyfile(release, java.parent.parent / "release")
        # By default a writer waits five seconds for another one. Airflow imports modules of this folder.
        (folder / "config").mkdir()
        (folder / "config" / "patient_sqlite.py").write_text('ARGUMENTS = {"timeout": 60}\n')
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)},
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__KAFKA_S3__CLASS_ARCHIVES": str(_CLASS_ARCHIVES),
            # Airflow's default of half a minute may be too short for the first imports on a busy machine.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "patient_sqlite.ARGUMENTS",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": "patient_sqlite.ARGUMENTS",
            "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
            "JAVA_HOME": str(java.parent.parent),
            "NO_PROXY": "127.0.0.1,localhost",
            "NO_COLOR": "1",
            "SPARK_KAFKA_JARS": ",".join(map(str, sorted(SPARK_JARS.glob("*.jar")))),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(environment or {}),
        }

    @property
    def connections(self) -> dict[str, str]:
        """The variables of the environment that define connections."""
        return {name: value for name, value in self.environment.items() if name.startswith("AIRFLOW_CONN_")}

    @property
    def java_commands(self) -> list[str]:
        """The arguments of every JVM that was started so far."""
        return self._starts.read_text().splitlines()

    def migrate(self) -> None:
        """Create the database.

        Raises:
            RuntimeError: the command failed; with its output.
        """
        status, output = self.run(["db", "migrate"])
        if status:
            raise RuntimeError(f"airflow db migrate failed:\n{output}")

    def run(
        self,
        arguments: list[str],
        *,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], object] = str,
    ) -> tuple[int, str]:
        """Run an ``airflow`` command.

        Args:
            arguments: of the command, such as ``["dags", "list"]``.
            environment: more variables for it.
            on_line: called with each line of the output as it is printed.

        Returns:
            Its exit status and its output.
        """
        lines: list[str] = []
        # A process group of its own, so that an interrupt also ends the JVM and the workers of Spark.
        process = subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    lines.append(line)
                    on_line(line.rstrip("\n"))
            return process.wait(), "".join(lines)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise

    def test(
        self,
        dag_id: str,
        logical_date: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], object] = str,
    ) -> DagRun:
        """Run a DAG by ``airflow dags test``.

        Args:
            dag_id: id of the DAG.
            logical_date: of the run, such as ``2013-01-02``; None: now.
            environment: more variables for this run.
            on_line: called with each line of the output as it is printed.
        """
        starts = len(self.java_commands)
        # By the time, too: on Airflow 2 a run of the same date is the same run, and keeps the earlier XComs.
        earlier = {(run, time) for run, time, _, _ in self._xcoms(dag_id)}
        arguments = ["dags", "test", dag_id, *([logical_date] if logical_date else [])]
        status, output = self.run(arguments, on_line=on_line, environment=environment)
        returned = {
            task: json.loads(value) for run, time, task, value in self._xcoms(dag_id) if (run, time) not in earlier
        }
        return DagRun(status == 0, output, returned, len(self.java_commands) - starts)

    def command(self, dag_id: str, logical_date: str | None = None) -> list[str]:
        """The command line of :meth:`test`."""
        return self._command(["dags", "test", dag_id, *([logical_date] if logical_date else [])])

    def query(self, sql: str, *parameters: str) -> list[Any]:
        """The rows that a query of Airflow's database returns."""
        with contextlib.closing(sqlite3.connect(self.folder / "airflow.db", timeout=30)) as connection:
            return connection.execute(sql, parameters).fetchall()

    def _command(self, arguments: list[str]) -> list[str]:
        return [str(self._python), "-m", "airflow", *arguments]

    def _xcoms(self, dag_id: str) -> list[tuple[str, str, str, str | bytes]]:
        sql = "SELECT run_id, timestamp, task_id, value FROM xcom WHERE dag_id = ? AND key = 'return_value'"
        return self.query(sql, dag_id)
