"""The messages between a job and a warm process, over a Unix socket.

The warm process accepts a connection and forks. It sends a greeting with a descriptor of the child, and in the end the
child's exit code. The rest is the child's: it reads the request, becomes the driver of the job, and confirms it. So the
warm process never has anything of a job in its memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["BEGINS", "EXIT_CODE", "INHERITED", "PROTOCOL", "PROTOCOL_KEY", "is_of_this_user", "receive", "send"]

PROTOCOL: Final = 2
"""Version of the conversation. It is a part of the path of the socket as well."""

PROTOCOL_KEY: Final = "protocol"
"""Key of the greeting, whose value is :data:`PROTOCOL`."""

BEGINS: Final = "begins"
"""Key of the child's message that it has become the driver."""

EXIT_CODE: Final = "exit_code"
"""Key of the last message; its value is negative if a signal has ended the child."""

INHERITED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals that a driver ignores if its task ignores them, as a shell's processes in the background do."""

_LENGTH: Final = struct.Struct("!I")
_LONGEST: Final = 16 * 1024 * 1024
_CREDENTIALS: Final = struct.Struct("3i")


def is_of_this_user(connection: socket.socket) -> bool:
    """Whether the process at the other end had this user's id when it connected, or began to listen.

    Raises:
        OSError: this system has no credentials of peers.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError("this system does not name the user at the other end of a socket")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return bool(user == os.geteuid())


def send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message, and descriptors with it.

    Raises:
        OSError: the other end is closed, or does not read.
    """
    body = json.dumps(message).encode()
    # They travel with the first byte.
    sent = socket.send_fds(connection, [_LENGTH.pack(len(body))], descriptors)
    connection.sendall((_LENGTH.pack(len(body)) + body)[sent:])


def receive(connection: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """Receive a message.

    Args:
        connection: from which.
        descriptors: number of descriptors that come with it. They are the caller's, who has to close them.

    Raises:
        OSError: there is no message within the timeout of the connection, or it is none.
    """
    first, received, flags, _ = socket.recv_fds(connection, _LENGTH.size, descriptors, socket.MSG_CMSG_CLOEXEC)
    with _closed_on_error(received):
        if not first:
            raise ConnectionError("the other end has closed the connection")
        if len(received) != descriptors or flags & socket.MSG_CTRUNC:
            raise ConnectionError(f"{len(received)} descriptors instead of {descriptors}")
        (length,) = _LENGTH.unpack(first + _read(connection, _LENGTH.size - len(first)))
        if length > _LONGEST:
            raise ConnectionError(f"a message of {length} bytes")
        try:
            message = json.loads(_read(connection, length))
        except ValueError:
            raise ConnectionError("a message that is no JSON") from None
        if not isinstance(message, dict):
            raise ConnectionError("a message that is no object")
        return message, received


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("the other end has closed the connection in a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def _closed_on_error(descriptors: Sequence[int]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
