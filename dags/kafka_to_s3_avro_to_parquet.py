"""Avro of a schema registry, landed as Parquet: the fields of the schema are the columns.

It needs the connections ``kafka_default``, ``aws_default``, ``spark_default`` and ``registry_default`` (of type
``http``, with the address of the registry as its host), and a bucket. ``make demo`` runs it on real servers.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_kafka_s3 import AvroConverter, KafkaToS3Operator, Parquet

with DAG(
    dag_id="kafka_to_s3_avro_to_parquet",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(
        task_id="land",
        topics="flights-avro",
        bucket=os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
        pipeline="flights-avro",
        offsets="incremental",
        starting_offsets="earliest",
        value_converter=AvroConverter(),
        registry_conn_id="registry_default",
        format=Parquet(compression="zstd"),
    )
