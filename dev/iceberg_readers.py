"""DuckDB and Spark as readers of an S3 server, and of tables of Iceberg whose metadata are files of this machine.

The name of the catalog is ``lake`` in both. ``python -m dev.iceberg_readers JSON`` is the process of Spark: it takes
a statement of each line of its input.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["SparkWithIceberg", "duckdb_over_s3", "duckdb_with_iceberg"]

ROOT: Final = Path(__file__).resolve().parents[1]
JARS: Final = ROOT / ".build" / "jars" / "iceberg-spark"


@contextlib.contextmanager
def duckdb_over_s3(endpoint: str, *more: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB that reads buckets and Avro; its extensions are packages, since it would download them otherwise.

    Args:
        endpoint: address of the S3 server, which takes any credentials.
        more: names of more extensions.
    """
    import duckdb

    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("httpfs", "avro", *more):
            module = importlib.import_module(f"duckdb_extension_{name}")
            folder = Path(str(module.__file__)).parent / "extensions" / f"v{duckdb.__version__}"
            (extension,) = folder.glob("*.duckdb_extension")
            connection.execute(f"load '{extension}'")
        connection.execute(
            "create secret (type s3, key_id 'a', secret 'b', region 'us-east-1', use_ssl false, url_style 'path', "
            f"endpoint '{endpoint.removeprefix('http://')}')"
        )
        yield connection


@contextlib.contextmanager
def duckdb_with_iceberg(catalog: str, endpoint: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with a catalog.

    Args:
        catalog: address of the catalog.
        endpoint: address of the S3 server, which takes any credentials.
    """
    with duckdb_over_s3(endpoint, "iceberg") as connection:
        connection.execute(f"attach '' as lake (type iceberg, endpoint '{catalog}', authorization_type 'none')")
        yield connection


class SparkWithIceberg:
    """Spark with a catalog: ``with SparkWithIceberg(…) as spark``. A process of its own, since one has one JVM.

    Args:
        catalog: address of the catalog.
        endpoint: address of the S3 server, which takes any credentials.
    """

    def __init__(self, catalog: str, endpoint: str) -> None:
        self._settings = {"catalog": catalog, "endpoint": endpoint}

    def __enter__(self) -> SparkWithIceberg:
        with contextlib.ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="iceberg-spark-")))
            self._log = self._folder / "log"
            command = [sys.executable, "-m", "dev.iceberg_readers", json.dumps(self._settings)]
            log = stack.enter_context(self._log.open("wb"))
            # It ends when its input does, so also with this process.
            self._process = stack.enter_context(
                subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def query(self, statement: str) -> pa.Table:
        """The rows of a statement of SQL.

        Raises:
            RuntimeError: it failed, with its error; or the process has ended, with the end of its log.
        """
        import pyarrow as pa

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        rows = self._folder / "rows.arrow"
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"statement": statement, "rows": str(rows)}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"Spark has ended:\n{self._log.read_text()[-3000:]}")
        if error := json.loads(answer):
            raise RuntimeError(error)
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
        "spark.sql.shuffle.partitions": "1",  # of 200, procedures take a minute
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
    """Write the rows of each statement as a file of Arrow, and answer with a line: its error, or null."""
    import pyarrow as pa

    given = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else writes to it
    spark = _session(given["catalog"], given["endpoint"])
    for line in sys.stdin:
        request = json.loads(line)
        error = None
        try:
            rows = spark.sql(request["statement"]).toArrow()
            with pa.ipc.new_file(request["rows"], rows.schema) as file:
                file.write_table(rows)
        except Exception as e:  # noqa: BLE001 - the answer
            error = f"{type(e).__name__}: {str(e)[:3000]}"
        print(json.dumps(error), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
