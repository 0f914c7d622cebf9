"""The processes that run a Spark job on the Airflow worker."""

from __future__ import annotations

import contextlib

__all__ = ["kill_job"]


def kill_job(job_file: str) -> None:
    """Kill the child processes that run a job, and all their descendants.

    They are the JVM of ``spark-submit``, the Python driver that it started, and on a local master Spark's workers. All
    are found before any is killed: a process whose parent has ended is no longer a descendant.

    Args:
        job_file: path of the job file, which only the JVM and the driver of this job have among their arguments.
    """
    import psutil

    job_processes: dict[int, psutil.Process] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It may end meanwhile.
            if process.pid not in job_processes and job_file in process.cmdline():
                job_processes |= {p.pid: p for p in (process, *process.children(recursive=True))}
    for process in job_processes.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
