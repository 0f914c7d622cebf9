"""Land the records of an hour, then aggregate exactly these with Spark.

The XCom of the first task has the numbers of its batches. The second one reads only these, so a rerun has the same
result, whatever other runs land at the same time, and also while a batch of an earlier run is still open.

The totals are those of each batch. If hours run out of order, a run lands the hours before it as well, and a later run
reads the same batch again: with the same totals under the same number. So store them by this number, and the sum over
all numbers has each record once.

The second task needs pyspark and Java on the worker, and credentials for the bucket that boto3 finds.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_kafka_s3 import JsonLines, KafkaToS3Operator

BUCKET = os.environ.get("KAFKA_TO_S3_BUCKET", "lake")


@task
def total_by_shop(landed: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The sum of the amounts of each shop, by the number of the batch."""
    from pyspark.sql import SparkSession

    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    batches = ",".join(str(batch["batch"]) for batch in landed["topics"]["sales"]["batches"])
    options = {"bucket": BUCKET, "topic": "sales", "pipeline": "sales", "batches": batches}
    # Spark starts Python processes, which need the packages of this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("total_by_shop").getOrCreate()
    try:
        spark.dataSource.register(KafkaS3DataSource)
        sales = spark.read.format("kafka_s3").options(**options)
        amounts = sales.schema("_kafka_batch long, shop string, amount long").load()
        found: dict[str, dict[str, int]] = {}
        for batch, shop, total in amounts.groupBy("_kafka_batch", "shop").sum("amount").collect():
            found.setdefault(str(batch), {})[shop] = total
        return found
    finally:
        spark.stop()


with DAG(
    dag_id="kafka_to_s3_then_aggregate",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["kafka", "s3"],
):
    land = KafkaToS3Operator(
        task_id="land",
        topics="sales",
        bucket=BUCKET,
        pipeline="sales",
        offsets="data_interval",
        format=JsonLines(compression="gzip"),
        partitioner="hourly",
    )
    total_by_shop(land.output)
