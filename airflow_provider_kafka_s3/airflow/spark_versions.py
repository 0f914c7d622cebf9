"""Whether the Spark of a task is one that this package supports, before anything is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.spark_command import pyspark_home, spark_home
from airflow_provider_kafka_s3.submit.versions import connector_flaw, installed_versions, pyspark_flaw, require

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.spark_job import PlanSubmitter
    from airflow_provider_kafka_s3.submit.target import SparkTarget

__all__ = ["require_versions"]


def require_versions(task: PlanSubmitter, target: SparkTarget) -> None:
    """Refuse versions of pyspark, its client and the Kafka connector that do not fit together.

    A Spark of the user's own (another command or another ``SPARK_HOME``) is not judged: its version is not known here.

    Args:
        task: says which Spark is started, and with which connector; its templates are rendered.
        target: where Spark runs. On a Spark Connect server the connector is the server's.

    Raises:
        ConfigurationError: they do not fit, there is no Spark at all, or not the command that was named.
    """
    submitted = target.connect_url is None
    if submitted:
        env = task.env_vars or {}
        if named := task._spark_binary or target.spark_binary:
            spark_command.require_command(named, task.spark_conn_id, env)
        command = named or spark_command.find_spark_submit(local=target.is_local) or "spark-submit"
        started, ours = spark_home(command, spark_command.environment_of(env)), pyspark_home()
        if started is None or ours is None or started.resolve() != ours.resolve():
            return
    versions = installed_versions()
    require(pyspark_flaw(versions))
    if submitted and "pyspark" in versions:
        conf = task.conf or {}
        packages, jars = (
            [str(text) for text in said if text]
            for said in ((task.packages, conf.get("spark.jars.packages")), (task.jars, conf.get("spark.jars")))
        )
        require(connector_flaw(versions["pyspark"], packages=packages, jars=jars))
