"""The processes that run a Spark job on the Airflow worker."""

from __future__ import annotations

import contextlib

__all__ = ["kill_job"]


def kill_job(job_file: str) -> None:
    """Kill the processes of this one's that run a job, and all that they started, at once.

    They are the JVM of ``spark-submit``, the Python driver that it started, and on a local master Spark's workers. All
    are looked for before any is killed: who loses its parent is nobody's child any more.

    Args:
        job_file: its path, which is among the arguments of JVM and driver, and of no other job.
    """
    import psutil

    found: dict[int, psutil.Process] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It may end meanwhile.
            if process.pid not in found and job_file in process.cmdline():
                found |= {p.pid: p for p in (process, *process.children(recursive=True))}
    for process in found.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
