"""Every hour, all new records: a run begins at the stored offsets, so no record is landed twice and none is missed.

It needs the connections ``kafka_default``, ``aws_default`` and ``spark_default``, and a bucket. Runs wait for one
another, since concurrent runs would not be faster.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_kafka_s3 import JsonLines, KafkaToS3Operator

with DAG(
    dag_id="kafka_to_s3_hourly",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(
        task_id="land",
        # Topics of one task share one Spark job; each is committed on its own.
        topics=["orders", "payments"],
        bucket=os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
        pipeline="shop",
        offsets="incremental",
        starting_offsets="earliest",
        format=JsonLines(compression="gzip"),
        partitioner="hourly",
    )
