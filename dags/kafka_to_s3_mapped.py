"""Many topics, one mapped task each: all topics with a prefix that exist when the run begins.

Each topic has its own task instance, with its own retries and log, and can be cleared alone. This costs a Spark start
per topic. Many small topics are cheaper as one list in one task, where a failed topic does not affect others either.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_kafka_s3 import KafkaToS3Operator


@task
def topics_of(prefix: str) -> list[str]:
    """Names of the topics that begin with a prefix."""
    from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook

    cluster = KafkaAdminClientHook(kafka_config_id="kafka_default").get_conn.list_topics(timeout=30)
    return sorted(name for name in cluster.topics if name.startswith(prefix))


with DAG(
    dag_id="kafka_to_s3_mapped",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
    tags=["kafka", "s3"],
):
    KafkaToS3Operator.partial(
        task_id="land",
        map_index_template="{{ task.topics }}",
        max_active_tis_per_dag=4,
        bucket=os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
        pipeline="devices",
        offsets="incremental",
        starting_offsets="earliest",
        format="json",
        partitioner="daily",
    ).expand(topics=topics_of("device."))
