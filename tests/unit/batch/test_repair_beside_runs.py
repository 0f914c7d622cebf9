"""`repair` while drivers run: their writes between two of its checks are neither a loss nor a forgery."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.maintenance.accept_loss import record_gone
from airflow_provider_kafka_s3.maintenance.repair import GoneRule, Repaired, repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import FaultyStore, Request
from tests.protocol.engine import CONTROL, TOPIC, Engine, check_landed

MARKER = addresses.marker_key(CONTROL)


class Pipeline:
    """A pipeline, and an action of another process right before a request of the repair."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.bucket = MemoryStore()
        self.lands("first")

    @property
    def engine(self) -> Engine:
        """A new process."""
        return Engine(self.bucket, self.kafka)

    def records(self) -> None:
        for _ in range(3):
            self.kafka.append(TOPIC, 0, b"%d" % self.kafka.bounds(TOPIC, 0)[1], 0)

    def lands(self, run: str) -> None:
        """A whole run."""
        self.records()
        assert self.engine.run(run).status == "ok"

    def decides(self, run: str) -> tuple[Engine, Manifest]:
        """A run up to its decision: its driver, and the objects left to complete."""
        self.records()
        driver = self.engine
        plan = driver.topic_run(driver.request(run)).advance()
        rows = [driver.read_slice(plan, s) for s in plan.slices]  # type: ignore[union-attr, arg-type]
        return driver, driver.committer.decide(plan, rows, run=run)  # type: ignore[arg-type]

    def objects(self, batch: int) -> list[str]:
        """Keys of a batch."""
        decision = self.engine.log.read_manifest(batch)
        assert decision is not None
        return [entry.key for entry in decision.objects]

    def marker(self) -> bytes:
        """The stored marker."""
        stored = self.bucket.get(MARKER)
        assert stored is not None
        return stored.body

    def puts_back(self, body: bytes) -> None:
        """An older version of the marker."""
        self.bucket.delete(MARKER)
        self.bucket.put_new(MARKER, body)

    def repair(
        self, before: Callable[[Request], bool], does: Callable[[], object], *, gone: bool = True, dry_run: bool = False
    ) -> Repaired:
        """A repair; another process acts right before the first matching request."""
        left = [does]

        def choose(request: Request) -> None:
            if left and before(request):
                left.pop()()

        rule = GoneRule(before=time.time() + 5, reason="deleted", operator="me") if gone else GoneRule()
        committer = Engine(FaultyStore(self.bucket, choose=choose), self.kafka).committer
        done = repair(committer, start={}, rule=rule, dry_run=dry_run)
        assert not left
        return done

    def check(self) -> None:
        check_landed(self.bucket, self.kafka, recovered=True)


@pytest.fixture
def pipeline() -> Pipeline:
    """One batch is landed."""
    return Pipeline()


def about_upload(request: Request) -> bool:
    """ListParts, after the first HEAD."""
    return request.operation == "upload_exists"


def listing(request: Request) -> bool:
    """The marker is read, the plans are not."""
    return request.operation == "list"


def after_listing(request: Request) -> bool:
    """The first plan."""
    return request.operation == "get" and request.key.endswith("plan.json")


def swap(request: Request) -> bool:
    """Of the marker."""
    return request.operation == "put_if_match"


def completes(driver: Engine, decision: Manifest) -> None:
    """The driver is between its decision and the marker."""
    for entry in decision.objects:
        driver.store.complete(entry.key, entry.upload_id, entry.upload_parts())


def test_an_object_that_a_driver_completes_between_two_checks_is_not_gone(pipeline: Pipeline) -> None:
    """HEAD, then Complete of the driver, then ListParts: the upload is gone, and the object exists."""
    driver, decision = pipeline.decides("second")
    pipeline.bucket.delete(MARKER)
    done = pipeline.repair(about_upload, lambda: completes(driver, decision))
    assert (done.recorded, done.ambiguous, done.open) == ([], [], {})
    assert pipeline.engine.log.amended_keys(2)[0] == frozenset()
    assert done.marker.resolved == ((1, 3),)
    pipeline.check()


def test_no_upload_of_a_batch_that_is_completed_stays_pending(pipeline: Pipeline) -> None:
    """A store stopped between the object and the removal of its upload; a late request cannot complete it again."""
    _, decision = pipeline.decides("second")
    bucket, other = pipeline.bucket, pipeline.bucket.copy()
    for entry in decision.objects:
        other.complete_upload(entry.key, entry.upload_id, entry.upload_parts())
        completed = other.get(entry.key)
        assert completed is not None
        bucket.put_new(entry.key, completed.body, metadata=completed.metadata)
    for dry_run in (True, False):
        done = repair(pipeline.engine.committer, start={}, dry_run=dry_run)
        assert done.marker.resolved == ((1, 3),)
        assert len([*bucket.pending_uploads("")]) == (len(decision.objects) if dry_run else 0)
    pipeline.check()


def test_no_upload_of_an_object_that_was_accepted_as_lost_stays_pending(pipeline: Pipeline) -> None:
    """Whoever accepted the loss of a refused upload ended before it was aborted; it cannot become visible later."""
    driver, decision = pipeline.decides("second")
    lost, *others = decision.objects
    for entry in others:
        driver.store.complete(entry.key, entry.upload_id, entry.upload_parts())
    record_gone(driver.committer, 2, {lost.key}, reason="refused", operator="me")
    assert repair(pipeline.engine.committer, start={}).marker.resolved == ((1, 3),)
    assert [*pipeline.bucket.pending_uploads("")] == []
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True)


def test_only_what_a_second_look_does_not_find_either_is_gone(pipeline: Pipeline) -> None:
    """One object is completed meanwhile, the upload of the other has expired."""
    for _ in range(2):
        pipeline.kafka.append(TOPIC, 0, b"odd", 1)
    driver, decision = pipeline.decides("second")
    lost, completed = decision.objects[:2]
    pipeline.bucket.abort_upload(lost.key, lost.upload_id)
    pipeline.bucket.delete(MARKER)
    done = pipeline.repair(about_upload, lambda: completes(driver, decision))
    assert [(gone.batch, gone.keys) for gone in done.recorded] == [(2, (lost.key,))]
    assert pipeline.bucket.head(completed.key) is not None
    assert pipeline.engine.log.amended_keys(2)[0] == {lost.key}
    pipeline.check()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("when", [listing, after_listing])
def test_a_batch_that_is_landed_while_repair_reads_the_plans_is_no_forgery(
    pipeline: Pipeline, when: Callable[[Request], bool], *, dry_run: bool
) -> None:
    """Neither a marker with batches without plans, nor one that is behind the log: it is right."""
    done = pipeline.repair(when, lambda: pipeline.lands("second"), dry_run=dry_run)
    assert (done.was, done.written) == ("right", False)
    assert pipeline.engine.log.require_marker()[0].resolved == ((1, 3),)
    pipeline.check()


def test_a_damaged_marker_is_replaced_only_if_it_is_the_one_that_was_read(pipeline: Pipeline) -> None:
    """A valid marker is restored meanwhile: it stays, and so do the offsets landed with it."""
    good = pipeline.marker()
    pipeline.puts_back(b"{")
    done = pipeline.repair(after_listing, lambda: pipeline.puts_back(good))
    assert (done.was, done.written) == ("right", False)
    assert pipeline.marker() == good


def test_recorded_losses_are_reported_also_if_another_process_repaired_the_marker(pipeline: Pipeline) -> None:
    """The amend exists: the result of the second round must not hide it."""
    older = pipeline.marker()
    pipeline.lands("second")
    newest = pipeline.marker()
    (lost,) = pipeline.objects(2)
    pipeline.bucket.delete(lost)
    pipeline.puts_back(older)
    done = pipeline.repair(swap, lambda: pipeline.puts_back(newest))
    assert (done.was, done.written) == ("right", False)
    assert [(gone.batch, gone.keys) for gone in done.recorded] == [(2, (lost,))]
    assert pipeline.engine.log.amended_keys(2)[0] == {lost}


def test_a_batch_that_stays_open_anyway_is_neither_recorded_nor_ambiguous(pipeline: Pipeline) -> None:
    """It follows a reset that is not complete: its objects are checked once the reset is complete."""
    older = pipeline.marker()
    pipeline.decides("second")
    pipeline.kafka.create_topic(TOPIC)
    reset(pipeline.engine.committer, operator="")
    pipeline.lands("third")
    after_reset = pipeline.objects(4)
    for key in (*after_reset, *pipeline.objects(2)):
        pipeline.bucket.delete(key)
    decision = pipeline.engine.log.read_manifest(2)
    assert decision is not None
    # As if the upload of batch 2 were pending: it was never completed.
    upload_id = pipeline.bucket.create_upload(decision.objects[0].key)
    pipeline.bucket._uploads[decision.objects[0].upload_id] = pipeline.bucket._uploads.pop(upload_id)
    pipeline.puts_back(older)
    before = snapshot(pipeline.bucket)
    found = repair(pipeline.engine.committer, start={})
    assert (found.ambiguous, [*found.open]) == ((), [2, 3, 4])
    done = repair(pipeline.engine.committer, start={}, rule=GoneRule(before=time.time() + 5))
    assert ([*done.recorded], [*done.open]) == ([], [2, 3, 4])
    check_unchanged(before, snapshot(pipeline.bucket))


@pytest.mark.parametrize(("batches", "stay"), [(None, [2, 3]), (((2, 2),), [2]), (((3, 9),), [3])])
def test_a_rule_with_batches_applies_to_these_only(
    pipeline: Pipeline, batches: tuple[tuple[int, int], ...] | None, stay: list[int]
) -> None:
    """The others are still ambiguous."""
    for run in ("second", "third"):
        pipeline.lands(run)
    for batch in (2, 3):
        for key in pipeline.objects(batch):
            pipeline.bucket.delete(key)
    pipeline.bucket.delete(MARKER)
    rule = GoneRule(before=time.time() + 5, batches=batches)
    found = repair(pipeline.engine.committer, start={}, rule=rule, dry_run=True)
    assert [gone.batch for gone in found.recorded] == stay
    assert [gone.batch for gone in found.ambiguous] == [n for n in (2, 3) if n not in stay]
