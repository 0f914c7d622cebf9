"""A real REST catalog of Iceberg, an S3 server over HTTP, and a topic that is landed there."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest
from duckdb import DuckDBPyConnection
from pyiceberg.catalog import Catalog

from airflow_provider_kafka_s3.config import JsonConverter, Layout, Parquet
from airflow_provider_kafka_s3.config.tables import TableSettings
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.tables.iceberg.catalog import file_properties, open_catalog
from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable
from dev.fault_proxy import FaultProxy
from dev.iceberg_catalog import IcebergCatalog
from dev.iceberg_readers import SparkWithIceberg, duckdb_with_iceberg
from dev.s3_server import ThreadedS3Server
from tests.unit.batch.simulated_topic import Topic

NAMESPACE: Final = "lake"
CREDENTIALS: Final = S3Credentials(access_key_id="a", secret_access_key="b")

_buckets = itertools.count()


@pytest.fixture(scope="package")
def catalog_server() -> Iterator[IcebergCatalog]:
    """The catalog of all tests."""
    with IcebergCatalog() as server:
        yield server


@pytest.fixture(scope="package")
def s3_settings() -> Iterator[S3Settings]:
    """The S3 server of all tests."""
    with ThreadedS3Server() as server:
        yield S3Settings(endpoint_url=server.endpoint, region="us-east-1", addressing_style="path")


@pytest.fixture(scope="package")
def catalog(catalog_server: IcebergCatalog, s3_settings: S3Settings) -> Catalog:
    """A client of the catalog."""
    opened = open_catalog("tests", {"uri": catalog_server.url, **file_properties(s3_settings, CREDENTIALS)})
    opened.create_namespace(NAMESPACE)
    return opened


@pytest.fixture(scope="package")
def duckdb(catalog: Catalog, catalog_server: IcebergCatalog, s3_settings: S3Settings) -> Iterator[DuckDBPyConnection]:
    """DuckDB with the catalog, whose namespace exists."""
    with duckdb_with_iceberg(catalog_server.url, str(s3_settings.endpoint_url)) as connection:
        yield connection


@pytest.fixture(scope="package")
def spark(catalog_server: IcebergCatalog, s3_settings: S3Settings) -> Iterator[SparkWithIceberg]:
    """Spark, which takes ten seconds to start."""
    with SparkWithIceberg(catalog_server.url, str(s3_settings.endpoint_url)) as session:
        yield session


def schema_of(*fields: tuple[str, Any]) -> str:
    """A declared schema of records with these fields."""
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": n, "type": t} for n, t in fields]})


ORDERS: Final = schema_of(("n", "long"), ("name", ["null", "string"]))


class Bucket(S3Store):
    """A bucket from which somebody deletes objects."""

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._client.delete_object(Bucket=self._bucket, Key=key)


class TableOfTopic:
    """A topic in a bucket of its own, and its table.

    Attributes:
        topic: what is landed.
        bucket: its name.
        table: name of the table.
    """

    def __init__(self, catalog: Catalog, duckdb: DuckDBPyConnection, s3: S3Settings, layout: Layout) -> None:
        number = next(_buckets)
        self.bucket = f"lake-{number}"
        self.table = f"{NAMESPACE}.orders_{number}"
        client = make_client(s3, CREDENTIALS)
        client.create_bucket(Bucket=self.bucket)
        self.catalog = catalog
        self._duckdb = duckdb
        self._runs = 0
        self.topic = Topic(layout, partitions=2)
        self.topic.bucket = Bucket(client, self.bucket)  # type: ignore[assignment]  # of memory else

    def land(self, *values: dict[str, Any]) -> None:
        """Append records, by turns to both partitions, and land them as one batch."""
        for number, value in enumerate(values):
            self.topic.append(json.dumps(value).encode(), partition=number % 2)
        self._runs += 1
        self.topic.land(f"run-{self._runs}")

    def change_schema(self, schema: str) -> None:
        """Land later batches by another schema."""
        self.topic.layout = msgspec.structs.replace(self.topic.layout, value_converter=JsonConverter(schema=schema))

    def topic_table(self, catalog: Catalog | None = None, **settings: Any) -> TopicTable:
        """A process that adds batches."""
        log = self.topic.pipeline.log
        return TopicTable(catalog or self.catalog, self.table, log, TableSettings(**settings))

    def rows(self) -> list[dict[str, Any]]:
        """All rows, as pyiceberg and DuckDB read them: the same."""
        rows = sorted(self.catalog.load_table(self.table).scan().to_arrow().to_pylist(), key=_in_order)
        result = self._duckdb.execute(f"select * from lake.{self.table}").to_arrow_table()
        assert sorted(result.to_pylist(), key=_in_order) == rows
        return rows


def _in_order(row: dict[str, Any]) -> str:
    return str([*row.values()])


@pytest.fixture
def table_of(catalog: Catalog, duckdb: DuckDBPyConnection, s3_settings: S3Settings) -> Callable[..., TableOfTopic]:
    """Make a topic and its table: ``table_of(schema)``; keywords are those of the layout."""

    def make(schema: str = ORDERS, **layout: Any) -> TableOfTopic:
        given = {"format": Parquet(), "value_converter": JsonConverter(schema=schema), **layout}
        return TableOfTopic(catalog, duckdb, s3_settings, Layout(topics_dir="lake", **given))

    return make


@pytest.fixture
def proxy(catalog_server: IcebergCatalog) -> Iterator[FaultProxy]:
    """Between a client and the catalog."""
    with FaultProxy(catalog_server.url) as started:
        yield started


@pytest.fixture
def behind_proxy(proxy: FaultProxy, s3_settings: S3Settings) -> Catalog:
    """A client whose requests can fail, and that waits a second for an answer."""
    files = file_properties(s3_settings, CREDENTIALS)
    return open_catalog("proxied", {"uri": proxy.endpoint, "kafka-s3.timeout": "2", **files})
