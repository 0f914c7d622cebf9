"""Two drivers at once: interleavings of their requests with at most two switches, one after the other.

The first switch after every sixth request; `make faults` tries it after each.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.protocol.actors import Actor, Scheduler
from tests.protocol.engine import TOPIC, Engine, check_landed

Body = Callable[[Engine], Any]

EVERY = 1 if "EVERY_FAULT" in os.environ else 10
"""The first switch is tried after every so many requests."""


class Race:
    """Two processes over one bucket, switched at every request to the bucket or to Kafka."""

    def __init__(self, first: Body, second: Body, *, before: Callable[[MemoryStore, SimulatedKafka], None]) -> None:
        self.scheduler = Scheduler()
        self.kafka = SimulatedKafka(before_request=lambda operation: self.scheduler.pause())
        self.kafka.create_topic(TOPIC)
        self.bucket = MemoryStore()
        before(self.bucket, self.kafka)
        self.first, self.second = self._start(first), self._start(second)

    def _start(self, body: Body) -> Actor:
        actor = Actor(self.scheduler, "driver")
        store = FaultyStore(self.bucket, choose=lambda request: actor.pause())
        engine = Engine(store, self.kafka, sleep=actor.sleep, monotonic=actor.monotonic)
        return self.scheduler.spawn(actor, lambda: body(engine))

    def run(self, first_steps: int, second_steps: int) -> bool:
        """The first runs some steps, the second runs some, the first ends, the second ends.

        Returns:
            Whether both switches happened before either had ended.
        """
        for _ in range(first_steps):
            self.first.step()
        in_time = not self.first.finished
        for _ in range(second_steps):
            self.second.step()
        in_time = in_time and not self.second.finished
        for actor in (self.first, self.second):
            while not actor.step():
                pass
        return in_time

    def check(self) -> None:
        """After one more scheduled run everything is landed once and no work is left."""
        Engine(self.bucket, self.kafka).run("afterwards")
        check_landed(self.bucket, self.kafka, recovered=True, complete=True)


def records(bucket: MemoryStore, kafka: SimulatedKafka) -> None:
    """A batch of two objects is to be landed, and the pipeline has run before."""
    kafka.append(TOPIC, 0, b"earlier", timestamp=0)
    Engine(bucket, kafka).run("earlier")
    for i in range(3):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)


def first_records(bucket: MemoryStore, kafka: SimulatedKafka) -> None:
    """There was no run before: the marker is created in the race."""
    for i in range(2):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)


def same_run(engine: Engine) -> TopicResult:
    """A task and its zombie."""
    return engine.run("run")


def run_one(engine: Engine) -> TopicResult:
    """A scheduled run that does not wait for others."""
    return engine.run("one", adopt_wait=0.0)


def run_two(engine: Engine) -> TopicResult:
    """Another one, which waits a little."""
    return engine.run("two", adopt_wait=4.0)


def interval(engine: Engine) -> TopicResult:
    """A backfill of the first half of the records."""
    return engine.run("interval", "data_interval", window=(0, 2))


def abandoning(engine: Engine) -> object:
    """An operator who abandons batch 2, if it exists."""
    if engine.log.read_plan(2) is None:
        return None
    try:
        return abandon(engine.committer, 2, release="debt", reason="stuck", operator="me")
    except ConfigurationError:
        return None


def sweep(first: Body, second: Body, before: Callable[[MemoryStore, SimulatedKafka], None]) -> int:
    """All second switch points of each first one; returns how many raced."""
    raced = 0
    for first_steps in itertools.count(step=EVERY):
        for second_steps in itertools.count():
            race = Race(first, second, before=before)
            in_time = race.run(first_steps, second_steps)
            for actor in (race.first, race.second):
                assert actor.error is None, (first_steps, second_steps, actor.error)
            race.check()
            raced += in_time
            if not in_time:
                break
        if not second_steps:
            break
    return raced


@pytest.mark.parametrize(
    ("first", "second", "before"),
    [
        (same_run, same_run, records),
        (run_one, run_two, records),
        (run_two, run_one, records),
        (run_one, run_two, first_records),
        (interval, run_one, records),
        (run_one, abandoning, records),
    ],
    ids=["same-run", "two-runs", "two-runs-waiting-first", "first-ever", "interval-and-incremental", "abandon"],
)
def test_two_processes_at_once_land_every_record_once(
    first: Body, second: Body, before: Callable[[MemoryStore, SimulatedKafka], None]
) -> None:
    """In each order both succeed, no record is missing or twice, nothing is left open."""
    assert sweep(first, second, before) > 100 / EVERY


def test_both_of_two_racing_runs_report_the_batch_that_covers_them() -> None:
    """Each result names the batches of its target, its own or the other's."""
    race = Race(run_one, run_two, before=records)
    race.run(14, 20)
    one, two = race.first.result, race.second.result
    assert {b.batch for b in one.batches} | {b.batch for b in two.batches} == {2}
    assert sorted([one.shared, two.shared]) == [False, True]
