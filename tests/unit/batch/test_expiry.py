"""Objects that are deleted on purpose: the log has it first, no reader expects them, and no run writes them again."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.expiry import read_expiry, swap_expiry
from airflow_provider_kafka_s3.batch.given_away import begin_table, give_to_table
from airflow_provider_kafka_s3.config import Daily, Hourly, JsonLines, Landed, Layout
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    CorruptControlError,
    DataLossError,
    KafkaS3Error,
)
from airflow_provider_kafka_s3.maintenance.expire import expire
from airflow_provider_kafka_s3.maintenance.expiry_rule import CommittedBatch, Expired, ExpiryGuard, ExpiryRule
from airflow_provider_kafka_s3.reading.arrow import arrow_batches
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, Request, SimulatedCrash
from tests.unit.batch.simulated_topic import Topic

DAY = 86_400
HOURLY = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), errors="dead_letter")


def days(batches: int = 4, *, layout: Layout = HOURLY, partitions: int = 1) -> Topic:
    """A topic with a batch for each of the last days, the newest of today; each has two hours."""
    topic = Topic(layout, partitions)
    for batch in range(batches):
        last = time.time() - (batches - 1 - batch) * DAY
        for p in range(partitions):
            for age in (3600, 0):
                value = json.dumps({"batch": batch + 1, "age": age, "p": p}).encode()
                topic.append(value, partition=p, timestamp=int((last - age) * 1000))
        topic.land(f"day {batch + 1}")
    return topic


def no_other(landed: Landed) -> ExpiryGuard:
    """No rule of these tests names another pipeline."""
    raise AssertionError(landed)


def expired(
    topic: Topic,
    older_than: float | None = 1.5,
    *,
    after: float = 0.0,
    store: DurableStore | None = None,
    guards: Sequence[ExpiryGuard] = (),
    dry_run: bool = False,
    **rule: Any,
) -> Expired:
    """A call after some days: batches are as young as the test, so none is too young."""
    committer = topic.pipeline.committer if store is None else topic.pipeline_with(store).committer
    settings = {"older_than": None if older_than is None else older_than * DAY, "least_age": 0.0, "grace": DAY} | rule
    made = ExpiryRule(operator="ann@desk", **settings)  # type: ignore[arg-type]
    return expire(
        committer, made, landed_in=no_other, guards=guards, now=time.time() + 60 + after * DAY, dry_run=dry_run
    )


def of_batches(topic: Topic) -> list[int]:
    """The batches whose objects are in the bucket."""
    return sorted({json.loads(body.splitlines()[0])["batch"] for body in topic.objects().values()})


def read(topic: Topic) -> list[int]:
    """The batches of all rows that a reader has."""
    snapshot = Snapshot(topic.pipeline.log)
    values = [
        value
        for batch in arrow_batches(snapshot.log.store, snapshot.objects())
        for value in batch.column("value").to_pylist()
    ]
    return sorted({json.loads(value)["batch"] for value in values})


def test_objects_are_recorded_first_and_deleted_after_the_grace() -> None:
    """Readers of a snapshot from before have all of them until then, and those behind the record have the others."""
    topic = days()
    before = topic.objects()
    first = expired(topic)
    assert (first.batches, first.recorded, first.deleted, first.waiting) == (2, 4, 0, 4)
    assert topic.objects() == before
    assert read(topic) == [3, 4]
    assert topic.check() == 8
    early = expired(topic, after=0.5, older_than=2.0)
    assert (early.recorded, early.deleted, early.waiting) == (0, 0, 4)
    last = expired(topic, after=1.1, older_than=2.6)
    assert (last.recorded, last.deleted, last.waiting) == (0, 4, 0)
    assert of_batches(topic) == [3, 4]
    assert topic.check() == 4
    again = expired(topic, after=1.2, older_than=2.7)
    assert (again.recorded, again.deleted, again.absent) == (0, 0, 0)


def test_each_night_goes_on_where_the_last_one_ended() -> None:
    """The record of ten nights is one range of numbers, and no night reads the documents of the ones before."""
    topic = days(10)
    store = FaultyStore(topic.bucket)
    for night in range(9):
        expired(topic, older_than=8.5, after=night)
    last = expired(topic, older_than=8.5, after=9, store=DurableStore(store, Retrier()))
    assert (last.recorded, last.deleted) == (2, 2)
    read_documents = [request.key for request in store.requests if request.key.endswith(".manifest.json")]
    assert all(f"{batch:010d}" not in key for batch in range(1, 9) for key in read_documents)
    stored = read_expiry(topic.pipeline.log)
    assert stored is not None
    assert stored[0].deleted == ExpiredObjects(batches=((1, 10),))
    assert [one.objects for one in stored[0].waiting] == [ExpiredObjects(batches=((10, 11),))]
    assert topic.check() == 2


def test_a_dry_run_changes_nothing() -> None:
    """It counts what would be recorded, and what would be deleted."""
    topic = days()
    assert expired(topic, dry_run=True).recorded == 4
    assert read_expiry(topic.pipeline.log) is None
    expired(topic)
    would = expired(topic, after=2, older_than=2.5, dry_run=True)
    assert (would.recorded, would.deleted) == (2, 4)
    assert of_batches(topic) == [1, 2, 3, 4]


def test_of_a_batch_that_spans_the_time_the_older_objects_are_deleted() -> None:
    """The others later; the batch as a whole then."""
    topic = Topic(HOURLY)
    for age in (3, 2, 1, 0):
        topic.append(b'{"batch": %d}' % age, timestamp=int((time.time() - age * DAY) * 1000))
    topic.land()
    assert expired(topic, older_than=1.5, grace=0.0).deleted == 2
    assert read(topic) == of_batches(topic) == [0, 1]
    assert topic.check() == 2
    assert expired(topic, older_than=1.5, after=1, grace=0.0).deleted == 1
    assert expired(topic, older_than=1.5, after=3, grace=0.0).deleted == 1
    stored = read_expiry(topic.pipeline.log)
    assert stored is not None
    assert stored[0].deleted == ExpiredObjects(batches=((1, 2),))
    assert topic.check() == 0


def test_a_record_of_the_future_is_as_old_as_its_batch() -> None:
    """A wrong clock of a producer keeps nothing for ever."""
    topic = Topic(HOURLY)
    topic.append(b'{"batch": 1}', timestamp=int((time.time() + 4000 * DAY) * 1000))
    topic.land()
    assert expired(topic, older_than=2, after=1, grace=0.0).deleted == 0
    assert expired(topic, older_than=2, after=3, grace=0.0).deleted == 1


def test_what_was_landed_just_now_is_kept_however_old_its_records_are() -> None:
    """A backfill is not deleted by the next night."""
    topic = days()
    assert expired(topic, least_age=2 * DAY, grace=0.0, after=1).recorded == 0
    assert expired(topic, least_age=2 * DAY, grace=0.0, after=2.1).recorded == 8


def test_no_run_and_no_command_brings_expired_objects_back() -> None:
    """Neither a rerun, nor a restore, nor a repair; verify counts them, and they are no damage."""
    topic = days()
    expired(topic, grace=0.0)
    assert of_batches(topic) == [3, 4]
    for on_missing in ("fail", "restore"):
        assert topic.land("day 1", on_missing=on_missing).status == "ok"
    for action in ("verify", "restore"):
        result = topic.pipeline.run(topic.request("all", action=action)).advance()
        verification = getattr(result, "verification", None)
        assert verification is not None
        assert (verification.expired, verification.restored, verification.missing) == (4, (), ())
    topic.bucket.delete(addresses.marker_key(topic.pipeline.log.prefix))
    repaired = topic.pipeline.repair(start={0: 0})
    assert not repaired.ambiguous
    assert not repaired.open
    assert of_batches(topic) == [3, 4]
    assert topic.check() == 4


@pytest.mark.parametrize("action", ["verify", "restore"])
def test_what_expires_while_a_run_looks_at_it_is_neither_missing_nor_restored(action: Any) -> None:
    """The run has read the record of an earlier state, and finds the objects gone."""
    topic = days()
    left = [lambda: expired(topic, grace=0.0), lambda: None]

    def choose(request: Request) -> None:
        # The request behind that for the record.
        if (left and request.key.endswith("expiry.json")) or len(left) == 1:
            left.pop()()

    store = DurableStore(FaultyStore(topic.bucket, choose=choose), Retrier())
    result = topic.pipeline_with(store).run(topic.request("all", action=action)).advance()
    verification = getattr(result, "verification", None)
    assert verification is not None
    assert (verification.expired, verification.restored, verification.missing) == (4, (), ())
    assert of_batches(topic) == [3, 4]
    assert topic.check() == 4


def test_an_object_that_others_wrote_at_the_key_is_not_deleted() -> None:
    """It is named, the rest is deleted, and a later call goes on."""
    topic = days()
    key = min(topic.objects())
    topic.bucket.delete(key)
    topic.bucket.put_new(key, b'{"batch": 0}\n')
    done = expired(topic, grace=0.0)
    assert (done.refused, [*done.named]) == (1, [key])
    assert "holds an object that the batch did not write" in done.named[key]
    assert (done.deleted, done.waiting) == (3, 2)
    topic.bucket.delete(key)
    again = expired(topic, grace=0.0)
    assert (again.absent, again.waiting) == (2, 0)


class Refusing(MemoryStore):
    """A bucket that refuses to delete one object, as under a legal hold."""

    held = ""

    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        """See the port."""
        super().delete_objects([key for key in keys if key != self.held])
        return {key: "AccessDenied: the object is under a legal hold" for key in keys if key == self.held}


def test_what_the_store_keeps_is_named_and_tried_again() -> None:
    """A legal hold, or a lock."""
    topic = days()
    refusing = Refusing("bucket")
    for info in topic.bucket.list(""):
        stored = topic.bucket.get(info.key)
        assert stored is not None
        refusing.put_new(info.key, stored.body, metadata=stored.metadata)
    topic.bucket = refusing
    refusing.held = min(topic.objects())
    done = expired(topic, grace=0.0)
    assert done.named == {refusing.held: "AccessDenied: the object is under a legal hold"}
    assert (done.deleted, done.waiting) == (3, 2)
    refusing.held = ""
    assert expired(topic, grace=0.0).deleted == 1
    assert topic.check() == 4


def test_without_the_right_to_delete_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store refuses each object; the record stays, and a later call goes on."""
    topic = days()

    def refuse(keys: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(keys, "AccessDenied: Access Denied")

    with monkeypatch.context() as denied:
        denied.setattr(topic.bucket, "delete_objects", refuse)
        with pytest.raises(AccessDeniedError, match=r"delete each of 4 objects.*Give the role s3:DeleteObject"):
            expired(topic, grace=0.0)
    assert of_batches(topic) == [1, 2, 3, 4]
    assert expired(topic, grace=0.0).deleted == 4


def test_a_record_can_be_withdrawn_until_its_deletion_begins() -> None:
    """Readers have the objects again; what is being deleted stays so."""
    topic = days()
    expired(topic)
    assert read(topic) == [3, 4]
    assert topic.pipeline.withdraw_expiry() == (4, 0)
    assert read(topic) == [1, 2, 3, 4]
    assert topic.pipeline.withdraw_expiry() == (0, 0)
    store = FaultyStore(topic.bucket)
    store.inject(Fault.CRASH_BEFORE, operation="delete_objects")
    with pytest.raises(SimulatedCrash):
        expired(topic, grace=0.0, store=DurableStore(store, Retrier()))
    assert topic.pipeline.withdraw_expiry() == (0, 4)
    assert read(topic) == [3, 4]
    assert expired(topic, grace=0.0).deleted == 4


def test_a_record_whose_objects_are_all_kept_can_still_be_withdrawn() -> None:
    """As when the pipeline that has their records loses an object within the grace."""
    topic = days()
    expired(topic)
    done = expired(topic, after=2, older_than=3.5, guards=[Keeps(1, 2, final=True)])
    assert (done.deleted, done.waiting) == (0, 4)
    assert topic.pipeline.withdraw_expiry() == (4, 0)
    assert read(topic) == [1, 2, 3, 4]


class Keeps(ExpiryGuard):
    """Keeps some batches until it is told otherwise."""

    def __init__(self, *batches: int, final: bool = False) -> None:
        self.batches = batches
        self.final = final

    def kept(self, batches: Sequence[CommittedBatch], *, final: bool) -> Mapping[int, str]:
        """See the port."""
        numbers = [plan.batch for plan, _ in batches if plan.batch in self.batches]
        return dict.fromkeys(numbers if final or not self.final else [], "somebody needs them")


def test_what_a_guard_keeps_is_neither_recorded_nor_deleted() -> None:
    """And what it keeps at the end only is deleted when it does so no more."""
    topic = days()
    done = expired(topic, grace=0.0, guards=[Keeps(1)])
    assert (done.recorded, done.deleted, done.kept) == (2, 2, {"somebody needs them": [1]})
    done = expired(topic, grace=0.0, guards=[Keeps(1, final=True)])
    assert (done.recorded, done.deleted, done.waiting, done.kept) == (2, 0, 2, {"somebody needs them": [1]})
    assert read(topic) == [3, 4]
    assert of_batches(topic) == [1, 3, 4]
    assert expired(topic, grace=0.0).deleted == 2


def test_nothing_is_deleted_while_a_table_is_unknown() -> None:
    """The log has all tables of the topic; a table that owns its objects deletes them itself."""
    topic = days()
    begin_table(topic.pipeline.log, "lake.days")
    done = expired(topic, grace=0.0)
    assert (done.recorded, done.deleted) == (0, 0)
    assert read(topic) == [1, 2, 3, 4]
    why = "table lake.days may have them: name it, with its catalog, or that it is gone"
    assert done.kept == {why: [1, 2]}
    give_to_table(topic.pipeline.log, "lake.days", 1)
    done = expired(topic, grace=0.0, tables=frozenset({"lake.days"}))
    assert (done.deleted, done.kept) == (2, {})
    assert of_batches(topic) == [1, 3, 4]
    topic = days()
    begin_table(topic.pipeline.log, "lake.days")
    assert expired(topic, grace=0.0, tables=frozenset({"lake.days"})).deleted == 4


def test_a_reader_that_began_before_gets_an_error_that_says_why() -> None:
    """Not that something is missing and could be restored."""
    topic = days()
    snapshot = Snapshot(topic.pipeline.log)
    plan, _ = snapshot.log.require_plan(1)
    decision, _ = snapshot.log.require_decision(1)
    one = snapshot.objects()[0]
    expired(topic, grace=0.0)
    with pytest.raises(KafkaS3Error, match="it was deleted on purpose") as raised:
        list(arrow_batches(snapshot.log.store, [one]))
    assert one.url in str(raised.value)
    with pytest.raises(DataLossError, match="was deleted on purpose"):
        CommittedObjects(snapshot.log, plan, decision).get(one.entry)


def test_offsets_of_expired_batches_are_lost_to_readers() -> None:
    """A replay over them is refused like one over what Kafka had deleted."""
    topic = days()
    expired(topic, grace=0.0)
    coverage = Snapshot(topic.pipeline.log).coverage
    assert str(coverage.expired(0)) == str(coverage.lost(0)) == "0: [0, 4)"
    assert str(coverage.landed(0)) == "0: [4, 8)"
    assert not coverage.missing(0)


def test_only_complete_batches_expire() -> None:
    """An open one keeps its objects; those behind it expire."""
    topic = days()
    topic.append(b'{"batch": 5}', timestamp=0)
    run = topic.pipeline.run(topic.request("open"))
    run.advance()
    expired(topic, grace=0.0, older_than=0.0, after=1)
    assert of_batches(topic) == []
    topic.land("open")
    assert of_batches(topic) == [5]
    assert topic.check() == 1


def test_an_invariant_shows_a_deleted_object_that_is_there() -> None:
    """And objects of a batch that is not resolved."""
    topic = days(2)
    log = topic.pipeline.log
    everything = ExpiredObjects(batches=((1, 4),))
    assert swap_expiry(log, Expiry(topic="orders", number=4, deleted=everything), None)
    with pytest.raises(InvariantViolation) as raised:
        topic.check()
    assert "I12 objects of batches [3] have expired, which are not resolved" in raised.value.findings
    assert any(finding.endswith("is recorded as deleted, and is there") for finding in raised.value.findings)


@pytest.mark.parametrize(
    "rule",
    [{"older_than": None}, {"older_than": -1.0}, {"least_age": -1.0}, {"grace": -1.0}],
    ids=["nothing is named", "age", "least age", "grace"],
)
def test_a_rule_that_says_nothing_changes_nothing(rule: dict[str, Any]) -> None:
    """There is no default for what is no longer needed."""
    topic = days()
    with pytest.raises(ConfigurationError, match="Nothing was changed"):
        expired(topic, **rule)
    assert read_expiry(topic.pipeline.log) is None


@pytest.mark.parametrize(
    "fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_RESPONSE, Fault.THROTTLED, Fault.LATE]
)
def test_whatever_fails_nothing_else_is_deleted_and_a_later_call_ends_it(fault: Fault) -> None:
    """Each request fails once, until there is no further one; what is late is late only."""
    topic = days()
    before = topic.bucket
    for number in itertools.count(1):
        topic.bucket = before.copy()
        late: list[Any] = []
        store = FaultyStore(topic.bucket, choose=lambda r, n=number: fault if r.number == n else None, late=late)  # type: ignore[misc]
        try:
            expired(topic, grace=0.0, store=DurableStore(store, Retrier(sleep=lambda _: None)))
        except (SimulatedCrash, KafkaS3Error):
            topic.check()
        expired(topic, grace=0.0)
        store.apply_late()
        assert of_batches(topic) == [3, 4]
        assert topic.check() == 4
        if len(store.requests) < number:
            break
    assert number > 20


def test_two_calls_at_the_same_time_delete_the_same() -> None:
    """Another call, with another rule, comes between two requests of the first one, wherever that is."""
    topic = days()
    before = topic.bucket
    for number in range(1, 41):
        topic.bucket = before.copy()

        def choose(request: Request, at: int = number) -> None:
            if request.number == at:
                expired(topic, grace=0.0, older_than=0.9)

        store = FaultyStore(topic.bucket, choose=choose)
        expired(topic, grace=0.0, store=DurableStore(store, Retrier()))
        expired(topic, grace=0.0, older_than=0.9)
        assert of_batches(topic) == [4]
        assert topic.check() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"batches": ((2, 2),)},
        {"batches": ((3, 5), (1, 2))},
        {"batches": ((0, 2),)},
        {"batches": ((1, 3),), "before": ((2, 5),)},
        {"before": ((2, 5), (2, 6))},
        {"before": ((2, -1),)},
    ],
)
def test_impossible_numbers_are_refused(wrong: dict[str, Any]) -> None:
    """The document is untrusted."""
    with pytest.raises(ValueError, match=r"batches|time"):
        ExpiredObjects(**wrong)


def test_the_document_of_another_topic_is_refused() -> None:
    """Nothing is deleted then."""
    topic = days()
    swap_expiry(topic.pipeline.log, Expiry(topic="payments"), None)
    with pytest.raises(CorruptControlError, match="it is of topic 'payments'"):
        expired(topic)


def test_daily_layouts_expire_as_hourly_ones() -> None:
    """By the times of records, whatever the folders are."""
    topic = days(layout=Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily()), partitions=2)
    # In the first hour of a day, the two hours of a batch are in two folders.
    old = [body for body in topic.objects().values() if json.loads(body.splitlines()[0])["batch"] <= 2]
    assert expired(topic, grace=0.0).deleted == len(old)
    assert of_batches(topic) == [3, 4]
    assert topic.check() == 8
