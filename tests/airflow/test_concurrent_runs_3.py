"""Concurrent runs of one pipeline, and a driver that outlives its try, in the real servers of Airflow 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil
import pytest

from dev.kafka_broker import KafkaBroker, Message
from dev.waiting import wait_for_end, wait_until
from tests.airflow.conftest import PIPELINE
from tests.airflow.days import DAY, JANUARY_1, RECORDS, check_days, make_days
from tests.spark.probes import running

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.airflow_servers import AirflowServers
    from tests.airflow.conftest import Gate

pytestmark = pytest.mark.timeout(1800)


def test_a_scheduled_run_a_manual_run_and_a_backfill_land_every_record_once(
    servers: AirflowServers, kafka_broker: KafkaBroker, check: Callable[..., BucketSummary]
) -> None:
    """Yesterday by the schedule, old days by a backfill, and all of it by hand, at the same time."""
    topic = "busy"
    kafka_broker.create_topic(topic, 1)
    now = datetime.now(UTC)
    old = [JANUARY_1 + day * DAY + n for day in range(3) for n in range(RECORDS)]
    new = [int((now - timedelta(days=1)).timestamp() * 1000) + n for n in range(RECORDS)]
    kafka_broker.produce(topic, [Message(json.dumps({"n": n}).encode(), timestamp=n) for n in old + new])
    window = ["2013-01-02T00:00:00Z", (now - timedelta(minutes=1)).isoformat()]
    # The scheduler starts all of them at once when the DAG is unpaused.
    servers.wait_for_dag(topic)
    by_hand = servers.trigger(topic, conf={"kafka_s3": {"window": window}})
    servers.create_backfill(topic, "2013-01-01", "2013-01-02")
    servers.unpause(topic)

    def all_ended() -> list[dict[str, str]]:
        runs = servers.runs(topic)
        return runs if len(runs) >= 4 and all(run["state"] in {"success", "failed"} for run in runs) else []

    runs = wait_until(all_ended, "the four runs", timeout=600, interval=0.5)
    assert {run["run_type"] for run in runs} == {"scheduled", "manual", "backfill"}
    assert {run["state"] for run in runs} == {"success"}
    manual = next(run for run in runs if run["dag_run_id"] == by_hand)
    others = [run for run in runs if run["start_date"] < manual["end_date"] and run["end_date"] > manual["start_date"]]
    assert {run["run_type"] for run in others} == {"scheduled", "manual", "backfill"}
    assert check(topic).records == len(old + new)


def test_a_driver_that_outlives_its_killed_try_does_no_harm(
    servers: AirflowServers,
    gate: Gate,
    kafka_broker: KafkaBroker,
    store: S3Store,
    check: Callable[..., BucketSummary],
) -> None:
    """The task's process is gone; its driver continues, and decides at the same time as that of the second try."""
    topic = "orphaned"
    make_days(kafka_broker, topic)
    manifest = f"topics/_kafka_s3/{PIPELINE}/{topic}/batches/0000000001.manifest.json"
    gate.hold("PUT", manifest)
    servers.unpause(topic)
    conf = {"kafka_s3": {"window": ["2013-01-02T00:00:00Z", "2013-01-04T00:00:00Z"]}}
    run = servers.trigger(topic, conf=conf)
    gate.wait_for("PUT", manifest)

    (task, *orphans) = task_processes(servers)
    task.kill()
    assert servers.wait_for_run(topic, run) == "success"
    assert gate.met[-1] == manifest
    assert servers.task(topic, run, "land")["try_number"] == 2
    log = servers.task_log(topic, run, "land", attempt=2)
    assert "batch 1 was planned by an earlier try of this run (" in log
    assert "try 1 on " in log
    assert "this is harmless: one of the two decides the batch" in log
    wait_for_end(orphans, "the driver")
    check_days(store, topic, (2, 3))
    summary = check(topic, complete=False)
    assert (summary.records, summary.batches) == (2 * RECORDS, 1)


def task_processes(servers: AirflowServers) -> list[psutil.Process]:
    """The process of the only task that has a Spark driver, and then the driver's processes."""
    scheduler = psutil.Process(servers.process_id("scheduler"))
    submits = running(scheduler.children(recursive=True), lambda process: process.name() == "java")
    first = min(submits, key=lambda process: process.create_time())
    parent = first.parent()
    assert parent is not None
    return [parent, first, *first.children(recursive=True)]
