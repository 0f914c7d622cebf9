"""What a small run costs: the same thousand records by ``spark-submit`` and by a warm Spark Connect server.

A run is timed from the job file to the result, as the operator has it; planning is the same for both.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.config import JsonLines, Layout, Limits
from airflow_provider_kafka_s3.spark.spec import ConnectServer, JobResult, JobSpec
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from dev.airflow_home import SPARK_JARS
from dev.spark_connect import SparkConnectServer
from tests.spark.pipeline import Pipeline, submitted

RECORDS: Final = 1_000


def small_runs(config: dict[str, Any]) -> dict[str, float]:
    """Median wall seconds of a run by ``spark-submit``, and by a server that has run one before.

    Args:
        config: ``bootstrap_servers``, ``endpoint``, ``topic`` and ``rounds``.
    """
    layout = Layout(format=JsonLines())

    def run(execute: Callable[[JobSpec, Path], JobResult | None], **more: Any) -> float:
        kafka = {"bootstrap.servers": config["bootstrap_servers"]}
        limits = {"limits": Limits(records_per_run=RECORDS)}
        pipeline = Pipeline(kafka=kafka, endpoint=config["endpoint"], layout=layout, settings=limits)
        plan = pipeline.plan(config["topic"], "run")
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            spec = pipeline.spec({config["topic"]: plan}, "run", Path(folder, "result.json"), **more)
            started = time.perf_counter()
            result = execute(spec, Path(folder))
            wall = time.perf_counter() - started
        assert result is not None
        assert result.succeeded, result
        manifest = pipeline.decision(config["topic"])
        assert manifest is not None
        assert manifest.records == RECORDS
        pipeline.close()
        return wall

    def by_submit(spec: JobSpec, folder: Path) -> JobResult | None:
        return submitted(spec, folder, spark_log_level="ERROR")[0]

    def by_server(spec: JobSpec, _: Path) -> JobResult | None:
        return ConnectJob({}, logging.getLogger(__name__)).run(spec).result

    submits = [run(by_submit) for _ in range(config["rounds"])]
    with SparkConnectServer(sorted(SPARK_JARS.glob("*.jar"))) as server:
        connect = ConnectServer(url=server.url)
        run(by_server, connect=connect)
        remotes = [run(by_server, connect=connect) for _ in range(config["rounds"])]
    return {"spark-submit": statistics.median(submits), "Spark Connect": statistics.median(remotes)}
