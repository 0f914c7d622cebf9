"""Reads a table of Iceberg with Spark, in a process of its own: ``python -m tests.tables.spark_rows JSON``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS: Final = Path(__file__).resolve().parents[2] / ".build" / "jars" / "iceberg-spark"


def session(catalog: str, endpoint: str) -> SparkSession:
    """A session with the catalog as ``lake_of_tests``, and with access to the S3 server."""
    from pyspark.sql import SparkSession

    prefix = "spark.sql.catalog.lake_of_tests"
    conf = {
        "spark.master": "local[1]",
        "spark.jars": ",".join(map(str, JARS.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.uri": catalog,
        # Metadata are files of this machine, objects are in S3.
        f"{prefix}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        f"{prefix}.s3.endpoint": endpoint,
        f"{prefix}.s3.path-style-access": "true",
        f"{prefix}.s3.access-key-id": "a",
        f"{prefix}.s3.secret-access-key": "b",
        f"{prefix}.client.region": "us-east-1",
    }
    return SparkSession.builder.config(map=conf).getOrCreate()


def main() -> None:
    """Write the rows as a file of Arrow."""
    given = json.loads(sys.argv[1])
    spark = session(given["catalog"], given["endpoint"])
    rows = spark.sql(f"select * from lake_of_tests.{given['table']} order by n").toArrow()
    with pa.ipc.new_file(given["rows"], rows.schema) as file:
        file.write_table(rows)
    spark.stop()


if __name__ == "__main__":
    main()
