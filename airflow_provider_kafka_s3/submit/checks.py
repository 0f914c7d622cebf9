"""Checks of a task's Spark installation, before anything is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.connect_job import python_files
from airflow_provider_kafka_s3.submit.jars import require_jars
from airflow_provider_kafka_s3.submit.versions import connector_flaw, installed_versions, pyspark_flaw, raise_flaw

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.submit.settings import SparkSettings
    from airflow_provider_kafka_s3.submit.target import SparkTarget

__all__ = ["require_spark"]

_CLUSTER_MODE: Final = ("track_driver_via_k8s_api", "yarn_track_via_rm_api")
"""Parameters of SparkSubmitOperator that its hook accepts in deploy mode ``cluster`` only."""


def require_spark(settings: SparkSettings, target: SparkTarget) -> None:
    """Refuse a Spark that cannot run the job: its command, its versions, or the jars of the Kafka connector.

    Args:
        settings: of the task.
        target: where Spark runs. The command and the jars of a Spark Connect server are the server's.

    Raises:
        ConfigurationError: versions are incompatible, or Spark, its command, a jar or a file of Python is missing.
    """
    if target.connect_url is None:
        for name in _CLUSTER_MODE:
            if settings.more.get(name):
                raise ConfigurationError(
                    f"{name}=True is for a Spark driver in the cluster, but the driver of this operator runs on the "
                    f"Airflow worker; remove it"
                )
    _require_versions(settings, target)
    if target.connect_url is not None:
        python_files(settings)
    elif settings.jars_by("jars"):
        require_jars(settings, command=settings.spark_binary or target.spark_binary, local=target.is_local)


def _require_versions(settings: SparkSettings, target: SparkTarget) -> None:
    """Refuse incompatible versions of pyspark, its client and the Kafka connector.

    A separate Spark (another command or another ``SPARK_HOME``) is not checked: its version is unknown here.
    """
    submitted = target.connect_url is None
    if submitted:
        if configured := settings.spark_binary or target.spark_binary:
            spark_command.require_command(configured, settings.conn_id, settings.env)
        command = configured or spark_command.find_spark_submit(local=target.is_local) or "spark-submit"
        home = spark_command.spark_home(command, spark_command.environment_of(settings.env))
        pyspark_home = spark_command.pyspark_home()
        if home is None or pyspark_home is None or home.resolve() != pyspark_home.resolve():
            return
    versions = installed_versions()
    raise_flaw(pyspark_flaw(versions))
    if submitted and "pyspark" in versions:
        flaw = connector_flaw(versions["pyspark"], packages=settings.jars_by("packages"), jars=settings.jars_by("jars"))
        raise_flaw(flaw)
