"""Tasks whose Spark connection names a Spark Connect server: they need no JVM of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from dev.airflow_home import SPARK_JARS
from dev.spark_connect import SparkConnectServer

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from tests.airflow.conftest import Worker


@pytest.mark.timeout(600)  # it starts a server
def test_tasks_land_what_is_new_on_a_server_without_a_jvm(
    worker: Worker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
) -> None:
    """Run after run by one warm server; a record that is no JSON is named, and what it said is in the task's log."""
    topic = make_topic(1)
    with SparkConnectServer(sorted(SPARK_JARS.glob("*.jar"))) as server:
        remote = json.dumps({"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": server.port})
        said: dict[str, Any] = {
            "topics": topic,
            "spark_conn_id": "spark_remote",
            "environment": {"AIRFLOW_CONN_SPARK_REMOTE": remote},
            "jars": None,
        }
        landed = 0
        for count in (3, 2):
            produce(topic, [{"n": landed + n} for n in range(count)])
            run = worker.run(**said)
            assert run.succeeded, run.log
            landed += count
            assert check(topic).records == landed
            assert run.java_starts == 0
            assert f"Spark Connect server 127.0.0.1:{server.port}, Spark " in run.log
        produce(topic, ["{broken"])
        run = worker.run(**said)
        assert not run.succeeded
        assert f"topic '{topic}': RecordError: " in run.log
        assert run.java_starts == 0
        assert check(topic, complete=False, recovered=False).records == landed
