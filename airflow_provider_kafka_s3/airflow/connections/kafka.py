"""Connections to Kafka: the settings of librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["kafka_config", "kafka_name", "mask_options"]

_SECRET_WORDS: Final = ("key", "pass", "pem", "secret", "token", "jaas")
"""Parts of the names of librdkafka settings whose values are masked in logs."""


def kafka_config(conn_id: str) -> dict[str, Any]:
    """Settings of librdkafka: the extra of a connection of type ``kafka``. Its secrets are masked in later logs.

    Raises:
        ConfigurationError: there is no such connection, or its extra is not a JSON object.
    """
    connection = require(conn_id, "kafka_conn_id")
    config = extra_of(connection, "kafka_conn_id")
    if not config:
        raise ConfigurationError(
            f"kafka_conn_id={conn_id!r}: the connection's extra is empty; put librdkafka's settings there, such as "
            f'{{"bootstrap.servers": "broker:9092"}}'
        )
    for name, value in config.items():
        harmless = name.endswith((".location", ".url"))
        # A password may be a number in JSON.
        is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
        if is_text and not harmless and any(word in name for word in _SECRET_WORDS):
            mask(str(value))
    return config


def kafka_name(conn_id: str) -> str:
    """Names a Kafka connection, for messages."""
    return f"the Kafka connection {conn_id!r} (kafka_conn_id)"


def mask_options(options: Mapping[str, str]) -> None:
    """Mask the secrets in settings of Spark's Kafka source in later logs."""
    from airflow_provider_kafka_s3.kafka.options import SECRET_OPTIONS

    for name in SECRET_OPTIONS & options.keys():
        mask(options[name])
