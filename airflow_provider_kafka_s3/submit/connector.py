"""The package of Spark's Kafka connector, for a job that names no connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from airflow_provider_kafka_s3.spark.connector import CONNECTOR, coordinates
from airflow_provider_kafka_s3.submit.jars import is_artifact, jars_of_spark
from airflow_provider_kafka_s3.submit.settings import JAR_SETTINGS, SparkSettings

__all__ = ["connector_packages"]

_CORE: Final = re.compile(r"spark-core_(?P<scala>[\d.]+)-(?P<version>\d.*)\.jar")


def connector_packages(command: str, environment: Mapping[str, str], settings: SparkSettings) -> str | None:
    """The value of ``--packages`` with which a job without jars can read Kafka.

    Args:
        command: that submits.
        environment: of the command.
        settings: of the job.

    Returns:
        Maven coordinates of the connector for the Spark that the command starts. None: that Spark has it, a parameter
        or a setting may add it, or the version of that Spark is unknown.
    """
    if any(map(settings.jars_by, JAR_SETTINGS)):
        return None
    installed = jars_of_spark(command, environment, settings.properties_file)
    if installed is None or installed.configured or any(is_artifact(name, CONNECTOR) for name in installed.names):
        return None
    core = next((match for name in installed.names if (match := _CORE.fullmatch(name))), None)
    return None if core is None else coordinates(core["version"], scala=core["scala"])
