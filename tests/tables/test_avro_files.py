"""Why a table takes no objects of Avro."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record

from airflow_provider_kafka_s3.config import AvroContainer
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from dev.iceberg_catalog import IcebergCatalog
from dev.iceberg_readers import SparkWithIceberg, duckdb_with_iceberg
from tests.tables.conftest import TableOfTopic

STATISTICS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@pytest.mark.timeout(600)  # it starts Spark
def test_of_the_three_engines_only_spark_reads_data_files_of_avro(
    table_of: Callable[..., TableOfTopic],
    catalog_server: IcebergCatalog,
    s3_settings: S3Settings,
    spark: SparkWithIceberg,
) -> None:
    """By the names of their columns, since they have no ids. The others refuse the whole table."""
    made, of_avro = table_of(), table_of(format=AvroContainer())
    made.land({"n": 1, "name": "a"})
    made.topic_table().add()
    of_avro.land({"n": 2, "name": None})
    (snapshot_object,) = Snapshot(of_avro.topic.pipeline.log).objects()
    table = made.catalog.load_table(made.table)
    mapping = create_mapping_from_schema(table.schema()).model_dump_json()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=snapshot_object.url,
        file_format=FileFormat.AVRO,
        partition=Record(),
        record_count=snapshot_object.records,
        file_size_in_bytes=snapshot_object.size,
        spec_id=0,
        **{name: {} for name in STATISTICS},
        **dict.fromkeys(("key_metadata", "split_offsets", "equality_ids", "sort_order_id")),
    )
    with table.transaction() as transaction:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        with transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)
    rows = spark.query(f"select n, name from lake.{made.table} order by n").to_pylist()
    assert rows == [{"n": 1, "name": "a"}, {"n": 2, "name": None}]
    with pytest.raises(ValueError, match="Unsupported file format"):
        made.rows()
    with (
        duckdb_with_iceberg(catalog_server.url, str(s3_settings.endpoint_url)) as connection,
        pytest.raises(Exception, match="File format 'AVRO' not supported"),
    ):
        connection.execute(f"select * from lake.{made.table}").fetchall()
