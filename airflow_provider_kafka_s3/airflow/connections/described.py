"""Connections without their secrets, for a report of a bug.

Only settings that are known to be harmless are shown: of all others the name alone. So a setting that nobody has
thought of is hidden, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require

__all__ = ["described_connection", "described_settings"]

_HIDDEN: Final = "***"
_SHOWN: Final = frozenset(
    {
        # librdkafka
        *("bootstrap.servers", "metadata.broker.list", "security.protocol", "sasl.mechanism", "sasl.mechanisms"),
        *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification", "isolation.level"),
        *("auto.offset.reset", "enable.auto.commit", "broker.address.family", "client.dns.lookup"),
        # S3
        *("region_name", "endpoint_url", "verify", "connect_timeout", "read_timeout", "max_pool_connections"),
        *("addressing_style", "use_accelerate_endpoint", "use_dualstack_endpoint", "signature_version"),
        # schema registries, Spark
        *("urls", "timeout", "deploy-mode", "use_ssl"),
    }
)
_NUMBERS: Final = (".ms", ".bytes", ".kb")
_LOGIN: Final = re.compile(r"(?<=://).*@|[?#].*", re.DOTALL)
"""The login in a URL, whose password may have any character, and what is behind its path."""


def described_connection(conn_id: str, parameter: str) -> dict[str, Any]:
    """A connection without secrets. These are masked in later logs.

    Args:
        conn_id: id of the connection.
        parameter: parameter of the operator that names it.

    Raises:
        ConfigurationError: there is no such connection, or its extra is no JSON object.
    """
    connection = require(conn_id, parameter)
    for secret in (connection.login, connection.password):
        if secret:
            mask(secret)
    schema = connection.schema
    return {
        "conn_type": connection.conn_type,
        "host": _text(connection.host or ""),
        "port": connection.port,
        "schema": schema if schema in ("http", "https", "", None) else _hide(schema),
        "login": _HIDDEN if connection.login else None,
        "password": _HIDDEN if connection.password else None,
        "extra": described_settings(extra_of(connection, parameter)),
    }


def described_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose values are hidden unless they are known to be harmless. The others are masked in later logs.

    Args:
        settings: of a connection, also with objects inside.
    """
    return {name: _described(name, value) for name, value in settings.items()}


def _described(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return described_settings(value)
    is_number = isinstance(value, int | float) and name.endswith(_NUMBERS)
    if value is None or isinstance(value, bool) or is_number:
        return value
    if name not in _SHOWN:
        return _hide(value)
    return [_text(str(item)) for item in value] if isinstance(value, list) else _text(str(value))


def _hide(value: Any) -> str:
    for item in value if isinstance(value, list) else [value]:
        mask(str(item))
    return _HIDDEN


def _text(text: str) -> str:
    """A text whose logins in URLs are hidden."""
    for login in _LOGIN.findall(text):
        for secret in (login.rstrip("@"), login.rstrip("@").partition(":")[2]):
            if secret:
                mask(secret)
    return _LOGIN.sub("", text)
