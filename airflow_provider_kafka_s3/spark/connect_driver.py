"""The driver of a job on a Spark Connect server: a child process of the Airflow task, without a JVM.

It ends with its parent process, however that ends: its standard input is a pipe whose other end closes then. The driver
then interrupts the job on the server, and makes no decision.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import selectors
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError, TerminalError
from airflow_provider_kafka_s3.spark.connect_session import open_session
from airflow_provider_kafka_s3.spark.job import execute, log_to_stderr
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KILLED", "import_modules", "main"]

log = logging.getLogger(__name__)

KILLED: Final = 3
"""Exit code of an interrupted driver."""

_INTERRUPT: Final = 3.0
"""Seconds for the request to interrupt the job; Airflow gives a killed task five."""

_WHEN_USED: Final = (
    *("boto3.s3.inject", "botocore.httpsession", "botocore.signers", "confluent_kafka.admin", "encodings.idna", "grpc"),
    *("grpc_status.rpc_status", "pandas", "pyspark.sql.connect.client.retries", "pyspark.sql.connect.session"),
    *(
        "pyspark.sql.connect.conf",
        "pyspark.sql.connect.readwriter",
        "pyspark.sql.connect.udf",
        "pyspark.sql.pandas.types",
    ),
)
"""What a job imports when it first uses it, and its libraries in turn."""


class _Driver(threading.Thread):
    """Executes the job, while the main thread watches standard input."""

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(name="job", daemon=True)
        self.result: JobResult | None = None
        self.ended, self._end = os.pipe()
        self._spec = spec
        self._spark: SparkSession | None = None
        self._tag = f"kafka-s3-{uuid.uuid4().hex}"

    def run(self) -> None:
        """Execute the job, then close the pipe."""
        try:
            self.result = execute(self._spec, self._session)
        finally:
            os.close(self._end)

    def _session(self) -> SparkSession:
        assert self._spec.connect is not None
        spark = open_session(self._spec.connect)
        # A tag belongs to the thread that runs the action.
        spark.addTag(self._tag)
        self._spark = spark
        return spark

    def interrupt(self) -> None:
        """Interrupt all actions of this job on the server, including those that start meanwhile."""
        spark = self._spark
        if spark is None:
            return
        # The response lists only the operations that this request interrupted.
        while spark.interruptTag(self._tag):
            pass

    def close(self) -> None:
        """Close the connection; the session is kept for the next run."""
        if self._spark is not None:
            with contextlib.suppress(Exception):
                session: Any = self._spark  # the client is missing in pyspark's types
                session.client.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job.

    Args:
        argv: ``--job-file PATH``, as for :func:`airflow_provider_kafka_s3.spark.job.main`; None: of the process.

    Returns:
        0 if every topic's batch is decided and rolled forward, else 1. It does not return if it is interrupted.
    """
    parser = argparse.ArgumentParser(prog="kafka-to-s3-remote", description="Execute plans on a Spark Connect server.")
    parser.add_argument("--job-file", required=True, help="description of the job; removed as soon as it is read")
    path: str = parser.parse_args(argv).job_file
    log_to_stderr()
    try:
        spec = JobSpec.read(path)
        if spec.connect is None:
            raise ConfigurationError(f"job file {path} names no Spark Connect server")
    except TerminalError as e:
        log.error("%s", e)
        return 1
    driver = _Driver(spec)
    driver.start()
    if not _ends_first(driver):
        log.warning("the Airflow task has ended or was killed: the job is interrupted, nothing more is decided")
        interrupting = threading.Thread(target=driver.interrupt, name="interrupt", daemon=True)
        interrupting.start()
        interrupting.join(_INTERRUPT)
        # At once, before the job's thread handles the error of the interrupted action.
        os._exit(KILLED)
    driver.join()
    driver.close()
    if driver.result is None:
        return 1
    driver.result.write(spec.result_path)
    return 0 if driver.result.succeeded else 1


def import_modules() -> None:
    """Import what a job imports later, so that forks of this process need not do so.

    It starts no thread, if variables keep Arrow's allocator and the libraries of NumPy from starting some.
    """
    for name in _WHEN_USED:
        importlib.import_module(name)


def _ends_first(driver: _Driver) -> bool:
    """Wait until the job or standard input ends; return whether it was the job."""
    with selectors.DefaultSelector() as selector:
        for source in (driver.ended, sys.stdin.fileno()):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if driver.ended in ready:
                return True
            if not os.read(sys.stdin.fileno(), 1):
                return False


if __name__ == "__main__":
    sys.exit(main())
