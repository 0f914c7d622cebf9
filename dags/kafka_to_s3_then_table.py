"""Land new records of a topic every hour, add them to a table of Iceberg, each once, and query the new rows.

The table is a task of its own: a catalog that is down stops no landing, and the next run adds what was missed.

The query reads exactly the rows that the run has landed. The files of the table are the objects of its batches, whose
numbers are in the XCom of the first task, so a rerun reads the same rows. It needs credentials that boto3 finds.

    pip install 'airflow-provider-kafka-s3[iceberg]' duckdb
    airflow connections add iceberg_default --conn-type iceberg --conn-host https://catalog:8181
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task

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

BUCKET = os.environ.get("KAFKA_TO_S3_BUCKET", "lake")


@task
def total_by_shop(landed: dict[str, Any]) -> dict[str, float]:
    """The sum of the amounts of each shop, over the new rows."""
    import duckdb

    from airflow_provider_kafka_s3.reading.parquet_dataset import arrow_dataset
    from airflow_provider_kafka_s3.reading.snapshot import Snapshot

    batches = [batch["batch"] for batch in landed["topics"]["sold"]["batches"]]
    if not batches:
        return {}
    snapshot = Snapshot.open(BUCKET, "sold", pipeline="sold")
    rows = arrow_dataset(snapshot, batches=batches)
    with duckdb.connect() as connection:
        totals = connection.register("sold", rows).sql("SELECT shop, sum(amount) FROM sold GROUP BY shop")
        return dict(totals.fetchall())


with DAG(
    dag_id="kafka_to_s3_then_table",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["kafka", "s3", "iceberg"],
):
    where = {"bucket": BUCKET, "pipeline": "sold"}
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
    land >> add >> total_by_shop(land.output)
