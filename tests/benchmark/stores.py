"""The S3 server of the benchmark: versitygw where Go can build it, else moto."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dev.kafka_broker import free_ports
from dev.s3_server import S3Server
from tests.spark.pipeline import CREDENTIALS, ROOT

VERSION: Final = "v1.8.0"
FOLDER: Final = ROOT / ".build" / "bin"


@dataclass(frozen=True)
class Store:
    """A server that runs."""

    name: str
    endpoint: str
    pid: int


def build_versitygw() -> Path | None:
    """The server's binary, built once; None without Go, or if it cannot be built."""
    binary = FOLDER / "versitygw"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        return None
    print(f"Building versitygw {VERSION} (two minutes, once) …", flush=True)
    done = subprocess.run(
        [go, "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"],
        env={**os.environ, "GOBIN": str(FOLDER), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"versitygw cannot be built, moto takes its place: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return None
    return binary


@contextlib.contextmanager
def store(kind: str) -> Iterator[Store]:
    """Run a server: ``versitygw``, ``moto``, or ``auto``."""
    binary = build_versitygw() if kind != "moto" else None
    if binary is None:
        with S3Server() as server:
            yield Store("moto", server.endpoint, server.pid)
        return
    memory = Path("/dev/shm")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="versitygw-", dir=memory if memory.is_dir() else None) as folder:
        login = ["--access", CREDENTIALS.access_key_id, "--secret", CREDENTIALS.secret_access_key]
        process = subprocess.Popen(
            [str(binary), *login, "--port", f"127.0.0.1:{port}", "-q", "posix", folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(port, process)
            yield Store(f"versitygw {VERSION}", f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            process.wait()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"versitygw did not start (exit code {process.poll()})") from None
            time.sleep(0.05)
