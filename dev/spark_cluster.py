"""A Spark cluster on this machine: one master and some workers of Spark standalone, from the jars of pyspark.

Every worker has its own loopback address, so that Spark treats them as different machines: it starts a second attempt
at a slow task on another machine only. The workers' Python has the packages of its environment
(:data:`WORKER_PYTHON`), and nothing of this checkout.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import httpx
import psutil

from dev.ports import free_ports
from dev.supervisor import Startable, end_by_eof, start_supervised
from dev.waiting import wait_for_end, wait_for_start

__all__ = ["WORKER_PYTHON", "SparkCluster", "spark_home"]

_WORKERS_ENVIRONMENT: Final = {"4.0.0": "spark-workers", "4.2.0": "spark-workers-4.2"}[version("pyspark")]
WORKER_PYTHON: Final = Path(__file__).resolve().parent.parent / ".build" / _WORKERS_ENVIRONMENT / "bin" / "python"
"""Python of an environment with the requirements of executors alone (``make setup``).

They have the oldest versions for the oldest Spark, and those of its lock for the newest one. The minor version of
Python is that of the driver.
"""

_MASTER: Final = "127.0.0.1"
_WORKERS: Final = 2
_INHERITED: Final = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ")
"""Variables that the cluster inherits. Others, such as PYTHONPATH, would make this checkout visible to executors."""
_DAEMON_OPTIONS: Final = "-Dspark.master.rest.enabled=false -Dspark.port.maxRetries=0"
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of daemons and executors: they run for seconds, so optimising their code costs more than it saves."""


class SparkCluster(Startable):
    """A master and two workers with one core and 1 GiB each, every one a process of its own.

    They end with the process that started them, and their folders are removed. :meth:`start` raises a ``RuntimeError``
    with the ends of the logs if a process ends, or the workers do not register in time.

    Args:
        conf: settings of master and workers; no command line shows them.
    """

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = conf
        self._port = 0
        self._ui_port = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folders: list[Path] = []

    @property
    def url(self) -> str:
        """As ``spark-submit --master`` takes it."""
        return f"spark://{_MASTER}:{self._port}"

    def stop(self) -> None:
        """Stop all processes, the executors too, and remove their folders."""
        processes, self._processes = self._processes, []
        for process in reversed(processes):
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            end_by_eof(process)
        folders, self._folders = self._folders, []
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    # -- executors ----------------------------------------------------------------------------------------------------

    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors that run now, of any application."""
        found = []
        for daemon in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process(daemon.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                            found.append(process)
        return found

    def python_workers(self, executor: psutil.Process) -> list[psutil.Process]:
        """The Python processes of an executor that run its tasks; none before its first task."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for daemon in executor.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += daemon.children()
        return found

    def executor_of(self, port: int) -> psutil.Process:
        """The executor that has a Python process with a connection from a local port.

        Raises:
            LookupError: there is none.
        """
        for executor in self.executors():
            for worker in self.python_workers(executor):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if port in {c.laddr.port for c in worker.net_connections("tcp")}:
                        return executor
        raise LookupError(f"no executor has a connection from port {port}")

    def kill_executor(self, executor: psutil.Process) -> None:
        """Kill -9 an executor's JVM, and wait until it is gone; Spark starts another one in its place."""
        executor.kill()
        wait_for_end([executor], "the executor", timeout=30)

    def logs(self) -> dict[str, str]:
        """The output of the daemons and their executors so far, by file."""
        return {
            str(file.relative_to(folder.parent)): file.read_text(encoding="utf-8", errors="replace")
            for folder in self._folders
            for pattern in ("*.log", "work/*/*/std*")
            for file in sorted(folder.glob(pattern))
        }

    # -- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._port, self._ui_port = free_ports(2)
        ports = ("--port", str(self._port), "--webui-port", str(self._ui_port))
        self._launch("master", _MASTER, "org.apache.spark.deploy.master.Master", *ports)
        for number in range(1, _WORKERS + 1):
            size = ("--cores", "1", "--memory", "1g")
            work = ("--port", "0", "--webui-port", "0", "--work-dir", "work")
            host = f"127.0.0.{number + 1}"
            self._launch(f"worker-{number}", host, "org.apache.spark.deploy.worker.Worker", *size, *work, self.url)
        with httpx.Client(base_url=f"http://{_MASTER}:{self._ui_port}", trust_env=False) as master:
            wait_for_start(
                "the Spark cluster",
                lambda: _registered_workers(master) == _WORKERS,
                self._processes,
                timeout=180,
                log=lambda: "\n".join(f"{name}:\n{text[-3_000:]}" for name, text in self.logs().items()),
            )

    def _launch(self, name: str, host: str, main: str, *arguments: str) -> None:
        home = spark_home()
        folder = Path(tempfile.mkdtemp(prefix=f"spark-{name}-"))
        self._folders.append(folder)
        settings = "".join(f"{setting} {value}\n" for setting, value in self._conf.items())
        (folder / "spark-defaults.conf").write_text(settings, encoding="utf-8")
        environment = {
            **{variable: os.environ[variable] for variable in _INHERITED if variable in os.environ},
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
            "JDK_JAVA_OPTIONS": _JAVA_OPTIONS,
        }
        command = [str(home / "bin" / "spark-class"), main, "--host", host, *arguments]
        log = folder / f"{name}.log"
        self._processes.append(start_supervised(f"spark-{name}", folder, command, log=log, env=environment))


def _registered_workers(master: httpx.Client) -> int:
    """The number of workers that have registered; 0 while the master does not answer."""
    try:
        return int(master.get("/json/").raise_for_status().json()["aliveworkers"])
    except (httpx.HTTPError, ValueError):
        return 0


def spark_home() -> Path:
    """The folder of pyspark, which has Spark's jars and scripts."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])
