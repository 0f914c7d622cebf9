"""A driver's registration with the master of a standalone cluster, given up after seconds instead of minutes.

A driver of a standalone cluster tries three times for 20 seconds to register with its masters, and then fails by a
stopped ``SparkContext`` that names none of them. None of these numbers is a setting of Spark.
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
"""Of the URL of a standalone cluster."""
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
    return master.startswith(SCHEME)


def connection_error(address: str, timeout: float = _CONNECT) -> str | None:
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
