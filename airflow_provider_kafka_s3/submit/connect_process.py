"""A job on a Spark Connect server: its driver is a child process of the Airflow task, without a JVM."""

from __future__ import annotations

import collections
import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec
from airflow_provider_kafka_s3.submit import spark_command

__all__ = ["RemoteJob", "settings_of_server"]

_LAST_WORDS: Final = 20
"""Lines of a driver's output that are kept, in case it ends without a result."""

_END: Final = 4.0
"""Seconds that a driver gets to end. Airflow 3 kills a task five seconds after it asked it to end."""

_SUBMIT_ONLY: Final = (
    *("files", "py_files", "jars", "packages", "exclude_packages", "driver_class_path", "properties_file"),
    *("keytab", "principal", "proxy_user", "_archives", "_repositories", "_total_executor_cores", "_executor_cores"),
    *("_executor_memory", "_driver_memory", "_num_executors"),
)
"""Attributes of SparkSubmitOperator that say how Spark is started, which somebody else has done here."""


class RemoteJob:
    """One job; it can be killed from a signal handler, also before it began.

    Args:
        log: a logger; what the driver says goes there, line by line.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._killed = False

    def run(self, spec: JobSpec, environment: Mapping[str, object]) -> tuple[JobResult | None, str]:
        """Execute it to its end.

        Args:
            spec: with a server in it; its ``result_path`` lies in a private folder, where the job file goes, too.
            environment: variables of the driver beside those of this process.

        Returns:
            What the driver wrote down, or None and how it ended.
        """
        last = collections.deque[str](maxlen=_LAST_WORDS)
        job_file = Path(spec.result_path).with_name("job.json")
        spec.write(job_file)
        # Not in this process: gRPC has threads and locks, which neither a fork of Airflow's nor a signal may interrupt
        # halfway; and what this process cannot do any more when it is killed with -9, its child does.
        with subprocess.Popen(
            [sys.executable, "-m", "airflow_provider_kafka_s3.spark.connect_driver", "--job-file", str(job_file)],
            env=spark_command.environment_of(environment),
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
                last.append(line.rstrip())
                self._log.info("%s", last[-1])
        result = JobResult.read(spec.result_path)
        return result, "" if result else "\n".join([f"Its exit code is {process.returncode}.", *last])

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


def settings_of_server(operator: Any) -> list[str]:
    """What an operator says about how Spark is started: names of its parameters and settings, for a warning."""
    from airflow_provider_kafka_s3.spark.conf import of_server

    parameters = [name.lstrip("_") for name in _SUBMIT_ONLY if getattr(operator, name, None)]
    return [*parameters, *of_server(operator.conf or {})]
