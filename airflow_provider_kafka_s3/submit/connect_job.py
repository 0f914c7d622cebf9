"""A job on a Spark Connect server: its driver is a process of the Airflow worker, without a JVM."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.conf import of_server
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.driver_process import DRIVER, DriverProcess, StartedDriver
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.processes import kill_job
from airflow_provider_kafka_s3.submit.warm_drivers import warm_drivers

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
        warm_seconds: for which a warm process waits for the next job of this worker; 0: there is none.
        driver: module of the driver.
    """

    def __init__(
        self, environment: Mapping[str, object], log: Any, *, warm_seconds: float = 0, driver: str = DRIVER
    ) -> None:
        self.environment = environment
        self.warm_seconds = warm_seconds
        self._driver = driver
        self._log = log
        self._process: DriverProcess | None = None
        self._killed = False

    def run(self, spec: JobSpec) -> JobOutcome:
        """See :class:`~airflow_provider_kafka_s3.submit.job.SparkJob`; ``spec`` names a server."""
        output = collections.deque[str](maxlen=_OUTPUT)
        job_file = Path(spec.result_path).with_name("job.json")
        environment = spark_command.environment_of(self.environment)
        warm = warm_drivers(environment, self.warm_seconds, self._log, driver=self._driver)
        # Not in this process: gRPC has threads and locks, which neither a fork by Airflow nor a signal may interrupt
        # halfway. And when this process is killed with -9, the driver still interrupts the job.
        try:
            with contextlib.ExitStack() as offered:
                offered.enter_context(spec.offered(job_file))
                forked = None if warm is None else warm.fork(job_file, self._log)
                if forked is not None:
                    self._log.info("the driver is a fork of this worker's warm process")
                else:
                    # A fork that did not begin in time may have read it.
                    offered.close()
                    offered.enter_context(spec.offered(job_file))
                process: DriverProcess = forked or StartedDriver(job_file, environment, driver=self._driver)
                self._process = offered.enter_context(process)
                if self._killed:
                    self.kill()
                for line in process.output:
                    output.append(line.rstrip())
                    self._log.info("%s", output[-1])
                code = process.wait()
        except BaseException:
            # A timeout, or the end of a killed task on Airflow 2.11.
            kill_job(str(job_file))
            raise
        result = JobResult.read(spec.result_path)
        if warm is not None and forked is None and not self._killed:
            # Not before, since it would take the processor from this job.
            warm.start(self._log)
        ended = "Its exit code is unknown." if code is None else f"Its exit code is {code}."
        return JobOutcome(result, "" if result else "\n".join([ended, *output]))

    def kill(self) -> None:
        """End the driver, which interrupts the job on the server. It takes four seconds at most."""
        self._killed = True
        if self._process is not None:
            self._process.end(_END)


def python_files(settings: SparkSettings) -> tuple[str, ...]:
    """Paths of the ``py_files`` of a task, which are added to the session on a Spark Connect server.

    Raises:
        ConfigurationError: one is no file of this worker, is of another kind, or two have one name.
    """
    parts = [part.strip() for part in (settings.py_files or "").split(",") if part.strip()]
    paths = [Path(part) for part in parts]
    for part, path in zip(parts, paths, strict=True):
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
