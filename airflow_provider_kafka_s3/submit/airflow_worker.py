"""The process of Airflow that runs the tasks of this machine, and this one among them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from airflow_provider_kafka_s3.spark.started_process import StartedProcess

__all__ = ["airflow_worker", "runs_airflow"]

_COMMANDS: Final = ("airflow", "celery")
_WITH_VALUE: Final = ("-X", "-W")


def airflow_worker() -> StartedProcess | None:
    """The topmost of this process and its ancestors that runs Airflow; None if there is none.

    Of a task by Celery it is the worker, of one by a LocalExecutor the scheduler, or ``airflow standalone``. A task of
    ``airflow dags test`` is its own worker.
    """
    import psutil

    pid = None
    process: psutil.Process | None = psutil.Process()
    with contextlib.suppress(psutil.Error):  # of another user, or it has ended: then those below it count
        while process is not None:
            if runs_airflow(process.cmdline()):
                pid = process.pid
            process = process.parent()
    try:
        return None if pid is None else StartedProcess.of(pid)
    except OSError:
        return None


def runs_airflow(arguments: Sequence[str]) -> bool:
    """Whether a command line, or the title that a process has given itself, is that of Airflow or its Celery.

    Args:
        arguments: such as ``/usr/bin/python /usr/bin/airflow celery worker``, ``airflow scheduler -- LocalExecutor``,
            ``[celeryd: celery@host:MainProcess]`` or ``python -m airflow standalone``.
    """
    title = [argument for argument in arguments if argument]
    if len(title) == 1:  # one that a process has given itself
        title = title[0].split()
    if not title:
        return False
    command = PurePath(title[0]).name
    if command in _COMMANDS or command.startswith("[celeryd:"):
        return True
    if not command.startswith("python"):
        return False
    options = iter(title[1:])
    for option in options:
        if option == "-m":
            return next(options, "").partition(".")[0] in _COMMANDS
        if option in _WITH_VALUE:
            next(options, None)
        elif not option.startswith("-"):
            return PurePath(option).name in _COMMANDS
    return False
