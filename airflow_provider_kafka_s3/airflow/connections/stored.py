"""Connections as Airflow stores them: looked up, read and masked, and the commands that name them."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

__all__ = ["command_to_add", "connection_options", "extra_of", "mask", "require"]

_SHORTEST_LINE: Final = 8
"""Minimum number of characters of a masked line of a certificate. Shorter ones occur in many log lines."""

_SHORTEST_SECRET: Final = 5
"""Minimum number of characters of a masked secret of one line. Airflow masks no shorter one, and logs a warning."""

_ARGUMENTS_TO_ADD: Final = {
    "kafka_conn_id": """--conn-type kafka --conn-extra '{"bootstrap.servers": "broker:9092"}'""",
    "aws_conn_id": "--conn-type aws --conn-login ACCESS_KEY_ID --conn-password SECRET_ACCESS_KEY",
    "hive_conn_id": "--conn-type hive_metastore --conn-host metastore --conn-port 9083",
    "iceberg_conn_id": "--conn-type iceberg --conn-host https://catalog:8181",
    "registry_conn_id": "--conn-type http --conn-host https://registry:8081 --conn-login USER --conn-password PASSWORD",
    "spark_conn_id": "--conn-type spark --conn-host 'local[2]'",
}
"""Arguments of ``airflow connections add`` for an example connection, by the parameter that names the connection."""


def require(conn_id: str, parameter: str) -> Connection:
    """A connection that must exist.

    Args:
        conn_id: its id.
        parameter: parameter of the operator that names it, such as ``kafka_conn_id``.

    Raises:
        ConfigurationError: there is no such connection.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as e:
        raise ConfigurationError(
            f"there is no connection {conn_id!r}. Name another one by {parameter}, set the environment variable "
            f"AIRFLOW_CONN_{conn_id.upper()}, or create it with its own values: {command_to_add(conn_id, parameter)}"
        ) from e


def extra_of(connection: Connection, parameter: str) -> dict[str, Any]:
    """The extra of a connection; empty if it has none.

    Raises:
        ConfigurationError: it is not a JSON object.
    """
    if not connection.extra:
        return {}
    try:
        extra = json.loads(connection.extra)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        # Neither the text nor the parser's error is quoted: they may contain secrets.
        raise ConfigurationError(f"{parameter}={connection.conn_id!r}: the connection's extra is not a JSON object")
    return extra


def mask(secret: str) -> None:
    """Mask a secret, and each of its lines, in later logs."""
    from airflow.providers.common.compat.sdk import mask_secret

    # Logs are masked line by line, and a certificate has many lines.
    lines = secret.splitlines()
    shortest = _SHORTEST_SECRET if len(lines) == 1 else _SHORTEST_LINE
    for line in {secret, *lines}:
        if len(line) >= shortest and not line.startswith("-----"):
            mask_secret(line)


def command_to_add(conn_id: str, parameter: str) -> str:
    """The complete command that adds a connection, in backticks.

    Args:
        conn_id: id of the connection.
        parameter: parameter of the operator that names it, such as ``kafka_conn_id``.
    """
    return f"`airflow connections add {shlex.quote(conn_id)} {_ARGUMENTS_TO_ADD[parameter]}`"


def connection_options(
    kafka_conn_id: str | None, aws_conn_id: str | None, registry_conn_id: str | None = None
) -> tuple[str, ...]:
    """Options with which ``kafka-s3`` uses the same connections, for the commands in error messages."""
    kafka = () if kafka_conn_id is None else ("--kafka-conn-id", kafka_conn_id)
    aws = () if aws_conn_id is None else ("--aws-conn-id", aws_conn_id)
    registry = () if registry_conn_id is None else ("--registry-conn-id", registry_conn_id)
    return (*kafka, *aws, *registry)
