"""One request for what several threads need at the same time. Standard library only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

__all__ = ["JointRequests"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class JointRequests(Generic[K, V]):
    """Requests of one kind, one at a time.

    Calls that come while a request is under way wait, and the next request is for all of them. So few requests serve
    many threads, and no response is older than its call.
    """

    def __init__(self) -> None:
        """Nothing is sent yet."""
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()
        self._next: _Request[K, V] | None = None

    def response(self, key: K, alone: Callable[[], V], together: Callable[[Sequence[K]], Mapping[K, V]]) -> V:
        """The response for a key.

        Args:
            key: what is requested.
            alone: sends a request for this key only: if no other thread requests one, or the request for several fails.
            together: sends a request for several keys, each once, also those of other threads. Any error is that of the
                request, not of a key.

        Raises:
            Exception: those of ``alone``.
        """
        with self._lock:
            request, leads = self._next, self._next is None
            if request is None:
                request = self._next = _Request()
            request.keys.setdefault(key)
        if leads:
            try:
                with self._one_at_a_time:
                    self._close(request)
                    if len(request.keys) == 1:
                        return alone()
                    # Any error: the request for one key has the error of that key.
                    with contextlib.suppress(Exception):
                        request.responses = together([*request.keys])
            finally:
                # Also if this thread is interrupted: the others then send their own.
                self._close(request)
                request.ended.set()
        request.ended.wait()
        return request.responses[key] if key in request.responses else alone()

    def _close(self, request: _Request[K, V]) -> None:
        """Leave later calls to another request."""
        with self._lock:
            if self._next is request:
                self._next = None


class _Request(Generic[K, V]):
    """A request for several keys.

    Attributes:
        keys: in the order of the calls.
        responses: none of a key whose thread has to request it.
        ended: whether there is nothing to wait for any more.
    """

    def __init__(self) -> None:
        self.keys: dict[K, None] = {}
        self.responses: Mapping[K, V] = {}
        self.ended = threading.Event()
