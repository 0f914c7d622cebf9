"""Faults between a client and an S3 server, as data: requests, faults, and rules that assign faults to requests.

:mod:`dev.fault_proxy` carries them out. A fault either keeps a request from the server, or forwards it and damages the
response.
"""

from __future__ import annotations

import fnmatch
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "Answer",
    "Call",
    "Delay",
    "Fault",
    "Flip",
    "Hang",
    "Hold",
    "Lose",
    "Reset",
    "ResetInBody",
    "Rule",
    "Truncate",
    "Twice",
    "operation_of",
]


@dataclass
class Call:
    """One request that came to the proxy.

    Attributes:
        number: from 1, in the order of arrival.
        operation: its name in S3, such as ``PutObject``; for operations that the package does not use, the method and
            the subresource.
        key: of the object; the prefix of a listing.
        condition: ``if-match``, ``if-none-match`` or empty.
        upload_id: the upload id in the request.
        created: ids of the uploads that the server began for it, in the order of its responses.
        fault: name of its fault, or empty.
        status: status of the server's last response; None if the request was not forwarded.
        answered: whether the client got the server's last response unchanged.
        port: of the client.
    """

    number: int
    operation: str
    key: str
    condition: str = ""
    upload_id: str = ""
    created: list[str] = field(default_factory=list)
    fault: str = ""
    status: int | None = None
    answered: bool = False
    port: int = 0


@dataclass(frozen=True)
class Answer:
    """The client gets an error of the proxy; with ``applied``, after the server has processed the request.

    Attributes:
        status: of HTTP; 200 is possible, with an error in the body.
        code: of S3.
        applied: whether the server gets the request.
        headers: further headers of the response.
    """

    status: int
    code: str
    applied: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reset:
    """The connection is reset after the head of the request, before its body is read."""


@dataclass(frozen=True)
class ResetInBody:
    """Half of the body reaches the server, then both connections are reset; without a body it is like ``Reset``."""


@dataclass(frozen=True)
class Lose:
    """The request is applied and its response lost: by a reset (RST), or by an orderly close (FIN)."""

    by: str = "RST"

    def __post_init__(self) -> None:
        if self.by not in ("RST", "FIN"):
            raise ValueError(f"an answer is lost by RST or FIN, not by {self.by!r}")


@dataclass(frozen=True)
class Hang:
    """The request is applied (or not), and the client gets no response until it disconnects."""

    applied: bool = True


@dataclass(frozen=True)
class Delay:
    """The response comes ``seconds`` later; or the request is applied only then, even if the client is gone."""

    seconds: float = 0.05
    applied: bool = True


@dataclass(frozen=True)
class Truncate:
    """The connection ends in the middle of the response's body; without a body, in the middle of its head.

    Attributes:
        before: beginning of header names: the response ends in its head, without these headers.
    """

    before: str = ""


@dataclass(frozen=True)
class Flip:
    """One bit in the middle of the response's body is flipped.

    Attributes:
        unseen: remove the checksum that would reveal it, as if the store had none.
    """

    unseen: bool = False


@dataclass(frozen=True)
class Twice:
    """The server gets the request twice; the first response is lost and the client gets the second."""


class Hold:
    """The request waits in the proxy until it is released, like a late request of a stopped process.

    Attributes:
        applied: whether the server gets the request before the wait, so that only the response is late.
    """

    def __init__(self, *, applied: bool = False) -> None:
        """Hold the next request that meets this fault."""
        self.applied = applied
        self._held, self._decided, self._done = threading.Event(), threading.Event(), threading.Event()
        self._drop = False

    def wait_until_held(self, timeout: float = 30.0) -> None:
        """Wait until a request is held.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
        """
        if not self._held.wait(timeout):
            raise TimeoutError(f"no request was held within {timeout:.0f} s")

    @property
    def is_held(self) -> bool:
        """Whether a request is held, or was."""
        return self._held.is_set()

    def release(self, timeout: float = 30.0) -> None:
        """Forward the held request, and wait until the server has answered it.

        Raises:
            TimeoutError: it did not within ``timeout`` seconds.
        """
        self._decided.set()
        if not self._done.wait(timeout):
            raise TimeoutError(f"the released request was not answered within {timeout:.0f} s")

    def drop(self) -> None:
        """Reset the connection of the held request, which never reaches the server (unless it did before)."""
        self._drop = True
        self._decided.set()

    def wait(self, is_over: Callable[[], bool]) -> bool:
        """Called by the proxy when it holds a request; returns whether to forward it."""
        self._held.set()
        while not self._decided.wait(0.1):
            if is_over():
                return False
        return not self._drop

    def done(self) -> None:
        """Called by the proxy when the server has answered."""
        self._done.set()


Fault = Answer | Reset | ResetInBody | Lose | Hang | Delay | Truncate | Flip | Twice | Hold


@dataclass
class Rule:
    """The requests that get a fault.

    Attributes:
        fault: the fault.
        operation: shell pattern of the operation.
        key: shell pattern of the whole key.
        condition: condition of the request; None: any or none.
        nth: first of the matching requests with the fault, from 1.
        times: number of consecutive matching requests with the fault; None: all.
        seen: number of matching requests so far.
        struck: number of those that got the fault.
    """

    fault: Fault
    operation: str = "*"
    key: str = "*"
    condition: str | None = None
    nth: int = 1
    times: int | None = 1
    seen: int = 0
    struck: int = 0

    def strikes(self, call: Call) -> bool:
        """Count a request; returns whether it gets the fault."""
        if not (fnmatch.fnmatchcase(call.operation, self.operation) and fnmatch.fnmatchcase(call.key, self.key)):
            return False
        if self.condition is not None and call.condition != self.condition:
            return False
        self.seen += 1
        if self.seen < self.nth or (self.times is not None and self.seen >= self.nth + self.times):
            return False
        self.struck += 1
        return True


_OF_OBJECTS: Final = {
    "GET": "GetObject",
    "HEAD": "HeadObject",
    "PUT": "PutObject",
    "DELETE": "DeleteObject",
}
_OF_UPLOADS: Final = {
    "GET": "ListParts",
    "PUT": "UploadPart",
    "POST": "CompleteMultipartUpload",
    "DELETE": "AbortMultipartUpload",
}
_OF_BUCKETS: Final = {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket", "GET": "ListObjects"}


def operation_of(method: str, target: str) -> tuple[str, str, str]:
    """S3's operation, the key (or the prefix of a listing) and the upload id of a path-style request."""
    path, _, query = target.partition("?")
    _, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
    given = urllib.parse.parse_qs(query, keep_blank_values=True)
    upload_id = given.get("uploadId", [""])[0]
    if key:
        if upload_id:
            return _OF_UPLOADS.get(method, method), key, upload_id
        if "uploads" in given:
            return "CreateMultipartUpload", key, ""
        return _OF_OBJECTS.get(method, method), key, ""
    prefix = given.get("prefix", [""])[0]
    if "uploads" in given:
        return "ListMultipartUploads", prefix, ""
    if "list-type" in given:
        return "ListObjectsV2", prefix, ""
    subresource = next((name for name, values in given.items() if values == [""]), "")
    return (f"{method} ?{subresource}" if subresource else _OF_BUCKETS.get(method, method)), prefix, ""
