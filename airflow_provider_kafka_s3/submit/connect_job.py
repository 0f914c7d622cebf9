"""A job on a Spark Connect server: its driver is a child process of the Airflow task, without a JVM."""

from __future__ import annotations

import collections
import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.spark.conf import of_server
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.processes import kill_job

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.submit.settings import SparkSettings

__all__ = ["ConnectJob", "settings_of_server"]

_OUTPUT: Final = 20
"""Lines of a driver's output that are kept, in case it ends without a result."""

_END: Final = 4.0
"""Seconds that a driver gets to end. Airflow 3 kills a task five seconds after it asked it to end."""

_START_ONLY: Final = (
    *("files", "py_files", "jars", "packages", "exclude_packages", "driver_class_path", "properties_file"),
    *("keytab", "principal", "proxy_user", "archives", "repositories", "total_executor_cores", "executor_cores"),
    *("executor_memory", "driver_memory", "num_executors"),
)
"""Settings of the start of Spark, which a Spark Connect server has had already."""


class ConnectJob:
    """One job that a Spark Connect server runs.

    Args:
        environment: variables of the driver, beside those of this process.
        log: a logger; what the driver prints goes there, line by line.
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
        # Not in this process: gRPC has threads and locks, which neither a fork of Airflow's nor a signal may interrupt
        # halfway; and what this process cannot do any more when it is killed with -9, its child does.
        try:
            with subprocess.Popen(
                [sys.executable, "-m", "airflow_provider_kafka_s3.spark.connect_driver", "--job-file", str(job_file)],
                env=spark_command.environment_of(self.environment),
                # The driver ends when the other end of this pipe is closed, by whatever.
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
        """End the driver, which asks the server to stop, too. It takes four seconds at most."""
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


def settings_of_server(settings: SparkSettings) -> list[str]:
    """Settings that a job on a Spark Connect server cannot have, as the server had to be started with them; names."""
    given = [name for name in _START_ONLY if getattr(settings, name, None) or settings.more.get(name)]
    return [*given, *of_server(settings.conf)]
