"""Checks that a Spark master or Kubernetes accepts connections, before Spark is started."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_kafka_s3.exceptions import ConfigurationError, SparkJobError
from airflow_provider_kafka_s3.spark.registration import SCHEME, connection_error, is_standalone

__all__ = ["require_listening"]

_KUBERNETES: Final = "k8s://"
_PORTS: Final = {"https": 443, "http": 80}
"""Default ports of a Kubernetes API server."""
_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\d{1,5})")
_LAST_PORT: Final = 65535


def require_listening(master: str, conn_id: str) -> None:
    """Check that one of the masters of a standalone cluster, or Kubernetes, accepts connections.

    Other masters are not checked, nor is Kubernetes behind a proxy.

    Args:
        master: as ``spark-submit`` takes it: ``spark://host:7077,host:7077``, ``k8s://https://host:443``.
        conn_id: of the Spark connection, for the error.

    Raises:
        ConfigurationError: the address is invalid.
        SparkJobError: none accepts connections now.
    """
    if is_standalone(master):
        addresses = master.removeprefix(SCHEME).split(",")
        expected = "write host and port of each, such as 'spark://host:7077' or 'spark://one:7077,two:7077'"
    elif master.startswith(_KUBERNETES):
        addresses = [address] if (address := _api_server(master.removeprefix(_KUBERNETES))) else []
        expected = "write the address of the API server, such as 'k8s://https://host:443'"
    else:
        return
    ports = [int(match[1]) for address in addresses if (match := _ADDRESS.fullmatch(address))]
    if len(ports) != len(addresses) or not all(0 < port <= _LAST_PORT for port in ports):
        raise ConfigurationError(
            f"{master!r} is no Spark master: {expected}. Correct the connection {conn_id!r} (spark_conn_id)"
        )
    if not addresses:
        return
    with ThreadPoolExecutor(len(addresses)) as pool:
        reasons = dict(zip(addresses, pool.map(connection_error, addresses), strict=True))
    if None in reasons.values():
        return
    failures = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
    raise SparkJobError(
        f"no Spark master can be reached: {failures}. Start it, or correct the connection {conn_id!r} (spark_conn_id). "
        f"Nothing was submitted; a retry continues with the same batch"
    )


def _api_server(url: str) -> str | None:
    """``host:port`` of a Kubernetes API server; None if it is behind a proxy, so that its address cannot be checked."""
    # As Spark does: https, unless the URL has another scheme.
    parts = urlsplit(url if "://" in url else f"https://{url}")
    host = parts.netloc.rpartition("@")[2]
    if getproxies().get(parts.scheme) and not proxy_bypass(host):
        return None
    return host if re.search(r":\d+$", host) else f"{host}:{_PORTS.get(parts.scheme, 0)}"
