"""A run does not wait for a planner that has ended, but for one that may be running."""

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
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.documents.planner import PlannerTask, planner_of, planner_stamp, process_is_gone
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import CONTROL, TOPIC, Clock, Engine, check_landed

PLAN = addresses.plan_key(CONTROL, 1)
TASK = PlannerTask(dag_id="lake", task_id="land", run_id="scheduled__1", map_index=3)

# A process of its own: it plans in a bucket of its own, hands the control documents over, and waits to be killed.
_PLANS = """
import base64, json, sys
from tests.unit.batch import test_planner

bucket, kafka = test_planner.new_bucket_and_topic()
test_planner.plans(bucket, kafka)
documents = {info.key: base64.b64encode(bucket.get(info.key).body).decode() for info in bucket.list("")}
print(json.dumps(documents), flush=True)
sys.stdin.read()
"""


def new_bucket_and_topic() -> tuple[MemoryStore, SimulatedKafka]:
    """An empty bucket, and a topic of four records; the same in every process."""
    kafka = SimulatedKafka()
    kafka.create_topic(TOPIC)
    for i in range(4):
        kafka.append(TOPIC, 0, b"%d" % i, 0)
    return MemoryStore(), kafka


def plans(bucket: MemoryStore, kafka: SimulatedKafka, **settings: Any) -> None:
    """A run that plans the first batch and stops."""
    store = FaultyStore(bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
    with contextlib.suppress(SimulatedCrash):
        Engine(store, kafka).run("theirs", **settings)


@contextlib.contextmanager
def another_process() -> Iterator[tuple[MemoryStore, SimulatedKafka, subprocess.Popen[str]]]:
    """A bucket whose first batch was planned by a running process."""
    bucket, kafka = new_bucket_and_topic()
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
    """SIGKILL; the process stays a zombie until its parent waits for it, as in Airflow."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def lands(
    bucket: ObjectStore,
    kafka: SimulatedKafka,
    *,
    task_has_ended: Callable[[PlannerTask], bool | None] | None = None,
    each_poll: Callable[[float], object] = lambda now: None,
) -> float:
    """Another run lands the topic; returns the seconds that it waited."""
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
    """Put another process or task into the plan."""
    stored = bucket.get(PLAN)
    assert stored is not None
    body = json.loads(stored.body)
    del body["sha256"]
    body[part] |= values
    bucket.put_if_match(PLAN, canonical(body | {"sha256": digest(body)}), etag=stored.etag)


# -- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_was_killed_is_not_waited_for() -> None:
    """While the process runs, another run waits for it up to the limit."""
    with another_process() as (bucket, kafka, process):
        kill(process)
        assert lands(bucket, kafka) == 0
    with another_process() as (bucket, kafka, _):
        assert 100 <= lands(bucket, kafka) < 110


def test_a_process_that_dies_while_it_is_waited_for_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    """It is checked at every poll; the log has the reason for the end of the wait."""
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
        # Values that are not exactly right prove nothing.
        ({"pid": 0}, True),
        ({"pid": 2**31}, True),
        ({"pid": "1"}, True),
        ({"more": "than is known here"}, True),
    ],
)
def test_a_process_is_gone_only_if_it_can_be_seen_from_here(change: dict[str, object], *, waits: bool) -> None:
    """The state of a process of another host, container or boot is unknown: its id may be another process here."""
    bucket, kafka = new_bucket_and_topic()
    plans(bucket, kafka)
    changed(bucket, "process", **{"started": 1} | change)
    assert (lands(bucket, kafka) > 0) is waits


def test_a_process_of_this_host_that_may_not_be_signalled_is_identified_by_its_start() -> None:
    """Process 1 belongs to root; its start time shows whether it is the planner."""
    this, _ = planner_of(planner_stamp(None))
    assert this is not None
    assert process_is_gone(this) is False
    assert process_is_gone(msgspec.structs.replace(this, pid=1)) is True


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_a_task_that_has_ended_in_airflow_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Its plan identifies the task; the host does not matter."""
    bucket, kafka = new_bucket_and_topic()
    plans(bucket, kafka, task=TASK)
    changed(bucket, "process", host="worker-7")
    checked: list[PlannerTask] = []

    def has_ended(task: PlannerTask) -> bool:
        checked.append(task)
        return len(checked) == 4

    with caplog.at_level("INFO"):
        assert lands(bucket, kafka, task_has_ended=has_ended) == 6
    assert checked == [TASK] * 4
    assert "has ended: its Airflow task is not running" in caplog.text


@pytest.mark.parametrize("answer", [None, False])
def test_a_task_that_runs_or_is_unknown_to_airflow_is_waited_for(*, answer: bool | None) -> None:
    """An unknown state is waited for, as is a plan without a task."""
    bucket, kafka = new_bucket_and_topic()
    plans(bucket, kafka, task=TASK)
    assert lands(bucket, kafka, task_has_ended=lambda task: answer) >= 100
    bucket, kafka = new_bucket_and_topic()
    plans(bucket, kafka)
    assert lands(bucket, kafka, task_has_ended=lambda task: True) >= 100


def test_a_batch_decided_by_its_ended_planner_is_not_executed_again() -> None:
    """Its process ended after its decision: the decision is read before the work is done again."""
    bucket, kafka = new_bucket_and_topic()
    plans(bucket, kafka, task=TASK)

    def has_ended(task: PlannerTask) -> bool:
        Engine(bucket, kafka).run("theirs")
        return True

    store = FaultyStore(bucket)
    assert lands(store, kafka, task_has_ended=has_ended) == 0
    assert "create_upload" not in [r.operation for r in store.writes()]
