"""The driver of a job that a warm process has forked, as the task that waits for it sees it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.spark.warm_messages import (
    BEGINS,
    EXIT_CODE,
    INHERITED,
    PROTOCOL,
    PROTOCOL_KEY,
    is_of_this_user,
    receive,
    send,
)
from airflow_provider_kafka_s3.submit.driver_process import DriverProcess

__all__ = ["ForkedDriver"]

_MOMENT: Final = 2.0
"""Seconds for each step until the driver begins. A fork takes some milliseconds."""


class ForkedDriver(DriverProcess):
    """A driver that a warm process has forked.

    This process has a descriptor of it, by which it can be killed and its end be noticed, whatever becomes of the warm
    process, and although its id may belong to another process then.

    Args:
        path: of the socket of the warm process.
        job_file: description of the job.
        environment: all variables of the driver.

    Raises:
        OSError: there is no warm process, or it is not what it should be. No driver runs then.
    """

    def __init__(self, path: Path, job_file: Path, environment: Mapping[str, str]) -> None:
        self._pidfd = -1
        with contextlib.ExitStack() as on_error:
            self._connection = on_error.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self._connection.settimeout(_MOMENT)
            self._connection.connect(str(path))
            if not is_of_this_user(self._connection):
                raise PermissionError(f"{path} belongs to another user's process")
            greeting, (self._pidfd,) = receive(self._connection, 1)
            on_error.callback(self._close_pidfd)
            # From here on a driver that begins nevertheless has ended before another one can begin.
            on_error.callback(self._kill_and_wait)
            if greeting.get(PROTOCOL_KEY) != PROTOCOL:
                raise ConnectionError(f"{path} speaks another protocol: {greeting}")
            stdin, self._input = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
            on_error.enter_context(stdin)
            on_error.enter_context(self._input)
            read, write = os.pipe()
            self._output = on_error.enter_context(os.fdopen(read, errors="replace"))
            printed = on_error.enter_context(os.fdopen(write, "wb"))
            request = {
                "arguments": ["--job-file", str(job_file)],
                "environment": dict(environment),
                "folder": os.getcwd(),
                "mask": _mask(),
                "ignored": [number for number in INHERITED if signal.getsignal(number) == signal.SIG_IGN],
            }
            send(self._connection, request, [stdin.fileno(), printed.fileno()])
            stdin.close()
            printed.close()
            began, _ = receive(self._connection)
            if began != {BEGINS: True}:
                raise ConnectionError(f"the driver of {path} did not begin: {began}")
            on_error.pop_all()

    @override
    @property
    def output(self) -> Iterable[str]:
        return self._output

    @override
    def wait(self) -> int | None:
        self._ends_within(None)
        try:
            ended, _ = receive(self._connection)
        except OSError:  # the warm process ended before the driver
            return None
        code = ended.get(EXIT_CODE)
        return code if isinstance(code, int) else None

    @override
    def end(self, patience: float) -> None:
        if self._pidfd < 0:
            return
        with contextlib.suppress(OSError):
            self._input.close()
        if not self._ends_within(patience):
            self._kill()

    def _ends_within(self, seconds: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._pidfd, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1_000))

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _kill_and_wait(self) -> None:
        self._kill()
        self._ends_within(None)

    def _close_pidfd(self) -> None:
        # First, since a signal handler may come in between.
        pidfd, self._pidfd = self._pidfd, -1
        os.close(pidfd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Have the driver end if it runs, as by the end of this process, and close what belongs to it."""
        try:
            with contextlib.suppress(OSError):
                self._input.close()
            self._output.close()
            self._ends_within(None)
        except BaseException:
            self._kill()
            raise
        finally:
            self._close_pidfd()
            self._connection.close()


def _mask() -> int:
    """The mask of new files, which a process can otherwise read only by changing it, for all its threads.

    Raises:
        OSError: this system does not show it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    raise OSError("this system does not show the mask of new files")
