"""Day by day: a run lands the records whose Kafka timestamps lie in its data interval. Made for backfills.

Days may be landed in any order and several at once: each run takes its own offsets, and landed offsets are not read
again. The timetable has data intervals on Airflow 2 and 3; a plain cron string has none from Airflow 3 on.

    airflow dags backfill kafka_to_s3_daily --start-date 2026-01-01 --end-date 2026-01-31              # Airflow 2
    airflow backfill create --dag-id kafka_to_s3_daily --from-date 2026-01-01 --to-date 2026-01-31     # Airflow 3
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_kafka_s3 import JsonLines, KafkaToS3Operator

with DAG(
    dag_id="kafka_to_s3_daily",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(
        task_id="land_day",
        topics="clicks",
        bucket=os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
        pipeline="clicks",
        offsets="data_interval",
        format=JsonLines(compression="gzip"),
        partitioner="daily",
    )
