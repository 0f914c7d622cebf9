"""An S3 server for development and tests: moto over HTTP, behind one lock.

Every request is applied whole before the next one begins (:mod:`dev.strict_s3`), and only once all of its body came.
Nothing is kept when the server stops.

``python -m dev.s3_server --port 0 --bucket NAME`` prints the address; SIGTERM stops it. Any credentials are accepted.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from dev.strict_s3 import StrictS3
from dev.supervisor import Startable, end

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

__all__ = ["S3Server", "ThreadedS3Server", "main"]

ROOT: Final = Path(__file__).resolve().parents[1]


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
        """Say nothing: a line per part would drown the tests."""

    def serve(self) -> None:
        body = self._read_body()
        if body is None:
            self.close_connection = True
            return
        status, headers, written = "", list[tuple[str, str]](), list[bytes]()

        def start_response(line: str, fields: list[tuple[str, str]], *_: object) -> Callable[[bytes], object]:
            nonlocal status, headers
            status, headers = line, fields
            return written.append

        chunks = self.server.app(self._environ(body), start_response)
        try:
            content = b"".join([*written, *chunks])
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        self._answer(status, headers, content)

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

    def _answer(self, status: str, headers: list[tuple[str, str]], content: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        names = set()
        for name, value in headers:
            self.send_header(name, value)
            names.add(name.lower())
        if "content-length" not in names and code not in ("204", "304"):
            self.send_header("Content-Length", str(len(content)))
        if "connection" in names and "close" in dict(headers).get("Connection", ""):
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
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # The base class looks up the host's name, which may ask a name server.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def hang_up(self) -> None:
        """Cut the connections that clients keep open; else they would still be served after the end."""
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class ThreadedS3Server(Startable):
    """The server in a thread of this process; a middleware may stand between the network and the store.

    All such servers of one process share moto's one set of buckets.

    Attributes:
        endpoint: address to give to clients.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        buckets: Sequence[str] = (),
        middleware: Callable[[WSGIApplication], WSGIApplication] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Bind to a loopback port (0: a free one) and make buckets; :meth:`start` serves, over TLS if asked for."""
        store = StrictS3()
        for bucket in buckets:
            store.create_bucket(bucket)
        self._server = _HTTPServer(port, store if middleware is None else middleware(store))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="s3-server", daemon=True)
        if tls is not None:
            # The handshake is left to the thread of the connection: a client that is slow at it delays nobody else.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._server.server_port}"

    def start(self) -> Self:
        """Serve until :meth:`stop`."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening and hang up."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.hang_up()


class S3Server(Startable):
    """The server as a process of its own, so that its CPU and its crashes are its own.

    It ends when :meth:`stop` is called, and also when this process dies in whatever way.

    Attributes:
        endpoint: address to give to clients, known after :meth:`start`.
    """

    def __init__(self, *, port: int = 0, buckets: Sequence[str] = (), python: str = sys.executable) -> None:
        """Describe a server on a loopback port (0: a free one) with some buckets; ``python`` must have moto."""
        self.endpoint = ""
        self._command = [python, "-m", "dev.s3_server", "--port", str(port), "--until-eof"]
        for bucket in buckets:
            self._command += ["--bucket", bucket]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id, for measurements.

        Raises:
            RuntimeError: the server does not run.
        """
        if self._process is None:
            raise RuntimeError("the S3 server was not started")
        return self._process.pid

    def start(self, timeout: float = 60.0) -> Self:
        """Start the process and wait until it serves; ``timeout`` in seconds.

        Raises:
            RuntimeError: it ended or did not get ready; with what it said.
        """
        with tempfile.TemporaryDirectory(prefix="s3-server-") as folder:
            ready, errors = Path(folder, "ready"), Path(folder, "stderr")
            with errors.open("wb") as stderr:
                self._process = subprocess.Popen(
                    [*self._command, "--ready-file", str(ready)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                )
            deadline = time.monotonic() + timeout
            while not ready.exists():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    status = self._process.poll()
                    self.stop()
                    said = errors.read_text(errors="replace")[-2_000:]
                    raise RuntimeError(f"the S3 server did not get ready (exit status {status}):\n{said}")
                time.sleep(0.02)
            self.endpoint = ready.read_text().strip()
        return self

    def stop(self) -> None:
        """Stop the process; without effect if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        end(process)
        if process.stdin is not None:
            process.stdin.close()


def _set_at_eof(event: threading.Event) -> None:
    sys.stdin.buffer.read()
    event.set()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit status is 2 if the port is taken."""
    parser = argparse.ArgumentParser(prog="python -m dev.s3_server", description="moto's S3 over HTTP, made strict")
    parser.add_argument("--port", type=int, default=9000, help="loopback port; 0 takes a free one (default 9000)")
    parser.add_argument("--bucket", action="append", default=[], help="make this bucket; may be repeated")
    parser.add_argument("--ready-file", type=Path, help="write the address here when requests are served")
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input is closed")
    options = parser.parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        server = ThreadedS3Server(port=options.port, buckets=options.bucket)
    except OSError as e:
        print(f"port {options.port} cannot be used ({e.strerror}); give another by --port, 0 for a free one")
        return 2
    if options.until_eof:
        threading.Thread(target=_set_at_eof, args=(stopped,), daemon=True).start()
    with server:
        print(f"S3 serves at {server.endpoint}", flush=True)
        if options.ready_file is not None:
            partial = options.ready_file.with_name(options.ready_file.name + ".part")
            partial.write_text(server.endpoint)
            partial.replace(options.ready_file)
        stopped.wait()
    sys.stdout.flush()
    # Whatever connection threads still do concerns nobody any more.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
