"""Land new records of a topic every hour in folders of an hour, and write them every day into folders of a day.

The second pipeline reads what the first one has landed, not Kafka. Its run takes all batches that are complete by then,
each once. It needs another `topics_dir`, since a topic has one pipeline below a prefix.

The first DAG keeps the data minutes behind Kafka, in many small objects; the second one makes few large ones of them,
and deletes the small ones of batches that were landed a week ago. What is not in the large ones is kept.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_kafka_s3 import (
    Daily,
    Hourly,
    JsonLines,
    KafkaS3ExpireOperator,
    KafkaToS3Operator,
    Landed,
    Rotation,
)

BUCKET = os.environ.get("KAFKA_TO_S3_BUCKET", "lake")
OF_BOTH: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    "default_args": {"retries": 3, "retry_delay": timedelta(minutes=1)},
    "tags": ["kafka", "s3"],
}

with DAG(dag_id="kafka_to_s3_to_compact", schedule="@hourly", **OF_BOTH):
    KafkaToS3Operator(
        task_id="land",
        topics="searches",
        bucket=BUCKET,
        pipeline="searches-raw",
        offsets="incremental",
        starting_offsets="earliest",
        format=JsonLines(compression="gzip"),
        partitioner=Hourly(),
    )

with DAG(dag_id="kafka_to_s3_compact", schedule="@daily", **OF_BOTH):
    compact = KafkaToS3Operator(
        task_id="compact",
        topics="searches",
        bucket=BUCKET,
        pipeline="searches-by-day",
        topics_dir="compacted",
        source=Landed(pipeline="searches-raw"),
        offsets="incremental",
        starting_offsets="earliest",
        format=JsonLines(compression="zstd"),
        partitioner=Daily(),
        rotation=Rotation(merge_partitions=True, max_bytes=512 * 1024 * 1024),
    )
    expire = KafkaS3ExpireOperator(
        task_id="expire",
        topics="searches",
        bucket=BUCKET,
        pipeline="searches-raw",
        landed_in=Landed(pipeline="searches-by-day", topics_dir="compacted"),
        least_age=timedelta(days=7),
    )
    compact >> expire
