"""The planner of a batch: a process and a task. A run does not wait for a planner that has certainly ended.

This only saves work. If a running planner is taken for ended by mistake, the same work is done twice, and nothing else:
one of the two decides the batch.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.structs import convert_to_struct

__all__ = ["PlannerProcess", "PlannerTask", "TaskHasEnded", "planner_of", "planner_stamp", "process_is_gone"]

T = TypeVar("T")

_PROC: Final = Path("/proc")
_STATE: Final = 0
_STARTED: Final = 19
"""Indexes among the fields of ``/proc/<pid>/stat`` after the name: fields 3 and 22 of the file."""


class PlannerProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identity of a process, unique across containers and boots.

    Attributes:
        host: name of the host, which containers may share.
        boot: boot id of the kernel.
        pid_namespace: namespace of the process id.
        pid: process id.
        started: start time in clock ticks after the boot; process ids are reused.
    """

    host: str
    boot: str
    pid_namespace: str
    pid: int
    started: int

    def __post_init__(self) -> None:
        if not 0 < self.pid < 2**31:
            raise ValueError(f"{self.pid} is not a process id")


class PlannerTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task instance of Airflow, all its tries.

    Attributes:
        dag_id: of its DAG.
        task_id: of its task.
        run_id: of its DAG run.
        map_index: its number among the instances of a mapped task; -1: the task is not mapped.
    """

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1


TaskHasEnded = Callable[[PlannerTask], bool | None]
"""Whether Airflow's state of the task is other than running; None if unknown."""


def planner_stamp(task: PlannerTask | None) -> dict[str, Any]:
    """The fields of a plan that identify this process and its task."""
    fields = {"process": _this_process(), "task": task}
    return {name: msgspec.to_builtins(value) for name, value in fields.items() if value is not None}


def planner_of(envelope: Mapping[str, Any]) -> tuple[PlannerProcess | None, PlannerTask | None]:
    """Parse the fields of :func:`planner_stamp`; None for a field that is missing or invalid.

    Args:
        envelope: of a plan.
    """
    return _convert(envelope.get("process"), PlannerProcess), _convert(envelope.get("task"), PlannerTask)


def process_is_gone(process: PlannerProcess) -> bool | None:
    """Whether a process has ended; None if unknown, since it is of another host, container or boot."""
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
    """This process; None where the kernel does not expose its identity, as outside Linux."""
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
        return convert_to_struct(value, kind)
    except msgspec.ValidationError:
        return None
