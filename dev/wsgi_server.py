"""A WSGI server in a thread of this process, over HTTP/1.1 with keep-alive, and optionally over TLS.

An application gets a request after its whole body has arrived, so an incomplete request changes nothing.
"""

from __future__ import annotations

import socket
import ssl
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import TYPE_CHECKING

from werkzeug.test import run_wsgi_app

from dev.ports import HOST
from dev.supervisor import ThreadServer

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment
    from werkzeug.datastructures import Headers

__all__ = ["WsgiServer"]


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive. werkzeug's own server closes every connection, after a pause of 10 ms."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HTTPServer

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        try:
            super().finish()
        except OSError:  # The client is gone, and with it whatever was not flushed.
            return

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: a line per part would hide the output of the tests."""

    def serve(self) -> None:
        body = self._read_body()
        if body is None:
            self.close_connection = True
            return
        chunks, status, headers = run_wsgi_app(self.server.app, self._environ(body), buffered=True)
        self._answer(status, headers, b"".join(chunks))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = serve  # noqa: N815 - names of the base class

    def _read_body(self) -> bytes | None:
        """The whole body; None if the client went away before its end, in which case nothing may be applied."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else b""
        return body if len(body) == size else None

    def _environ(self, body: bytes) -> WSGIEnvironment:
        path, _, query = self.path.partition("?")
        host, port = self.server.server_address[:2]
        environ: WSGIEnvironment = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": urllib.parse.unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "REQUEST_URI": self.path,
            "RAW_URI": self.path,
            "SERVER_NAME": str(host),
            "SERVER_PORT": str(port),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.input_terminated": True,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in self.headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        environ["CONTENT_LENGTH"] = str(len(body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        return environ

    def _answer(self, status: str, headers: Headers, content: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        if "Content-Length" not in headers and code not in ("204", "304"):
            self.send_header("Content-Length", str(len(content)))
        if "close" in headers.get("Connection", ""):
            self.close_connection = True
        self.end_headers()
        if content and self.command != "HEAD":
            self.wfile.write(content)


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, app: WSGIApplication) -> None:
        self.app = app
        self.connections: set[socket.socket] = set()
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        # The base class looks up the host's name, which may send a request to a name server.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    def hang_up(self) -> None:
        """Close the connections that clients keep open; else they would still be served after the end."""
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class WsgiServer(ThreadServer):
    """The server of an application; requests of several connections are served at the same time.

    Attributes:
        endpoint: address to give to clients.
    """

    def __init__(self, application: WSGIApplication, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Bind to a loopback port (0: a free one); :meth:`start` serves, over TLS if there is a context for it."""
        self._server = _HTTPServer(port, application)
        super().__init__(self._server, "wsgi")
        if tls is not None:
            # The thread of the connection does the handshake, so a slow client delays no other.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.endpoint = f"{'http' if tls is None else 'https'}://{HOST}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop listening and hang up."""
        super().stop()
        self._server.hang_up()
