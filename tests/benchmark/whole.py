"""What a command costs from its start to its end: wall time, CPU time and memory of all its processes."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from dev.waiting import wait_until
from tests.benchmark.measure import cpu_seconds

_CPUACCT: Final = Path("/sys/fs/cgroup/cpuacct")
WITHOUT_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""With it each process compiles the modules of a checkout again. Those of installed packages are compiled."""
_INTERVAL: Final = 0.1
"""Seconds between two looks at the memory. Each takes milliseconds of a core that the command may need."""
_JOIN: Final = 'echo $$ >"$1"; shift; exec "$@"'


@dataclass
class Whole:
    """The cost of a command.

    Attributes:
        wall: seconds.
        cpu: CPU seconds of all its processes.
        memory: the largest sum of their memory at one time, in bytes; shared pages count once.
    """

    wall: float
    cpu: float
    memory: int


class CommandFailed(RuntimeError):
    """The command failed, or ended too soon; the message has the end of its output."""


def whole(
    command: list[str], env: Mapping[str, str], output: Path, *, done: Callable[[], object] | None = None
) -> Whole:
    """Run a command and measure it.

    Args:
        command: it gets a session of its own.
        env: more environment variables.
        output: file of its output.
        done: for a server, which does not end: it is measured until the value is true, then killed with all its
            processes.

    Raises:
        CommandFailed: the exit status is not 0, or the command ended before it was done.
    """
    with control_group() as group, output.open("wb") as out:
        joining = [] if group is None else ["/bin/sh", "-c", _JOIN, "join", str(group / "cgroup.procs")]
        reaped = _reaped()
        started = time.perf_counter()
        process = subprocess.Popen(
            [*joining, *command],
            env={name: value for name, value in os.environ.items() if name != WITHOUT_BYTECODE} | {**env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        memory, alive = 0, 0.0
        try:
            while not _ended(process):
                if done is not None and done():
                    found = Whole(time.perf_counter() - started, cpu_of(group) or cpu_seconds(process.pid), memory)
                    # Those in sessions of their own, too.
                    for pid in _processes(group, process.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    return found
                alive = cpu_seconds(process.pid) if group is None else 0.0
                memory = max(memory, sum(map(_memory, _processes(group, process.pid))))
            wall = time.perf_counter() - started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode or done is not None:
            text = output.read_text(errors="replace")[-4_000:]
            raise CommandFailed(f"{command[0]} ended with exit status {process.returncode}:\n{text}")
        # Processes that outlive the command for a moment are a part of its cost.
        wait_until(lambda: not _processes(group, process.pid), "the end of all processes", timeout=30)
        return Whole(wall, cpu_of(group) or max(alive, _reaped() - reaped), memory)


@contextlib.contextmanager
def control_group() -> Iterator[Path | None]:
    """A control group that counts CPU, or None on a machine on which this process cannot make one.

    Without one, processes that their parents do not wait for are missing.
    """
    group = _CPUACCT / f"benchmark-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        wait_until(lambda: not _processes(group, 0), "the end of all processes", timeout=30)
        group.rmdir()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_INTERVAL)
    return process.returncode is not None


@contextlib.contextmanager
def in_control_group(group: Path | None) -> Iterator[None]:
    """Count this process and those that it starts, until the end of the block, if there is a control group."""
    pid = str(os.getpid())
    if group is not None:
        (group / "cgroup.procs").write_text(pid)
    try:
        yield
    finally:
        if group is not None:
            (_CPUACCT / "cgroup.procs").write_text(pid)


def cpu_of(group: Path | None) -> float:
    """CPU seconds of all processes of a control group so far; 0 without one."""
    return 0.0 if group is None else int((group / "cpuacct.usage").read_text()) / 1e9


def _reaped() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processes(group: Path | None, root: int) -> list[int]:
    if group is not None:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *(child.pid for child in psutil.Process(root).children(recursive=True))]
    return []


def _memory(pid: int) -> int:
    """Proportional memory of a process in bytes; 0 if it has ended."""
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    return 0
