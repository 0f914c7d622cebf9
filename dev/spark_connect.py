"""A Spark Connect server on this machine: pyspark's own, on a free port of the loopback interface."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.spark.conf import SERVER_CONF
from airflow_provider_kafka_s3.submit.driver_jvm import jvm_variables
from dev.ports import HOST, free_ports, listens
from dev.spark_cluster import spark_home
from dev.supervisor import ServerProcess, end
from dev.waiting import wait_for_start

__all__ = ["SparkConnectServer"]

_MAIN: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkConnectServer(ServerProcess):
    """A server with two cores in a process of its own, whose id is that of the JVM.

    Args:
        jars: of the Kafka connector.
        ui: whether it serves Spark's web interface, on :attr:`ui_port`.
        optimised: compile code as for a server of hours; False: start and serve a few small jobs with less work.

    Attributes, known after :meth:`start`:
        port: of the gRPC endpoint.
        ui_port: of the web interface.
        log: file with the output of the server.
    """

    def __init__(self, jars: list[Path], *, ui: bool = False, optimised: bool = False) -> None:
        self._jars = jars
        self._ui = ui
        self._optimised = optimised
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """As clients take it."""
        return f"sc://{HOST}:{self.port}"

    def _start(self) -> None:
        self.port, self.ui_port = free_ports(2)
        self._folder = tempfile.TemporaryDirectory(prefix="spark-connect-")
        folder = Path(self._folder.name)
        self.log = folder / "server.log"
        conf = {
            **SERVER_CONF,
            "spark.master": "local[2,4]",
            "spark.jars": ",".join(map(str, self._jars)),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": str(self._ui).lower(),
            "spark.ui.port": str(self.ui_port),
            # Spark would use the next port if this one were taken meanwhile.
            "spark.port.maxRetries": "0",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-submit"), *options, "--class", _MAIN, "spark-internal"],
                cwd=folder,
                # The JVM starts the Python workers.
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    **({} if self._optimised else jvm_variables({}, offsets=0, archive=None, serial=True)),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for_start(
            "the Spark Connect server",
            lambda: listens(self.port),
            [self._process],
            timeout=120,
            log=lambda: self.log.read_text(errors="replace")[-3_000:],
        )

    def stop(self) -> None:
        """Stop the server, its Python workers too, and remove its files."""
        process, self._process = self._process, None
        if process is not None:
            end(process, 20)
        if self._folder is not None:
            self._folder.cleanup()
