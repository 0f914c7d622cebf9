"""Ports of the loopback interface."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

__all__ = ["HOST", "free_ports", "listens"]

HOST: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports on which no server listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind((HOST, 0))
        return [s.getsockname()[1] for s in sockets]


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
