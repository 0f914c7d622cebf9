"""Whoever planned a batch and lives no more is not waited for; whoever may live is."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.batch.run import TopicRun
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.documents.planner import PlannerTask, planner_of, planner_stamp, process_is_gone
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import CONTROL, TOPIC, Clock, Engine, check_landed

PLAN = keys.plan_key(CONTROL, 1)
TASK = PlannerTask(dag_id="lake", task_id="land", run_id="scheduled__1", map_index=3)

# A process of its own: it plans in a bucket of its own, hands the control documents over, and waits to be killed.
_PLANS = """
import base64, json, sys
from tests.unit.batch import test_planner

bucket, kafka = test_planner.world()
test_planner.plans(bucket, kafka)
documents = {info.key: base64.b64encode(bucket.get(info.key).body).decode() for info in bucket.list("")}
print(json.dumps(documents), flush=True)
sys.stdin.read()
"""


def world() -> tuple[MemoryStore, SimulatedKafka]:
    """An empty bucket, and a topic of four records; the same in every process."""
    kafka = SimulatedKafka()
    kafka.create_topic(TOPIC)
    for i in range(4):
        kafka.append(TOPIC, 0, b"%d" % i, 0)
    return MemoryStore(), kafka


def plans(bucket: MemoryStore, kafka: SimulatedKafka, **settings: Any) -> None:
    """A run plans the first batch, and does no more."""
    store = FaultyStore(bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
    with contextlib.suppress(SimulatedCrash):
        Engine(store, kafka).run("theirs", **settings)


@contextlib.contextmanager
def another_process() -> Iterator[tuple[MemoryStore, SimulatedKafka, subprocess.Popen[str]]]:
    """A bucket whose first batch was planned by a process that lives."""
    bucket, kafka = world()
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", _PLANS], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for key, body in json.loads(process.stdout.readline()).items():
                bucket.put_new(key, base64.b64decode(body))
            yield bucket, kafka, process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL; the dead process is left for its parent to wait for, as Airflow's are for a while."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def lands(
    bucket: ObjectStore,
    kafka: SimulatedKafka,
    *,
    task_has_ended: Callable[[PlannerTask], bool | None] | None = None,
    each_poll: Callable[[float], object] = lambda now: None,
) -> float:
    """Another run lands the topic; returns how many seconds it waited."""
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        each_poll(clock.now)

    engine = Engine(bucket, kafka, sleep=sleep, monotonic=clock.monotonic)
    request = engine.request("ours", adopt_wait=100.0)
    run = TopicRun(engine.committer, request, task_has_ended=task_has_ended, sleep=sleep, monotonic=clock.monotonic)
    while not isinstance(step := run.advance(), TopicResult):
        engine.execute(step, request)
    assert step.status == "ok"
    check_landed(bucket, kafka, recovered=True, complete=True)
    return clock.now


def changed(bucket: MemoryStore, part: str, **values: object) -> None:
    """Let the plan name another process or task."""
    stored = bucket.get(PLAN)
    assert stored is not None
    body = json.loads(stored.body)
    del body["sha256"]
    body[part] |= values
    bucket.put_if_match(PLAN, canonical(body | {"sha256": digest(body)}), etag=stored.etag)


# -- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_was_killed_is_not_waited_for() -> None:
    """Nobody else would decide its batch. While it lives it is waited for, to the end."""
    with another_process() as (bucket, kafka, process):
        kill(process)
        assert lands(bucket, kafka) == 0
    with another_process() as (bucket, kafka, _):
        assert 100 <= lands(bucket, kafka) < 110


def test_a_process_that_dies_while_it_is_waited_for_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    """It is looked for at every poll; the log says why the wait is over."""
    with another_process() as (bucket, kafka, process), caplog.at_level("INFO"):
        assert 10 <= lands(bucket, kafka, each_poll=lambda now: kill(process) if now == 10 else None) < 15
        assert f"has ended: process {process.pid} on this host has ended" in caplog.text


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        # The number belongs to another process by now.
        ({"started": 1}, False),
        ({"host": "worker-7"}, True),
        ({"boot": "an earlier one"}, True),
        ({"pid_namespace": "pid:[1]"}, True),
        # What is not exactly right says nothing.
        ({"pid": 0}, True),
        ({"pid": 2**31}, True),
        ({"pid": "1"}, True),
        ({"more": "than is known here"}, True),
    ],
)
def test_a_process_is_gone_only_if_it_can_be_seen_from_here(change: dict[str, object], *, waits: bool) -> None:
    """Of another host, container or boot nothing is known: its number may mean another process here."""
    bucket, kafka = world()
    plans(bucket, kafka)
    changed(bucket, "process", **{"started": 1} | change)
    assert (lands(bucket, kafka) > 0) is waits


def test_a_process_of_this_host_that_may_not_be_signalled_is_told_by_its_start() -> None:
    """The first process belongs to root; whether it is the one that planned says the time it began."""
    this, _ = planner_of(planner_stamp(None))
    assert this is not None
    assert process_is_gone(this) is False
    assert process_is_gone(msgspec.structs.replace(this, pid=1)) is True


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_a_task_that_airflow_has_as_ended_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Its plan says which task it is; that it ran on another host does not matter."""
    bucket, kafka = world()
    plans(bucket, kafka, task=TASK)
    changed(bucket, "process", host="worker-7")
    asked: list[PlannerTask] = []

    def has_ended(task: PlannerTask) -> bool:
        asked.append(task)
        return len(asked) == 4

    with caplog.at_level("INFO"):
        assert lands(bucket, kafka, task_has_ended=has_ended) == 6
    assert asked == [TASK] * 4
    assert "has ended: its Airflow task is not running" in caplog.text


@pytest.mark.parametrize("answer", [None, False])
def test_a_task_that_runs_or_that_airflow_does_not_know_is_waited_for(*, answer: bool | None) -> None:
    """Unknown stays polite, as does a plan that names no task."""
    bucket, kafka = world()
    plans(bucket, kafka, task=TASK)
    assert lands(bucket, kafka, task_has_ended=lambda task: answer) >= 100
    bucket, kafka = world()
    plans(bucket, kafka)
    assert lands(bucket, kafka, task_has_ended=lambda task: True) >= 100


def test_a_planner_that_decided_as_its_last_act_has_not_to_be_repeated() -> None:
    """Its process is gone because it was done: its decision is read before its work is done again."""
    bucket, kafka = world()
    plans(bucket, kafka, task=TASK)

    def has_ended(task: PlannerTask) -> bool:
        Engine(bucket, kafka).run("theirs")
        return True

    store = FaultyStore(bucket)
    assert lands(store, kafka, task_has_ended=has_ended) == 0
    assert "create_upload" not in [r.operation for r in store.writes()]
