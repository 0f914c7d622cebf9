"""What a small run costs: the same thousand records by ``spark-submit`` and by a warm Spark Connect server.

A run is timed from the job file to the result, as the operator has it; planning is the same for all. On the server,
runs by a driver that starts Python and by a fork of a warm process take turns.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from airflow_provider_kafka_s3.config import JsonLines, Layout, Limits
from airflow_provider_kafka_s3.spark.spec import ConnectServer, JobResult, JobSpec
from airflow_provider_kafka_s3.spark.started_process import StartedProcess
from airflow_provider_kafka_s3.submit import warm_drivers
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from airflow_provider_kafka_s3.submit.spark_command import environment_of
from dev.airflow_home import SPARK_JARS
from dev.spark_connect import SparkConnectServer
from dev.waiting import wait_until
from tests.spark.pipeline import Pipeline, submitted

RECORDS: Final = 1_000
SUBMIT, STARTED, FORKED = "spark-submit", "Spark Connect", "Spark Connect, warm driver"
GOAL: Final = 1.5
"""Seconds of a run by a warm driver, at most."""
_WARM_SECONDS: Final = 600


def small_runs(config: dict[str, Any]) -> dict[str, float]:
    """Median wall seconds of a run by ``spark-submit``, and of both kinds on a server that has run one before.

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
        return ConnectJob({}, log).run(spec).result

    def by_fork(spec: JobSpec, _: Path) -> JobResult | None:
        return ConnectJob({}, log, warm_seconds=_WARM_SECONDS).run(spec).result

    log = logging.getLogger(__name__)
    submits = [run(by_submit) for _ in range(config["rounds"])]
    # The benchmark is the worker to which the warm process belongs, and with which it ends.
    worker = StartedProcess.of(os.getpid())
    with (
        mock.patch.object(warm_drivers, "airflow_worker", return_value=worker),
        SparkConnectServer(sorted(SPARK_JARS.glob("*.jar")), optimised=True) as server,
    ):
        connect = ConnectServer(url=server.url)
        run(by_server, connect=connect)
        run(by_fork, connect=connect)
        drivers = warm_drivers.warm_drivers(environment_of({}), _WARM_SECONDS, log)
        assert drivers is not None
        wait_until(drivers.place.socket.exists, "the warm process to listen")
        remotes = [(run(by_server, connect=connect), run(by_fork, connect=connect)) for _ in range(config["rounds"])]
    started, forked = zip(*remotes, strict=True)
    return {
        SUBMIT: statistics.median(submits),
        STARTED: statistics.median(started),
        FORKED: statistics.median(forked),
    }


def table(runs: dict[str, float]) -> list[str]:
    """The figures as lines of text, and how many times as long as by a warm driver each takes."""
    return [f"    {way:28}{wall:6.2f} s{wall / runs[FORKED]:7.1f}" for way, wall in runs.items()]
