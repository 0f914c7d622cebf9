"""A process may end and a request may fail anywhere: one fault at each request of a run in turn, then recovery."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from airflow_provider_kafka_s3.exceptions import BatchLossError, TerminalError, TransientError
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import CONDITIONAL, Fault, FaultyStore, Request, SimulatedCrash
from tests.protocol.engine import TOPIC, Engine, check_landed, crash_after

EVERY = 1 if "EVERY_FAULT" in os.environ else 4
"""A fault occurs at one of so many requests."""
FAULTS = [
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.LOST_RESPONSE,
    Fault.SENT_TWICE,
    Fault.LATE,
    Fault.TIMEOUT,
    Fault.CONFLICT,
    Fault.THROTTLED,
    Fault.THROTTLED_AFTER_APPLY,
]


@dataclass
class Pipeline:
    """A bucket and a cluster, with the requests to them."""

    kafka: SimulatedKafka
    bucket: MemoryStore

    def engine(self) -> Engine:
        """A process without faults."""
        return Engine(self.bucket, self.kafka)

    def check(self, *, complete: bool = True) -> None:
        """Everything is landed once and no work is left."""
        check_landed(self.bucket, self.kafka, is_optional=self.kafka.is_optional, recovered=True, complete=complete)


def new_pipeline() -> Pipeline:
    """Two partitions with records and a transaction marker, and an empty bucket."""
    kafka = SimulatedKafka(records_per_poll=2)
    kafka.create_topic(TOPIC, 2)
    for i in range(11):
        kafka.append(TOPIC, i % 2, b"%d" % i, timestamp=i // 2)
    kafka.append_marker(TOPIC, 0)
    return Pipeline(kafka, MemoryStore())


def first_run(pipeline: Pipeline, store: FaultyStore) -> None:
    """A run of two batches."""
    Engine(store, pipeline.kafka).run("first", limits={"records_per_batch": 9})


def abandoning(pipeline: Pipeline, store: FaultyStore) -> None:
    """An operator abandons a planned batch; a later run has to land its records."""
    prepare_open_batch(pipeline)
    abandon(Engine(store, pipeline.kafka).committer, 1, release="debt", reason="stuck", operator="me")


def resetting(pipeline: Pipeline, store: FaultyStore) -> None:
    """An operator resets a topic that was recreated while one batch was landed and another one was open."""
    Engine(pipeline.bucket, pipeline.kafka).run("before", limits={"records_per_batch": 9})
    for i in range(4):
        pipeline.kafka.append(TOPIC, i % 2, b"old %d" % i, timestamp=i)
    prepare_open_batch(pipeline)
    pipeline.kafka.create_topic(TOPIC, 2)
    for i in range(7):
        pipeline.kafka.append(TOPIC, i % 2, b"new %d" % i, timestamp=i)
    reset(Engine(store, pipeline.kafka).committer, operator="me")


def prepare_open_batch(pipeline: Pipeline) -> None:
    """A driver ends right after its plan."""
    crash_after("*.plan.json", pipeline.bucket, pipeline.kafka, "died")


def attempt(
    scenario: Callable[[Pipeline, FaultyStore], None], fault: Fault, number: int
) -> tuple[Pipeline, FaultyStore]:
    """The scenario in a new pipeline, with a fault at its n-th request; it may fail or end."""
    pipeline = new_pipeline()

    def choose(request: Request) -> Fault | None:
        conditional = fault is not Fault.CONFLICT or request.operation in CONDITIONAL
        return fault if request.number == number and conditional else None

    store = FaultyStore(pipeline.bucket, choose=choose)
    with contextlib.suppress(SimulatedCrash, TerminalError, TransientError):
        scenario(pipeline, store)
    return pipeline, store


def before_first(fault: Fault, retry: str) -> int:
    """A number that is one interval below that of the first request with a fault: faults begin at different ones."""
    return -((FAULTS.index(fault) + 2 * (retry != "first")) % EVERY)


@pytest.mark.parametrize("retry", ["first", "other"], ids=["same-run", "another-run"])
@pytest.mark.parametrize(
    ("fault", "late_before"),
    [(fault, False) for fault in FAULTS] + [(Fault.LATE, True)],
    ids=[fault.name.lower() for fault in FAULTS] + ["late_but_before_the_retry"],
)
def test_after_a_fault_at_any_request_of_a_run_the_next_one_lands_every_record_once(
    fault: Fault, retry: str, late_before: bool
) -> None:
    """One fault at each request in turn, then the same run again or another run: everything is landed once.

    Of the requests each kind of fault, and each of the two runs, has others; `make faults` has all of them.
    """
    number = before_first(fault, retry)
    while True:
        number += EVERY
        pipeline, store = attempt(first_run, fault, number)
        if late_before:
            store.apply_late()
        result = pipeline.engine().run(retry, limits={"records_per_batch": 9})
        store.apply_late()
        assert result.status == "ok" or retry == "other"
        pipeline.engine().run("rest", offsets="recover")
        pipeline.check()
        before = snapshot(pipeline.bucket)
        assert not pipeline.engine().run(retry).wrote
        assert pipeline.engine().run("nothing new").status == "empty"
        check_unchanged(before, snapshot(pipeline.bucket))
        if len(store.requests) < number:
            break
    assert number > 40


@pytest.mark.parametrize("scenario", [abandoning, resetting], ids=lambda s: s.__name__)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.lower())
def test_after_a_fault_at_any_request_of_an_operator_command_the_next_run_lands_the_rest(
    fault: Fault, scenario: Callable[[Pipeline, FaultyStore], None]
) -> None:
    """One fault at each request of abandon and of reset in turn; the command is repeated, then a run lands the rest."""
    number = 0
    while True:
        number += 1
        pipeline, store = attempt(scenario, fault, number)
        operator = pipeline.engine().committer
        if scenario is resetting:
            reset(operator, operator="me")
        else:
            abandon(operator, 1, release="debt", reason="again", operator="me")
        store.apply_late()
        pipeline.engine().run("after")
        pipeline.check()
        if len(store.requests) < number:
            break
    assert number >= 5


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.lower())
def test_after_a_fault_at_any_request_of_accept_loss_the_batch_is_completed_without_what_is_lost(fault: Fault) -> None:
    """Uploads of a decided batch expire and Kafka deletes its records: accept-loss completes it under any fault."""
    number = 0
    while True:
        number += 1
        pipeline = new_pipeline()
        dying = FaultyStore(pipeline.bucket)
        dying.inject(Fault.CRASH_BEFORE, operation="complete_upload", nth=3)
        with pytest.raises(SimulatedCrash):
            Engine(dying, pipeline.kafka).run("died")
        pipeline.bucket.expire_uploads()
        pipeline.kafka.delete_records(TOPIC, 0, 4)
        with pytest.raises(BatchLossError):
            pipeline.engine().run("died")
        store = FaultyStore(pipeline.bucket, choose=lambda r, n=number: fault if r.number == n else None)  # type: ignore[misc]
        try:
            accept_loss(Engine(store, pipeline.kafka).committer, 1, reason="gone", operator="me")
        except (SimulatedCrash, TerminalError, TransientError):
            store.apply_late()
            accept_loss(pipeline.engine().committer, 1, reason="gone", operator="me")
        store.apply_late()
        assert pipeline.engine().run("died", on_missing="ignore").status == "ok"
        pipeline.check(complete=False)
        if len(store.requests) < number:
            break
    assert number > 10
