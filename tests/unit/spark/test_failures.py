"""Spark's exceptions get errors by their remedy."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    DataLossError,
    KafkaS3Error,
    RecordError,
    SparkJobError,
    SparkTimestampError,
    TerminalError,
)
from airflow_provider_kafka_s3.spark.failures import explain

TRACE = """
	at org.apache.spark.sql.kafka010.KafkaExceptions$.couldNotReadOffsetRange(KafkaExceptions.scala:101)
	at java.base/java.lang.Thread.run(Thread.java:840)
	... 1 more
"""
NO_PYTHON = "\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:287)\n"
MISMATCH = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark …"
CALLING = "An error occurred while calling o165.collectToPython.\n"
GONE = "Reason: offset [0, 9) for topic partition a-0."
PYTHON_TRACE = 'Traceback (most recent call last):\n  File "uploads.py", line 1, in f\n    code\n'
NOTED = (
    "airflow_provider_kafka_s3.exceptions.UnknownOutcomeError: 503 gave up: UploadPart s3://lake/key, 4 tries in 3.0 s"
)
RAISED_WITH_NOTE = (
    f"\n  An exception was thrown from the Python worker.\n{PYTHON_TRACE}a.PreconditionFailed: no\n\n"
    f"During handling of the above exception, another exception occurred:\n\n"
    f"{PYTHON_TRACE}{NOTED.replace(' gave up', chr(10) + 'gave up')}\n\n"
)
IN_A_TASK = f"org.apache.spark.SparkException: PythonException: {PYTHON_TRACE}a.E: no\nnote\n{TRACE}"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            f"{CALLING}: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Lost\n{GONE}{TRACE}",
            DataLossError,
            GONE,
        ),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data", DataLossError, "Some data"),
        (
            f"{CALLING}: org.apache.spark.sql.AnalysisException: Failed to find data source: kafka. {TRACE}",
            ConfigurationError,
            "packages='org.apache.spark:spark-sql-kafka-0-10_2.13:",
        ),
        (
            f"{CALLING}: org.apache.spark.SparkException: java.lang.ArithmeticException: long overflow{TRACE}",
            SparkTimestampError,
            "year 294246",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka.", ConfigurationError, "jars="),
        (f": java.lang.NoClassDefFoundError: org/apache/kafka/Something{TRACE}", ConfigurationError, "is incompatible"),
        (
            f": org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [x]{TRACE}",
            AccessDeniedError,
            "Not authorized: [x]",
        ),
        (
            f"\n  An exception was thrown from the Python worker.\n{PYTHON_TRACE}ThrottledError: slow down\n",
            SparkJobError,
            "failed: ThrottledError: slow down",
        ),
        (f"{RAISED_WITH_NOTE}JVM stacktrace:\norg.apache.SparkException{TRACE}", SparkJobError, f"failed: {NOTED}"),
        (
            f"{CALLING}: {IN_A_TASK}Driver stacktrace:{TRACE}Caused by: {IN_A_TASK}",
            SparkJobError,
            "failed: a.E: no note",
        ),
        (
            f"{CALLING}: {PYTHON_TRACE}ModuleNotFoundError: No module named 'msgspec'\n{TRACE}",
            ConfigurationError,
            "the executors' Python has no module 'msgspec'. Install spark_jobs/requirements.txt into an",
        ),
        (
            f'{CALLING}: java.io.IOException: Cannot run program "/no/python": error=2, No such file{TRACE}{NO_PYTHON}',
            ConfigurationError,
            "an executor has no Python '/no/python'. Set one that every executor has: conf={'spark.pyspark.python':",
        ),
        (f'{CALLING}: java.io.IOException: Cannot run program "chmod": error=2{TRACE}', SparkJobError, "chmod"),
        (
            f"{CALLING}: {PYTHON_TRACE}pyspark.errors.exceptions.base.PySparkRuntimeError: {MISMATCH}\n{TRACE}",
            ConfigurationError,
            "3.12 than that in driver: 3.11",
        ),
        ("bigger than spark.driver.maxResultSize (1024.0 MiB).", TerminalError, "spark.driver.memory"),
        (
            f"{CALLING}: Task 0 in stage 0.0 failed 4 times: java.lang.OutOfMemoryError: Java heap space{TRACE}",
            SparkJobError,
            "(OutOfMemoryError: Java heap space): it holds the largest records. With a local master raise driver_me",
        ),
        (
            f"ExecutorLostFailure (executor 3 exited caused by a task) Reason: Command exited with code 52{TRACE}",
            SparkJobError,
            "on a cluster executor_memory",
        ),
        (
            "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory, got 0.",
            SparkJobError,
            "raise driver_memory",
        ),
        (
            f"\n  An exception was thrown from the Python worker.\n{PYTHON_TRACE}MemoryError\n",
            SparkJobError,
            "the memory of a Python worker of Spark ran out (MemoryError). On a cluster raise conf={'spark.executor",
        ),
        (
            f"{CALLING}: {PYTHON_TRACE}pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed\n{TRACE}",
            SparkJobError,
            "ran out (pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed). On a cluster raise",
        ),
        (
            f"{CALLING}: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider{TRACE}",
            SparkJobError,
            "a Python worker of Spark ended without an error; most likely the system killed it, since memory ran out",
        ),
        (
            "ExecutorLostFailure Reason: Container killed by YARN for exceeding physical memory limits. 1.5 GB of 1.5",
            SparkJobError,
            "took more memory than its container has. On a cluster raise conf={'spark.executor.memoryOverhead': '2g'}",
        ),
        (
            "The executor with id 7 exited with exit code 137(SIGKILL, possible container OOM).",
            SparkJobError,
            "spark.executor.memoryOverhead",
        ),
        (
            f"{CALLING}: java.lang.OutOfMemoryError: unable to create native thread{TRACE}",
            SparkJobError,
            "the Spark job failed: java.lang.OutOfMemoryError: unable to create native thread",
        ),
        ("exited with exit code 1370", SparkJobError, "failed: exited with exit code 1370"),
        ("", SparkJobError, "RuntimeError"),
    ],
)
def test_a_failure_gets_the_error_of_its_text(text: str, kind: type[KafkaS3Error], message: str) -> None:
    """The class decides whether a retry helps; the message is the reason, without Java's frames."""
    error = explain(RuntimeError(text))
    assert type(error) is kind
    assert message in str(error)
    assert "KafkaExceptions.scala" not in str(error)
    assert not str(error).endswith("SparkException")


def test_the_memory_of_the_driver_s_own_python_is_named() -> None:
    """It has no text; that of Arrow says how much was wanted."""
    for error in (MemoryError(), pa.ArrowMemoryError("malloc of size 9 failed")):
        assert str(explain(error)).startswith(
            f"the memory of the Spark driver's Python ran out ({type(error).__name__}: "
        )


def test_errors_of_this_package_are_not_changed() -> None:
    """The driver raises its own, too."""
    error = RecordError("offset 1")
    assert explain(error) is error


def test_a_long_text_is_cut() -> None:
    """The result file is read by people."""
    assert len(str(explain(RuntimeError("x" * 100_000)))) < 2_000
