"""Airflow connections, converted to the engine's settings.

Hooks of Airflow replace a missing connection by a default: Spark's by YARN, Amazon's by the credentials of the machine.
Records in the wrong place are worse than a failed task, so here a missing connection is an error.
"""

from airflow_provider_kafka_s3.airflow.connections.described import described_connection, described_settings
from airflow_provider_kafka_s3.airflow.connections.hive import metastore_access
from airflow_provider_kafka_s3.airflow.connections.iceberg import catalog_properties
from airflow_provider_kafka_s3.airflow.connections.kafka import kafka_config, kafka_name, mask_options
from airflow_provider_kafka_s3.airflow.connections.registry import registry_access
from airflow_provider_kafka_s3.airflow.connections.s3 import S3Access, glue_access, s3_access
from airflow_provider_kafka_s3.airflow.connections.spark import spark_target
from airflow_provider_kafka_s3.airflow.connections.stored import command_to_add, connection_options

__all__ = [
    "S3Access",
    "catalog_properties",
    "command_to_add",
    "connection_options",
    "described_connection",
    "described_settings",
    "glue_access",
    "kafka_config",
    "kafka_name",
    "mask_options",
    "metastore_access",
    "registry_access",
    "s3_access",
    "spark_target",
]
