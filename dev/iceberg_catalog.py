"""A real REST catalog of Iceberg for tests: that of Iceberg's own tests, with tables in a folder and a SQLite database.

``with IcebergCatalog() as catalog:`` starts one on a free loopback port (``make jars`` fetches its jars). It lives no
longer than the process that started it, however that ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dev.java import find_java
from dev.ports import HOST, free_ports, listens
from dev.spark_cluster import spark_home
from dev.supervisor import SupervisedServer
from dev.waiting import wait_for_start

__all__ = ["IcebergCatalog"]

JARS: Final = Path(__file__).resolve().parents[1] / ".build" / "jars" / "iceberg"
_MAIN: Final = "org.apache.iceberg.rest.RESTCatalogServer"


class IcebergCatalog(SupervisedServer):
    """A catalog in a process group of its own.

    :meth:`start` returns when it listens. It raises a ``RuntimeError`` if there are no jars, or, with the end of the
    log, if the process ends.

    Args:
        jars: folder of its jars.
    """

    _NAME = "iceberg-catalog"

    def __init__(self, *, jars: Path = JARS) -> None:
        self._jars = jars

    @property
    def url(self) -> str:
        """Its address, known after :meth:`start`."""
        return f"http://{HOST}:{self.port}"

    def _start(self) -> None:
        if not any(self._jars.glob("iceberg-core-*.jar")):
            raise RuntimeError(f"there is no catalog of Iceberg in {self._jars}: run make jars")
        (self.port,) = free_ports(1)
        folder = self._make_directory()
        settings = {
            "CATALOG_WAREHOUSE": f"file://{folder / 'warehouse'}",
            "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
            "CATALOG_REST_PORT": str(self.port),
            "REST_PORT": str(self.port),
        }
        hadoop = [str(jar) for jar in (spark_home() / "jars").glob("hadoop-client-*.jar")]
        java = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        variables = ["/usr/bin/env", *(f"{name}={value}" for name, value in settings.items())]
        process = self._run([*variables, *java, "-cp", ":".join([f"{self._jars.resolve()}/*", *hadoop]), _MAIN])
        wait_for_start(
            f"the catalog of Iceberg at {self.url}",
            lambda: listens(self.port),
            [process],
            timeout=120,
            log=self.last_lines,
            interval=0.1,
        )
