"""Wall time, CPU time and memory of process trees."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass
class Cost:
    """The cost of a block: seconds on the clock, and CPU seconds per tree of processes."""

    wall: float = 0.0
    cpu: dict[str, float] | None = None


def cpu_seconds(root: int) -> float:
    """CPU seconds of a process, of all it has below it, and of all that ended there."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def cpu_of_job(root: int) -> dict[str, float]:
    """CPU seconds of a job's driver, of its JVM, and of its Python workers, with those that have ended.

    Args:
        root: process of the driver, which has started the JVM.
    """
    found = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    with contextlib.suppress(psutil.NoSuchProcess):
        driver = psutil.Process(root)
        for process in [driver, *driver.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                part = "driver" if process == driver else "jvm" if process.name() == "java" else "workers"
                found[part] += times.user + times.system
                # What a JVM has waited for were the processes of workers.
                if part != "driver":
                    found["workers"] += times.children_user + times.children_system
    return found


@contextlib.contextmanager
def measured(trees: dict[str, int]) -> Iterator[Cost]:
    """Measure a block; ``trees`` names roots of process trees that do not contain each other."""
    cost = Cost()
    before = {name: cpu_seconds(root) for name, root in trees.items()}
    started = time.perf_counter()
    yield cost
    cost.wall = time.perf_counter() - started
    cost.cpu = {name: cpu_seconds(root) - before[name] for name, root in trees.items()}


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    # Not ru_maxrss: that of a new process begins with what its parent had.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024
