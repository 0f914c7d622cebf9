"""Modes verify and restore: every object of a window is read back; nothing is written but what is missing."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.object_metadata import CRC32_METADATA
from airflow_provider_kafka_s3.batch.rebuild import BuiltObject
from airflow_provider_kafka_s3.batch.request import TopicResult, Verification
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.marker import Marker, PartitionState
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ForeignObjectError,
    LogTamperedError,
    MarkerMissingError,
    MissingObjectError,
    TerminalError,
    TopicRecreatedError,
    TransientError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.inspect import verify as inspection
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import StoredObject
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.plans import data_plan, slices_of
from tests.protocol.engine import CONTROL, LAYOUT, TOPIC, TOPICS_DIR, Engine, builder, check_landed, crash_after

DATA = f"{TOPICS_DIR}/{TOPIC}/"


class Pipeline:
    """Two partitions, three hours of 10 ms with five records in each, a run per hour, four objects per run."""

    def __init__(self, *, land: bool = True) -> None:
        self.polls = 0
        self.kafka = SimulatedKafka(records_per_poll=100, before_request=self._count)
        self.kafka.create_topic(TOPIC, 2)
        self.bucket = MemoryStore()
        for i in range(30):
            partition, number = i % 2, i // 2
            self.kafka.append(TOPIC, partition, b"%d/%d" % (partition, number), i // 10 * 10 + number % 5)
        if land:
            for hour in range(3):
                self.run(f"hour-{hour}", "data_interval", window=(hour * 10, hour * 10 + 10))

    def _count(self, operation: str) -> None:
        self.polls += operation == "poll"

    def run(self, run: str, offsets: Any = "incremental", **settings: Any) -> TopicResult:
        return Engine(self.bucket, self.kafka).run(run, offsets, **({"limits": {"records_per_slice": 100}} | settings))

    def inspects(self, action: str, run: str, offsets: Any = "incremental", **settings: Any) -> Verification:
        """As a run of another action, of which nothing but the objects that it creates may be new."""
        store = FaultyStore(self.bucket)
        result = Engine(store, self.kafka).run(run, offsets, action=action, **settings)
        found = result.verification
        assert found is not None
        assert {(r.operation, r.key) for r in store.writes()} == {("put_new", key) for key in found.restored}
        assert result.wrote == bool(found.restored)
        return found

    def keys(self, prefix: str = DATA) -> list[str]:
        return [info.key for info in self.bucket.list(prefix)]

    def of_run(self, run: str) -> list[str]:
        """Keys of the objects of a run."""
        log = Engine(self.bucket, self.kafka).log
        found: list[str] = []
        for batch in self.run(run, "data_interval", window=(0, 1)).batches:
            decision = log.read_manifest(batch.batch)
            assert decision is not None
            found += [entry.key for entry in decision.objects]
        return found

    def body(self, key: str) -> bytes:
        found = self.bucket.get(key)
        assert found is not None
        return found.body

    def replace(self, key: str, body: bytes | None = None, **metadata: str) -> None:
        """Replace an object; values that are not given are kept."""
        stored = self.bucket.get(key)
        assert stored is not None
        self.bucket.delete(key)
        self.bucket.put_new(key, stored.body if body is None else body, metadata={**stored.metadata, **metadata})

    def check(self) -> None:
        check_landed(self.bucket, self.kafka, recovered=True, complete=True)


@pytest.fixture
def pipeline() -> Pipeline:
    """Three hours, landed."""
    return Pipeline()


def stored(pipeline: Pipeline, names: Sequence[str]) -> dict[str, StoredObject | None]:
    """Objects by key."""
    return {key: pipeline.bucket.get(key) for key in names}


# -- verify -----------------------------------------------------------------------------------------------------------


def test_verify_reads_every_object_of_a_run_and_writes_nothing(pipeline: Pipeline) -> None:
    """It counts what it read: the objects of the run's batches, byte for byte."""
    mine = pipeline.of_run("hour-1")
    before = snapshot(pipeline.bucket)
    found = pipeline.inspects("verify", "hour-1", "data_interval", window=(10, 20))
    size = sum(len(s.body) for s in stored(pipeline, mine).values() if s is not None)
    assert found == Verification(objects=len(mine), size=size)
    check_unchanged(before, snapshot(pipeline.bucket))


def test_verify_of_a_new_run_reads_a_window_that_others_landed(pipeline: Pipeline) -> None:
    """By time or by offsets; objects beside the window are left alone, also those of the same batches."""
    pipeline.run("late", "data_interval", window=(0, 30))
    by_time = pipeline.inspects("verify", "new", "data_interval", window=(0, 20))
    assert by_time.objects == len({*pipeline.of_run("hour-0"), *pipeline.of_run("hour-1")})
    store = FaultyStore(pipeline.bucket)
    result = Engine(store, pipeline.kafka).run("new", "data_interval", window={0: (0, 2)}, action="verify")
    read = {r.key for r in store.requests if r.operation == "get" and r.key.startswith(DATA)}
    assert read
    assert all("+0+00000000" in key for key in read)
    assert result.target == Offsets({0: [(0, 2)]})
    assert [b.batch for b in result.batches] == [1]


def test_verify_of_an_incremental_run_reads_what_that_run_landed_and_a_new_one_reads_everything(
    pipeline: Pipeline,
) -> None:
    """The run record has its target; without one, the window is all landed offsets."""
    pipeline.kafka.append(TOPIC, 0, b"0/15", 40)
    pipeline.run("later")
    assert pipeline.inspects("verify", "later").objects == 1
    assert pipeline.inspects("verify", "new").objects == len(pipeline.keys())


def test_verify_before_anything_is_landed_finds_nothing_and_leaves_no_marker() -> None:
    """Not even the owner document is created."""
    pipeline = Pipeline(land=False)
    assert pipeline.inspects("verify", "new") == Verification(objects=0, size=0)
    by_time = pipeline.inspects("verify", "new", "data_interval", window=(0, 4))
    assert by_time.uncovered == Offsets({0: [(0, 4)], 1: [(0, 4)]})
    assert pipeline.keys("") == []


def test_verify_reports_what_of_a_window_is_not_landed(caplog: pytest.LogCaptureFixture) -> None:
    """In the result and in the log; it is not an error, and neither verify nor restore lands it."""
    pipeline = Pipeline(land=False)
    pipeline.run("hour-0", "data_interval", window=(0, 10))
    before = snapshot(pipeline.bucket)
    for action in ("verify", "restore"):
        with caplog.at_level(logging.WARNING):
            found = pipeline.inspects(action, "new", "data_interval", window={0: (0, 9), 1: (0, 5)})
        assert found.uncovered == Offsets({0: [(5, 9)]})
        assert found.objects == len(pipeline.keys())
    assert "not landed of the window: 4 offsets: 0: [5, 9)" in caplog.text
    check_unchanged(before, snapshot(pipeline.bucket))


def test_verify_names_missing_objects_and_both_remedies(pipeline: Pipeline) -> None:
    """The first ten, and how many there are beside them."""
    gone = pipeline.of_run("hour-2")
    for key in gone:
        pipeline.bucket.delete(key)
    with pytest.raises(
        MissingObjectError, match=rf"{len(gone)} objects .*action.:.restore.*on_missing='ignore'"
    ) as caught:
        pipeline.inspects("verify", "hour-2", "data_interval", window=(20, 30))
    assert all(key in str(caught.value) for key in gone)
    found = pipeline.inspects("verify", "hour-2", "data_interval", window=(20, 30), on_missing="ignore")
    assert (sorted(found.missing), found.objects) == (sorted(gone), 0)


def test_an_error_names_ten_objects_and_counts_the_others() -> None:
    """A message stays readable, however many are gone."""
    pipeline = Pipeline(land=False)
    pipeline.run("first", limits={"records_per_slice": 2})
    assert len(pipeline.keys()) > 12
    everything = pipeline.keys()
    for key in everything:
        pipeline.bucket.delete(key)
    with pytest.raises(MissingObjectError) as caught:
        pipeline.inspects("verify", "first")
    assert str(caught.value).count("s3://") == 10


DAMAGES: dict[str, Callable[[Pipeline, str], None]] = {
    "rotten": lambda w, key: w.replace(key, bytes(b ^ 1 for b in w.body(key))),
    "cut": lambda w, key: w.replace(key, b"x"),
    "another-batch": lambda w, key: w.replace(key, **{"kafka-s3-batch": "99"}),
    "another-nonce": lambda w, key: w.replace(key, **{"kafka-s3-nonce": "other"}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("action", ["verify", "restore"])
def test_an_object_with_other_content_is_named_and_never_overwritten(
    pipeline: Pipeline, damage: Callable[[Pipeline, str], None], action: str
) -> None:
    """Size, checksum and metadata are compared; other missing objects are restored nevertheless."""
    bad, gone, *_ = pipeline.of_run("hour-1")
    damage(pipeline, bad)
    before = pipeline.bucket.get(bad)
    pipeline.bucket.delete(gone)
    with pytest.raises(ForeignObjectError, match=r"Move what differs away.*action.:.restore") as caught:
        pipeline.inspects(action, "hour-1", "data_interval", window=(10, 20))
    assert bad in str(caught.value)
    assert pipeline.bucket.get(bad) == before
    assert (pipeline.bucket.get(gone) is not None) == (action == "restore")
    assert ("1 other object was written again" in str(caught.value)) == (action == "restore")
    assert (gone in str(caught.value)) == (action == "verify")


def test_a_large_object_is_read_in_pieces(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """So memory does not depend on the size of objects."""
    monkeypatch.setattr(inspection, "_PIECE", 5)
    ranges: list[tuple[Any, Any]] = []
    get = pipeline.bucket.get

    def count(key: str, *, start: int | None = None, end: int | None = None) -> Any:
        if start is not None:
            ranges.append((start, end))
        return get(key, start=start, end=end)

    monkeypatch.setattr(pipeline.bucket, "get", count)
    found = pipeline.inspects("verify", "new")
    assert len(ranges) > found.objects
    assert all(end - start <= 5 for start, end in ranges)
    assert sum(end - start for start, end in ranges) == found.size


def test_an_object_that_changes_while_it_is_read_is_a_transient_error(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of two objects prove nothing."""
    monkeypatch.setattr(inspection, "_PIECE", 5)
    key = pipeline.keys()[0]
    get = pipeline.bucket.get

    def change(name: str, *, start: int | None = None, end: int | None = None) -> Any:
        if name == key and start:
            pipeline.bucket.delete(key)
            pipeline.bucket.put_new(key, b"y" * 100)
        return get(name, start=start, end=end)

    monkeypatch.setattr(pipeline.bucket, "get", change)
    with pytest.raises(UnknownOutcomeError, match="changed while it was read"):
        pipeline.inspects("verify", "new")


def test_an_object_that_vanishes_while_it_is_read_is_missing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It existed at the HEAD request."""
    key = pipeline.keys()[0]
    get = pipeline.bucket.get

    def vanish(name: str, *, start: int | None = None, end: int | None = None) -> Any:
        if name == key:
            pipeline.bucket.delete(key)
        return get(name, start=start, end=end)

    monkeypatch.setattr(pipeline.bucket, "get", vanish)
    with pytest.raises(MissingObjectError, match=key.replace("+", r"\+")):
        pipeline.inspects("verify", "new")


def test_many_batches_are_read_in_groups(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the same for any number of objects, and manifests do not accumulate in memory."""
    everything = pipeline.inspects("verify", "new")
    monkeypatch.setattr(inspection, "_GROUP", 1)
    engine = Engine(pipeline.bucket, pipeline.kafka)
    assert engine.run("new", action="verify").verification == everything
    assert not any(name.endswith(".manifest.json") for name in engine.log._cache)


def test_times_deleted_by_retention_are_reported_and_offsets_still_work(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """It is unknown which landed offsets belong to a window of time: they are reported, not guessed."""
    for partition in (0, 1):
        pipeline.kafka.delete_records(TOPIC, partition, 8)
    with caplog.at_level(logging.WARNING):
        found = pipeline.inspects("verify", "new", "data_interval", window=(0, 10))
    assert (found.objects, found.undated) == (0, Offsets({0: [(0, 8)], 1: [(0, 8)]}))
    assert "Give offsets instead of times" in caplog.text
    assert pipeline.inspects("verify", "new", "data_interval", window=(20, 30)).undated == NO_OFFSETS
    mine = pipeline.inspects("verify", "hour-0", "data_interval", window=(0, 10))
    assert mine.objects == len(pipeline.of_run("hour-0"))
    pipeline.kafka.delete_topic(TOPIC)
    by_offsets = pipeline.inspects("verify", "new", "data_interval", window={0: (0, 15), 1: (0, 15)})
    assert by_offsets.objects == len(pipeline.keys())


def test_times_of_a_recreated_topic_are_refused_and_an_old_run_is_read_by_its_record(pipeline: Pipeline) -> None:
    """Offsets of the new incarnation are others; after the reset each run is held against its own generation."""
    pipeline.kafka.create_topic(TOPIC, 2)
    with pytest.raises(TopicRecreatedError):
        pipeline.inspects("verify", "new", "data_interval", window=(0, 30))
    reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="me")
    assert pipeline.inspects("verify", "hour-0", "data_interval", window=(0, 10)).objects == len(
        pipeline.of_run("hour-0")
    )
    assert pipeline.inspects("verify", "new") == Verification(objects=0, size=0)


def test_missing_documents_are_named(pipeline: Pipeline) -> None:
    """A missing marker or batch is an error."""
    plan = pipeline.bucket.get(addresses.plan_key(CONTROL, 1))
    assert plan is not None
    pipeline.bucket.delete(plan.key)
    with pytest.raises(LogTamperedError, match=r"the plan of batch 1 is gone.*0000000001\.plan\.json"):
        pipeline.inspects("verify", "new")
    pipeline.bucket.put_new(plan.key, plan.body)
    pipeline.bucket.delete(addresses.marker_key(CONTROL))
    with pytest.raises(MarkerMissingError):
        pipeline.inspects("verify", "new")
    for info in list(pipeline.bucket.list(f"{CONTROL}batches/")):
        pipeline.bucket.delete(info.key)
    with pytest.raises(MarkerMissingError):
        pipeline.inspects("verify", "hour-1", "data_interval", window=(10, 20))


# -- restore ----------------------------------------------------------------------------------------------------------


def test_restore_writes_what_is_missing_again_and_nothing_else(pipeline: Pipeline) -> None:
    """The same bytes at the same keys; control documents and other objects are as before; then verify succeeds."""
    mine = pipeline.of_run("hour-1")
    before, whole = stored(pipeline, mine), snapshot(pipeline.bucket)
    pipeline.bucket.delete(mine[0])
    pipeline.bucket.delete(mine[2])
    found = pipeline.inspects("restore", "hour-1", "data_interval", window=(10, 20))
    assert (sorted(found.restored), found.objects) == (sorted([mine[0], mine[2]]), len(mine))
    for key, was in before.items():
        now = pipeline.bucket.get(key)
        assert was is not None
        assert now is not None
        assert now.body == was.body
    again = {key: etag for key, etag in snapshot(pipeline.bucket).items() if key not in found.restored}
    check_unchanged({key: etag for key, etag in whole.items() if key not in found.restored}, again)
    assert pipeline.inspects("verify", "hour-1", "data_interval", window=(10, 20)).objects == len(mine)
    assert pipeline.inspects("restore", "hour-1", "data_interval", window=(10, 20)).restored == ()
    pipeline.check()


def test_restore_reads_a_slice_once_for_all_its_objects(pipeline: Pipeline) -> None:
    """Four objects of two slices: two reads."""
    for key in pipeline.of_run("hour-1"):
        pipeline.bucket.delete(key)
    before = pipeline.polls
    assert len(pipeline.inspects("restore", "hour-1", "data_interval", window=(10, 20)).restored) == 4
    assert pipeline.polls - before == 2
    pipeline.check()


def test_restore_names_what_retention_has_deleted_and_restores_the_rest(pipeline: Pipeline) -> None:
    """Keys, partition and offsets; both remedies; the other objects are restored."""
    lost = [key for key in pipeline.of_run("hour-0") if f"{TOPIC}+0+" in key]
    everything = pipeline.keys()
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    for key in everything:
        pipeline.bucket.delete(key)
    with pytest.raises(BatchLossError, match=r"partition 0, offsets \d to \d, .*on_missing='ignore'") as caught:
        pipeline.inspects("restore", "new")
    assert all(key in str(caught.value) for key in lost)
    assert sorted(pipeline.keys()) == sorted(set(everything) - set(lost))
    assert f"{len(everything) - len(lost)} other objects were written again" in str(caught.value)


def test_restore_keeps_an_object_that_was_created_meanwhile(pipeline: Pipeline) -> None:
    """Between the check and the write another process wrote an object."""
    gone = pipeline.of_run("hour-1")[0]
    pipeline.bucket.delete(gone)

    class ConcurrentWriter(FaultyStore):
        def put_new(self, key: str, body: bytes, *, metadata: Any = None, tags: Any = None) -> str:
            self.store.put_new(key, b"mine")
            return super().put_new(key, body, metadata=metadata, tags=tags)

    with pytest.raises(ForeignObjectError, match="another object was written there meanwhile"):
        Engine(ConcurrentWriter(pipeline.bucket), pipeline.kafka).run("new", action="restore")
    now = pipeline.bucket.get(gone)
    assert now is not None
    assert now.body == b"mine"


def test_an_accepted_loss_is_neither_missing_nor_restored() -> None:
    """A person recorded it; the result counts it."""
    pipeline = Pipeline(land=False)
    crash_after("*.manifest.json", pipeline.bucket, pipeline.kafka, "died", limits={"records_per_slice": 100})
    pipeline.bucket.expire_uploads()
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    accepted = accept_loss(Engine(pipeline.bucket, pipeline.kafka).committer, 1, reason="gone", operator="me")
    assert accepted
    repair(Engine(pipeline.bucket, pipeline.kafka).committer, start={0: 0})
    for action in ("verify", "restore"):
        found = pipeline.inspects(action, "died")
        assert (sorted(found.accepted), found.objects) == (sorted(accepted), len(pipeline.keys()))


@dataclass
class _Otherwise:
    """An object that another version of a library wrote: the same records, other bytes."""

    built: BuiltObject
    engine: Engine
    key: str

    content = property(lambda self: self.built.content)
    digest = property(lambda self: self.built.digest)
    size = property(lambda self: self.built.size)
    crc32 = property(lambda self: "deadbeef")

    def put(self, metadata: dict[str, str]) -> None:
        assert metadata[CRC32_METADATA] == "deadbeef"
        body = b"z" * self.size
        checksum = f"{inspection.isal_zlib.crc32(body):08x}"
        self.engine.store.create(self.key, body, {**metadata, CRC32_METADATA: checksum})


def test_other_bytes_of_the_same_records_are_verified_by_their_own_checksum(pipeline: Pipeline) -> None:
    """An object that was written again bears the checksum of what was written."""
    gone = pipeline.of_run("hour-1")[0]
    pipeline.bucket.delete(gone)
    engine = Engine(
        pipeline.bucket,
        pipeline.kafka,
        build=lambda store: lambda *what: {key: _Otherwise(b, engine, key) for key, b in builder(store)(*what).items()},
    )
    engine.run("new", action="restore")
    assert pipeline.inspects("verify", "new").objects == len(pipeline.keys())
    pipeline.replace(gone, b"y" * len(pipeline.body(gone)))
    with pytest.raises(ForeignObjectError, match="CRC32"):
        pipeline.inspects("verify", "new")


# -- land, over a window that others landed -------------------------------------------------------------------------


def test_a_new_run_over_a_landed_window_checks_its_objects(pipeline: Pipeline) -> None:
    """It fails if one is gone, with both remedies, and can ignore or restore it."""
    mine = [*pipeline.of_run("hour-0"), *pipeline.of_run("hour-1")]
    window: dict[str, Any] = {"offsets": "data_interval", "window": (0, 20)}
    store = FaultyStore(pipeline.bucket)
    result = Engine(store, pipeline.kafka).run("new", **window)
    assert (result.verified, result.wrote, result.verification) == (len(mine), False, None)
    assert store.writes() == []
    pipeline.bucket.delete(mine[1])
    with pytest.raises(MissingObjectError, match=r"action.:.restore.*on_missing='ignore'") as caught:
        pipeline.run("new", **window)
    assert mine[1] in str(caught.value)
    assert pipeline.run("new", "data_interval", window=(20, 30)).status == "ok"
    assert pipeline.run("new", **window, on_missing="ignore").verified == len(mine) - 1
    restored = pipeline.run("new", **window, on_missing="restore")
    assert (restored.verified, restored.wrote) == (len(mine), True)
    pipeline.check()


# -- when requests go wrong -------------------------------------------------------------------------------------------

FAULTS = [
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.LOST_RESPONSE,
    Fault.SENT_TWICE,
    Fault.TIMEOUT,
    Fault.LATE,
    Fault.THROTTLED_AFTER_APPLY,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.lower())
def test_after_a_fault_at_any_request_of_a_restore_the_next_one_ends_it(fault: Fault) -> None:
    """One fault at each request in turn; afterwards every object exists once, and verify finds nothing."""
    number = 0
    while True:
        number += 1
        pipeline = Pipeline()
        whole = pipeline.keys()
        for key in whole[::2]:
            pipeline.bucket.delete(key)
        store = FaultyStore(pipeline.bucket, choose=lambda r, n=number: fault if r.number == n else None)  # type: ignore[misc]
        with contextlib.suppress(SimulatedCrash, TransientError):
            Engine(store, pipeline.kafka).run("new", action="restore")
        assert {r.operation for r in store.writes()} <= {"put_new"}
        pipeline.inspects("restore", "new")
        store.apply_late()
        assert pipeline.keys() == whole
        assert pipeline.inspects("verify", "new").objects == len(whole)
        pipeline.check()
        if len(store.requests) < number:
            break
    assert number > 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.lower())
def test_verify_writes_nothing_whatever_goes_wrong(pipeline: Pipeline, fault: Fault) -> None:
    """One fault at each request in turn, of an intact bucket and of one where objects are gone."""
    before = snapshot(pipeline.bucket)
    number = 0
    while True:
        number += 1
        store = FaultyStore(pipeline.bucket, choose=lambda r, n=number: fault if r.number == n else None)  # type: ignore[misc]
        with contextlib.suppress(SimulatedCrash, TransientError, TerminalError):
            Engine(store, pipeline.kafka).run("new", action="verify")
        assert store.writes() == []
        check_unchanged(before, snapshot(pipeline.bucket))
        if len(store.requests) < number:
            break
    assert number > 20


def test_debt_and_claims_between_landed_offsets_are_no_gaps_in_the_status() -> None:
    """A gap is what no run has claimed: these are landed by the next one, or by that which has planned them."""
    kafka = SimulatedKafka()
    topic_id = kafka.create_topic(TOPIC)
    log = Engine(MemoryStore(), kafka).log
    covered = ((0, 2), (4, 6), (8, 10), (12, 14))
    state = {0: PartitionState(covered=covered, debt=((2, 4),))}
    marker = Marker(topic=TOPIC, cluster_id="", topic_id=topic_id, start={0: 0}, partitions=state)
    log.create_marker(marker, data_prefix=DATA)
    log.create_plan(data_plan(LAYOUT, slices_of((0, 6, 8)), topic=TOPIC, topic_id=topic_id))
    (partition,) = topic_status(log, None).partitions
    assert (partition.gaps, partition.debt, partition.open) == (((10, 12),), ((2, 4),), ((6, 8),))
