"""Land new records of a topic every hour, then add them to a table of Iceberg, each once.

The table is a task of its own: a catalog that is down stops no landing, and the next run adds what was missed.

    pip install 'airflow-provider-kafka-s3[iceberg]'
    airflow connections add iceberg_default --conn-type iceberg --conn-host https://catalog:8181
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_kafka_s3 import JsonConverter, KafkaS3ToIcebergOperator, KafkaToS3Operator, Parquet

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "shop", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", "double"]},
    ],
}

with DAG(
    dag_id="kafka_to_s3_then_table",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["kafka", "s3", "iceberg"],
):
    where = {"bucket": os.environ.get("KAFKA_TO_S3_BUCKET", "lake"), "pipeline": "sold"}
    land = KafkaToS3Operator(
        task_id="land",
        topics="sold",
        offsets="incremental",
        starting_offsets="earliest",
        format=Parquet(),
        value_converter=JsonConverter(schema=json.dumps(ORDER)),
        **where,
    )
    add = KafkaS3ToIcebergOperator(task_id="add", topics="sold", table="lake.{topic}", **where)
    land >> add
