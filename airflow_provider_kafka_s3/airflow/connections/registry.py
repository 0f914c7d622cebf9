"""Connections to a schema registry."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import or_nearest
from airflow_provider_kafka_s3.registry.settings import RegistrySettings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

__all__ = ["registry_access"]

_REGISTRY_EXTRA: Final = ("urls", "bearer_token", "ca", "certificate", "key", "key_password", "timeout")
"""Names in the extra of a connection to a schema registry."""


def registry_access(conn_id: str) -> RegistrySettings:
    """How to reach a schema registry: a connection of type ``http``. Its secrets are masked in logs from here on.

    Host, port and schema are an address, or the host is one as a whole; login and password log in. The extra may have:

    * ``urls``: further addresses of the same registry, as a list;
    * ``bearer_token``: in place of login and password;
    * ``ca``, ``certificate``, ``key``: PEM texts, or paths of PEM files on this machine, which travel with the job;
    * ``key_password``: of an encrypted key;
    * ``timeout``: seconds.

    Raises:
        ConfigurationError: there is no such connection, or it is not one of a schema registry.
    """
    parameter = "registry_conn_id"
    connection = require(conn_id, parameter)
    where = f"{parameter}={conn_id!r}"
    if connection.conn_type not in ("http", "https"):
        raise ConfigurationError(
            f"{where}: the connection has the type {connection.conn_type!r}; a schema registry needs the type 'http'"
        )
    extra = {name: value for name, value in extra_of(connection, parameter).items() if value not in (None, "")}
    for name in ("bearer_token", "key", "key_password"):
        if isinstance(extra.get(name), str):
            mask(extra[name])
    if connection.password:
        mask(connection.password)
    for name in extra:
        if name not in _REGISTRY_EXTRA:
            known = or_nearest(name, _REGISTRY_EXTRA, f"it may have {', '.join(_REGISTRY_EXTRA)}")
            raise ConfigurationError(f"{where}: the extra of a schema registry has no {name!r}{known}")
    more, timeout = extra.pop("urls", []), extra.pop("timeout", 10.0)
    if not isinstance(more, list) or not all(isinstance(url, str) for url in more):
        raise ConfigurationError(f"{where}: urls of the extra must be a list of URLs")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ConfigurationError(f"{where}: timeout of the extra must be a number of seconds")
    for name, value in extra.items():
        # The value is not quoted: it may be a secret.
        if not isinstance(value, str):
            raise ConfigurationError(f"{where}: {name} of the extra must be text")
    urls = [*([_registry_url(connection)] if connection.host else []), *more]
    if not urls:
        raise ConfigurationError(
            f"{where}: the connection names no schema registry; set its host, such as https://registry:8081"
        )
    try:
        return RegistrySettings(
            urls=tuple(dict.fromkeys(url.rstrip("/") for url in urls)),
            user=connection.login or None,
            password=connection.password or None,
            bearer_token=extra.get("bearer_token"),
            ca=_pem(where, extra, "ca"),
            certificate=_pem(where, extra, "certificate"),
            key=_pem(where, extra, "key"),
            key_password=extra.get("key_password"),
            timeout=float(timeout),
            name=conn_id,
        )
    except ConfigurationError as e:
        raise ConfigurationError(f"{where}: {e}") from None


def _registry_url(connection: Connection) -> str:
    """The address that host, port and schema are; the port goes behind the name of the host."""
    host = connection.host or ""
    if "://" not in host:
        scheme = connection.schema or ("https" if connection.conn_type == "https" else "http")
        host = f"{scheme}://{host}"
    address = urllib.parse.urlsplit(host)
    if connection.port and not re.search(r":[0-9]+\Z", address.netloc):
        address = address._replace(netloc=f"{address.netloc}:{connection.port}")
    return address.geturl()


def _pem(where: str, extra: Mapping[str, str], name: str) -> str | None:
    """A PEM text of the extra, or that of the file that it names."""
    pem_or_path = extra.get(name)
    if pem_or_path is None or "-----BEGIN" in pem_or_path:
        return pem_or_path
    try:
        text = Path(pem_or_path).read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        # The value is not quoted: a key without its first line would be a secret.
        reason = e.strerror if isinstance(e, OSError) else "it is not text"
        raise ConfigurationError(
            f"{where}: {name} of the extra is neither a PEM text nor a file that can be read here ({reason})"
        ) from None
    if name == "key":
        mask(text)
    return text
