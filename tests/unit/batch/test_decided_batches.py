"""Decided objects are not lost needlessly: by a refusal, by one lost object among many, by a topic that is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch import roll_forward as decided
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ForeignObjectError,
    TopicNotFoundError,
    TopicRecreatedError,
    UploadRefused,
    message_of,
)
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import TOPIC, TOPICS_DIR, Engine, check_landed


class Refusing(FaultyStore):
    """A store that refuses to complete an upload a number of times."""

    def __init__(self, store: MemoryStore, times: int, key: str = "") -> None:
        super().__init__(store)
        self.times = times
        self.key = key
        self.refused: dict[str, int] = {}

    def complete_upload(self, key: str, upload_id: str, parts: Any) -> None:
        if key.startswith(self.key) and (count := self.refused.get(upload_id, 0)) < self.times:
            self.refused[upload_id] = count + 1
            raise UploadRefused("InvalidPart")
        super().complete_upload(key, upload_id, parts)


class Pipeline:
    """Batches of six records, two slices and four objects, whose drivers ended right after their decisions."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.bucket = MemoryStore()
        self.batches = 0

    def decide(self) -> None:
        """One more decided batch."""
        self.batches += 1
        for _ in range(6):
            at = self.kafka.bounds(TOPIC, 0)[1]
            self.kafka.append(TOPIC, 0, b"%d" % at, timestamp=at)
        end = self.kafka.bounds(TOPIC, 0)[1]
        store = FaultyStore(self.bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
        with pytest.raises(SimulatedCrash):
            self.engine(store).run(f"died-{self.batches}", "data_interval", window=(end - 6, end))

    def engine(self, store: FaultyStore | None = None) -> Engine:
        return Engine(store or self.bucket, self.kafka)

    def carry_out(self, store: FaultyStore, batch: int = 1) -> None:
        """Apply the decision of a batch, as any driver does."""
        engine = self.engine(store)
        decision = engine.log.read_manifest(batch)
        assert decision is not None
        engine.committer.carry_out(engine.log.require_plan(batch)[0], decision)

    def resolved(self) -> list[int]:
        """Numbers of the batches that are complete."""
        marker, _ = self.engine().log.require_marker()
        return [n for n in range(1, self.batches + 1) if marker.is_resolved(n)]

    def objects(self) -> list[str]:
        """The visible objects, without their common folder."""
        prefix = f"{TOPICS_DIR}/{TOPIC}/"
        return sorted(info.key.removeprefix(prefix) for info in self.bucket.list(prefix))

    def pending(self) -> int:
        """Number of pending uploads."""
        return len(list(self.bucket.pending_uploads("")))

    def check(self) -> None:
        check_landed(self.bucket, self.kafka, recovered=True)


@pytest.fixture
def pipeline() -> Pipeline:
    """One decided batch."""
    made = Pipeline()
    made.decide()
    return made


def key_of(parity: int, offset: int) -> str:
    """URL of an object."""
    return f"parity={parity}/{TOPIC}+0+{offset:010d}.bin"


ALL = sorted(key_of(offset % 2, offset) for offset in (0, 1, 3, 4))

# -- the store refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 3])
def test_a_temporary_refusal_costs_nothing_even_if_kafka_has_lost_the_records(pipeline: Pipeline, times: int) -> None:
    """A proxy damaged the request: at the next try the store completes the decided upload."""
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    pipeline.carry_out(Refusing(pipeline.bucket, times))
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (ALL, 0, [1])
    pipeline.check()


def test_an_upload_that_stays_refused_is_aborted_when_its_object_is_there_again(pipeline: Pipeline) -> None:
    """First the object is written from Kafka, then the upload is aborted: one of them always exists."""
    seen: list[tuple[str, bool]] = []
    store = Refusing(pipeline.bucket, 1_000)
    store._choose = lambda r: (
        seen.append((r.key, pipeline.bucket.head(r.key) is not None)) if r.operation == "abort_upload" else None
    )
    pipeline.carry_out(store)
    assert sorted(seen) == [(f"{TOPICS_DIR}/{TOPIC}/{key}", True) for key in ALL]
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (ALL, 0, [1])
    pipeline.check()


def test_a_refused_upload_stays_where_kafka_has_lost_its_records(pipeline: Pipeline) -> None:
    """It is the only copy of them: the error reports it, and once the store accepts it nothing is lost."""
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    with pytest.raises(BatchLossError, match=r"refuses to complete the uploads of 4 .*These are kept"):
        pipeline.carry_out(Refusing(pipeline.bucket, 1_000))
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == ([], 4, [])
    assert pipeline.engine().run("died-1").status == "ok"
    assert (pipeline.objects(), pipeline.pending()) == (ALL, 0)
    pipeline.check()


def test_a_refused_upload_whose_loss_is_accepted_cannot_become_visible_later(pipeline: Pipeline) -> None:
    """The loss is recorded first, then the upload is aborted, then the batch is complete without the object."""
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    store = Refusing(pipeline.bucket, 1_000)
    lost = accept_loss(pipeline.engine(store).committer, 1, reason="refused", operator="me")
    assert [key.removeprefix(f"{TOPICS_DIR}/{TOPIC}/") for key in lost] == [key_of(0, 0), key_of(1, 1)]
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == ([key_of(0, 4), key_of(1, 3)], 0, [1])
    written = [r.key for r in store.writes() if ".amend." in r.key or r.key in lost]
    assert ".amend." in written[0]
    pipeline.check()


# -- some of many are lost --------------------------------------------------------------------------------------------


def test_one_lost_object_does_not_block_the_others(pipeline: Pipeline) -> None:
    """All objects whose records Kafka still has are written at once, then one error names the others."""
    pipeline.bucket.expire_uploads()
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    with pytest.raises(BatchLossError, match=r"^2 objects of batch 1 of topic 'events' cannot be written") as caught:
        pipeline.engine().run("died-1")
    text = str(caught.value)
    for part in ("partition 0, offsets 0 to 2, 2 records", "offsets 1 to 1, 1 record", key_of(0, 0), key_of(1, 1)):
        assert part in text
    assert text.index("`kafka-s3 accept-loss") < text.index(key_of(0, 0))
    assert (pipeline.objects(), pipeline.resolved()) == ([key_of(0, 4), key_of(1, 3)], [])
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    accept_loss(pipeline.engine().committer, 1, reason="gone", operator="me")
    assert (pipeline.objects(), pipeline.resolved()) == ([key_of(0, 4), key_of(1, 3)], [1])
    pipeline.check()


def test_a_rerun_with_restore_writes_the_possible_objects_of_all_batches(pipeline: Pipeline) -> None:
    """The first batch's records are gone, those of the second are not: its objects come back before the error."""
    pipeline.decide()
    decided.roll_forward(pipeline.engine().committer)
    for info in list(pipeline.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")):
        pipeline.bucket.delete(info.key)
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    with pytest.raises(BatchLossError, match=r"4 objects of batch 1 .*accept-loss .*--deleted --batch 1`"):
        pipeline.engine().run("again", "data_interval", window={0: (0, 12)}, on_missing="restore")
    assert pipeline.objects() == sorted(key_of(offset % 2, offset) for offset in (6, 7, 9, 10))


def test_a_foreign_object_at_one_key_does_not_block_the_other_objects(pipeline: Pipeline) -> None:
    """The other uploads would expire while somebody moves it away."""
    pipeline.bucket.put_new(f"{TOPICS_DIR}/{TOPIC}/{key_of(0, 0)}", b"a stranger")
    with pytest.raises(ForeignObjectError):
        pipeline.engine().run("died-1")
    assert (pipeline.objects(), pipeline.resolved()) == (ALL, [])
    assert pipeline.bucket.get(f"{TOPICS_DIR}/{TOPIC}/{key_of(0, 0)}").body == b"a stranger"  # type: ignore[union-attr]
    pipeline.bucket.delete(f"{TOPICS_DIR}/{TOPIC}/{key_of(0, 0)}")
    assert pipeline.engine().run("died-1").status == "ok"
    pipeline.check()


def test_one_batch_that_cannot_be_completed_does_not_block_the_others(pipeline: Pipeline) -> None:
    """The first error is raised after all others are processed."""
    pipeline.bucket.expire_uploads()
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    pipeline.decide()
    with pytest.raises(BatchLossError, match="batch 1"):
        decided.roll_forward(pipeline.engine().committer)
    assert pipeline.resolved() == [2]


# -- the topic is gone ------------------------------------------------------------------------------------------------


def deleted(kafka: SimulatedKafka) -> None:
    """A terminal error."""
    kafka.delete_topic(TOPIC)


def recreated(kafka: SimulatedKafka) -> None:
    """Under the same name."""
    kafka.create_topic(TOPIC)


GONE = pytest.mark.parametrize(
    ("event", "error"), [(deleted, TopicNotFoundError), (recreated, TopicRecreatedError)], ids=["deleted", "recreated"]
)


@GONE
@pytest.mark.parametrize("run", ["died-1", "new"])
def test_a_decided_batch_is_completed_although_its_topic_is_gone(
    pipeline: Pipeline, event: Callable[[SimulatedKafka], None], error: type[Exception], run: str
) -> None:
    """It needs no Kafka: the run that fails, repeated or new, completes it and reports that."""
    event(pipeline.kafka)
    with pytest.raises(error) as caught:
        pipeline.engine().run(run)
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (ALL, 0, [1])
    text = message_of(caught.value)
    assert "batches [1] were decided before and are completed now" in text
    assert "`kafka-s3 recover --bucket memory" in text
    assert text.count("--decided-only`") == 1


@GONE
def test_an_undecided_batch_is_unchanged_when_its_topic_is_gone(
    pipeline: Pipeline, event: Callable[[SimulatedKafka], None], error: type[Exception]
) -> None:
    """Only decided objects and the marker change."""
    pipeline.engine().run("died-1")
    pipeline.kafka.append(TOPIC, 0, b"6", timestamp=6)
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*2.plan.json")
    with pytest.raises(SimulatedCrash):
        pipeline.engine(store).run("planned")
    event(pipeline.kafka)
    before = snapshot(pipeline.bucket)
    with pytest.raises(error) as caught:
        pipeline.engine().run("new")
    check_unchanged(before, snapshot(pipeline.bucket))
    assert ("--decided-only`" in message_of(caught.value)) == (event is deleted)


@GONE
def test_objects_of_a_deleted_topic_that_cannot_be_completed_are_in_the_error(
    pipeline: Pipeline, event: Callable[[SimulatedKafka], None], error: type[Exception]
) -> None:
    """The error has the remedy; other batches are completed all the same."""
    pipeline.bucket.expire_uploads()
    pipeline.decide()
    event(pipeline.kafka)
    with pytest.raises(error) as caught:
        pipeline.engine().run("new")
    assert pipeline.resolved() == [2]
    text = message_of(caught.value)
    assert "4 objects of batch 1 of topic 'events' cannot be written again from Kafka" in text
    assert "`kafka-s3 accept-loss" in text
    assert "--decided-only`" in text


def test_a_topic_that_was_never_landed_is_only_reported_as_missing() -> None:
    """There is nothing to complete, and no remedy."""
    pipeline = Pipeline()
    pipeline.kafka.delete_topic(TOPIC)
    with pytest.raises(TopicNotFoundError) as caught:
        pipeline.engine().run("new")
    assert "kafka-s3" not in message_of(caught.value)
    assert list(pipeline.bucket.list("")) == []


def test_a_reset_completes_all_that_is_decided_before_it_stops_at_a_loss(pipeline: Pipeline) -> None:
    """The barrier holds: the generation is closed only when the loss is accepted."""
    pipeline.bucket.expire_uploads()
    pipeline.decide()
    pipeline.kafka.create_topic(TOPIC)
    with pytest.raises(BatchLossError, match="batch 1"):
        reset(pipeline.engine().committer, operator="me")
    marker, _ = pipeline.engine().log.require_marker()
    assert (pipeline.resolved(), marker.generation) == ([2], 0)
    accept_loss(pipeline.engine().committer, 1, reason="gone", operator="me")
    reset(pipeline.engine().committer, operator="me")
    assert pipeline.engine().log.require_marker()[0].generation == 1
    pipeline.check()
