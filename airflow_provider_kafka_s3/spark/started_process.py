"""A process of this machine, which is not mistaken for a later one with its id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["StartedProcess"]


class StartedProcess(NamedTuple):
    """A process by its id and its start, which no other process of this boot has in common.

    Attributes:
        pid: id of the process.
        started: when it was started, in clock ticks since the machine was.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> StartedProcess:
        """The process with an id.

        Raises:
            OSError: there is none, or this system has no ``/proc``.
        """
        # The second field is the name of the command, which may hold spaces and parentheses.
        fields = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        return cls(pid, int(fields[19]))

    @classmethod
    def parse(cls, text: str) -> StartedProcess:
        """The inverse of ``str``."""
        pid, _, started = text.partition(":")
        return cls(int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    def watch(self) -> int:
        """A descriptor that is readable when the process has ended.

        Raises:
            OSError: it has ended, or this system has no such descriptors.
        """
        descriptor = os.pidfd_open(self.pid)
        try:
            # The descriptor is that of the process that has the id now.
            if StartedProcess.of(self.pid) != self:
                raise ProcessLookupError(f"process {self.pid} is another one")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
