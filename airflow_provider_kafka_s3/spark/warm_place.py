"""The files by which jobs find a warm process of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.private_paths import require_private

__all__ = ["WarmPlace"]

_REFUSED_SECONDS: Final = 3_600
"""Time for which the reason counts why there can be no warm process. It may be gone then."""
_LONGEST_PATH: Final = 107
"""Bytes of the path of a Unix socket on Linux."""


@dataclass(frozen=True)
class WarmPlace:
    """Where a warm process listens, in a folder of its user.

    Attributes:
        folder: of all warm processes of the user.
        name: of this one: a digest of all that a job has in common with it.
    """

    folder: Path
    name: str

    @property
    def socket(self) -> Path:
        """On which the process listens."""
        return self.folder / f"{self.name}.sock"

    @property
    def _lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def _refused(self) -> Path:
        return self.folder / f"{self.name}.refused"

    def require(self) -> None:
        """Make the folder, and check that only this user can have written there.

        Raises:
            OSError: it cannot be made, belongs to another user, or its path is too long for a socket.
        """
        if len(os.fsencode(self.socket)) > _LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(self.socket))
        self.folder.mkdir(mode=0o700, exist_ok=True)
        require_private(self.folder, stat.S_ISDIR, "folder")
        if self.folder.stat().st_uid != os.geteuid():
            raise PermissionError(f"{self.folder} belongs to root; remove it")

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Be the one warm process of this place in the block; the value is whether it is.

        The files of the place are removed in the end, by the process that has made them and not by its children.
        """
        descriptor = _hold(self._lock)
        if descriptor is None:
            yield False
            return
        owner = os.getpid()
        try:
            yield True
        finally:
            if os.getpid() == owner:
                self._remove()
            os.close(descriptor)

    def _remove(self) -> None:
        for path in (self.socket, self._lock):
            path.unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what processes have left in the folder that were killed."""
        with contextlib.suppress(OSError):
            for lock in self.folder.glob("*.lock"):
                other = WarmPlace(self.folder, lock.stem)
                if other != self and (descriptor := _hold(lock)) is not None:
                    other._remove()
                    os.close(descriptor)
            for refused in self.folder.glob("*.refused"):
                if not _is_recent(refused):
                    refused.unlink(missing_ok=True)

    def refuse(self, reason: str) -> None:
        """Note why there can be no warm process, so that jobs do not start another one again and again."""
        self._refused.write_text(reason)

    def refusal(self) -> str | None:
        """Why there can be no warm process; None: there can be one, as far as is known."""
        try:
            return self._refused.read_text(errors="replace") if _is_recent(self._refused) else None
        except OSError:
            return None


def _is_recent(path: Path) -> bool:
    return time.time() - path.stat().st_mtime < _REFUSED_SECONDS


def _hold(lock: Path) -> int | None:
    """Lock a file until the descriptor is closed; None: another process has locked it."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last owner may have removed the file after this process opened it.
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
