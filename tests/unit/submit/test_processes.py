"""Ending the processes of a job."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import psutil

from airflow_provider_kafka_s3.submit.processes import kill_job
from dev.waiting import wait_for_end


def test_killing_a_job_kills_all_its_descendants_and_nothing_else() -> None:
    """A job is identified by its file; all descendants of its processes are killed, at once."""
    wait = "import sys; sys.stdin.read()"
    many = f"import subprocess, sys; [subprocess.Popen(['sleep', '600']) for _ in range(200)]; {wait}"
    start = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {many!r}, '--job-file', sys.argv[1]], "
        f"start_new_session=True)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE)
        for code, path in ((start, "/job/1"), (wait, "/job/2"))
    ]
    tree: list[psutil.Process] = []
    try:
        one = psutil.Process(started[0].pid)
        while sum(process.name() == "sleep" for process in tree) < 200:
            assert one.is_running()
            tree = [one, *one.children(recursive=True)]
        began = time.monotonic()
        kill_job("/job/1")
        assert time.monotonic() - began < 30
        wait_for_end(tree, "the job")
        assert started[1].poll() is None
    finally:
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for child in started:
            child.communicate()
