"""Whether anybody answers where Spark is said to run, found out in seconds instead of minutes.

A driver of a standalone cluster tries three times for 20 seconds to register with its masters, and then fails by a
stopped ``SparkContext`` that names none of them. None of these numbers is a setting of Spark.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_kafka_s3.exceptions import ConfigurationError, SparkJobError

__all__ = ["is_standalone", "no_connection", "registration", "require_listening"]

_SCHEME: Final = "spark://"
_KUBERNETES: Final = "k8s://"
_PORTS: Final = {"https": 443, "http": 80}
"""Of a Kubernetes API server whose URL names none."""
_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\d{1,5})")
_LAST_PORT: Final = 65535
_CONNECT: Final = 10.0
"""Seconds to wait for a connection."""
_REGISTER: Final = 20.0
"""Seconds to wait for a master's answer to a registration: as long as Spark waits before it tries again."""
_WAITING: Final = "waitForRegistration"
_STOPPED: Final = "stopped SparkContext"

_CHECK: Final = (
    "Check that it runs, that the connection of spark_conn_id names its own port (7077, not that of its web page), and "
    "that its version and its settings of security (spark.authenticate) are those of this Spark; its log says more"
)


def is_standalone(master: str) -> bool:
    """Whether a master is one of Spark's own cluster manager, or several of them."""
    return master.startswith(_SCHEME)


def no_connection(address: str, timeout: float = _CONNECT) -> str | None:
    """Why nobody takes a connection at an address, in a few words; None: somebody does.

    Args:
        address: ``host:port``.
        timeout: seconds.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
    except TimeoutError:
        return f"no answer in {timeout:.0f} s"
    except OSError as e:
        return e.strerror or str(e)
    except (UnicodeError, OverflowError) as e:  # no name that could be looked up, or no port
        return str(e)
    return None


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
        addresses = master.removeprefix(_SCHEME).split(",")
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
        reasons = dict(zip(addresses, pool.map(no_connection, addresses), strict=True))
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


@contextlib.contextmanager
def registration(gateway: Any, master: str, *, patience: float = _REGISTER, every: float = 1.0) -> Iterator[None]:
    """Interrupt a driver of this process that waits for its master, while the block makes its ``SparkContext``.

    What is looked at is the JVM's own threads, so that a machine that is slow is not taken for a master that is silent.

    Args:
        gateway: py4j's, to the driver's JVM.
        master: its URL; the block runs without any of this if it is no standalone one.
        patience: seconds that the driver may wait.
        every: seconds between two looks.

    Raises:
        SparkJobError: the master did not answer, or ended the application; in the place of what the block raises.
    """
    if not is_standalone(master):
        yield
        return
    over, interrupted = threading.Event(), threading.Event()
    # Every thread of Python has one of its own in the JVM: this is the one that will wait.
    driver = gateway.jvm.java.lang.Thread.currentThread()

    def watch() -> None:
        since: float | None = None
        # The JVM may end at any moment: what py4j raises then is the driver's to tell, not that of this thread.
        with contextlib.suppress(Exception):
            while not over.wait(every):
                now = time.monotonic()
                since = (since or now) if _waits(driver) else None
                if since is not None and now - since >= patience:
                    interrupted.set()
                    driver.interrupt()
                    return

    watcher = threading.Thread(target=watch, name="registration", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as e:
        if interrupted.is_set():
            raise SparkJobError(
                f"no answer from the Spark master: it took the driver's connection and was silent for "
                f"{patience:.0f} s. {_CHECK}. It is {master}"
            ) from e
        if _STOPPED in str(e):
            raise SparkJobError(
                f"no answer from the Spark master, or it has ended the application at once. {_CHECK}. It is {master}"
            ) from e
        raise
    finally:
        over.set()
        watcher.join()


def _waits(driver: Any) -> bool:
    """Whether a thread of the JVM waits for the answer of a master."""
    return any(frame.getMethodName() == _WAITING for frame in driver.getStackTrace())
