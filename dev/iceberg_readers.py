"""DuckDB and Spark as readers of tables of Iceberg: metadata are files of this machine, objects are on an S3 server.

The name of the catalog is ``lake`` in both. ``python -m dev.iceberg_readers JSON`` is the process of Spark.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["duckdb_with_iceberg", "query_by_spark"]

ROOT: Final = Path(__file__).resolve().parents[1]
JARS: Final = ROOT / ".build" / "jars" / "iceberg-spark"


@contextlib.contextmanager
def duckdb_with_iceberg(catalog: str, endpoint: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with a catalog; its extensions are packages, since it would download them otherwise.

    Args:
        catalog: address of the catalog.
        endpoint: address of the S3 server, which takes any credentials.
    """
    import duckdb

    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("httpfs", "avro", "iceberg"):
            module = importlib.import_module(f"duckdb_extension_{name}")
            folder = Path(str(module.__file__)).parent / "extensions" / f"v{duckdb.__version__}"
            (extension,) = folder.glob("*.duckdb_extension")
            connection.execute(f"load '{extension}'")
        connection.execute(
            "create secret (type s3, key_id 'a', secret 'b', region 'us-east-1', use_ssl false, url_style 'path', "
            f"endpoint '{endpoint.removeprefix('http://')}')"
        )
        connection.execute(f"attach '' as lake (type iceberg, endpoint '{catalog}', authorization_type 'none')")
        yield connection


def query_by_spark(catalog: str, endpoint: str, query: str) -> pa.Table:
    """The rows of a query of Spark, in a process of its own, since a process has one JVM.

    Args:
        catalog: address of the catalog.
        endpoint: address of the S3 server, which takes any credentials.
        query: of SQL.

    Raises:
        RuntimeError: it failed; with the end of the output.
    """
    import pyarrow as pa

    with tempfile.TemporaryDirectory(prefix="iceberg-spark-") as folder:
        rows = Path(folder, "rows.arrow")
        given = {"catalog": catalog, "endpoint": endpoint, "query": query, "rows": str(rows)}
        command = [sys.executable, "-m", "dev.iceberg_readers", json.dumps(given)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Spark could not read the table:\n{done.stderr[-3000:]}")
        with pa.ipc.open_file(str(rows)) as file:
            return file.read_all()


def _session(catalog: str, endpoint: str) -> Any:
    from pyspark.sql import SparkSession

    prefix = "spark.sql.catalog.lake"
    conf: dict[str, Any] = {
        "spark.master": "local[1]",
        "spark.jars": ",".join(map(str, JARS.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.uri": catalog,
        f"{prefix}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        f"{prefix}.s3.endpoint": endpoint,
        f"{prefix}.s3.path-style-access": "true",
        f"{prefix}.s3.access-key-id": "a",
        f"{prefix}.s3.secret-access-key": "b",
        f"{prefix}.client.region": "us-east-1",
    }
    return SparkSession.builder.config(map=conf).getOrCreate()


def main() -> None:
    """Write the rows of a query as a file of Arrow."""
    import pyarrow as pa

    given = json.loads(sys.argv[1])
    spark = _session(given["catalog"], given["endpoint"])
    rows = spark.sql(given["query"]).toArrow()
    with pa.ipc.new_file(given["rows"], rows.schema) as file:
        file.write_table(rows)
    spark.stop()


if __name__ == "__main__":
    main()
