"""The process of a driver on a Spark Connect server, as the task that waits for it sees it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, Self

from airflow_provider_kafka_s3.overriding import override

__all__ = ["DRIVER", "DriverProcess", "StartedDriver"]

DRIVER: Final = "airflow_provider_kafka_s3.spark.connect_driver"
"""Module of the driver."""


class DriverProcess(Protocol):
    """A driver that runs, or has ended. Its descriptors are closed at the end of a ``with`` block."""

    @property
    def output(self) -> Iterable[str]:
        """The lines that it prints, until it has ended."""

    def wait(self) -> int | None:
        """Wait for its end, and return its exit code, which is negative if a signal has ended it; None: unknown."""

    def end(self, patience: float) -> None:
        """Have it end itself, and kill it if it does not. May be called at any time, also from a signal handler.

        Args:
            patience: seconds that it has.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class StartedDriver(DriverProcess):
    """A driver in a Python that this process starts.

    Args:
        job_file: description of the job.
        environment: all variables of the driver.
        driver: its module.
    """

    def __init__(self, job_file: Path, environment: Mapping[str, str], *, driver: str = DRIVER) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", driver, "--job-file", str(job_file)],
            env=environment,
            # The driver ends when the other end of this pipe is closed, for any reason.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    @override
    @property
    def output(self) -> Iterable[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    @override
    def wait(self) -> int:
        return self._process.wait()

    @override
    def end(self, patience: float) -> None:
        if self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)  # type: ignore[arg-type]
