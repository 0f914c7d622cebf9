"""Rolling forward: every response to Complete with every result of HEAD, and the race for the marker."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.object_metadata import (
    BATCH_METADATA,
    CONTENT_METADATA,
    CRC32_METADATA,
    NONCE_METADATA,
)
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConditionalConflict,
    ForeignObjectError,
    PreconditionFailed,
    SparkJobError,
    ThrottledError,
    TopicRecreatedError,
    UnknownOutcomeError,
    UploadGone,
    UploadRefused,
)
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore
from tests.protocol.engine import TOPIC, Engine, check_landed, crash_after


@dataclass
class Decided:
    """A batch of one object that is decided and not completed."""

    kafka: SimulatedKafka
    bucket: MemoryStore
    plan: Plan
    decision: Manifest

    @property
    def entry(self) -> ObjectEntry:
        return self.decision.objects[0]

    def is_resolved(self) -> bool:
        return Engine(self.bucket, self.kafka).log.require_marker()[0].is_resolved(1)

    def check(self) -> None:
        check_landed(self.bucket, self.kafka, recovered=True, complete=True)


@pytest.fixture
def decided() -> Decided:
    """A driver ended right after its decision."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC)
    for i in range(3):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=0)
    crash_after("*.manifest.json", bucket, kafka, "died")
    topic_log = Engine(bucket, kafka).log
    plan, decision = topic_log.read_plan(1), topic_log.read_manifest(1)
    assert plan is not None
    assert decision is not None
    return Decided(kafka, bucket, plan, decision)


class ScriptedComplete(FaultyStore):
    """A store with a scripted response to Complete."""

    def __init__(self, store: MemoryStore, answer: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(store)
        self.answer = answer

    def complete_upload(self, key: str, upload_id: str, parts: Any) -> None:
        self.answer(lambda: super(ScriptedComplete, self).complete_upload(key, upload_id, parts))


def responding_with(error: Exception | None, *, after: bool = False) -> Callable[[Callable[[], None]], None]:
    """Respond with an error, or 200; ``after``: after completing the upload."""

    def answer(complete: Callable[[], None]) -> None:
        if after:
            with contextlib.suppress(UploadGone):
                complete()
        if error is not None:
            raise error

    return answer


RESPONSES = {
    "200": None,
    "404": UploadGone("404"),
    "409": ConditionalConflict("409"),
    "412": PreconditionFailed("412"),
    "5xx": UnknownOutcomeError("500"),
}


@pytest.mark.parametrize("answer", RESPONSES.values(), ids=RESPONSES)
def test_an_existing_object_is_complete_after_any_response_to_complete(
    decided: Decided, answer: Exception | None
) -> None:
    """HEAD shows the object: done, no upload is left pending, the marker advances."""
    store = ScriptedComplete(decided.bucket, responding_with(answer, after=True))
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert [r.operation for r in store.requests].count("put_new") == 0
    assert list(decided.bucket.pending_uploads("")) == []
    decided.check()


@pytest.mark.parametrize("answer", [None, UploadGone("404")], ids=["200", "404"])
def test_an_absent_object_is_written_again_after_any_response_to_complete(
    decided: Decided, answer: Exception | None
) -> None:
    """200 without an object (deleted since Create), 404 without one (expired): read again from Kafka."""
    decided.bucket.expire_uploads()
    Engine(ScriptedComplete(decided.bucket, responding_with(answer)), decided.kafka).committer.carry_out(
        decided.plan, decided.decision
    )
    stored = decided.bucket.get(decided.entry.key)
    assert stored is not None
    assert stored.metadata == {
        BATCH_METADATA: "1",
        CONTENT_METADATA: decided.entry.content,
        CRC32_METADATA: decided.entry.crc32,
    }
    decided.check()


def test_permanently_refused_parts_are_aborted_and_written_again(decided: Decided) -> None:
    """InvalidPart: abort, then as if the upload were gone."""
    store = ScriptedComplete(decided.bucket, responding_with(UploadRefused("InvalidPart")))
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert list(decided.bucket.pending_uploads("")) == []
    decided.check()


@pytest.mark.parametrize("answer", [ConditionalConflict("409"), UnknownOutcomeError("500")], ids=["409", "5xx"])
def test_a_complete_without_a_usable_answer_is_repeated_and_then_fails_without_harm(
    decided: Decided, answer: Exception
) -> None:
    """The upload is still pending: nothing is written again, nothing undone, the next attempt succeeds."""
    store = ScriptedComplete(decided.bucket, responding_with(answer))
    before = snapshot(decided.bucket)
    with pytest.raises(UnknownOutcomeError, match="decided and loses nothing"):
        Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert snapshot(decided.bucket) == before
    Engine(decided.bucket, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    decided.check()


def test_a_complete_without_a_usable_answer_whose_upload_is_gone_is_written_again(decided: Decided) -> None:
    """ListParts shows the state that Complete does not."""
    decided.bucket.expire_uploads()
    store = ScriptedComplete(decided.bucket, responding_with(UnknownOutcomeError("500")))
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    decided.check()


def test_a_throttled_complete_is_sent_again(decided: Decided) -> None:
    """503 is retried after a pause."""
    store = FaultyStore(decided.bucket)
    store.inject(Fault.THROTTLED, operation="complete_upload", times=5)
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert [r.operation for r in store.requests].count("complete_upload") == 6
    decided.check()


def test_an_object_that_appears_during_the_checks_is_not_written_again(decided: Decided) -> None:
    """Another Complete is in progress: its upload is gone, its object appears a little later."""
    store = FaultyStore(decided.bucket)
    engine = Engine(store, decided.kafka)
    looks = []

    def answer(complete: Callable[[], None]) -> None:
        looks.append(complete)
        raise UploadGone("404")

    slow = ScriptedComplete(decided.bucket, answer)

    def choose(request: Any) -> None:
        if request.operation == "head" and request.number > 5 and len(looks) == 1:
            looks.append(lambda: None)
            looks[0]()

    slow._choose = choose
    engine = Engine(slow, decided.kafka)
    engine.committer.carry_out(decided.plan, decided.decision)
    assert [r.operation for r in slow.requests].count("put_new") == 0
    decided.check()


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {BATCH_METADATA: "1"},
        {BATCH_METADATA: "2", NONCE_METADATA: "ours"},
        {BATCH_METADATA: "1", NONCE_METADATA: "theirs"},
        {BATCH_METADATA: "1", CONTENT_METADATA: "theirs"},
    ],
    ids=["none", "batch", "other-batch", "other-nonce", "other-content"],
)
def test_a_foreign_object_is_never_overwritten(decided: Decided, metadata: dict[str, str]) -> None:
    """The same key, the same size, another object: an error that names it, and it is not changed."""
    if metadata.get(NONCE_METADATA) == "ours":
        metadata = metadata | {NONCE_METADATA: decided.entry.nonce}
    body = b"x" * decided.entry.size
    decided.bucket.put_new(decided.entry.key, body, metadata=metadata)
    with pytest.raises(ForeignObjectError, match="Move it away and run again: .*" + re.escape(decided.entry.key)):
        Engine(decided.bucket, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    stored = decided.bucket.get(decided.entry.key)
    assert stored is not None
    assert stored.body == body
    assert not decided.is_resolved()


def test_an_object_of_another_size_is_foreign_even_with_our_metadata(decided: Decided) -> None:
    """Metadata can be copied; the size is compared too."""
    metadata = {BATCH_METADATA: "1", NONCE_METADATA: decided.entry.nonce}
    decided.bucket.put_new(decided.entry.key, b"", metadata=metadata)
    with pytest.raises(ForeignObjectError):
        Engine(decided.bucket, decided.kafka).committer.carry_out(decided.plan, decided.decision)


# -- written again ----------------------------------------------------------------------------------------------------


def retention(kafka: SimulatedKafka) -> None:
    """The first records are gone."""
    kafka.delete_records(TOPIC, 0, 2)


def compaction(kafka: SimulatedKafka) -> None:
    """One record is gone."""
    kafka.compact(TOPIC, 0, 1)


def recreation(kafka: SimulatedKafka) -> None:
    """The topic was created again with the same values."""
    kafka.create_topic(TOPIC)
    for i in range(3):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=0)


def deletion(kafka: SimulatedKafka) -> None:
    """There is no topic."""
    kafka.delete_topic(TOPIC)


@pytest.mark.parametrize("event", [retention, compaction, recreation, deletion], ids=lambda e: e.__name__)
def test_an_object_whose_records_are_gone_or_changed_is_a_reported_loss(
    decided: Decided, event: Callable[[SimulatedKafka], None]
) -> None:
    """No other object is written, and the marker is not changed."""
    decided.bucket.expire_uploads()
    event(decided.kafka)
    with pytest.raises(BatchLossError, match=r"offsets 0 to 2, 3 records.*The marker was not changed"):
        Engine(decided.bucket, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert decided.bucket.get(decided.entry.key) is None
    assert not decided.is_resolved()


def test_a_deleted_object_of_a_resolved_batch_does_not_come_back(decided: Decided) -> None:
    """A late driver reads the marker before it completes anything."""
    Engine(decided.bucket, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    decided.bucket.delete(decided.entry.key)
    store = FaultyStore(decided.bucket)
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert store.writes() == []
    assert decided.bucket.get(decided.entry.key) is None


def test_a_batch_that_was_resolved_during_the_search_is_not_written_again(decided: Decided) -> None:
    """The last read of the marker follows the read of the records, right before the write."""
    decided.bucket.expire_uploads()
    other = Engine(decided.bucket, decided.kafka)
    reads = []

    def choose(request: Any) -> None:
        if request.operation == "head" and not reads and len([r for r in store.requests if r.operation == "head"]) > 5:
            reads.append(request)
            other.committer.carry_out(decided.plan, decided.decision)
            decided.bucket.delete(decided.entry.key)

    store = FaultyStore(decided.bucket, choose=choose)
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert reads
    assert decided.bucket.get(decided.entry.key) is None
    assert [r.operation for r in store.writes() if r.operation == "put_new"] == []


# -- the marker -------------------------------------------------------------------------------------------------------


def test_a_lost_race_for_the_marker_is_repeated_with_the_new_marker() -> None:
    """Others advance the marker repeatedly: every loser folds again, and none fails while another wins."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC, 8)
    for p in range(8):
        kafka.append(TOPIC, p, b"%d" % p, timestamp=p)
        crash_after("*.manifest.json", bucket, kafka, f"run-{p}", "data_interval", window=(p, p + 1))
    waiting = list(range(2, 9))

    def choose(request: Any) -> None:
        if request.operation == "put_if_match" and waiting:
            other = Engine(bucket, kafka)
            batch = waiting.pop(0)
            plan, decision = other.log.read_plan(batch), other.log.read_manifest(batch)
            assert plan is not None
            assert decision is not None
            other.committer.carry_out(plan, decision)

    store = FaultyStore(bucket, choose=choose)
    Engine(store, kafka).run("run-0", "data_interval", window=(0, 1))
    assert not waiting
    assert [r.operation for r in store.requests].count("put_if_match") == 8
    marker, _ = Engine(bucket, kafka).log.require_marker()
    assert (marker.resolved, marker.revision) == (((1, 9),), 8)


def test_a_store_that_never_answers_for_the_marker_ends_the_try_without_harm(decided: Decided) -> None:
    """The batch is decided and its objects exist; the error reports it, and the next try resolves it."""
    store = FaultyStore(decided.bucket)
    store.inject(Fault.CONFLICT, operation="put_if_match", times=100)
    with pytest.raises(UnknownOutcomeError, match=r"batch 1|Batch 1 is decided"):
        Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert not decided.is_resolved()
    Engine(decided.bucket, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    decided.check()


@pytest.mark.parametrize("fault", [Fault.LOST_RESPONSE, Fault.SENT_TWICE, Fault.THROTTLED_AFTER_APPLY])
def test_a_marker_whose_answer_was_lost_is_not_folded_twice(decided: Decided, fault: Fault) -> None:
    """412 to our own write: reading back shows that the batch is resolved."""
    store = FaultyStore(decided.bucket)
    store.inject(fault, operation="put_if_match")
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    marker, _ = Engine(decided.bucket, decided.kafka).log.require_marker()
    assert (marker.resolved, marker.revision) == (((1, 2),), 1)


# -- the decision -----------------------------------------------------------------------------------------------------


def undecided() -> tuple[SimulatedKafka, MemoryStore, Plan]:
    """A planned batch of two slices."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC)
    for i in range(6):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=0)
    crash_after("*.plan.json", bucket, kafka, "died")
    plan = Engine(bucket, kafka).log.read_plan(1)
    assert plan is not None
    assert len(plan.slices) == 2
    return kafka, bucket, plan


def test_rows_with_a_slice_missing_or_twice_decide_nothing() -> None:
    """A job that lost a task's rows, or got two attempts of one slice: an error, and no manifest."""
    kafka, bucket, plan = undecided()
    engine = Engine(bucket, kafka)
    for wrong in ([], [0], [0, 1, 0], [1], [0, 0, 1]):
        rows = [engine.read_slice(plan, plan.slices[i]) for i in wrong]
        with pytest.raises(SparkJobError, match="Nothing was decided"):
            engine.committer.decide(plan, rows, run="r")
        assert engine.log.read_manifest(1) is None
        assert list(bucket.pending_uploads("")) == []
    rows = [engine.read_slice(plan, s) for s in plan.slices]
    decision = engine.committer.decide(plan, rows[::-1], run="r")
    engine.committer.carry_out(plan, decision)
    check_landed(bucket, kafka, recovered=True)


def test_the_loser_of_a_decision_follows_the_winner_and_aborts_its_uploads() -> None:
    """Two executions of one plan: one decision, only its uploads stay pending, and only they become visible."""
    kafka, bucket, plan = undecided()
    winner, loser = Engine(bucket, kafka, seed=1), Engine(bucket, kafka, seed=2)
    winning = [winner.read_slice(plan, s) for s in plan.slices]
    losing = [loser.read_slice(plan, s) for s in plan.slices]
    first = winner.committer.decide(plan, winning, run="winner")
    second = loser.committer.decide(plan, losing, run="loser")
    assert first == second
    assert {u.upload_id for u in bucket.pending_uploads("")} == {o.upload_id for o in first.objects}
    loser.committer.carry_out(plan, second)
    assert Engine(bucket, kafka).run("died").status == "ok"


def test_a_driver_that_could_not_read_the_decision_keeps_its_uploads() -> None:
    """The PUT of its manifest may still be applied: aborting the uploads would lose a decided batch."""
    kafka, bucket, plan = undecided()
    store = FaultyStore(bucket)
    engine = Engine(store, kafka)
    rows = [engine.read_slice(plan, s) for s in plan.slices]
    store.inject(Fault.LATE, operation="put_new", key="*.manifest.json", times=10)
    with pytest.raises(UnknownOutcomeError):
        engine.committer.decide(plan, rows, run="r")
    assert len(list(bucket.pending_uploads(""))) == 2
    store.apply_late()
    assert Engine(bucket, kafka).run("died").status == "ok"
    check_landed(bucket, kafka)


def test_a_topic_that_changed_while_it_was_read_decides_nothing() -> None:
    """Records of two incarnations never share a batch."""
    kafka, bucket, plan = undecided()
    engine = Engine(bucket, kafka)
    rows = [engine.read_slice(plan, s) for s in plan.slices]
    kafka.create_topic(TOPIC)
    with pytest.raises(TopicRecreatedError):
        engine.committer.decide(plan, rows, run="r")
    assert engine.log.read_manifest(1) is None
    assert list(bucket.pending_uploads("")) == []


def test_permanent_throttling_is_reported_as_throttling(decided: Decided) -> None:
    """The retry deadline ends it; nothing is undone."""
    store = FaultyStore(decided.bucket)
    store.inject(Fault.THROTTLED, operation="complete_upload", times=10_000)
    with pytest.raises(ThrottledError):
        Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert len(list(decided.bucket.pending_uploads(""))) == 1


def test_an_abort_that_fails_does_not_fail_a_batch_whose_object_is_there(decided: Decided) -> None:
    """The lifecycle rule removes the pending upload."""
    store = FaultyStore(decided.bucket)
    store.inject(Fault.LOST_RESPONSE, operation="complete_upload")
    store.inject(Fault.TIMEOUT, operation="abort_upload", times=100)
    Engine(store, decided.kafka).committer.carry_out(decided.plan, decided.decision)
    assert decided.is_resolved()
    decided.check()


def test_an_object_that_would_be_built_with_another_size_is_not_written(decided: Decided) -> None:
    """Another version of the compressor: the wrong bytes at the right key would block the batch for ever."""
    decided.bucket.expire_uploads()
    engine = Engine(decided.bucket, decided.kafka)
    entry = msgspec.structs.replace(decided.entry, size=decided.entry.size + 1)
    (lost,) = engine.committer.objects.write_again(decided.plan, [entry]) or ()
    assert re.search(r"install the versions that planned the batch \(.*isal", lost.why)
    assert decided.bucket.head(entry.key) is None
