"""Manual operations: safe at any time, harmless when repeated, refused where they would lose records."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import TOPIC, TOPICS_DIR, Engine, check_landed

ALL = Offsets({0: [(0, 6)]})


class Pipeline:
    """One topic with six records, and one run that ended early."""

    def __init__(self, *, dies_at: str) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        for i in range(6):
            self.kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)
        self.bucket = MemoryStore()
        store = FaultyStore(self.bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key=dies_at)
        with pytest.raises(SimulatedCrash):
            self.engine(store).run("died")

    def engine(self, store: FaultyStore | None = None) -> Engine:
        return Engine(store or self.bucket, self.kafka)

    def check(self) -> None:
        check_landed(self.bucket, self.kafka, recovered=True)


@pytest.fixture
def planned() -> Pipeline:
    """The run ended after its plan."""
    return Pipeline(dies_at="*.plan.json")


@pytest.fixture
def decided() -> Pipeline:
    """The run ended after its decision."""
    return Pipeline(dies_at="*.manifest.json")


# -- abandon ----------------------------------------------------------------------------------------------------------


def test_an_abandoned_batch_is_planned_again_by_the_next_run(planned: Pipeline) -> None:
    """Release as debt: an incremental run, or the run itself, picks it up."""
    abandon(planned.engine().committer, 1, release="debt", reason="stuck", operator="me")
    result = planned.engine().run("next")
    assert (result.target, [b.batch for b in result.batches]) == (ALL, [2])
    assert planned.engine().run("died").status == "ok"
    planned.check()


def test_a_batch_abandoned_as_lost_is_a_recorded_gap(planned: Pipeline) -> None:
    """It is not read again; runs over it succeed and report the gap."""
    decision = abandon(planned.engine().committer, 1, release="lost", reason="poison", operator="me")
    assert (decision.reason, decision.operator) == ("poison", "me")
    assert planned.engine().run("next").status == "empty"
    result = planned.engine().run("died")
    assert (result.status, result.skipped, result.batches) == ("ok", ALL, ())
    planned.check()


def test_abandon_can_be_repeated_and_the_first_decision_counts(planned: Pipeline) -> None:
    """Another release later changes nothing, as the returned decision shows."""
    abandon(planned.engine().committer, 1, release="debt", reason="first", operator="me")
    before = snapshot(planned.bucket)
    again = abandon(planned.engine().committer, 1, release="lost", reason="second", operator="you")
    assert (again.release, again.reason) == ("debt", "first")
    check_unchanged(before, snapshot(planned.bucket))


def test_a_committed_batch_cannot_be_abandoned(decided: Pipeline) -> None:
    """It can only be rolled forward; nothing is changed."""
    before = snapshot(decided.bucket)
    with pytest.raises(ConfigurationError, match="can only be rolled forward"):
        abandon(decided.engine().committer, 1, release="lost", reason="", operator="me")
    check_unchanged(before, snapshot(decided.bucket))
    assert decided.engine().run("next").status == "ok"
    decided.check()


def test_a_job_that_ends_after_its_batch_was_abandoned_makes_nothing_visible(planned: Pipeline) -> None:
    """Its rows lose the decision, its uploads are aborted."""
    engine = planned.engine()
    plan = engine.log.read_plan(1)
    assert plan is not None
    rows = [engine.read_slice(plan, s) for s in plan.slices]
    abandon(planned.engine().committer, 1, release="debt", reason="stuck", operator="me")
    decision = engine.committer.decide(plan, rows, run="died")
    engine.committer.carry_out(plan, decision)
    assert decision.status == "abandoned"
    assert list(planned.bucket.pending_uploads("")) == []
    assert list(planned.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")) == []


# -- reset ------------------------------------------------------------------------------------------------------------


def test_a_reset_of_a_topic_that_was_not_recreated_does_nothing(planned: Pipeline) -> None:
    """No generation is closed by mistake."""
    before = snapshot(planned.bucket)
    assert not reset(planned.engine().committer, operator="me")
    check_unchanged(before, snapshot(planned.bucket))


def test_a_reset_records_open_batches_as_lost(planned: Pipeline) -> None:
    """Their topic is gone; the closed generation records them as lost."""
    planned.kafka.create_topic(TOPIC)
    assert reset(planned.engine().committer, operator="me")
    marker, _ = planned.engine().log.require_marker()
    assert (marker.generation, marker.lost_in(0), marker.covered) == (1, ALL, Offsets())
    assert not reset(planned.engine().committer, operator="me")
    planned.check()


def test_a_reset_completes_decided_batches_first(decided: Pipeline) -> None:
    """Committed objects become visible, although their topic is gone."""
    decided.kafka.create_topic(TOPIC)
    assert reset(decided.engine().committer, operator="me")
    marker, _ = decided.engine().log.require_marker()
    assert (marker.covered_in(0), marker.lost_in(0)) == (ALL, Offsets())
    assert len(list(decided.bucket.list(f"{TOPICS_DIR}/{TOPIC}/"))) == 4
    decided.check()


# -- accept loss ------------------------------------------------------------------------------------------------------


def lose_half(pipeline: Pipeline) -> None:
    """Uploads expire and Kafka deletes the first slice."""
    pipeline.bucket.expire_uploads()
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    with pytest.raises(BatchLossError):
        pipeline.engine().run("died")


def test_accepted_losses_complete_a_batch_with_all_other_objects(decided: Pipeline) -> None:
    """The objects of the second slice are written again, those of the first are recorded as lost, runs succeed."""
    lose_half(decided)
    lost = accept_loss(decided.engine().committer, 1, reason="expired", operator="me")
    assert sorted(lost) == [f"{TOPICS_DIR}/{TOPIC}/parity={p}/{TOPIC}+0+000000000{o}.bin" for p, o in ((0, 0), (1, 1))]
    assert len(list(decided.bucket.list(f"{TOPICS_DIR}/{TOPIC}/"))) == 2
    rerun = decided.engine().run("died")
    assert (rerun.status, rerun.verified) == ("ok", 2)
    decided.check()


def test_accepting_losses_where_nothing_is_lost_completes_the_batch(decided: Pipeline) -> None:
    """No amend is written."""
    assert accept_loss(decided.engine().committer, 1, reason="", operator="me") == ()
    assert not [i.key for i in decided.bucket.list("") if ".amend." in i.key]
    decided.check()


def test_accepting_losses_of_a_complete_batch_neither_restores_nor_records_anything(decided: Pipeline) -> None:
    """Objects that a user deleted since stay gone."""
    decided.engine().run("died")
    key = next(i.key for i in decided.bucket.list(f"{TOPICS_DIR}/{TOPIC}/"))
    decided.bucket.delete(key)
    decided.kafka.delete_records(TOPIC, 0, 6)
    store = FaultyStore(decided.bucket)
    assert accept_loss(decided.engine(store).committer, 1, reason="", operator="me") == ()
    assert store.writes() == []


def test_losses_of_an_undecided_batch_cannot_be_accepted(planned: Pipeline) -> None:
    """Nothing of it is lost: it can be abandoned."""
    with pytest.raises(ConfigurationError, match="abandon it instead"):
        accept_loss(planned.engine().committer, 1, reason="", operator="me")
