"""The S3 server of the benchmark: versitygw, which needs little CPU, or moto."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from dev.s3_server import S3Server
from dev.versitygw import VersityGateway
from tests.spark.pipeline import CREDENTIALS


@dataclass(frozen=True)
class Store:
    """A running server."""

    name: str
    endpoint: str
    pid: int


@contextlib.contextmanager
def store(kind: str) -> Iterator[Store]:
    """Run a server: ``versitygw`` or ``moto``."""
    login = {"access_key_id": CREDENTIALS.access_key_id, "secret_access_key": CREDENTIALS.secret_access_key}
    with S3Server() if kind == "moto" else VersityGateway(**login) as server:
        yield Store(kind, server.endpoint, server.pid)
