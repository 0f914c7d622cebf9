"""A warm process: it has the modules of a driver, and forks one for each job of its Airflow worker.

Starting Python and importing pyspark's client, pandas and the rest takes most of the time of a small job on a Spark
Connect server. A warm process has done so already. It never runs a job, opens no connection, has one thread only, and
has nothing of a job: the child reads the job's environment itself, and takes the pipes of its task for its standard
streams. From there it is the driver that a job would have started.

It ends at once when its worker ends, and when no job came for the configured time. Children that run then end as any
driver does: by their standard input.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from airflow_provider_kafka_s3.exceptions import message_of
from airflow_provider_kafka_s3.spark.started_process import StartedProcess
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
from airflow_provider_kafka_s3.spark.warm_place import WarmPlace

__all__ = ["main"]

_REQUEST: Final = 5.0
"""Seconds that a child waits for the request of its job, which is on its way."""
_WAITING_JOBS: Final = 64
"""Jobs that may connect at the same moment; one more starts a driver of its own."""


class _Child:
    """A driver that was forked.

    Attributes:
        pidfd: descriptor of the process.
        connection: to its job.
    """

    def __init__(self, pidfd: int, connection: socket.socket) -> None:
        self.pidfd = pidfd
        self.connection = connection

    def report_end(self) -> None:
        """Send the job the exit code of the process, which has ended."""
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with contextlib.suppress(OSError):  # the job may have ended
            send(self.connection, {EXIT_CODE: code})

    def forget(self) -> None:
        """Close the descriptors."""
        os.close(self.pidfd)
        self.connection.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Fork drivers until the worker ends. It does not return in a driver.

    Args:
        argv: see the parser; None: of the process.

    Returns:
        0; 1 if it cannot be warm, and the reason is in its place.
    """
    parser = argparse.ArgumentParser(prog="kafka-s3-warm-driver", description="Fork drivers for jobs of one worker.")
    parser.add_argument("--folder", required=True, type=Path, help="of warm processes")
    parser.add_argument("--name", required=True, help="of this one")
    parser.add_argument("--worker", required=True, type=StartedProcess.parse, help="PID:START; this ends with it")
    parser.add_argument("--idle", required=True, type=float, help="seconds without a job after which this ends")
    parser.add_argument("--driver", required=True, help="module of the driver")
    options = parser.parse_args(argv)
    place = WarmPlace(options.folder, options.name)
    os.umask(0o077)
    connection = None
    # In a driver all these contexts end as well, so that it has no descriptor of the warm process or of other jobs.
    with place.held() as alone, contextlib.ExitStack() as open_files:
        if not alone:
            return 0
        signal.signal(signal.SIGTERM, _exit)
        # A caller may have ignored it, and then children could not be waited for.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        place.clean()
        worker_end = options.worker.watch()
        open_files.callback(os.close, worker_end)
        try:
            _import_modules(options.driver)
            os.chdir("/")
            listener = open_files.enter_context(_listening(place.socket))
        except Exception as e:  # noqa: BLE001 - nobody reads the output of this process
            place.refuse(f"{type(e).__name__}: {message_of(e)}")
            return 1
        connection = _serve(listener, worker_end, options.idle)
    if connection is not None:
        os._exit(_run(connection, options.driver))
    return 0


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _import_modules(driver: str) -> None:
    """Import what a driver needs.

    Raises:
        RuntimeError: that has started threads, which a fork would end in the middle of anything.
    """
    importlib.import_module(driver).import_modules()
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        raise RuntimeError(f"the modules of the driver have started {threads - 1} threads, which no fork can have")
    # Collecting garbage in a child would otherwise write to, and so copy, the pages of all objects that are there.
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(_WAITING_JOBS)
        listener.setblocking(False)
        yield listener


def _serve(listener: socket.socket, worker_end: int, idle: float) -> socket.socket | None:
    """Fork a child for each connection.

    Returns:
        In the warm process None: it has to end. In a child the connection of its job.
    """
    children: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(worker_end, selectors.EVENT_READ)
        try:
            while ready := {key.fd for key, _ in selector.select(None if children else idle)}:
                if worker_end in ready:
                    return None
                for pidfd in ready & children.keys():
                    selector.unregister(pidfd)
                    child = children.pop(pidfd)
                    child.report_end()
                    child.forget()
                if listener.fileno() in ready and (connection := _accept(listener)) is not None:
                    pid = os.fork()
                    if pid == 0:
                        return connection
                    child = _greet(pid, connection)
                    children[child.pidfd] = child
                    selector.register(child.pidfd, selectors.EVENT_READ)
            return None
        finally:
            for child in children.values():
                child.forget()


def _accept(listener: socket.socket) -> socket.socket | None:
    try:
        connection, _ = listener.accept()
    except OSError:  # it has given up
        return None
    try:
        if is_of_this_user(connection):
            connection.settimeout(_REQUEST)
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _greet(pid: int, connection: socket.socket) -> _Child:
    child = _Child(os.pidfd_open(pid), connection)
    # The job has given up: the child finds its connection closed, and ends.
    with contextlib.suppress(OSError):
        send(connection, {PROTOCOL_KEY: PROTOCOL}, [child.pidfd])
    return child


def _run(connection: socket.socket, driver: str) -> int:
    """Become the driver of a job, and run it; returns the exit code."""
    try:
        with connection:
            request, streams = receive(connection, 2)
            _become(request, streams)
            send(connection, {BEGINS: True})
    except (OSError, KeyError, TypeError, ValueError):  # the job has given up, and starts a driver of its own
        return 1
    try:
        code = int(importlib.import_module(driver).main(request["arguments"]))
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does
        traceback.print_exc()
        code = 1
    with contextlib.suppress(Exception):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Take what a process has from the one that starts it: streams, signals, environment, folder, mask of the job."""
    os.setsid()
    for number in INHERITED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    stdin, output = streams
    for source, target in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for stream in streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    os.umask(request["mask"])
    sys.argv[1:] = request["arguments"]


if __name__ == "__main__":
    sys.exit(main())
