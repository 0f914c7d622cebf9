"""DAGs for the tests with servers: each lands one topic; which one is in the environment, by the DAG's name.

The servers parse this file once, before any topic exists; a test makes the topic of its DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable
from packaging.version import Version

from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

BUCKET = os.environ["SERVER_TESTS_BUCKET"]
PIPELINE = os.environ["SERVER_TESTS_PIPELINE"]


def land(dag_id: str, *, schedule: Any = None, retries: int = 0, end: datetime | None = None, **arguments: Any) -> None:
    """A DAG that lands the topic of the same name, with a task ``land``; the scheduler runs it unless it has ended."""
    parameters = {
        "topics": dag_id,
        "bucket": BUCKET,
        "pipeline": PIPELINE,
        "format": "json",
        "partitioner": "daily",
        "offsets": "data_interval",
        # A run that finds the batch of another run does not wait for it, so more runs in parallel.
        "adopt_wait": 0.0,
        "conf": {"spark.ui.enabled": "false"},
        "jars": os.environ["SPARK_KAFKA_JARS"],
        **arguments,
    }
    with DAG(
        dag_id,
        schedule=schedule or CronDataIntervalTimetable("@daily", timezone="UTC"),
        start_date=datetime(2013, 1, 1, tzinfo=UTC),
        end_date=end,
        catchup=False,
        max_active_runs=4,
    ):
        KafkaToS3Operator(task_id="land", retries=retries, retry_delay=timedelta(seconds=1), **parameters)


JANUARY_31 = datetime(2013, 1, 31, tzinfo=UTC)

# Its first day may not be written: no other run may take that day before its own run has claimed it.
land("forwards", end=JANUARY_31, adopt_wait=10.0)
land("backwards", end=JANUARY_31)
land("clicked", end=JANUARY_31)
land("stopped", end=JANUARY_31)
land("orphaned", end=JANUARY_31, retries=1)
land("busy")

# Airflow 2.11 runs this file as well, for its backfills.
if Version(airflow_version) >= Version("3.2"):
    from airflow.timetables.trigger import CronPartitionTimetable

    land("partitioned", schedule=CronPartitionTimetable("0 0 * * *", timezone="UTC", run_offset=-1), end=JANUARY_31)
