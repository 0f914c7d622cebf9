"""An upload that the store neither completes nor refuses blocks no other object and no other batch, and not forever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch import roll_forward as decided
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    BatchLossError,
    ConfigurationError,
    ForeignObjectError,
    KafkaS3Error,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    message_of,
)
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import TOPIC, TOPICS_DIR
from tests.unit.batch.test_decided_batches import ALL, Pipeline, key_of

BAD = key_of(1, 1)
OTHERS = [key for key in ALL if key != BAD]
SECOND = sorted(key_of(offset % 2, offset) for offset in (6, 7, 9, 10))


class Failing(FaultyStore):
    """A store that answers every Complete of some keys with an error."""

    def __init__(self, store: MemoryStore, error: Callable[[str], Exception], key: str = BAD) -> None:
        super().__init__(store)
        self.error = error
        self.key = f"{TOPICS_DIR}/{TOPIC}/{key}"

    def complete_upload(self, key: str, upload_id: str, parts: Any) -> None:
        if key.startswith(self.key):
            raise self.error("the answer")
        super().complete_upload(key, upload_id, parts)


UNANSWERED = pytest.mark.parametrize("error", [UnknownOutcomeError, TransientError, ConfigurationError])
"""Repeated 500; BadDigest; an unknown 400."""


@pytest.fixture
def pipeline() -> Pipeline:
    """Two decided batches of four objects each."""
    made = Pipeline()
    made.decide()
    made.decide()
    return made


def check(pipeline: Pipeline) -> None:
    """Once the other batch is complete as well, the bucket has all records of Kafka."""
    decided.roll_forward(pipeline.engine().committer)
    pipeline.check()


@UNANSWERED
def test_one_upload_without_an_answer_does_not_block_other_objects(
    pipeline: Pipeline, error: type[KafkaS3Error]
) -> None:
    """The uploads of the others would expire. Its own stays, and the error has its object and the remedy."""
    with pytest.raises(error) as caught:
        pipeline.carry_out(Failing(pipeline.bucket, error))
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (OTHERS, 1 + 4, [])
    assert BAD in message_of(caught.value) or str(caught.value) == "the answer"
    assert "`kafka-s3 accept-loss" in message_of(caught.value)
    pipeline.carry_out(FaultyStore(pipeline.bucket))
    assert pipeline.resolved() == [1]
    check(pipeline)


@UNANSWERED
def test_one_upload_without_an_answer_does_not_block_other_batches(
    pipeline: Pipeline, error: type[KafkaS3Error]
) -> None:
    """All batches are processed before the error is raised."""
    with pytest.raises(error):
        decided.roll_forward(pipeline.engine(Failing(pipeline.bucket, error)).committer)
    assert (pipeline.objects(), pipeline.resolved()) == (sorted([*OTHERS, *SECOND]), [2])


@UNANSWERED
def test_an_upload_without_an_answer_is_written_again_from_kafka_when_a_person_accepts_losses(
    pipeline: Pipeline, error: type[KafkaS3Error]
) -> None:
    """Nothing is lost, nothing is recorded; the upload is aborted when the object exists."""
    store = Failing(pipeline.bucket, error)
    assert accept_loss(pipeline.engine(store).committer, 1, reason="", operator="me") == ()
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (ALL, 4, [1])
    check(pipeline)


@UNANSWERED
def test_an_upload_without_an_answer_can_be_accepted_as_lost_where_kafka_has_lost_its_records(
    pipeline: Pipeline, error: type[KafkaS3Error]
) -> None:
    """The amend first, then the abort: it cannot become visible later. A run without a person never does that."""
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    store = Failing(pipeline.bucket, error)
    with pytest.raises(error):
        pipeline.carry_out(store)
    assert pipeline.pending() == 5
    (lost,) = accept_loss(pipeline.engine(store).committer, 1, reason="no answer", operator="me")
    assert lost.endswith(BAD)
    written = [r.operation for r in store.writes() if ".amend." in r.key or r.key == lost]
    assert written == ["put_new", "abort_upload"]
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (OTHERS, 4, [1])
    check(pipeline)


@UNANSWERED
def test_losses_accepted_before_a_crash_are_completed_by_the_next_run(
    pipeline: Pipeline, error: type[KafkaS3Error]
) -> None:
    """The amend exists, the upload is still pending: it need not be accepted again."""
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    store = Failing(pipeline.bucket, error)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.amend.*")
    with pytest.raises(SimulatedCrash):
        accept_loss(pipeline.engine(store).committer, 1, reason="", operator="me")
    assert (pipeline.pending(), pipeline.resolved()) == (5, [])
    pipeline.carry_out(Failing(pipeline.bucket, error))
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (OTHERS, 4, [1])
    check(pipeline)


@pytest.mark.parametrize("error", [AccessDeniedError, ThrottledError])
def test_a_refused_login_or_a_busy_store_is_no_loss_that_can_be_accepted(
    pipeline: Pipeline, error: type[KafkaS3Error]
) -> None:
    """The cause may pass: the upload stays, nothing is recorded."""
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    with pytest.raises(error):
        accept_loss(pipeline.engine(Failing(pipeline.bucket, error)).committer, 1, reason="", operator="me")
    assert (pipeline.objects(), pipeline.pending(), pipeline.resolved()) == (OTHERS, 5, [])
    assert not [info.key for info in pipeline.bucket.list("") if ".amend." in info.key]


def test_a_store_without_answers_does_not_get_requests_for_every_object(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage ends the try after the first objects, not after all of them."""
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.objects._OBJECTS_AT_ONCE", 2)
    store = Failing(pipeline.bucket, UnknownOutcomeError, "")
    with pytest.raises(UnknownOutcomeError):
        pipeline.carry_out(store)
    assert len({r.key for r in store.requests if r.operation == "head"}) == 2
    assert pipeline.pending() == 8


def test_objects_not_checked_in_an_outage_are_never_taken_for_complete(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person accepts losses, then a run follows: no object is skipped because the first had no answer."""
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.objects._OBJECTS_AT_ONCE", 1)
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    store = Failing(pipeline.bucket, UnknownOutcomeError, ALL[0])
    lost = accept_loss(pipeline.engine(store).committer, 1, reason="", operator="me")
    assert [key.endswith(ALL[0]) for key in lost] == [True]
    assert (pipeline.objects(), pipeline.resolved()) == (ALL[1:], [1])


def test_a_run_that_gives_up_early_resolves_nothing_although_losses_were_accepted(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accepted loss does not count for later objects."""
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.objects._OBJECTS_AT_ONCE", 1)
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    store = Failing(pipeline.bucket, UnknownOutcomeError, ALL[0])
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.amend.*")
    with pytest.raises(SimulatedCrash):
        accept_loss(pipeline.engine(store).committer, 1, reason="", operator="me")
    pipeline.bucket.delete(f"{TOPICS_DIR}/{TOPIC}/{ALL[1]}")
    with pytest.raises(UnknownOutcomeError):
        pipeline.carry_out(Failing(pipeline.bucket, UnknownOutcomeError, ALL[0]))
    assert pipeline.resolved() == []


def test_a_foreign_object_is_the_first_error_and_the_others_are_its_notes(pipeline: Pipeline) -> None:
    """A foreign object, a loss and an upload without an answer: one error, in the order of a person's actions."""
    decision = pipeline.engine().log.read_manifest(1)
    assert decision is not None
    stranger, unanswered, lost = (
        next(e for e in decision.objects if e.key.endswith(key)) for key in (key_of(0, 4), BAD, key_of(0, 0))
    )
    pipeline.bucket.put_new(stranger.key, b"a stranger")
    pipeline.bucket.abort_upload(lost.key, lost.upload_id)
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    with pytest.raises(ForeignObjectError) as caught:
        pipeline.carry_out(Failing(pipeline.bucket, UnknownOutcomeError))
    first, second = caught.value.__notes__
    assert "cannot be written again from Kafka" in first
    assert unanswered.key in second
    pipeline.bucket.delete(stranger.key)
    with pytest.raises(BatchLossError):
        pipeline.carry_out(Failing(pipeline.bucket, UnknownOutcomeError))


def test_one_object_that_cannot_be_put_does_not_block_the_others(pipeline: Pipeline) -> None:
    """Kafka may delete the records while the store does not answer for one key."""
    pipeline.bucket.expire_uploads()
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.TIMEOUT, operation="put_new", key=f"*{key_of(0, 0)}", times=1_000)
    with pytest.raises(TransientError):
        pipeline.carry_out(store)
    assert pipeline.objects() == [key for key in ALL if key != key_of(0, 0)]
    pipeline.carry_out(FaultyStore(pipeline.bucket))
    assert pipeline.resolved() == [1]


def test_a_transient_error_of_a_batch_follows_a_terminal_one(pipeline: Pipeline) -> None:
    """A person has to act: the error is terminal, although the first one was not."""
    decision = pipeline.engine().log.read_manifest(2)
    assert decision is not None
    for entry in decision.objects:
        pipeline.bucket.abort_upload(entry.key, entry.upload_id)
    pipeline.kafka.delete_records(TOPIC, 0, 12)
    pipeline.decide()
    with pytest.raises(BatchLossError, match="batch 2") as caught:
        decided.roll_forward(pipeline.engine(Failing(pipeline.bucket, UnknownOutcomeError)).committer)
    assert "batch 1, could not be completed" in message_of(caught.value)
    assert pipeline.resolved() == [3]
