"""Partitions of tables in a catalog, Glue or a Hive metastore: each folder of landed objects is one."""

from __future__ import annotations

from airflow_provider_kafka_s3.tables.partitions.port import PartitionedTable, Values
from airflow_provider_kafka_s3.tables.partitions.sync import LOOK_BACK, Differing, Synced, sync_partitions

__all__ = ["LOOK_BACK", "Differing", "PartitionedTable", "Synced", "Values", "sync_partitions"]
