"""Tasks whose Spark connection names a Spark Connect server: they need no JVM of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from dev.airflow_home import SPARK_JARS
from dev.spark_connect import SparkConnectServer
from tests.airflow.conftest import BUCKET

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from tests.airflow.conftest import Worker

TOKEN = "canary-4b7e-of-the-server"


@pytest.mark.newest_spark
@pytest.mark.timeout(600)  # it starts a server
def test_tasks_land_what_is_new_on_a_server_without_a_jvm(
    worker: Worker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
    store: S3Store,
) -> None:
    """Run after run by one warm server; bad records are named, its output is logged, and its token is shown nowhere."""
    topic = make_topic(1)
    with SparkConnectServer(sorted(SPARK_JARS.glob("*.jar"))) as server:
        # pyspark sends a token without TLS to this host name only.
        host = {"conn_type": "spark_connect", "host": "sc://localhost", "port": server.port}
        remote = json.dumps({**host, "password": TOKEN})
        parameters: dict[str, Any] = {
            "topics": topic,
            "spark_conn_id": "spark_remote",
            "environment": {"AIRFLOW_CONN_SPARK_REMOTE": remote},
            "jars": None,
        }
        landed = 0
        for count in (3, 2):
            produce(topic, [{"n": landed + n} for n in range(count)])
            run = worker.run(**parameters)
            assert run.succeeded, run.log
            landed += count
            assert check(topic).records == landed
            assert run.java_starts == 0
            assert f"Spark Connect server localhost:{server.port}, Spark " in run.log
        produce(topic, ["{broken"])
        run = worker.run(**parameters)
        assert not run.succeeded
        assert f" [topic '{topic}': RecordError]" in run.log
        assert run.java_starts == 0
        assert check(topic, complete=False, recovered=False).records == landed
        shown = {
            "log": worker.log_file.read_text(errors="replace"),
            "database": worker.database(),
            "objects": "".join(str(found and found.body) for found in map(store.get, _control_keys(store, topic))),
        }
        assert [place for place, text in shown.items() if TOKEN in text] == []
        assert BUCKET in shown["database"]
        assert topic in shown["objects"]


def _control_keys(store: S3Store, topic: str) -> list[str]:
    return [info.key for info in store.list("topics/_kafka_s3/") if f"/{topic}/" in info.key]
