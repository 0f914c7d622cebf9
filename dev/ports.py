"""Ports of the loopback interface."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["HOST", "free_ports", "listens"]

HOST: Final = "127.0.0.1"

# Below those that systems give to connections and to servers that ask for any port: nobody gets them by chance.
_PORTS: Final = range(20_000, 32_768)

_FOLDER: Final = Path(tempfile.gettempdir()) / f"kafka-s3-ports-{os.getuid()}"

_taken: Final[list[int]] = []
"""The descriptors whose locks keep ports from other processes."""


def free_ports(count: int) -> list[int]:
    """Ports on which no server listens now, and which no other process gets from here while this one runs.

    Raises:
        RuntimeError: there are not so many.
    """
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if _take(port):
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"{count} free ports were not found in {_PORTS.start} to {_PORTS.stop - 1}")


def _take(port: int) -> bool:
    descriptor = os.open(_FOLDER / str(port), os.O_CREAT | os.O_RDWR, 0o600)
    with contextlib.suppress(OSError), socket.socket() as probe:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        probe.bind((HOST, port))
        _taken.append(descriptor)
        return True
    os.close(descriptor)
    return False


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
