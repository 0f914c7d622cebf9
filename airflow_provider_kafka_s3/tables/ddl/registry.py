"""The dialects by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from airflow_provider_kafka_s3.tables.ddl.athena_table import Athena
from airflow_provider_kafka_s3.tables.ddl.dialect import Dialect
from airflow_provider_kafka_s3.tables.ddl.duckdb_view import DuckDb
from airflow_provider_kafka_s3.tables.ddl.hive_table import Hive
from airflow_provider_kafka_s3.tables.ddl.spark_table import Spark
from airflow_provider_kafka_s3.tables.ddl.trino_table import Trino

__all__ = ["DIALECTS"]

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (Athena(), Trino(), Spark(), DuckDb(), Hive())
}
"""In the order of the help."""
