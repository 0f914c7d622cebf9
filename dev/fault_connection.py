"""One connection of :class:`~dev.fault_proxy.FaultProxy`: it forwards requests and injects the chosen faults."""

from __future__ import annotations

import contextlib
import http.client
import re
import select
import socket
import struct
import time
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Protocol

from dev.faults import (
    Answer,
    Call,
    Delay,
    Fault,
    Flip,
    Hang,
    Hold,
    Lose,
    Reset,
    ResetInBody,
    Truncate,
    Twice,
    operation_of,
)

__all__ = ["ProxyServer"]

_UPLOAD_ID: Final = re.compile(rb"<UploadId>(.*?)</UploadId>")
_HOP_BY_HOP: Final = {"connection", "expect", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}


class Proxy(Protocol):
    """The proxy of a connection, which is called by the threads of all connections."""

    def arrived(self, call: Call) -> tuple[Call, Fault | None]:
        """Note a request and choose its fault."""

    def under_way(self) -> AbstractContextManager[None]:
        """Note that a request is on its way."""

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server."""

    def is_over(self) -> bool:
        """Whether the proxy stops."""


class _HangUp(Exception):
    """The connection to the client is closed: with ``reset`` by a reset, else in order."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


class _Response:
    """A complete response of the server."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.reason = response.status, response.reason
        self.body = response.read()
        self.headers = [(n, v) for n, v in response.getheaders() if n.lower() not in _HOP_BY_HOP]
        self.has_length = any(name.lower() == "content-length" for name, _ in self.headers)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ProxyServer

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)
        self._upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        self._drop_upstream()
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def handle_expect_100(self) -> bool:
        return True  # Sent when the body is read, so that a fault may come before.

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: the proxy has a log of its own."""

    def serve(self) -> None:
        proxy = self.server.proxy
        operation, key, upload_id = operation_of(self.command, self.path)
        condition = next((name for name in ("if-match", "if-none-match") if name in self.headers), "")
        call, fault = proxy.arrived(Call(0, operation, key, condition, upload_id, port=self.client_address[1]))
        try:
            with proxy.under_way():
                self._carry_out(call, fault)
        except _HangUp as end:
            self.close_connection = True
            if end.reset:
                self.server.to_reset.add(self.connection)
        except (OSError, http.client.HTTPException):
            # The client or the server is gone. The other one gets a reset, the most ambiguous signal.
            self.close_connection = True
            self.server.to_reset.add(self.connection)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve  # noqa: N815 - names of the base class

    # -- faults -------------------------------------------------------------------------------------------------------

    def _carry_out(self, call: Call, fault: Fault | None) -> None:
        match fault:
            case Reset():
                raise _HangUp(reset=True)
            case ResetInBody():
                self._send_half()
                raise _HangUp(reset=True)
        body = self._read_body()
        match fault:
            case None:
                self._pass_on(call, self._forward(call, body))
            case Delay():
                self._delay(call, body, fault)
            case Answer():
                if fault.applied:
                    self._forward(call, body)
                self._send_error(fault)
            case Lose():
                self._forward(call, body)
                raise _HangUp(reset=fault.by == "RST")
            case Hang():
                if fault.applied:
                    self._forward(call, body)
                self._wait_for_hang_up()
                raise _HangUp(reset=True)
            case Truncate():
                self._pass_on_half(self._forward(call, body), fault.before.lower())
                raise _HangUp(reset=False)
            case Flip():
                self._pass_on_flipped(call, self._forward(call, body), unseen=fault.unseen)
            case Twice():
                self._forward(call, body)
                self._pass_on(call, self._forward(call, body))
            case Hold():
                self._hold(call, body, fault)

    def _delay(self, call: Call, body: bytes, delay: Delay) -> None:
        response = self._forward(call, body) if delay.applied else None
        time.sleep(delay.seconds)
        self._pass_on(call, response or self._forward(call, body))

    def _hold(self, call: Call, body: bytes, hold: Hold) -> None:
        response = self._forward(call, body) if hold.applied else None
        if not hold.wait(self.server.proxy.is_over):
            raise _HangUp(reset=True)
        try:
            if response is None:
                response = self._forward(call, body)
        finally:
            hold.done()
        self._pass_on(call, response)

    def _send_error(self, answer: Answer) -> None:
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{answer.code}</Code></Error>'.encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/xml", **answer.headers}.items():
            self.send_header(name, value)
        # HEAD has the header, and no body: so clients get a status without a code.
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _wait_for_hang_up(self) -> None:
        while not self.server.proxy.is_over():
            if select.select([self.connection], [], [], 0.05)[0]:
                return

    def _pass_on_flipped(self, call: Call, response: _Response, *, unseen: bool) -> None:
        if unseen:
            response.headers = [(n, v) for n, v in response.headers if not n.lower().startswith("x-amz-checksum-")]
        if response.body:
            middle = len(response.body) // 2
            flipped = bytes([response.body[middle] ^ 1])
            response.body = response.body[:middle] + flipped + response.body[middle + 1 :]
        self._pass_on(call, response)
        call.answered = False

    def _pass_on_half(self, response: _Response, before: str) -> None:
        if before:
            self.send_response_only(response.status, response.reason)
            for name, value in response.headers:
                if not name.lower().startswith(before):
                    self.send_header(name, value)
            self.flush_headers()
        elif not response.body:
            self.wfile.write(f"HTTP/1.1 {response.status}".encode())
        else:
            self._send_head(response)
            self.wfile.write(response.body[: len(response.body) // 2])

    def _send_half(self) -> None:
        """Let the server see the beginning of the request."""
        size = int(self.headers.get("Content-Length") or 0)
        if not size:
            return
        if "100-continue" in self.headers.get("Expect", ""):
            self.send_response_only(http.client.CONTINUE)
            self.end_headers()
        half = self.rfile.read(size // 2)
        connection = self._send_to_server(half)
        if connection.sock is not None:
            _let_close_reset(connection.sock)
        self._drop_upstream()

    # -- both sides ---------------------------------------------------------------------------------------------------

    def _read_body(self) -> bytes:
        if "100-continue" in self.headers.get("Expect", ""):
            self.send_response_only(http.client.CONTINUE)
            self.end_headers()
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else b""
        if len(body) != size:
            raise _HangUp(reset=True)
        return body

    def _forward(self, call: Call, body: bytes) -> _Response:
        response = _Response(self._send_to_server(body).getresponse())
        call.status = response.status
        if call.operation == "CreateMultipartUpload" and (found := _UPLOAD_ID.search(response.body)):
            call.created.append(found[1].decode())
        return response

    def _send_to_server(self, body: bytes) -> http.client.HTTPConnection:
        connection = self._connection()
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        connection.endheaders()
        if body:
            connection.send(body)
        return connection

    def _connection(self) -> http.client.HTTPConnection:
        # A server may close a connection that was idle, which shows as something to read.
        if self._upstream is not None and (
            self._upstream.sock is None or select.select([self._upstream.sock], [], [], 0)[0]
        ):
            self._drop_upstream()
        if self._upstream is None:
            self._upstream = self.server.proxy.connect()
        return self._upstream

    def _drop_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.close()

    def _pass_on(self, call: Call, response: _Response) -> None:
        # Noted before the client can act on it.
        call.answered = True
        self._send_head(response)
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _send_head(self, response: _Response) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.headers:
            self.send_header(name, value)
        if not response.has_length and response.status not in (204, 304):
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()


class ProxyServer(ThreadingHTTPServer):
    """Listens on a free loopback port.

    Attributes:
        proxy: the proxy of the connections.
        connections: open connections of clients.
        to_reset: those of them that have to end with a reset.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, proxy: Proxy) -> None:
        """Bind."""
        self.proxy = proxy
        self.connections: set[socket.socket] = set()
        self.to_reset: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind. The base class also looks up the host's name, which may send a request to a name server."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """End a connection as its last fault requires."""
        assert isinstance(request, socket.socket)
        if request in self.to_reset:
            self.to_reset.discard(request)
            with contextlib.suppress(OSError):
                _let_close_reset(request)
            self.close_request(request)
            return
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing about clients that disconnect during a handshake."""


def _let_close_reset(connection: socket.socket) -> None:
    """Make the next close send a reset instead of an orderly close."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
