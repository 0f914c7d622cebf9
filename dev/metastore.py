"""A real Hive metastore for tests, with a Derby database in memory.

``with HiveMetastore() as metastore:`` starts one on a free loopback port (``make jars`` fetches its jars). It lives no
longer than the process that started it, however that ends.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from dev.java import find_java
from dev.ports import free_ports, listens
from dev.supervisor import SupervisedServer
from dev.waiting import wait_for_start

__all__ = ["HiveMetastore"]

JARS: Final = Path(__file__).resolve().parents[1] / ".build" / "jars" / "hive"
_SOURCE: Final = Path(__file__).with_name("HiveMetastoreServer.java")
_COMPILER: Final = "org.eclipse.jdt.internal.compiler.batch.Main"


class HiveMetastore(SupervisedServer):
    """A metastore in a process group of its own.

    :meth:`start` returns when it listens. It raises a ``RuntimeError`` if there are no jars, or, with the end of the
    log, if the process ends.

    Args:
        jars: folder of its jars.
    """

    _NAME = "hive-metastore"

    def __init__(self, *, jars: Path = JARS) -> None:
        self._jars = jars

    def _start(self) -> None:
        jars = ":".join(map(str, sorted(self._jars.resolve().glob("*.jar"))))
        if not jars:
            raise RuntimeError(f"there is no Hive metastore in {self._jars}: run make jars")
        (self.port,) = free_ports(1)
        folder = self._make_directory()
        java = [
            find_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dderby.stream.error.file={folder}/derby.log",
        ]
        subprocess.run(
            [*java, "-cp", jars, _COMPILER, "-17", "-nowarn", "-cp", jars, "-d", str(folder), str(_SOURCE)], check=True
        )
        process = self._run([*java, "-cp", f"{folder}:{jars}", _SOURCE.stem, str(self.port), str(folder)])
        wait_for_start(
            f"the Hive metastore at port {self.port}",
            lambda: listens(self.port),
            [process],
            timeout=120,
            log=self.last_lines,
            interval=0.1,
        )
