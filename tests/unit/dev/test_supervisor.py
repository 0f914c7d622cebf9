"""Servers of the tests start completely or leave nothing behind, and end with their parent process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dev.supervisor import Startable, supervised
from dev.waiting import wait_for_end, wait_until

STARTER = """
import subprocess, sys, pathlib
from dev.supervisor import supervised
folder = pathlib.Path(sys.argv[1])
process = subprocess.Popen(supervised("server", folder, ["sleep", "600"]), stdin=subprocess.PIPE)
print(process.pid, flush=True)
sys.stdin.read()
"""


class Server(Startable):
    """A server whose first starts fail with these errors."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.runs = False

    def _start(self) -> None:
        self.runs = True
        if self.errors:
            raise RuntimeError(self.errors.pop(0))

    def stop(self) -> None:
        """End the server."""
        self.runs = False


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    """It is not retried."""
    server = Server("no such file", "no such file")

    with pytest.raises(RuntimeError, match="no such file"):
        server.start()

    assert not server.runs
    assert len(server.errors) == 1


@pytest.mark.parametrize("error", ["bind: address already in use", "Java:\n  BindException: Address already in use"])
def test_a_server_whose_port_was_taken_is_started_again(error: str) -> None:
    """Twice at most, since another cause is likely then."""
    with Server(error, error) as server:
        assert server.runs
    assert not server.runs
    with pytest.raises(RuntimeError, match="already in use"):
        Server(error, error, error).start()


def test_a_server_ends_and_its_folder_is_removed_when_its_parent_is_killed(tmp_path: Path) -> None:
    """By SIGKILL, which no process can handle."""
    folder = tmp_path / "server"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder)],
        cwd=Path(__file__).resolve().parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        supervisor = psutil.Process(int(starter.stdout.readline()))

        def whole_tree() -> list[psutil.Process]:
            tree = supervisor.children(recursive=True)
            return tree if "sleep" in {process.name() for process in tree} else []

        tree = wait_until(whole_tree, "the server to run")
        starter.kill()
    wait_for_end([supervisor, *tree], "the server")
    assert not folder.exists()


@pytest.mark.parametrize("status", [0, 3])
def test_a_server_that_ends_by_itself_keeps_its_folder_and_its_status(tmp_path: Path, status: int) -> None:
    """Its log is in the folder."""
    command = supervised("server", tmp_path, ["/bin/sh", "-c", f"exit {status}"])
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(60) == status
    assert tmp_path.exists()
