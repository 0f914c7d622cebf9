"""Two ways to land the same topic: day by day, and all new records. One pipeline, so no record is landed twice.

A second pipeline makes few large objects of its many small ones, a folder for each month, without Kafka.

They need the connections ``kafka_default`` (its extra: ``{"bootstrap.servers": "…"}``), ``aws_default`` and
``spark_default`` (such as a host of ``local[2]``), and a bucket. ``make demo`` runs them on real servers.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_kafka_s3 import JsonLines, KafkaToS3Operator, Landed, Rotation, TimePattern

# Parameters of the first two DAGs.
FLIGHTS = {
    "topics": "flights",
    "bucket": os.environ.get("FLIGHTS_BUCKET", "flights"),
    "pipeline": "flights-to-s3",
    "format": JsonLines(compression="gzip"),
    "partitioner": "daily",
}

with DAG(
    dag_id="flights_daily",
    # From Airflow 3 on a plain cron string has no data intervals; this timetable has.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args=FLIGHTS,
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(task_id="land_day", offsets="data_interval")

with DAG(
    dag_id="flights_incremental",
    schedule="@hourly",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args=FLIGHTS,
    max_active_runs=1,
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(task_id="land_new", offsets="incremental", starting_offsets="earliest")

with DAG(
    dag_id="flights_compact",
    schedule="@monthly",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(
        task_id="compact",
        topics="flights",
        bucket=FLIGHTS["bucket"],
        pipeline="flights-by-month",
        topics_dir="compacted",
        source=Landed(pipeline="flights-to-s3"),
        offsets="incremental",
        starting_offsets="earliest",
        format=JsonLines(compression="gzip"),
        partitioner=TimePattern(path_format="'year'=YYYY/'month'=MM", duration_ms=28 * 86_400_000),
        rotation=Rotation(merge_partitions=True),
    )
