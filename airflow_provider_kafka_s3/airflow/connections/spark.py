"""Connections to Spark: a master, or a Spark Connect server."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.submit.target import SparkTarget

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

__all__ = ["spark_target"]


def spark_target(conn_id: str) -> SparkTarget:
    """The master for ``spark-submit``, or the Spark Connect server, by the rules of Airflow's Spark hooks.

    Raises:
        ConfigurationError: there is no such connection, or it names neither a master nor a server.
    """
    connection = require(conn_id, "spark_conn_id")
    extra = extra_of(connection, "spark_conn_id")
    host = connection.host or ""
    if connection.conn_type == "spark_connect" or host.startswith("sc://"):
        return _connect_target(connection)
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    if connection.port:
        master += f":{connection.port}"
    if master.endswith("://"):
        raise ConfigurationError(
            f"spark_conn_id={conn_id!r}: the connection names no master; set its host, such as 'local[2]', 'yarn' or "
            f"'spark://host:7077'"
        )
    if master.startswith("k8s://") and not _has_kubernetes():
        raise ConfigurationError(
            f"apache-airflow-providers-cncf-kubernetes is not installed: Airflow needs it to submit to the Kubernetes "
            f"master {master!r} of spark_conn_id={conn_id!r}. Install it"
        )
    return SparkTarget(master, extra.get("deploy-mode"), extra.get("spark-binary"), extra.get("history-url"))


def _connect_target(connection: Connection) -> SparkTarget:
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    if not (connection.host or "").removeprefix("sc://"):
        raise ConfigurationError(
            f"spark_conn_id={connection.conn_id!r}: the connection names no Spark Connect server; set its host and port"
        )
    try:
        url = SparkConnectHook(connection.conn_id).get_connection_url()
    except ValueError as e:
        raise ConfigurationError(
            f"spark_conn_id={connection.conn_id!r}: the host of a Spark Connect server must not have a path: put user "
            f"and token into login and password, and use_ssl into the extra"
        ) from e
    if connection.password:
        mask(connection.password)
    return SparkTarget(url.partition("/;")[0].rstrip("/"), None, None, connect_url=url)


def _has_kubernetes() -> bool:
    try:
        return importlib.util.find_spec("airflow.providers.cncf.kubernetes") is not None
    except ModuleNotFoundError:
        return False
