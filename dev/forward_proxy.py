"""An HTTP proxy with a login: requests to ``http://`` addresses, and tunnels (``CONNECT``) for ``https://`` ones."""

from __future__ import annotations

import base64
import http.client
import selectors
import socket
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dev.ports import HOST
from dev.supervisor import ThreadServer

__all__ = ["ForwardProxy"]

_HOP: tuple[str, ...] = ("connection", "proxy-authorization", "proxy-connection", "transfer-encoding")


class ForwardProxy(ThreadServer):
    """The proxy in a thread of this process.

    Attributes:
        address: to give to clients, without the login.
        seen: method and address of each request that was passed on.
        refused: number of requests with a wrong login.
    """

    def __init__(self, *, user: str = "", password: str = "") -> None:
        """Bind to a free loopback port; without a user there is no login."""
        self.seen: list[tuple[str, str]] = []
        self.refused = 0
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        proxy, expected = self, f"Basic {login}" if user else None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Nothing."""

            def forward(self) -> None:
                """Pass a request on, if its login is right."""
                if expected is not None and self.headers.get("Proxy-Authorization") != expected:
                    proxy.refused += 1
                    self.close_connection = True
                    self.send_error(407)
                    return
                proxy.seen.append((self.command, self.path))
                if self.command == "CONNECT":
                    self._tunnel()
                else:
                    self._send()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_CONNECT = forward  # noqa: N815 - the base class's

            def _send(self) -> None:
                address = urllib.parse.urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
                server = http.client.HTTPConnection(address.netloc)
                server.request(self.command, address._replace(scheme="", netloc="").geturl(), body, headers)
                answer = server.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in (*_HOP, "date", "server"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                server.close()

            def _tunnel(self) -> None:
                host, _, port = self.path.partition(":")
                with socket.create_connection((host, int(port))) as server:
                    self.send_response(200)
                    self.end_headers()
                    _pump(self.connection, server)
                self.close_connection = True

        server = ThreadingHTTPServer((HOST, 0), Handler)
        server.daemon_threads = True
        super().__init__(server, "forward proxy")
        self.address = f"http://{HOST}:{server.server_port}"


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes both ways until one side ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for ready, _ in selector.select():
                source: socket.socket = ready.fileobj  # type: ignore[assignment]
                data = source.recv(65536)
                if not data:
                    return
                ready.data.sendall(data)
