"""Send the landed records of a day back to Kafka, into another topic, each once.

A day that is repeated sends nothing more. The records were landed as whole records
(content="envelope"), so keys, headers and timestamps come back as they were. The target exists, and keeps records of
that age (retention.ms).

    airflow backfill create --dag-id s3_to_kafka_day --from-date 2026-01-01 --to-date 2026-01-03     # Airflow 3
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_kafka_s3 import S3ToKafkaOperator

with DAG(
    dag_id="s3_to_kafka_day",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["kafka", "s3"],
):
    S3ToKafkaOperator(
        task_id="replay",
        bucket=os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
        pipeline="visits",
        topic="visits",
        target="visits-again",
        # Each day is sent once, also by another run for it.
        replay_id="visits-{{ data_interval_start | ds }}",
        since="{{ data_interval_start }}",
        until="{{ data_interval_end }}",
    )
