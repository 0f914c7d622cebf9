"""Drivers by the warm process of this worker, and that process itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.spark.started_process import StartedProcess
from airflow_provider_kafka_s3.spark.warm_place import WarmPlace
from airflow_provider_kafka_s3.submit.airflow_worker import airflow_worker
from airflow_provider_kafka_s3.submit.driver_process import DRIVER
from airflow_provider_kafka_s3.submit.forked_driver import ForkedDriver
from airflow_provider_kafka_s3.submit.warm_identity import identity, variables_of_imports

__all__ = ["WarmDrivers", "warm_drivers"]

_PROCESS: Final = "airflow_provider_kafka_s3.spark.warm_driver"
_IN_BACKGROUND: Final = '"$@" &'
"""Of the shell, whose end leaves the process to the machine: no task has it among its children or waits for it."""

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables with which NumPy and Arrow start no thread when they are imported."""
_START: Final = 5.0
"""Seconds for the shell that starts the process."""


@dataclass(frozen=True)
class WarmDrivers:
    """The warm process that forks drivers with an environment for one worker, whether or not it runs.

    Attributes:
        place: where it listens.
        worker: with which it ends.
        environment: of the drivers.
        seconds: that it waits for the next job.
        driver: module of the driver.
    """

    place: WarmPlace
    worker: StartedProcess
    environment: Mapping[str, str] = field(repr=False)
    seconds: float
    driver: str

    def fork(self, job_file: Path, log: Any) -> ForkedDriver | None:
        """Have a driver forked; None: there is no warm process, or it is not what it should be.

        Args:
            job_file: description of the job.
            log: gets the reason.
        """
        try:
            return ForkedDriver(self.place.socket, job_file, self.environment)
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        except (OSError, ValueError) as e:
            log.warning("the job starts a driver of its own, since there was no answer from a warm process: %s", e)
        return None

    def start(self, log: Any) -> None:
        """Start the warm process, unless it runs already; this does not wait for it."""
        if (refusal := self.place.refusal()) is not None:
            log.info("no warm process for later jobs: %s", refusal)
            return
        options = {
            "--folder": str(self.place.folder),
            "--name": self.place.name,
            "--worker": str(self.worker),
            "--idle": str(self.seconds),
            "--driver": self.driver,
        }
        command = [sys.executable, "-m", _PROCESS, *(part for option in options.items() for part in option)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/sh", "-c", _IN_BACKGROUND, "sh", *command],
                env={**variables_of_imports(self.environment), **_ONE_THREAD},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                timeout=_START,
                check=False,
            )


def warm_drivers(
    environment: Mapping[str, str], seconds: float, log: Any, *, driver: str = DRIVER
) -> WarmDrivers | None:
    """Where the drivers of a job come from, if they are to be warm and can be; None: each job starts its own.

    Args:
        environment: of the driver.
        seconds: that a warm process waits for the next job; 0: there is none.
        log: gets the reason why there is none.
        driver: module of the driver.
    """
    if not seconds:
        return None
    if not hasattr(os, "pidfd_open"):
        log.info("no warm process: this system has no descriptors of processes")
        return None
    if (worker := airflow_worker()) is None:
        log.info("no warm process: this task has no process of Airflow above it with which that would end")
        return None
    try:
        folder = Path(tempfile.gettempdir(), f"kafka-s3-drivers-{os.geteuid()}")
        place = WarmPlace(folder, identity(environment, worker, seconds=seconds, driver=driver))
        place.require()
    except OSError as e:
        log.warning("no warm process: %s", e)
        return None
    return WarmDrivers(place, worker, environment, seconds, driver)
