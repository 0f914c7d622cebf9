"""Land history again with another layout: the clicks of ``kafka_to_s3_daily``, by hour and not compressed.

A pipeline never rewrites landed objects. Another layout of the same records therefore needs another pipeline with
another ``topics_dir``, independent of the first one; ``docs/changing-layout.md`` has all steps. The window is explicit:
that of ``params``, or another one in the conf of a run, such as

    {"kafka_s3": {"window": ["2026-02-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00"]}}

Windows may be landed in any order and at the same time. A run over a landed window only checks its objects.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_kafka_s3 import KafkaToS3Operator

with DAG(
    dag_id="kafka_to_s3_new_layout",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
    params={"kafka_s3": {"window": ["2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"]}},
    tags=["kafka", "s3"],
):
    KafkaToS3Operator(
        task_id="land_again",
        topics="clicks",
        bucket=os.environ.get("KAFKA_TO_S3_BUCKET", "lake"),
        # Both are new, so the stored offsets and the objects of the first pipeline are not changed.
        pipeline="clicks-by-hour",
        topics_dir="topics-by-hour",
        offsets="data_interval",
        format="json",
        partitioner="hourly",
    )
