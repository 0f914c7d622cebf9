"""The pages on this machine, without Airflow."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from airflow_provider_kafka_s3.ui.pages import HEADERS, Pages

__all__ = ["local_server"]


def local_server(pages: Pages, port: int) -> ThreadingHTTPServer:
    """A server that only this machine reaches; the caller starts and ends it.

    Args:
        pages: what it shows.
        port: of the address 127.0.0.1; 0: a free one.

    Raises:
        OSError: the port is in use.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another site's script that has a name for this address would read the pages.
            if self.headers.get("Host", "").rpartition(":")[0] not in ("127.0.0.1", "localhost"):
                self.send_error(403, "the address of this server is 127.0.0.1")
                return
            response = pages.respond(self.path.partition("?")[0])
            body = response.body.encode()
            self.send_response(response.status)
            for name, text in {**HEADERS, "Content-Type": response.content_type}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            del args

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
