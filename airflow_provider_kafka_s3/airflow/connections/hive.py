"""Connections to a Hive metastore."""

from __future__ import annotations

from typing import Any

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, require
from airflow_provider_kafka_s3.config.tables import MetastoreSettings
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["metastore_access"]


def metastore_access(conn_id: str) -> MetastoreSettings:
    """How to reach a Hive metastore: a connection of type ``hive_metastore``, as Airflow's hook reads it.

    The host may be several addresses with commas between them. The login acts in the metastore. The extra may have
    ``timeout``: seconds.

    Raises:
        ConfigurationError: there is no such connection, it names no host, or its metastore needs a login of SASL.
    """
    parameter = "hive_conn_id"
    connection = require(conn_id, parameter)
    extra, where = extra_of(connection, parameter), f"{parameter}={conn_id!r}"
    mechanism = extra.get("auth_mechanism") or extra.get("authMechanism") or "NOSASL"
    if mechanism != "NOSASL":
        raise ConfigurationError(
            f"{where}: the extra has the auth_mechanism {mechanism!r}; only 'NOSASL' is supported, a metastore without "
            f"Kerberos"
        )
    hosts = tuple(host.strip() for host in (connection.host or "").split(",") if host.strip())
    if not hosts:
        raise ConfigurationError(f"{where}: the connection names no metastore; set its host")
    settings: dict[str, Any] = {"port": connection.port, "user": connection.login, "timeout": extra.get("timeout")}
    try:
        return MetastoreSettings(hosts=hosts, **{name: value for name, value in settings.items() if value is not None})
    except ConfigurationError as e:
        raise ConfigurationError(f"{where}: {e}") from None
