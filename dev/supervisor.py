"""How the servers of this folder start, and how they end: with whoever started them, however that ends."""

from __future__ import annotations

import abc
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Startable", "end", "supervised"]

# Runs the server and ends it when standard input closes, which it does even if the parent is killed by SIGKILL.
# The data go only when the parent is done with them: after a crash it still wants to read the log.
_SCRIPT = """
directory=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ while read -r _ <&3; do :; done; : >"$directory/over"; kill -TERM $server; } 2>/dev/null & watcher=$!
wait $server; status=$?
kill $watcher 2>/dev/null
[ ! -e "$directory/over" ] || rm -rf "$directory"
exit $status
"""


def supervised(name: str, directory: Path, command: list[str]) -> list[str]:
    """The command line of a server that ends when its standard input is closed.

    Args:
        name: for the list of processes.
        directory: of the server; removed when it was ended so.
        command: of the server itself. It becomes a child of the process that is started, and has no standard input.
    """
    return ["/bin/sh", "-c", _SCRIPT, name, str(directory), *command]


class Startable(abc.ABC):
    """What runs as long as a ``with`` block."""

    @abc.abstractmethod
    def start(self) -> Self:
        """Start, and return when it serves."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop; without effect if it does not run."""

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


def end(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """Ask a process to end, and after ``patience`` seconds no longer ask."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
