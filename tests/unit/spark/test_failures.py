"""Spark's exceptions get errors by their remedy."""

from __future__ import annotations

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


def test_errors_of_this_package_are_not_changed() -> None:
    """The driver raises its own, too."""
    error = RecordError("offset 1")
    assert explain(error) is error


def test_a_long_text_is_cut() -> None:
    """The result file is read by people."""
    assert len(str(explain(RuntimeError("x" * 100_000)))) < 2_000
