"""Translates exceptions of failed Spark actions to errors of this package.

Spark reports causes only as text and Java class names, through py4j or its own wrappers depending on where it failed,
so the text is searched. Java stack traces are removed: they contain Spark's own code, never the reason.
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
from airflow_provider_kafka_s3.spark.memory_errors import about_memory
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
# Milliseconds after the year 294,246 exceed Spark's microseconds: most likely the timestamps are nanoseconds.
_TIMESTAMP: Final = re.compile(r"ArithmeticException: long overflow")
_TOO_MANY_ROWS: Final = re.compile(r"spark\.driver\.maxResultSize")
_NO_CONNECTOR: Final = re.compile(r"Failed to find (the )?data source: kafka\b")
_NO_MSK: Final = re.compile(r"software\.amazon\.msk\.\S+ .*could not be found|LoginModule class: software\.amazon")
_SET_PYTHON: Final = "conf={'spark.pyspark.python': '/path/of/bin/python'}"
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]*)"')
_WRONG_PYTHON: Final = re.compile(r"PYTHON_VERSION_MISMATCH")
_WRONG_CONNECTOR: Final = re.compile(r"NoClassDefFoundError|NoSuchMethodError|AbstractMethodError|NoSuchFieldError")


def explain(error: Exception) -> KafkaS3Error:
    """The error of this package for an exception of Spark.

    Returns:
        ``DataLossError`` if offsets were gone, ``AccessDeniedError`` if Kafka refused the executors,
        ``ConfigurationError`` if the connector or the executors' Python is missing or incompatible, or the master is
        invalid, ``SparkTimestampError`` if a timestamp is too large for Spark, ``TerminalError`` if the rows of all
        tasks exceed the driver's limit, else ``SparkJobError``, with what to raise if memory ran out.
    """
    if isinstance(error, KafkaS3Error):
        return error
    if isinstance(error, MemoryError):
        return SparkJobError(
            f"the memory of the Spark driver's Python ran out ({type(error).__name__}: {error}). Give the Airflow "
            f"worker more, or reduce the objects of a batch (partitioner, rotation, limits)"
        )
    text = message_of(error)
    reason = _reason(error, text)
    if _NO_CONNECTOR.search(text):
        return ConfigurationError(
            f"Spark has no Kafka connector. Add it with packages='{connector_package()}', or with jars=… and the "
            f"paths of spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients and commons-pool2"
        )
    if _NO_MSK.search(text):
        return ConfigurationError(
            "the Kafka connection logs in by IAM (Amazon MSK), and Spark has no jar for that. Add it with "
            f"packages='software.amazon.msk:aws-msk-iam-auth:…,{connector_package()}', or with jars=…"
        )
    if _WRONG_CONNECTOR.search(text):
        return ConfigurationError(
            f"a jar is incompatible with this Spark: use {connector_package()} and its own dependencies. Spark's "
            f"error: {reason}"
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
        return SparkTimestampError("a record has a timestamp after the year 294246, which Spark cannot represent")
    if _TOO_MANY_ROWS.search(text):
        return TerminalError(
            f"the tasks return more objects than the Spark driver accepts: {reason}. Raise spark.driver.maxResultSize "
            f"and spark.driver.memory, or reduce the objects of a batch (partitioner, rotation, limits)"
        )
    return about_memory(text) or SparkJobError(f"the Spark job failed: {reason}")


def _about_python(text: str, reason: str) -> ConfigurationError | None:
    """The error if the executors' Python or one of its modules is missing, or its version differs from the driver's."""
    if module := _NO_MODULE.search(reason):
        return ConfigurationError(
            f"the executors' Python has no module {module[1]!r}. Install spark_jobs/requirements.txt into an "
            f"environment that all executors have, and set its Python: {_SET_PYTHON}"
        )
    if "PythonWorkerFactory" in text and (program := _NO_PYTHON.search(text)):
        return ConfigurationError(
            f"an executor has no Python {program[1]!r}. Set one that every executor has: {_SET_PYTHON}. It needs the "
            f"packages in spark_jobs/requirements.txt"
        )
    if _WRONG_PYTHON.search(text):
        return ConfigurationError(
            f"the executors' Python has another minor version than that of the driver: {reason}. Set one of the "
            f"driver's version: {_SET_PYTHON}, or another one for the driver with 'spark.pyspark.driver.python'"
        )
    return None


def _reason(error: Exception, text: str) -> str:
    worker = text.rfind(_PYTHON_TRACE)
    if worker >= 0:
        # From a Python worker, where the last traceback is that of the raised error. Its frames are followed by the
        # exception, which may have several lines, and its notes.
        trace = _END_OF_PYTHON.split(text[worker + len(_PYTHON_TRACE) :])[0].splitlines()
        text = "\n".join(itertools.dropwhile(lambda line: not line or line[0].isspace(), trace))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _TRACE.match(line)]
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return " ".join(lines).removeprefix(": ")[:_LONGEST] or type(error).__name__
