"""An HTTP proxy between a client and an S3 server that injects faults of networks and stores.

It forwards requests unchanged, including the Host, so that signatures stay valid; it keeps connections open, and may
use TLS with its clients. Rules or a function choose the fault of each request::

    with FaultProxy(server.endpoint) as proxy:
        rule = proxy.add(Lose(), operation="CompleteMultipartUpload", key="*.json", times=2)
        held = proxy.hold("PutObject", key="*/marker.json")
        ...
        held.wait_until_held()
        ...
        held.release()

``proxy.calls`` lists the requests and their outcomes.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from dev.certificates import Authority, Certificate, server_context
from dev.fault_connection import ProxyServer
from dev.faults import Call, Fault, Hold, Rule
from dev.supervisor import ThreadServer

__all__ = ["FaultProxy"]

_TIMEOUT: Final = 60.0
"""Seconds that a server has for an answer."""


class FaultProxy(ThreadServer):
    """The proxy, in threads of this process.

    Attributes:
        endpoint: address to give to clients.
    """

    def __init__(
        self,
        upstream: str,
        *,
        tls: Certificate | None = None,
        authority: Authority | None = None,
        choose: Callable[[Call], Fault | None] = lambda _: None,
    ) -> None:
        """Bind to a free loopback port; :meth:`start` serves.

        Args:
            upstream: address of the server.
            tls: certificate to show to clients; None: plain HTTP.
            authority: that issued the server's certificate, if its address is ``https``.
            choose: returns the fault of a request that matches no rule; called by many threads.
        """
        self._to = urlsplit(upstream)
        self._context = None if authority is None else ssl.create_default_context(cafile=str(authority.certificate))
        self._choose = choose
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._under_way = 0
        self._over = threading.Event()
        self._rules: list[Rule] = []
        self._calls: list[Call] = []
        self._server = ProxyServer(self)
        if tls is not None:
            context = server_context(tls)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        super().__init__(self._server, "proxy")
        self.endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._server.server_port}"

    # -- faults -------------------------------------------------------------------------------------------------------

    def add(
        self,
        fault: Fault,
        *,
        operation: str = "*",
        key: str = "*",
        condition: str | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Rule:
        """Add a fault to matching requests from now on. If several rules match, the first one applies."""
        rule = Rule(fault, operation, key, condition, nth, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def hold(
        self, operation: str, *, key: str = "*", condition: str | None = None, nth: int = 1, applied: bool = False
    ) -> Hold:
        """Hold one matching request from now on; see :class:`~dev.faults.Hold`."""
        held = Hold(applied=applied)
        self.add(held, operation=operation, key=key, condition=condition, nth=nth)
        return held

    def clear(self) -> None:
        """Remove rules and calls. Held requests stay held."""
        with self._lock:
            self._rules.clear()
            self._calls.clear()

    def wait_until_idle(self, timeout: float = 30.0) -> None:
        """Wait until no request is on its way, late ones included.

        Raises:
            TimeoutError: one still is after ``timeout`` seconds.
        """
        with self._lock:
            if not self._idle.wait_for(lambda: not self._under_way, timeout):
                raise TimeoutError(f"{self._under_way} requests are still on their way after {timeout:.0f} s")

    @property
    def calls(self) -> list[Call]:
        """All requests since the last :meth:`clear`."""
        with self._lock:
            return list(self._calls)

    # -- life ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop listening and close all connections; held requests are dropped."""
        self._over.set()
        super().stop()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # -- called by the connections ------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Whether the proxy stops."""
        return self._over.is_set()

    def arrived(self, call: Call) -> tuple[Call, Fault | None]:
        """Note a request and choose its fault."""
        with self._lock:
            self._calls.append(call)
            call.number = len(self._calls)
            struck = [rule.fault for rule in self._rules if rule.strikes(call)]
        fault = struck[0] if struck else self._choose(call)
        call.fault = "" if fault is None else type(fault).__name__
        return call, fault

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Note that a request is on its way."""
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._idle.notify_all()

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server."""
        assert self._to.hostname is not None
        if self._to.scheme == "https":
            return http.client.HTTPSConnection(
                self._to.hostname, self._to.port, timeout=_TIMEOUT, context=self._context
            )
        return http.client.HTTPConnection(self._to.hostname, self._to.port, timeout=_TIMEOUT)
