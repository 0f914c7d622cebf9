"""A Spark Connect server on this machine: pyspark's own, on a free port of the loopback interface."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from airflow_provider_kafka_s3.spark.conf import SERVER_CONF
from dev.kafka_broker import free_ports
from dev.supervisor import end

__all__ = ["SparkConnectServer"]

_MAIN: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"

_START: Final = 120.0
"""Seconds to wait for the server."""


class SparkConnectServer:
    """A server in a process of its own; a context manager.

    Args:
        jars: of the Kafka connector.
        master: the server is the driver of this master.
        conf: more settings.
        ui: whether it serves Spark's web interface, on :attr:`ui_port`.

    Attributes:
        port: of the gRPC endpoint.
        ui_port: of the web interface.
        log: file with all that the server says.
    """

    def __init__(
        self, jars: list[Path], *, master: str = "local[2,4]", conf: Mapping[str, str] | None = None, ui: bool = False
    ) -> None:
        self.port, self.ui_port = free_ports(2)
        self._folder = tempfile.TemporaryDirectory(prefix="spark-connect-")
        self.log = Path(self._folder.name, "server.log")
        self._conf = {
            **SERVER_CONF,
            "spark.master": master,
            "spark.jars": ",".join(str(jar) for jar in jars),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": str(ui).lower(),
            "spark.ui.port": str(self.ui_port),
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": self._folder.name,
            "spark.sql.warehouse.dir": str(Path(self._folder.name, "warehouse")),
            **(conf or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As clients take it."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the JVM."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        """Start it, and wait until it takes connections."""
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations
        submit = Path(spec.submodule_search_locations[0], "bin", "spark-submit")
        options = [part for name, value in self._conf.items() for part in ("--conf", f"{name}={value}")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(submit), *options, "--class", _MAIN, "spark-internal"],
                cwd=self._folder.name,
                # The JVM starts the Python workers.
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._await()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, its Python workers too."""
        self.close()

    def close(self) -> None:
        """Stop the server and remove its files."""
        if self._process is not None:
            end(self._process, 20)
            self._process = None
        self._folder.cleanup()

    def _await(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = self.log.read_text(errors="replace")[-3_000:]
                    raise RuntimeError(f"the Spark Connect server did not start:\n{said}") from None
                time.sleep(0.05)
