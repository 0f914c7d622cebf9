"""A time limit for the registration of a driver with the master of a standalone cluster.

A driver of a standalone cluster tries three times for 20 seconds to register with its masters, and then fails with a
stopped ``SparkContext`` without their addresses. Spark has no setting for these numbers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from airflow_provider_kafka_s3.exceptions import SparkJobError

__all__ = ["SCHEME", "connection_error", "is_standalone", "registration"]

SCHEME: Final = "spark://"
"""Scheme of the URL of a standalone cluster."""
_CONNECT: Final = 10.0
"""Seconds to wait for a connection."""
_REGISTER: Final = 20.0
"""Seconds to wait for a master's answer to a registration: as long as Spark waits before it tries again."""
_WAITING: Final = "waitForRegistration"
_STOPPED: Final = "stopped SparkContext"

_CHECK: Final = (
    "Check that it runs, that the connection of spark_conn_id has its own port (7077, not that of its web page), and "
    "that its version and its security settings (spark.authenticate) are those of this Spark; its log has details"
)


def is_standalone(master: str) -> bool:
    """Whether a master URL is that of a standalone cluster, with one or several masters."""
    return master.startswith(SCHEME)


def connection_error(address: str, timeout: float = _CONNECT) -> str | None:
    """Reason why an address does not accept connections; None if it does.

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
    except (UnicodeError, OverflowError) as e:  # invalid host name or port
        return str(e)
    return None


@contextlib.contextmanager
def registration(gateway: Any, master: str, *, patience: float = _REGISTER, every: float = 1.0) -> Iterator[None]:
    """Interrupt this process's driver if it waits too long for its master while the block creates a ``SparkContext``.

    Only the time in the JVM's waiting method counts, so that a slow machine is not taken for a silent master.

    Args:
        gateway: py4j gateway to the driver's JVM.
        master: URL of the master; nothing is watched unless it is a standalone cluster.
        patience: seconds that the driver may wait.
        every: seconds between two checks.

    Raises:
        SparkJobError: the master did not answer, or ended the application; replaces the error of the block.
    """
    if not is_standalone(master):
        yield
        return
    over, interrupted = threading.Event(), threading.Event()
    # Every Python thread has its own thread in the JVM: this is the one that will wait.
    driver = gateway.jvm.java.lang.Thread.currentThread()

    def watch() -> None:
        since: float | None = None
        # The JVM may end at any time. The driver's thread reports the error of py4j, not this one.
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
                f"no answer from the Spark master: it accepted the driver's connection and did not answer for "
                f"{patience:.0f} s. {_CHECK}. Master: {master}"
            ) from e
        if _STOPPED in str(e):
            raise SparkJobError(
                f"no answer from the Spark master, or it has ended the application at once. {_CHECK}. Master: {master}"
            ) from e
        raise
    finally:
        over.set()
        watcher.join()


def _waits(driver: Any) -> bool:
    """Whether a thread of the JVM waits for the answer of a master."""
    return any(frame.getMethodName() == _WAITING for frame in driver.getStackTrace())
