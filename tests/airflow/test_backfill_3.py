"""Airflow 3's backfills of two daily intervals, by its real servers, Kafka, Spark, and an S3 server over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.days import RECORDS, check_days, make_days

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.airflow_servers import AirflowServers
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Gate

# Four small Spark jobs, two at a time.
pytestmark = pytest.mark.timeout(1800)

DAYS = ["2013-01-01", "2013-01-02"]
RANGE = (DAYS[0], DAYS[-1])


def overlapping(servers: AirflowServers, topic: str) -> bool:
    """Whether two tasks of a DAG ran at the same time."""
    tasks = [servers.task(topic, run["dag_run_id"], "land") for run in servers.runs(topic)]
    times = sorted((task["start_date"], task["end_date"]) for task in tasks)
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(times))


def task_starts(servers: AirflowServers, topic: str) -> dict[str, str]:
    """When the last try of each task of a DAG began, by run."""
    runs = [run["dag_run_id"] for run in servers.runs(topic)]
    return {run: servers.task(topic, run, "land")["start_date"] for run in runs}


def test_a_backfill_lands_every_day_once_and_again_changes_nothing(
    servers: AirflowServers,
    store: S3Store,
    kafka_broker: KafkaBroker,
    listing: Callable[[], dict[str, Any]],
    check: Callable[..., BucketSummary],
    gate: Gate,
) -> None:
    """Two days at the same time, of which the first may not be written; then every way to reprocess them."""
    topic = "forwards"
    make_days(kafka_broker, topic)
    servers.unpause(topic)
    with gate.refuse(f"/topics/{topic}/year=2013/month=01/day=01/"):
        states = servers.backfill(topic, *RANGE, "--max-active-runs", "2")
    assert states == {**dict.fromkeys(DAYS, "success"), DAYS[0]: "failed"}
    assert overlapping(servers, topic)
    check_days(store, topic, [2])

    before = listing()
    assert servers.backfill(topic, *RANGE) == states
    assert listing() == before

    states = servers.backfill(topic, *RANGE, "--reprocess-behavior", "failed")
    assert states == dict.fromkeys(DAYS, "success")
    check_days(store, topic, [1, 2])
    assert check(topic, complete=False).records == len(DAYS) * RECORDS

    before, starts, began = listing(), len(servers.home.java_commands), task_starts(servers, topic)
    states = servers.backfill(topic, *RANGE, "--max-active-runs", "2", "--reprocess-behavior", "completed")
    assert states == dict.fromkeys(DAYS, "success")
    # Airflow does not count every try of a task that a backfill has cleared.
    again = task_starts(servers, topic)
    assert [run for run in began if again[run] <= began[run]] == []
    assert len(began) == len(DAYS)
    assert listing() == before
    assert len(servers.home.java_commands) == starts


def test_a_backfill_may_go_backwards(
    servers: AirflowServers,
    store: S3Store,
    kafka_broker: KafkaBroker,
    check: Callable[..., BucketSummary],
) -> None:
    """The newest day first: each run lands its own day, below what is covered, and nothing twice."""
    topic = "backwards"
    make_days(kafka_broker, topic)
    servers.unpause(topic)
    states = servers.backfill(topic, *RANGE, "--max-active-runs", "1", "--run-backwards")
    assert states == dict.fromkeys(DAYS, "success")
    check_days(store, topic, [1, 2])
    assert check(topic, complete=False).records == len(DAYS) * RECORDS
