"""A gate in front of the store, and observation of the processes of Spark."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psutil

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


_DAEMONS: Final = frozenset({"pyspark.daemon", "airflow_provider_kafka_s3.spark.worker_daemon"})


class Gate:
    """Forwards the first parts of uploads and holds further parts and manifests until it is opened.

    Attributes:
        held: set as soon as a request is held: by then the store holds a part, and no manifest.
    """

    def __init__(self, *, parts: int = 1) -> None:
        self.held = threading.Event()
        self._parts = parts
        self._opened = threading.Event()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Forward all requests, also those that are held."""
        self._opened.set()

    def __call__(self, app: WSGIApplication) -> WSGIApplication:
        """The gate as a middleware of the server."""

        def gated(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "PUT" and not self._opened.is_set() and self._holds(environ):
                self.held.set()
                self._opened.wait(120)
            return app(environ, start_response)

        return gated

    def _holds(self, environ: WSGIEnvironment) -> bool:
        if "partNumber=" in environ["QUERY_STRING"]:
            with self._lock:
                self._parts -= 1
                return self._parts < 0
        return str(environ["PATH_INFO"]).endswith(".manifest.json")


def command_lines(processes: Iterable[psutil.Process]) -> list[list[str]]:
    """The arguments of processes, without those that have ended: Spark starts short-lived helpers, too."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(process.cmdline())
    return found


def running(processes: Iterable[psutil.Process], matches: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The processes that match, without those that have ended."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if matches(process):
                found.append(process)
    return found


def _is_daemon(process: psutil.Process) -> bool:
    """Whether it is Spark's process that forks workers, or this package's, or a fork of one of them."""
    return not _DAEMONS.isdisjoint(process.cmdline())


def python_workers(root: int) -> list[psutil.Process]:
    """The Python workers below a process, which Spark's daemon has forked."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(root).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                parent = process.parent()
                if parent is not None and _is_daemon(process) and _is_daemon(parent):
                    found.append(process)
    return found


class WorkerMemory:
    """Measures the memory of Python workers while a block runs.

    Attributes:
        peak: bytes that the largest of them held at most (resident set, by the kernel's own high-water mark).
    """

    def __init__(self, root: Callable[[], int] = os.getpid, *, every: float = 1.0) -> None:
        self.peak = 0
        self._root = root
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-memory", daemon=True)

    def __enter__(self) -> Self:
        """Begin; memory that workers used before does not count."""
        for worker in python_workers(self._root()):
            with contextlib.suppress(OSError):
                Path(f"/proc/{worker.pid}/clear_refs").write_text("5", encoding="ascii")  # resets the high-water mark
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Measure once more: workers outlive their tasks."""
        self._over.set()
        self._thread.join()
        self._measure()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._measure()

    def _measure(self) -> None:
        for worker in python_workers(self._root()):
            self.peak = max(self.peak, _high_water(worker.pid))


def _high_water(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
