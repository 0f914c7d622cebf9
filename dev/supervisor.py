"""Start and stop the servers of this folder; those that are supervised end with their starter, however that ends."""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import signal
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import psutil
from tenacity import Retrying, retry_if_exception_message, stop_after_attempt

from dev.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "ServerProcess",
    "Startable",
    "SupervisedServer",
    "ThreadServer",
    "end",
    "end_by_eof",
    "start_supervised",
    "supervised",
    "wait_until_stopped",
]

_PORT_TAKEN: Final = retry_if_exception_message(match="(?is).*(address already in use|seems to be in use)")

# Runs the server and ends it when standard input closes, which it does even if the parent is killed by SIGKILL.
# The data are removed only when the parent closes standard input: after a crash it still reads the log.
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


def supervised(name: str, directory: Path, command: Sequence[str]) -> list[str]:
    """The command line of a server that ends when its standard input is closed.

    Args:
        name: for the list of processes.
        directory: of the server; removed when it was ended so.
        command: of the server itself. It becomes a child of the process that is started, and has no standard input.
    """
    return ["/bin/sh", "-c", _SCRIPT, name, str(directory), *command]


def start_supervised(
    name: str, directory: Path, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server in its directory, in a process group of its own; see :func:`supervised`.

    Args:
        name: for the list of processes.
        directory: of the server.
        command: of the server itself.
        log: file that its output is appended to.
        env: its environment; None: that of this process.
    """
    with log.open("ab") as out:
        return subprocess.Popen(
            supervised(name, directory, command),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=env,
            start_new_session=True,
        )


class Startable(abc.ABC):
    """A server that runs as long as a ``with`` block, or from :meth:`start` to :meth:`stop`."""

    def start(self) -> Self:
        """Start, and return when it serves. A start that fails leaves nothing behind.

        A free port may be taken by another process before the server binds it: then it is started again.
        """
        Retrying(stop=stop_after_attempt(3), retry=_PORT_TAKEN, reraise=True)(self._start_or_stop)
        return self

    def _start_or_stop(self) -> None:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @abc.abstractmethod
    def _start(self) -> None:
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


class ThreadServer(Startable):
    """A server in a thread of this process."""

    def __init__(self, server: socketserver.BaseServer, name: str) -> None:
        """Prepare a server that is bound already; ``name`` is that of its thread."""
        self._serving = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), name=name, daemon=True)

    def _start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._serving.shutdown()
            self._thread.join()
        self._serving.server_close()


class ServerProcess(Startable):
    """A server that is a process of its own."""

    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            RuntimeError: the server does not run.
        """
        if self._process is None:
            raise RuntimeError(f"{type(self).__name__} does not run; start() it")
        return self._process.pid


class SupervisedServer(ServerProcess):
    """A server with a directory of its own, in a process group that ends with its starter, however that ends.

    :attr:`pid` is the id of the group.
    """

    _NAME: ClassVar[str]
    """For the list of processes, and the name of the directory."""

    _directory: Path | None = None

    def stop(self) -> None:
        """Stop the server and delete its data; without effect if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            end_by_eof(process)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def kill(self) -> None:
        """End the server like a crash of its machine; its files and its ports stay for a restart."""
        os.killpg(self.pid, signal.SIGKILL)
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.wait()
        self._process.stdin.close()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the processes of the group inside the block: they accept connections, and do not answer."""
        leader = psutil.Process(self.pid)
        family = [leader, *leader.children(recursive=True)]
        os.killpg(leader.pid, signal.SIGSTOP)
        try:
            wait_until_stopped(family)
            yield
        finally:
            os.killpg(leader.pid, signal.SIGCONT)

    def last_lines(self, lines: int = 20) -> str:
        """The end of the server's log."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    @property
    def _log(self) -> Path:
        assert self._directory is not None
        return self._directory / "server.log"

    def _make_directory(self) -> Path:
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self._NAME}-"))
        return self._directory

    def _run(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self._process = start_supervised(self._NAME, self._log.parent, command, log=self._log)
        return self._process


def end(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """Terminate a process, and kill it after ``patience`` seconds."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_by_eof(process: subprocess.Popen[Any], patience: float = 20.0) -> None:
    """End a process, and all of its group, that ends when its standard input is closed.

    Args:
        process: leader of its group; it may have ended.
        patience: seconds until the group is killed.
    """
    assert process.stdin is not None
    # What was written to a process that has ended since cannot be flushed.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_stopped(processes: Sequence[psutil.Process]) -> None:
    """Wait until every thread of processes that were sent SIGSTOP has stopped.

    A thread that waits for a processor when the signal arrives may answer one more request before it stops.
    """
    wait_until(lambda: all(_is_stopped(process.pid) for process in processes), "stopped threads")


def _is_stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped."""
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if file.read_text().rpartition(")")[2].split()[0] not in "TZ":
                return False
    return True
