"""Airflow connections for commands: from the environment, a secrets backend, or Airflow's database.

A task of Airflow 3 has no access to the database, so Airflow's ``get_connection`` reads the database only in processes
that are marked as Airflow's servers. ``airflow connections get`` marks its own process, and so does a command while it
reads a connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["has_connection", "read_connection"]

_CONTEXT: Final = "_AIRFLOW_PROCESS_CONTEXT"
_LOGGER: Final = "airflow.models.connection"

_Settings = TypeVar("_Settings")


def read_connection(conn_id: str, read: Callable[[str], _Settings], parameter: str) -> _Settings:
    """Read a connection with a function of :mod:`~airflow_provider_kafka_s3.airflow.connections`.

    Args:
        conn_id: id of the connection.
        read: turns the connection of an id into settings.
        parameter: parameter of the operator that names such a connection, such as ``kafka_conn_id``.

    Raises:
        ConfigurationError: there is no such connection, or it cannot be read.
        KafkaS3Error: see ``read``.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    with _reading_the_database():
        try:
            BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            raise ConfigurationError(_not_found(conn_id, parameter)) from None
        return read(conn_id)


def has_connection(conn_id: str) -> bool:
    """Whether Airflow has a connection, which this process may be unable to decrypt.

    Args:
        conn_id: id of the connection.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    with _reading_the_database():
        try:
            BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            try:
                _decrypt_stored(conn_id)
            except _Undecryptable:
                return True
            except Exception:  # noqa: BLE001 - a database that cannot be read has no connection for this process
                return False
            return False
        return True


@contextlib.contextmanager
def _reading_the_database() -> Iterator[None]:
    context = os.environ.get(_CONTEXT)
    # Airflow 2 logs the traceback of an unreadable database before it raises that there is no connection.
    logger = logging.getLogger(_LOGGER)
    level = logger.level
    os.environ[_CONTEXT] = "server"
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        if context is None:
            del os.environ[_CONTEXT]
        else:
            os.environ[_CONTEXT] = context


def _not_found(conn_id: str, parameter: str) -> str:
    """Why Airflow did not find a connection; its own error is the same if it could not read the connection."""
    from airflow.configuration import conf
    from sqlalchemy.engine import make_url

    from airflow_provider_kafka_s3.airflow.connections import command_to_add

    url = make_url(conf.get("database", "sql_alchemy_conn"))
    database = f"Airflow's database {_shown(url)}"
    try:
        _decrypt_stored(conn_id)
    except _Undecryptable:
        return (
            f"connection {conn_id!r} cannot be decrypted: it is stored in {database}, written with another Fernet key; "
            f"set AIRFLOW_HOME or AIRFLOW__CORE__FERNET_KEY to that of the Airflow that stored it"
        )
    except Exception as e:  # noqa: BLE001 - every exception of the database's driver is a reason
        reason = f"{type(e).__name__}: {e}".splitlines()[0]
        if url.password:
            reason = reason.replace(str(url.password), "***")
        return (
            f"there is no connection {conn_id!r} in the environment or a secrets backend, and {database} cannot be "
            f"read ({reason}); set AIRFLOW_HOME or AIRFLOW__DATABASE__SQL_ALCHEMY_CONN to that of the Airflow that "
            f"has it, or set the environment variable AIRFLOW_CONN_{conn_id.upper()}"
        )
    return (
        f"there is no connection {conn_id!r} in the environment, a secrets backend or {database}. Set AIRFLOW_HOME to "
        f"that of the Airflow that has it, set the environment variable AIRFLOW_CONN_{conn_id.upper()}, or create it "
        f"with its own values: {command_to_add(conn_id, parameter)}"
    )


def _shown(url: Any) -> str:
    """The URL of a database without user, password and parameters, which may be secret."""
    port = f":{url.port}" if url.port else ""
    return f"{url.drivername}://{url.host or ''}{port}/{url.database or ''}"


class _Undecryptable(Exception):
    """A stored connection was encrypted with another key than the configured one."""


def _decrypt_stored(conn_id: str) -> None:
    from airflow.secrets.metastore import MetastoreBackend

    stored = MetastoreBackend().get_connection(conn_id)
    if stored is None:
        return
    try:
        stored.get_uri()
    except Exception as e:
        raise _Undecryptable from e
