"""Who planned a batch: a process and a task. A planner that certainly lives no more is not waited for.

This is thrift. A planner that is taken for dead by mistake costs the same work twice, and nothing else: one of the two
decides the batch.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

__all__ = ["PlannerProcess", "PlannerTask", "TaskHasEnded", "planner_of", "planner_stamp", "process_is_gone"]

T = TypeVar("T")

_PROC: Final = Path("/proc")
_STATE: Final = 0
_STARTED: Final = 19
"""Of the fields of ``/proc/<pid>/stat`` behind the name: the third and the twenty-second of all."""


class PlannerProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process, told apart from all others, those of other containers and of other boots included.

    Attributes:
        host: name of the host, which containers may share.
        boot: id of the boot of its kernel.
        pid_namespace: that its number belongs to.
        pid: its number.
        started: clock ticks after the boot; numbers of processes are used again.
    """

    host: str
    boot: str
    pid_namespace: str
    pid: int
    started: int

    def __post_init__(self) -> None:
        if not 0 < self.pid < 2**31:
            raise ValueError(f"{self.pid} is no number of one process")


class PlannerTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task instance of Airflow, all its tries."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1


TaskHasEnded = Callable[[PlannerTask], bool | None]
"""Whether Airflow has the task as not running; None: it does not say."""


def planner_stamp(task: PlannerTask | None) -> dict[str, Any]:
    """What a plan says about this process, and the task it runs for."""
    found = {"process": _this_process(), "task": task}
    return {name: msgspec.to_builtins(value) for name, value in found.items() if value is not None}


def planner_of(beside: Mapping[str, Any]) -> tuple[PlannerProcess | None, PlannerTask | None]:
    """Read what :func:`planner_stamp` wrote; None for what is not there, or is not exactly right.

    Args:
        beside: what stands beside a plan.
    """
    return _convert(beside.get("process"), PlannerProcess), _convert(beside.get("task"), PlannerTask)


def process_is_gone(process: PlannerProcess) -> bool | None:
    """Whether a process has ended; None if it cannot be told from here: it is of another host, container or boot."""
    here = _this_process()
    if here is None or (process.host, process.boot, process.pid_namespace) != (
        here.host,
        here.boot,
        here.pid_namespace,
    ):
        return None
    try:
        # Sends nothing. /proc alone may hide other users' processes.
        os.kill(process.pid, 0)
    except PermissionError:
        pass
    except ProcessLookupError:
        return True
    try:
        fields = _stat(process.pid)
    except OSError:
        return None
    return fields[_STATE] in "ZX" or int(fields[_STARTED]) != process.started


def _this_process() -> PlannerProcess | None:
    """This process; None where the kernel does not show what tells it apart, as outside Linux."""
    pid = os.getpid()
    try:
        if (_PROC / "self").readlink().name != str(pid):
            return None
        return PlannerProcess(
            host=socket.gethostname(),
            boot=(_PROC / "sys/kernel/random/boot_id").read_text().strip(),
            pid_namespace=str((_PROC / "self/ns/pid").readlink()),
            pid=pid,
            started=int(_stat(pid)[_STARTED]),
        )
    except OSError:
        return None


def _stat(pid: int) -> list[str]:
    # The name may hold spaces and parentheses.
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _convert(value: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return None
