"""Whether a Spark master, or Kubernetes, takes connections, before Spark is started."""

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
"""Of a Kubernetes API server whose URL names none."""
_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\d{1,5})")
_LAST_PORT: Final = 65535


def require_listening(master: str, conn_id: str) -> None:
    """Check that one of the masters of a standalone cluster, or Kubernetes, takes connections.

    Other masters are not looked at, nor is a Kubernetes that a proxy stands before.

    Args:
        master: as ``spark-submit`` takes it: ``spark://host:7077,host:7077``, ``k8s://https://host:443``.
        conn_id: of the Spark connection, for the error.

    Raises:
        ConfigurationError: it is no address.
        SparkJobError: none does now.
    """
    if is_standalone(master):
        addresses = master.removeprefix(SCHEME).split(",")
        such_as = "write host and port of each, such as 'spark://host:7077' or 'spark://one:7077,two:7077'"
    elif master.startswith(_KUBERNETES):
        addresses = [address] if (address := _api_server(master.removeprefix(_KUBERNETES))) else []
        such_as = "write the address of the API server, such as 'k8s://https://host:443'"
    else:
        return
    ports = [int(found[1]) for address in addresses if (found := _ADDRESS.fullmatch(address))]
    if len(ports) != len(addresses) or not all(0 < port <= _LAST_PORT for port in ports):
        raise ConfigurationError(
            f"{master!r} is no Spark master: {such_as}. Correct the connection {conn_id!r} (spark_conn_id)"
        )
    if not addresses:
        return
    with ThreadPoolExecutor(len(addresses)) as pool:
        reasons = dict(zip(addresses, pool.map(connection_error, addresses), strict=True))
    if None in reasons.values():
        return
    told = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
    raise SparkJobError(
        f"no Spark master can be reached: {told}. Start it, or correct the connection {conn_id!r} (spark_conn_id). "
        f"Nothing was submitted; a retry goes on with the same batch"
    )


def _api_server(url: str) -> str | None:
    """``host:port`` of a Kubernetes API server; None: it is reached by a proxy, so its address says nothing."""
    # As Spark does it: https, unless the URL says otherwise.
    parts = urlsplit(url if "://" in url else f"https://{url}")
    host = parts.netloc.rpartition("@")[2]
    if getproxies().get(parts.scheme) and not proxy_bypass(host):
        return None
    return host if re.search(r":\d+$", host) else f"{host}:{_PORTS.get(parts.scheme, 0)}"
