"""The DAG that ``kafka-s3 init`` writes lands the topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.airflow.conftest import BUCKET, SECRET_KEY
from tests.conftest import PASSWORD

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.airflow_home import AirflowHome
    from tests.airflow.conftest import Worker


def test_the_dag_of_init_lands_the_topic(
    worker: Worker,
    airflow_home: AirflowHome,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
    tmp_path: Path,
) -> None:
    """With the connections that Airflow has, nothing is left to do; every record is landed, and no secret is shown."""
    topic = make_topic(2)
    for partition in (0, 1):
        produce(topic, [{"id": n} for n in range(50)], partition=partition)
    file = tmp_path / "first.py"
    options = ("--topic", topic, "--bucket", BUCKET, "--starting-offsets", "earliest", "--file", str(file))
    jars = airflow_home.environment["SPARK_KAFKA_JARS"]
    done = subprocess.run(
        [sys.executable, "-m", "airflow_provider_kafka_s3.cli", "init", *options, "--jars", jars, "--json"],
        cwd=tmp_path,
        env=os.environ | airflow_home.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["commands"] == []
    assert not [f for f in answer["findings"] if f["level"] == "error"]
    assert not [secret for secret in (PASSWORD, SECRET_KEY) if secret in done.stdout + done.stderr + file.read_text()]
    run = worker.run_dag(tmp_path, topic)
    assert run.succeeded, run.output
    assert check(topic, pipeline=topic).records == 100
