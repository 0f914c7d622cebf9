"""A DAG whose tasks have lineage: a topic is landed, added to a table, and sent to another topic."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.common.compat.sdk import DAG, Asset  # noqa: TID253 - Airflow parses this file

from airflow_provider_kafka_s3 import KafkaS3ToIcebergOperator, KafkaToS3Operator, Parquet, S3ToKafkaOperator

with DAG("lineage", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    topic = os.environ.get("LINEAGE_TOPIC", "orders")
    where = {"bucket": os.environ.get("LINEAGE_BUCKET", "lake"), "pipeline": "lineage"}
    land = KafkaToS3Operator(
        task_id="land",
        topics=topic,
        offsets="incremental",
        starting_offsets="earliest",
        format=Parquet(),
        content="envelope",
        value_converter="bytes",
        jars=os.environ.get("SPARK_KAFKA_JARS"),
        outlets=[Asset(f"s3://{where['bucket']}/topics/{topic}")],
        **where,
    )
    add = KafkaS3ToIcebergOperator(task_id="add", topics=topic, table="lake.{topic}", **where)
    replay = S3ToKafkaOperator(task_id="replay", topic=topic, target=f"{topic}-again", **where)
    land >> [add, replay]
