"""Servers of the tests end with whoever started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dev.supervisor import supervised

STARTER = """
import subprocess, sys, pathlib
from dev.supervisor import supervised
folder = pathlib.Path(sys.argv[1])
process = subprocess.Popen(supervised("server", folder, ["sleep", "600"]), stdin=subprocess.PIPE)
print(process.pid, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_and_its_folder_goes_when_its_starter_is_killed(tmp_path: Path) -> None:
    """By SIGKILL, which nobody can prepare for."""
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
        tree: list[psutil.Process] = []
        while not any(child.name() == "sleep" for child in tree):
            assert supervisor.is_running()
            tree = supervisor.children(recursive=True)
        starter.kill()
    assert psutil.wait_procs([supervisor, *tree], timeout=10)[1] == []
    assert not folder.exists()


@pytest.mark.parametrize("status", [0, 3])
def test_a_server_that_ends_by_itself_keeps_its_folder_and_its_status(tmp_path: Path, status: int) -> None:
    """Somebody wants to read its log."""
    command = supervised("server", tmp_path, ["/bin/sh", "-c", f"exit {status}"])
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(10) == status
    assert tmp_path.exists()
