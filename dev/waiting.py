"""Waiting for a state of another process, which sends no event: the condition is evaluated every few milliseconds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import psutil

__all__ = ["wait_for_end", "wait_for_start", "wait_until"]

_INTERVAL: Final = 0.02

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, *, timeout: float = 60.0, interval: float = _INTERVAL) -> T:
    """Wait until a condition is true, and return its value.

    Args:
        condition: called again until its value is true.
        what: the awaited state, for the error: ``"the run to end"``.
        timeout: seconds.
        interval: seconds between two calls.

    Raises:
        TimeoutError: the condition was false for ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(interval)
    return value


def wait_for_end(processes: Iterable[psutil.Process], what: str, *, timeout: float = 60.0) -> None:
    """Wait until all processes have ended. One whose parent has not collected it has ended, too.

    Args:
        processes: of whichever parents.
        what: they are, for the error: ``"the driver"``.
        timeout: seconds.

    Raises:
        TimeoutError: one of them runs after ``timeout`` seconds.
    """
    processes = list(processes)
    wait_until(lambda: all(map(_has_ended, processes)), f"the end of {what}", timeout=timeout)


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for_start(
    server: str,
    ready: Callable[[], object],
    processes: Iterable[subprocess.Popen[bytes]],
    *,
    timeout: float,
    log: Callable[[], str],
    interval: float = _INTERVAL,
    error: type[Exception] = RuntimeError,
) -> None:
    """Wait until a server is ready.

    Args:
        server: its name, for the error.
        ready: called again until its value is true.
        processes: of the server; none of them may end.
        timeout: seconds.
        log: returns the end of the server's log, for the error.
        interval: seconds between two calls.
        error: class of the error.

    Raises:
        Exception: of class ``error``: a process ended, or the server was not ready within ``timeout`` seconds.
    """

    def ready_or_ended() -> bool:
        for process in processes:
            if (status := process.poll()) is not None:
                raise error(f"{server} did not start (exit status {status}); its log ends with:\n{log()}")
        return bool(ready())

    try:
        wait_until(ready_or_ended, server, timeout=timeout, interval=interval)
    except TimeoutError:
        raise error(f"{server} was not ready within {timeout:.0f} s; its log ends with:\n{log()}") from None
