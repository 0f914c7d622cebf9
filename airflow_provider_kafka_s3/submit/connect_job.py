"""A job on a Spark Connect server: its driver is a child process of the Airflow task, without a JVM."""

from __future__ import annotations

import collections
import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.conf import of_server
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.processes import kill_job

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.submit.settings import SparkSettings

__all__ = ["ConnectJob", "python_files", "settings_of_server"]

_OUTPUT: Final = 20
"""Last lines of a driver's output to keep, in case it ends without a result."""

_END: Final = 4.0
"""Seconds that a driver has to end. Airflow 3 kills a task five seconds after SIGTERM."""

_START_ONLY: Final = (
    *("files", "jars", "packages", "exclude_packages", "driver_class_path", "properties_file"),
    *("keytab", "principal", "proxy_user", "archives", "repositories", "total_executor_cores", "executor_cores"),
    *("executor_memory", "driver_memory", "num_executors"),
)
"""Settings that take effect only when Spark starts; a Spark Connect server runs already."""


class ConnectJob:
    """One job on a Spark Connect server.

    Args:
        environment: variables of the driver, in addition to those of this process.
        log: logger for the driver's output, line by line.
    """

    def __init__(self, environment: Mapping[str, object], log: Any) -> None:
        self.environment = environment
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._killed = False

    def run(self, spec: JobSpec) -> JobOutcome:
        """See :class:`~airflow_provider_kafka_s3.submit.job.SparkJob`; ``spec`` names a server."""
        output = collections.deque[str](maxlen=_OUTPUT)
        job_file = Path(spec.result_path).with_name("job.json")
        spec.write(job_file)
        # Not in this process: gRPC has threads and locks, which neither a fork by Airflow nor a signal may interrupt
        # halfway. And when this process is killed with -9, the child still interrupts the job.
        try:
            with subprocess.Popen(
                [sys.executable, "-m", "airflow_provider_kafka_s3.spark.connect_driver", "--job-file", str(job_file)],
                env=spark_command.environment_of(self.environment),
                # The driver ends when the other end of this pipe is closed, for any reason.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process:
                self._process = process
                if self._killed:
                    self.kill()
                assert process.stdout is not None
                for line in process.stdout:
                    output.append(line.rstrip())
                    self._log.info("%s", output[-1])
        except BaseException:
            # A timeout, or the end of a killed task on Airflow 2.11.
            kill_job(str(job_file))
            raise
        result = JobResult.read(spec.result_path)
        failure = "" if result else "\n".join([f"Its exit code is {process.returncode}.", *output])
        return JobOutcome(result, failure)

    def kill(self) -> None:
        """End the driver, which interrupts the job on the server. It takes four seconds at most."""
        self._killed = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()


def python_files(settings: SparkSettings) -> tuple[str, ...]:
    """Paths of the ``py_files`` of a task, which are added to the session on a Spark Connect server.

    Raises:
        ConfigurationError: one is no file of this worker, is of another kind, or two have one name.
    """
    given = [part.strip() for part in (settings.py_files or "").split(",") if part.strip()]
    paths = [Path(part) for part in given]
    for part, path in zip(given, paths, strict=True):
        if path.suffix not in (".zip", ".egg", ".py") or not path.is_file():
            raise ConfigurationError(
                f"py_files={part!r} is no .zip, .egg or .py file of this worker; a session on a Spark Connect server "
                f"gets no others. Give such a file, or install its modules in the Python of the server's executors"
            )
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        raise ConfigurationError(
            f"py_files has two files of one name: {', '.join(map(str, paths))}; a session on a Spark Connect server "
            f"has one of a name, so rename one of them"
        )
    return tuple(str(path.absolute()) for path in paths)


def settings_of_server(settings: SparkSettings) -> list[str]:
    """Names of settings without effect on a Spark Connect server, which has to be started with them."""
    start_only = [name for name in _START_ONLY if getattr(settings, name, None) or settings.more.get(name)]
    return [*start_only, *of_server(settings.conf)]
