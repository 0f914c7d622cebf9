"""What a failed Spark action means, read from its exception.

Spark tells by text and Java class names only, through py4j or through its own wrappers depending on where it failed, so
the text is what is looked at. Java stack traces are cut away: they name Spark's own code, never the reason.
"""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    DataLossError,
    KafkaS3Error,
    SparkJobError,
)
from airflow_provider_kafka_s3.spark.conf import connector_package

__all__ = ["explain"]

_LONGEST: Final = 1_500
_TRACE: Final = re.compile(r"^\s*(at |\.\.\. \d+ more)")
_DATA_LOSS: Final = re.compile(r"KAFKA_DATA_LOSS|KafkaIllegalStateException|OffsetOutOfRangeException")
_DENIED: Final = re.compile(
    r"(Topic|Group|Cluster)AuthorizationException|(Sasl|Ssl)AuthenticationException|SaslException"
)
_NO_CONNECTOR: Final = re.compile(r"Failed to find (the )?data source: kafka\b")
_WRONG_CONNECTOR: Final = re.compile(r"NoClassDefFoundError|NoSuchMethodError|AbstractMethodError|NoSuchFieldError")


def explain(error: Exception) -> KafkaS3Error:
    """The error of this package for what Spark raised.

    Returns:
        ``DataLossError`` if offsets were gone, ``AccessDeniedError`` if Kafka refused the executors,
        ``ConfigurationError`` if the connector is missing or does not fit, else ``SparkJobError``.
    """
    if isinstance(error, KafkaS3Error):
        return error
    text = str(error)
    reason = _reason(error, text)
    if _NO_CONNECTOR.search(text):
        return ConfigurationError(
            f"Spark has no Kafka connector. Give it one by packages='{connector_package()}', or by jars=… with the "
            f"paths of spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients and commons-pool2"
        )
    if _WRONG_CONNECTOR.search(text):
        return ConfigurationError(
            f"a jar does not fit this Spark: use {connector_package()} and its own dependencies. Spark said: {reason}"
        )
    if _DATA_LOSS.search(text):
        return DataLossError(reason)
    if _DENIED.search(text):
        return AccessDeniedError(
            f"Kafka refused the executors: {reason}. Check the credentials of the Kafka connection and that they may "
            f"READ the topic"
        )
    return SparkJobError(f"the Spark job failed: {reason}")


def _reason(error: Exception, text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _TRACE.match(line)]
    if "Traceback (most recent call last):" in lines:
        # From a Python worker: its last line is the exception, and later tracebacks are those of the raised ones.
        lines = lines[: lines.index("JVM stacktrace:")] if "JVM stacktrace:" in lines else lines
        lines = lines[-1:]
    elif lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return " ".join(lines).removeprefix(": ")[:_LONGEST] or type(error).__name__
