"""An S3 server for development and tests: moto over HTTP, behind one lock.

Every request is applied completely before the next one begins (:mod:`dev.strict_s3`), after its whole body has arrived.
The buckets that a server began with end with it.

``python -m dev.s3_server --port 0 --bucket NAME`` prints the address; SIGTERM stops it. Any credentials are accepted.
"""

from __future__ import annotations

import argparse
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dev.strict_s3 import StrictS3
from dev.supervisor import ServerProcess, end
from dev.waiting import wait_for_start
from dev.wsgi_server import WsgiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = ["S3Server", "ThreadedS3Server", "main"]

ROOT: Final = Path(__file__).resolve().parents[1]


class ThreadedS3Server(WsgiServer):
    """The server in a thread of this process, with an optional middleware between the network and the store.

    All such servers of one process share moto's one set of buckets.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        buckets: Sequence[str] = (),
        middleware: Callable[[WSGIApplication], WSGIApplication] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Bind to a loopback port (0: a free one) and create buckets; :meth:`start` serves, with ``tls`` over TLS."""
        self._store, self._buckets = StrictS3(), buckets
        super().__init__(self._store if middleware is None else middleware(self._store), port=port, tls=tls)
        for bucket in buckets:
            self._store.create_bucket(bucket)

    def stop(self) -> None:
        """Stop listening, hang up, and remove the buckets that were created at the start."""
        super().stop()
        for bucket in self._buckets:
            self._store.remove_bucket(bucket)


class S3Server(ServerProcess):
    """The server as a process of its own, so that its CPU and its crashes are its own.

    It ends when :meth:`stop` is called, and also when this process ends for any reason. :meth:`start` raises a
    ``RuntimeError`` with the output of the server if it ends or is not ready in time.

    Attributes:
        endpoint: address to give to clients, known after :meth:`start`.
    """

    def __init__(self, *, buckets: Sequence[str] = ()) -> None:
        """Describe a server with some buckets."""
        self.endpoint = ""
        self._command = [sys.executable, "-m", "dev.s3_server", "--port", "0", "--until-eof"]
        for bucket in buckets:
            self._command += ["--bucket", bucket]

    def _start(self) -> None:
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
            wait_for_start(
                "the S3 server",
                ready.exists,
                [self._process],
                timeout=60,
                log=lambda: errors.read_text(errors="replace")[-2_000:],
            )
            self.endpoint = ready.read_text().strip()

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
    parser.add_argument("--bucket", action="append", default=[], help="create this bucket; may be repeated")
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
    # Connection threads that still run are not needed any more.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
