"""Connections to a catalog of Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["catalog_properties"]

_SECRET: Final = ("secret", "token", "credential", "password")
"""Parts of the names of properties that are secret."""


def catalog_properties(conn_id: str) -> dict[str, Any]:
    """The properties of pyiceberg for a catalog: a connection of type ``iceberg``, as Airflow's hook reads it.

    The extra has the properties. The host is ``uri``, and login and password are ``credential`` of a REST catalog,
    which is the default ``type``. Secrets are masked in logs from here on.

    Raises:
        ConfigurationError: there is no such connection, or it names no catalog.
    """
    parameter = "iceberg_conn_id"
    connection = require(conn_id, parameter)
    extra = extra_of(connection, parameter)
    properties = {name: value if isinstance(value, dict) else str(value) for name, value in extra.items()}
    if connection.host:
        properties["uri"] = connection.host.rstrip("/")
        if "://" not in properties["uri"] and connection.conn_type == "iceberg":
            raise ConfigurationError(
                f"{parameter}={conn_id!r}: the host {connection.host!r} has no scheme; set it to the whole address, "
                f"such as https://catalog.example.com/v1. A connection that is itself a URL loses it: use JSON"
            )
    if "py-catalog-impl" not in properties:
        properties.setdefault("type", "rest")
    if properties.get("type") == "rest":
        if not properties.get("uri"):
            raise ConfigurationError(f"{parameter}={conn_id!r}: the connection names no catalog; set its host")
        if connection.login and connection.password:
            properties["credential"] = f"{connection.login}:{connection.password}"
    for secret in (connection.password, urlsplit(str(properties.get("uri", ""))).password, *_secrets(properties)):
        if secret:
            mask(secret)
    return properties


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, dict):
            yield from _secrets(value)
        elif any(part in name for part in _SECRET):
            yield str(value)
