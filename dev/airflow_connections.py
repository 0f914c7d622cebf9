"""Connections of Airflow to the servers of tests, benchmarks and the demo, as environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["connection_variables", "kafka_connection", "s3_connection"]


def connection_variables(connections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The variables that define connections by their ids: ``AIRFLOW_CONN_…``."""
    return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection) for name, connection in connections.items()}


def kafka_connection(config: Mapping[str, object]) -> dict[str, Any]:
    """A connection with the settings of a Kafka client."""
    return {"conn_type": "kafka", "extra": dict(config)}


def s3_connection(
    endpoint: str, access_key: str, secret_key: str, *, config: Mapping[str, object] | None = None, **extra: object
) -> dict[str, Any]:
    """A connection to an S3 server on this machine.

    Args:
        endpoint: URL of the server.
        access_key: name of the key.
        secret_key: its secret.
        config: more settings of botocore's ``Config``, such as ``read_timeout``.
        extra: more fields of the connection's extra.
    """
    return {
        "conn_type": "aws",
        "login": access_key,
        "password": secret_key,
        "extra": {
            "endpoint_url": endpoint,
            "region_name": "us-east-1",
            "config_kwargs": {"s3": {"addressing_style": "path"}, **(config or {})},
            **extra,
        },
    }
