"""A second S3 server for tests and benchmark: versitygw, which keeps objects as files of a folder.

It shares no code with moto, so tests on both do not depend on the behaviour of one server. It checks signatures and
checksums, is atomic under races and supports TLS. It has no lifecycle rules, ignores server-side encryption, and its
keys are file names: no part of one above 255 bytes, no ``a`` beside ``a/b``.

``make versitygw`` builds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Final

import psutil

from dev.certificates import Certificate
from dev.ports import HOST, free_ports, listens
from dev.supervisor import ServerProcess, end
from dev.waiting import wait_for_start

__all__ = ["VersityGateway"]

BINARY: Final = Path(__file__).resolve().parents[1] / ".build" / "bin" / "versitygw"

_MEMORY: Final = Path("/dev/shm")
_PREFIX: Final = "versitygw-"


class VersityGateway(ServerProcess):
    """The server as a process of its own, on an empty folder that is removed with it.

    :meth:`start` raises a ``RuntimeError`` if there is no binary, and with the output of the process if it ends or is
    not ready in time.

    Attributes:
        endpoint: address to give to clients, known after :meth:`start`.
    """

    def __init__(
        self,
        *,
        access_key_id: str = "test",
        secret_access_key: str = "test",
        tls: Certificate | None = None,
        folder: Path | None = None,
        domain: str | None = None,
    ) -> None:
        """Describe a server.

        Args:
            access_key_id: of the only user.
            secret_access_key: of the only user.
            tls: the server's certificate; None: plain HTTP.
            folder: folder of the objects; None: a temporary one, in memory where that is possible.
            domain: below which a bucket is a host (virtual addressing); None: addresses are paths.
        """
        self.endpoint = ""
        self._login = ["--access", access_key_id, "--secret", secret_access_key]
        self._tls = [] if tls is None else ["--cert", str(tls.certificate), "--key", str(tls.key)]
        self._domain = [] if domain is None else ["--virtual-domain", domain]
        self._given = folder
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._log: IO[bytes] | None = None

    def _start(self) -> None:
        if not BINARY.exists():
            raise RuntimeError(f"there is no {BINARY}: run make versitygw")
        if self._given is None:
            parent = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
            _remove_left(parent)
            self._own = tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)
        folder = self._given or Path(self._own.name if self._own else "")
        (port,) = free_ports(1)
        self._log = log = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the server does not get ready
        options = [*self._login, *self._tls, *self._domain]
        self._process = subprocess.Popen(
            [str(BINARY), *options, "--port", f"{HOST}:{port}", "-q", "posix", str(folder.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        wait_for_start("versitygw", lambda: listens(port), [self._process], timeout=30, log=lambda: _end_of(log))
        self.endpoint = f"{'https' if self._tls else 'http'}://{HOST}:{port}"

    def stop(self) -> None:
        """Stop the process and remove its own folder; without effect if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
        if self._log is not None:
            self._log.close()
        if self._own is not None:
            self._own.cleanup()


def _remove_left(parent: Path) -> None:
    """Remove folders of processes that were killed: in memory, they stay until the machine is started again."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-2_000:].decode(errors="replace")
