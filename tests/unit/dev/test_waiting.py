"""Waiting for a state of another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from dev.waiting import wait_for_end, wait_for_start, wait_until


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its standard input is closed, and ends with exit status 3."""
    code = "import sys; sys.stdin.read(); sys.exit(3)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as process:
        yield process


def test_the_value_of_the_condition_is_returned_once_it_is_true() -> None:
    """After any number of false results."""
    values = iter([0, "", None, "ready"])

    assert wait_until(lambda: next(values), "a value", interval=0) == "ready"


def test_a_timeout_names_the_awaited_state() -> None:
    """With the time limit."""
    with pytest.raises(TimeoutError, match="waited 0 s in vain for the run to end"):
        wait_until(lambda: False, "the run to end", timeout=0)


def test_a_server_that_ends_before_it_is_ready_is_an_error_with_its_status_and_log(
    server: subprocess.Popen[bytes],
) -> None:
    """At once, not at the time limit."""
    assert server.stdin is not None
    server.stdin.close()

    with pytest.raises(LookupError, match=r"(?s)^the lake did not start \(exit status 3\); .*no water$"):
        wait_for_start("the lake", lambda: False, [server], timeout=60, log=lambda: "no water", error=LookupError)


def test_a_server_that_is_not_ready_in_time_is_an_error_with_its_log(server: subprocess.Popen[bytes]) -> None:
    """Although it still runs."""
    with pytest.raises(RuntimeError, match=r"(?s)^the lake was not ready within 0 s; .*no water$"):
        wait_for_start("the lake", lambda: False, [server], timeout=0, log=lambda: "no water")
    assert server.poll() is None


def test_a_process_has_ended_although_its_parent_has_not_collected_it(server: subprocess.Popen[bytes]) -> None:
    """Until then it runs, and the error names it."""
    process = psutil.Process(server.pid)
    with pytest.raises(TimeoutError, match="waited 0 s in vain for the end of the lake"):
        wait_for_end([process], "the lake", timeout=0)
    process.kill()

    wait_for_end([process], "the lake")

    assert process.status() == psutil.STATUS_ZOMBIE
    server.wait()
    wait_for_end([process], "the lake")
