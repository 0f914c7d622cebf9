"""Connections to a catalog of Iceberg."""

from __future__ import annotations

from typing import Final

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["catalog_properties"]

_SECRET: Final = ("secret", "token", "credential", "password")
"""Parts of the names of properties that are secret."""


def catalog_properties(conn_id: str) -> dict[str, str]:
    """The properties of pyiceberg for a catalog: a connection of type ``iceberg``, as Airflow's hook reads it.

    The extra has the properties. The host is ``uri``, and login and password are ``credential`` of a REST catalog,
    which is the default ``type``. Secrets are masked in logs from here on.

    Raises:
        ConfigurationError: there is no such connection, or it names no catalog.
    """
    parameter = "iceberg_conn_id"
    connection = require(conn_id, parameter)
    properties = {name: str(value) for name, value in extra_of(connection, parameter).items() if value is not None}
    if connection.host:
        properties["uri"] = connection.host.rstrip("/")
        if "://" not in properties["uri"] and connection.conn_type == "iceberg":
            raise ConfigurationError(
                f"{parameter}={conn_id!r}: the host {connection.host!r} has no scheme; set it to the whole address, "
                f"such as https://catalog.example.com/v1. A connection that is itself a URL loses it: use JSON"
            )
    properties.setdefault("type", "rest")
    if properties["type"] == "rest":
        if not properties.get("uri"):
            raise ConfigurationError(f"{parameter}={conn_id!r}: the connection names no catalog; set its host")
        if connection.login and connection.password:
            properties["credential"] = f"{connection.login}:{connection.password}"
    for secret in (
        connection.password,
        *(value for name, value in properties.items() if any(part in name for part in _SECRET)),
    ):
        if secret:
            mask(secret)
    return properties
