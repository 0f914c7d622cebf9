"""The Airflow connections of a new DAG: those that exist and fit, or the commands that add what is missing.

No secret is in a command: it reads a file, or variables of the shell into which it is pasted.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.cli.stored_connections import has_connection, read_connection
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.cli.access import Access
    from airflow_provider_kafka_s3.storage.clients import S3Settings

__all__ = ["DEFAULT_IDS", "ConnectionChoice", "choose_connections"]

DEFAULT_IDS: Final = {
    "kafka_conn_id": "kafka_default",
    "aws_conn_id": "aws_default",
    "registry_conn_id": "registry_default",
    "spark_conn_id": "spark_default",
}
_S3_OPTIONS: Final = ("endpoint_url", "region", "ca_bundle", "addressing_style")


@dataclass(frozen=True)
class ConnectionChoice:
    """A connection of the DAG.

    Attributes:
        parameter: of the operator, such as ``kafka_conn_id``.
        conn_id: id of the connection; None: the operator needs none.
        comment: why it is this one.
        command: adds the connection; empty: it exists.
    """

    parameter: str
    conn_id: str | None
    comment: str
    command: str = ""


def choose_connections(
    access: Access, pipeline: str, spark_conn_id: str | None, *, needs_registry: bool
) -> list[ConnectionChoice]:
    """The connections of a DAG that reaches what a command has reached.

    Args:
        access: of the command.
        pipeline: name of the pipeline, for the ids of connections beside the default ones.
        spark_conn_id: as the user gives it; None: one that fits.
        needs_registry: whether the DAG uses the schema registry of the command.

    Raises:
        ConfigurationError: a connection cannot be read, or all ids that would be used belong to other servers.
    """
    choices = [_kafka(access, pipeline), _aws(access, pipeline)]
    if needs_registry:
        choices.append(_registry(access, pipeline))
    return [*choices, _spark(pipeline, spark_conn_id)]


def _kafka(access: Access, pipeline: str) -> ConnectionChoice:
    from airflow_provider_kafka_s3.airflow import connections

    config = access.kafka_config
    if (conn_id := _named(access, "kafka_conn_id", "kafka_config", "bootstrap_server")) is not None:
        return ConnectionChoice("kafka_conn_id", conn_id, "")
    file = None if access.arguments.bootstrap_server else access.option("kafka_config")
    extra = shlex.quote(json.dumps(config)) if file is None else f'"$(cat {shlex.quote(file)})"'
    return _fitting(
        "kafka_conn_id",
        pipeline,
        lambda conn_id: read_connection(conn_id, connections.kafka_config, "kafka_conn_id") == config,
        f"--conn-type kafka --conn-extra {extra}",
    )


def _aws(access: Access, pipeline: str) -> ConnectionChoice:
    from airflow_provider_kafka_s3.airflow import connections

    settings = access.s3_access[0]
    if (conn_id := _named(access, "aws_conn_id", *_S3_OPTIONS)) is not None:
        return ConnectionChoice("aws_conn_id", conn_id, "")
    if not any(access.option(name) for name in _S3_OPTIONS):
        return ConnectionChoice(
            "aws_conn_id",
            None,
            "None: boto3's own chain of credentials on the workers, such as a role; a connection may have keys instead",
        )
    extra = _aws_extra(settings)
    keys = ""
    if os.environ.get("AWS_ACCESS_KEY_ID") and not os.environ.get("AWS_SESSION_TOKEN"):
        keys = ' --conn-login "$AWS_ACCESS_KEY_ID" --conn-password "$AWS_SECRET_ACCESS_KEY"'

    def fits(conn_id: str) -> bool:
        stored = _aws_extra(read_connection(conn_id, connections.s3_access, "aws_conn_id").settings)
        return stored.get("endpoint_url") == settings.endpoint_url and extra.items() <= stored.items()

    arguments = f"--conn-type aws{keys} --conn-extra {shlex.quote(json.dumps(extra))}"
    return _fitting("aws_conn_id", pipeline, fits, arguments)


def _aws_extra(settings: S3Settings) -> dict[str, Any]:
    """The extra of a connection with these settings."""
    style = settings.addressing_style
    extra = {
        "endpoint_url": settings.endpoint_url,
        "region_name": settings.region,
        "verify": settings.ca_bundle,
        "config_kwargs": None if style == "auto" else {"s3": {"addressing_style": style}},
    }
    return {name: value for name, value in extra.items() if value}


def _registry(access: Access, pipeline: str) -> ConnectionChoice:
    from airflow_provider_kafka_s3.airflow import connections

    if access.arguments.registry_conn_id or not (url := access.option("registry_url")):
        return ConnectionChoice("registry_conn_id", access.option("registry_conn_id"), "")

    def fits(conn_id: str) -> bool:
        return url.rstrip("/") in read_connection(conn_id, connections.registry_access, "registry_conn_id").urls

    return _fitting("registry_conn_id", pipeline, fits, f"--conn-type http --conn-host {shlex.quote(url)}")


def _spark(pipeline: str, conn_id: str | None) -> ConnectionChoice:
    from airflow_provider_kafka_s3.airflow import connections

    arguments = "--conn-type spark --conn-host 'local[2]'"
    if conn_id is not None:
        command = "" if has_connection(conn_id) else _command(conn_id, arguments)
        return ConnectionChoice("spark_conn_id", conn_id, "", command)

    def fits(named: str) -> bool:
        master = read_connection(named, connections.spark_target, "spark_conn_id").master
        # Airflow's example of this connection is YARN.
        return master != "yarn" or bool({"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys())

    return _fitting("spark_conn_id", pipeline, fits, arguments)


def _named(access: Access, parameter: str, *others: str) -> str | None:
    """The connection that the command itself has used; options on the command line win over defaults."""
    arguments = access.arguments
    if any(getattr(arguments, name) for name in others) and not getattr(arguments, parameter):
        return None
    return access.option(parameter)


def _fitting(parameter: str, pipeline: str, fits: Callable[[str], bool], arguments: str) -> ConnectionChoice:
    """The first of the two ids whose connection fits, or does not exist."""
    own = f"{pipeline}_{parameter.removesuffix('_conn_id')}"
    for conn_id in (DEFAULT_IDS[parameter], own):
        comment = f"{DEFAULT_IDS[parameter]!r} exists, and has other settings" if conn_id == own else ""
        if not has_connection(conn_id):
            return ConnectionChoice(parameter, conn_id, comment, _command(conn_id, arguments))
        try:
            if fits(conn_id):
                return ConnectionChoice(parameter, conn_id, comment)
        except KafkaS3Error:  # such as an example of Airflow without settings
            continue
    raise ConfigurationError(
        f"the connections {DEFAULT_IDS[parameter]!r} and {own!r} exist, and neither has these settings; name the "
        f"connection of the DAG by --{parameter.replace('_', '-')}"
    )


def _command(conn_id: str, arguments: str) -> str:
    return f"airflow connections add {shlex.quote(conn_id)} {arguments}"
