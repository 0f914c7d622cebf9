"""Hive: an external table whose partitions are in the metastore."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from airflow_provider_kafka_s3.config import JsonLines, Parquet
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.tables.ddl.dialect import Remark
from airflow_provider_kafka_s3.tables.ddl.hive_statement import HiveStatement, HiveTypes, TableParts, as_documents
from airflow_provider_kafka_s3.tables.ddl.model import Folder, LandedTable, has_documents

__all__ = ["Hive"]


class _Types(HiveTypes):
    engine = "Hive"


class Hive(HiveStatement):
    """New folders are registered by ``MSCK REPAIR TABLE``."""

    name = "hive"
    engine = "Hive"
    types = _Types()
    scheme = "s3a"
    json_storage = "ROW FORMAT SERDE 'org.apache.hive.hcatalog.data.JsonSerDe'\nSTORED AS TEXTFILE"
    example = "get_json_object(value, '$.field')"
    file_name = "INPUT__FILE__NAME"

    @override
    def parts(self, table: LandedTable, remark: Remark) -> TableParts:
        settings = table.layout.record_format
        if isinstance(settings, JsonLines) and has_documents(table.columns):
            return as_documents(table, remark, "STORED AS TEXTFILE", self.example)
        if isinstance(settings, Parquet) and any(pa.types.is_timestamp(column.type) for column in table.columns):
            remark("Hive reads timestamps of Parquet that are int64, as these are, from version 4 on (HIVE-21215).")
        if any(extension.endswith(".zst") for extension in table.extensions):
            remark("Files .zst of lines need Hadoop's native library of Zstandard.")
        return super().parts(table, remark)

    @override
    def properties(self, table: LandedTable, folders: Sequence[Folder], remark: Remark) -> dict[str, str]:
        return {}

    @override
    def more(self, table: LandedTable, name: str, folders: Sequence[Folder], remark: Remark) -> Sequence[str]:
        remark("s3a:// needs the jar hadoop-aws, another file system has another scheme.")
        if not table.parts:
            return ()
        if not folders:
            remark(
                "Hive reads folders in folders with hive.mapred.supports.subdirectories=true and "
                "mapreduce.input.fileinputformat.input.dir.recursive=true."
            )
            return ()
        unlike = [f"{folder.raw}=…" for folder in folders if folder.raw != folder.name]
        if unlike:
            remark(
                f"MSCK REPAIR TABLE may not find folders that are not called like a column, {', '.join(unlike)}: add "
                f"partitions by ALTER TABLE … ADD PARTITION … LOCATION."
            )
            return ()
        remark("New folders are found by MSCK REPAIR TABLE: run it again when there are some.")
        return [f"MSCK REPAIR TABLE {name}"]
