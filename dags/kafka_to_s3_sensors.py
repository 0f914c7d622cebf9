"""Sensors start the landing: of an hour as soon as Kafka has all of it, and of new records as soon as there are enough.

Both sensors wait in the triggerer without a worker slot.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_kafka_s3 import KafkaLagSensor, KafkaToS3Operator, KafkaWindowClosedSensor

# Parameters of all tasks; each task takes only its own.
SHARED = {
    "retries": 3,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "bucket": os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
}

with DAG(
    dag_id="kafka_to_s3_complete_hours",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args=SHARED | {"topics": "returns", "pipeline": "returns"},
    tags=["kafka", "s3"],
):
    # Producers lag behind the clock: the hour is over when each partition has a record of the next one, or is quiet.
    complete = KafkaWindowClosedSensor(
        task_id="complete",
        grace=timedelta(minutes=10),
        deferrable=True,
        timeout=timedelta(hours=3).total_seconds(),
    )
    land_hour = KafkaToS3Operator(
        task_id="land_hour",
        offsets="data_interval",
        format="json",
        partitioner="hourly",
    )
    complete >> land_hour

with DAG(
    dag_id="kafka_to_s3_enough_records",
    # The next run begins, and waits, when this one has ended.
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=SHARED | {"topics": "events", "pipeline": "events"},
    tags=["kafka", "s3"],
):
    enough = KafkaLagSensor(
        task_id="enough",
        min_records=10_000,
        deferrable=True,
        # After an hour with fewer records, land these.
        timeout=timedelta(hours=1).total_seconds(),
        soft_fail=True,
    )
    land_events = KafkaToS3Operator(
        task_id="land_events",
        offsets="incremental",
        starting_offsets="earliest",
        format="json",
        on_empty="skip",
        trigger_rule="none_failed",
    )
    enough >> land_events
