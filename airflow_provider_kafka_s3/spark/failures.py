"""What a failed Spark action means, read from its exception, and what to say about errors that stay.

Spark tells by text and Java class names only, through py4j or through its own wrappers depending on where it failed, so
the text is what is looked at. Java stack traces are cut away: they name Spark's own code, never the reason.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    DataLossError,
    KafkaS3Error,
    SparkJobError,
    SparkTimestampError,
    TerminalError,
    message_of,
)
from airflow_provider_kafka_s3.spark.connector import connector_package
from airflow_provider_kafka_s3.spark.start_errors import about_start

__all__ = ["explain"]

_LONGEST: Final = 1_500
_TRACE: Final = re.compile(r"^\s*(at |\.\.\. \d+ more)")
_PYTHON_TRACE: Final = "Traceback (most recent call last):"
_END_OF_PYTHON: Final = re.compile(r"^(JVM|Driver) stacktrace:", re.MULTILINE)
_DATA_LOSS: Final = re.compile(r"KAFKA_DATA_LOSS|KafkaIllegalStateException|OffsetOutOfRangeException")
_DENIED: Final = re.compile(
    r"(Topic|Group|Cluster)AuthorizationException|(Sasl|Ssl)AuthenticationException|SaslException"
)
# Milliseconds beyond the year 294,246 do not fit into Spark's microseconds: somebody sent nanoseconds.
_TIMESTAMP: Final = re.compile(r"ArithmeticException: long overflow")
_TOO_MANY_ROWS: Final = re.compile(r"spark\.driver\.maxResultSize")
_NO_CONNECTOR: Final = re.compile(r"Failed to find (the )?data source: kafka\b")
_NO_MSK: Final = re.compile(r"software\.amazon\.msk\.\S+ .*could not be found|LoginModule class: software\.amazon")
_NAME_IT: Final = "conf={'spark.pyspark.python': '/path/of/bin/python'}"
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]*)"')
_WRONG_PYTHON: Final = re.compile(r"PYTHON_VERSION_MISMATCH")
_WRONG_CONNECTOR: Final = re.compile(r"NoClassDefFoundError|NoSuchMethodError|AbstractMethodError|NoSuchFieldError")


def explain(error: Exception) -> KafkaS3Error:
    """The error of this package for what Spark raised.

    Returns:
        ``DataLossError`` if offsets were gone, ``AccessDeniedError`` if Kafka refused the executors,
        ``ConfigurationError`` if the connector or the executors' Python is missing or does not fit, or the master is
        none,
        ``SparkTimestampError`` if a timestamp is too large for Spark, ``TerminalError`` if the driver cannot take the
        rows of all tasks, else ``SparkJobError``.
    """
    if isinstance(error, KafkaS3Error):
        return error
    text = message_of(error)
    reason = _reason(error, text)
    if _NO_CONNECTOR.search(text):
        return ConfigurationError(
            f"Spark has no Kafka connector. Give it one by packages='{connector_package()}', or by jars=… with the "
            f"paths of spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients and commons-pool2"
        )
    if _NO_MSK.search(text):
        return ConfigurationError(
            "the Kafka connection logs in by IAM (Amazon MSK), and Spark has no jar for that. Give it one by "
            f"packages='software.amazon.msk:aws-msk-iam-auth:…,{connector_package()}', or by jars=…"
        )
    if _WRONG_CONNECTOR.search(text):
        return ConfigurationError(
            f"a jar does not fit this Spark: use {connector_package()} and its own dependencies. Spark said: {reason}"
        )
    if (known := _about_python(text, reason) or about_start(text)) is not None:
        return known
    if _DATA_LOSS.search(text):
        return DataLossError(reason)
    if _DENIED.search(text):
        return AccessDeniedError(
            f"Kafka refused the executors: {reason}. Check the credentials of the Kafka connection and that they may "
            f"READ the topic"
        )
    if _TIMESTAMP.search(text):
        return SparkTimestampError("a record has a timestamp beyond the year 294246, which Spark cannot hold")
    if _TOO_MANY_ROWS.search(text):
        return TerminalError(
            f"the tasks tell of more objects than the Spark driver takes: {reason}. Raise spark.driver.maxResultSize "
            f"and spark.driver.memory, or let a batch make fewer objects (partitioner, rotation, limits)"
        )
    return SparkJobError(f"the Spark job failed: {reason}")


def _about_python(text: str, reason: str) -> ConfigurationError | None:
    """The error if the executors' Python is missing, lacks something, or is another than the driver's."""
    if module := _NO_MODULE.search(reason):
        return ConfigurationError(
            f"the executors' Python has no module {module[1]!r}. Install what spark_jobs/requirements.txt lists into "
            f"an environment that all executors have, and name its Python: {_NAME_IT}"
        )
    if "PythonWorkerFactory" in text and (program := _NO_PYTHON.search(text)):
        return ConfigurationError(
            f"an executor has no Python {program[1]!r}. Name one that every executor has: {_NAME_IT}. It needs what "
            f"spark_jobs/requirements.txt lists"
        )
    if _WRONG_PYTHON.search(text):
        return ConfigurationError(
            f"the executors' Python is of another minor version than that of the driver: {reason}. Name one of the "
            f"driver's version: {_NAME_IT}, or another one for the driver by 'spark.pyspark.driver.python'"
        )
    return None


def _reason(error: Exception, text: str) -> str:
    worker = text.rfind(_PYTHON_TRACE)
    if worker >= 0:
        # From a Python worker, where later tracebacks are those of the raised errors: what follows the frames of the
        # last one is the exception, which may have several lines, and its notes.
        told = _END_OF_PYTHON.split(text[worker + len(_PYTHON_TRACE) :])[0].splitlines()
        text = "\n".join(itertools.dropwhile(lambda line: not line or line[0].isspace(), told))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _TRACE.match(line)]
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return " ".join(lines).removeprefix(": ")[:_LONGEST] or type(error).__name__
