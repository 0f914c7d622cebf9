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
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import StoredObject
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import CONTROL, TOPIC, TOPICS_DIR, Engine, builder, check_landed, crash_after

DATA = f"{TOPICS_DIR}/{TOPIC}/"


class World:
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
        """Replace an object; values that are not given stay."""
        stored = self.bucket.get(key)
        assert stored is not None
        self.bucket.delete(key)
        self.bucket.put_new(key, stored.body if body is None else body, metadata={**stored.metadata, **metadata})

    def check(self) -> None:
        check_landed(self.bucket, self.kafka, recovered=True, complete=True)


@pytest.fixture
def world() -> World:
    """Three hours, landed."""
    return World()


def stored(world: World, names: Sequence[str]) -> dict[str, StoredObject | None]:
    """Objects by key."""
    return {key: world.bucket.get(key) for key in names}


# -- verify -----------------------------------------------------------------------------------------------------------


def test_verify_reads_every_object_of_a_run_and_writes_nothing(world: World) -> None:
    """It counts what it read: the objects of the run's batches, byte for byte."""
    mine = world.of_run("hour-1")
    before = snapshot(world.bucket)
    found = world.inspects("verify", "hour-1", "data_interval", window=(10, 20))
    size = sum(len(s.body) for s in stored(world, mine).values() if s is not None)
    assert found == Verification(objects=len(mine), size=size)
    check_unchanged(before, snapshot(world.bucket))


def test_verify_of_a_new_run_reads_a_window_that_others_landed(world: World) -> None:
    """By time or by offsets; objects beside the window are left alone, also those of the same batches."""
    world.run("late", "data_interval", window=(0, 30))
    by_time = world.inspects("verify", "new", "data_interval", window=(0, 20))
    assert by_time.objects == len({*world.of_run("hour-0"), *world.of_run("hour-1")})
    store = FaultyStore(world.bucket)
    result = Engine(store, world.kafka).run("new", "data_interval", window={0: (0, 2)}, action="verify")
    read = {r.key for r in store.requests if r.operation == "get" and r.key.startswith(DATA)}
    assert read
    assert all("+0+00000000" in key for key in read)
    assert result.target == Offsets({0: [(0, 2)]})
    assert [b.batch for b in result.batches] == [1]


def test_verify_of_an_incremental_run_reads_what_that_run_landed_and_a_new_one_reads_everything(world: World) -> None:
    """The run record has its target; without one, the window is all landed offsets."""
    world.kafka.append(TOPIC, 0, b"0/15", 40)
    world.run("later")
    assert world.inspects("verify", "later").objects == 1
    assert world.inspects("verify", "new").objects == len(world.keys())


def test_verify_before_anything_is_landed_finds_nothing_and_leaves_no_marker() -> None:
    """Not even the owner document is created."""
    world = World(land=False)
    assert world.inspects("verify", "new") == Verification(objects=0, size=0)
    by_time = world.inspects("verify", "new", "data_interval", window=(0, 4))
    assert by_time.uncovered == Offsets({0: [(0, 4)], 1: [(0, 4)]})
    assert world.keys("") == []


def test_verify_reports_what_of_a_window_is_not_landed(caplog: pytest.LogCaptureFixture) -> None:
    """In the result and in the log; it is not an error, and neither verify nor restore lands it."""
    world = World(land=False)
    world.run("hour-0", "data_interval", window=(0, 10))
    before = snapshot(world.bucket)
    for action in ("verify", "restore"):
        with caplog.at_level(logging.WARNING):
            found = world.inspects(action, "new", "data_interval", window={0: (0, 9), 1: (0, 5)})
        assert found.uncovered == Offsets({0: [(5, 9)]})
        assert found.objects == len(world.keys())
    assert "4 offsets of the window are not landed: 0: [5, 9)" in caplog.text
    check_unchanged(before, snapshot(world.bucket))


def test_verify_names_missing_objects_and_both_remedies(world: World) -> None:
    """The first ten, and how many there are beside them."""
    gone = world.of_run("hour-2")
    for key in gone:
        world.bucket.delete(key)
    with pytest.raises(
        MissingObjectError, match=rf"{len(gone)} objects .*action='restore'.*on_missing='ignore'"
    ) as caught:
        world.inspects("verify", "hour-2", "data_interval", window=(20, 30))
    assert all(key in str(caught.value) for key in gone)
    found = world.inspects("verify", "hour-2", "data_interval", window=(20, 30), on_missing="ignore")
    assert (sorted(found.missing), found.objects) == (sorted(gone), 0)


def test_an_error_names_ten_objects_and_counts_the_others() -> None:
    """A message stays readable, however many are gone."""
    world = World(land=False)
    world.run("first", limits={"records_per_slice": 2})
    assert len(world.keys()) > 12
    everything = world.keys()
    for key in everything:
        world.bucket.delete(key)
    with pytest.raises(MissingObjectError) as caught:
        world.inspects("verify", "first")
    assert str(caught.value).count("s3://") == 10


DAMAGES: dict[str, Callable[[World, str], None]] = {
    "rotten": lambda w, key: w.replace(key, bytes(b ^ 1 for b in w.body(key))),
    "cut": lambda w, key: w.replace(key, b"x"),
    "another-batch": lambda w, key: w.replace(key, **{"kafka-s3-batch": "99"}),
    "another-nonce": lambda w, key: w.replace(key, **{"kafka-s3-nonce": "other"}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("action", ["verify", "restore"])
def test_an_object_with_other_content_is_named_and_never_overwritten(
    world: World, damage: Callable[[World, str], None], action: str
) -> None:
    """Size, checksum and metadata are compared; other missing objects are restored nevertheless."""
    bad, gone, *_ = world.of_run("hour-1")
    damage(world, bad)
    before = world.bucket.get(bad)
    world.bucket.delete(gone)
    with pytest.raises(ForeignObjectError, match=r"Move them away, then run again with action='restore'") as caught:
        world.inspects(action, "hour-1", "data_interval", window=(10, 20))
    assert bad in str(caught.value)
    assert world.bucket.get(bad) == before
    assert (world.bucket.get(gone) is not None) == (action == "restore")
    assert ("1 other objects were written again" in str(caught.value)) == (action == "restore")
    assert (gone in str(caught.value)) == (action == "verify")


def test_a_large_object_is_read_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So memory does not depend on the size of objects."""
    monkeypatch.setattr(inspection, "_PIECE", 5)
    ranges: list[tuple[Any, Any]] = []
    get = world.bucket.get

    def count(key: str, *, start: int | None = None, end: int | None = None) -> Any:
        if start is not None:
            ranges.append((start, end))
        return get(key, start=start, end=end)

    monkeypatch.setattr(world.bucket, "get", count)
    found = world.inspects("verify", "new")
    assert len(ranges) > found.objects
    assert all(end - start <= 5 for start, end in ranges)
    assert sum(end - start for start, end in ranges) == found.size


def test_an_object_that_changes_while_it_is_read_is_a_transient_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of two objects prove nothing."""
    monkeypatch.setattr(inspection, "_PIECE", 5)
    key = world.keys()[0]
    get = world.bucket.get

    def change(name: str, *, start: int | None = None, end: int | None = None) -> Any:
        if name == key and start:
            world.bucket.delete(key)
            world.bucket.put_new(key, b"y" * 100)
        return get(name, start=start, end=end)

    monkeypatch.setattr(world.bucket, "get", change)
    with pytest.raises(UnknownOutcomeError, match="changed while it was read"):
        world.inspects("verify", "new")


def test_an_object_that_vanishes_while_it_is_read_is_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It existed at the HEAD request."""
    key = world.keys()[0]
    get = world.bucket.get

    def vanish(name: str, *, start: int | None = None, end: int | None = None) -> Any:
        if name == key:
            world.bucket.delete(key)
        return get(name, start=start, end=end)

    monkeypatch.setattr(world.bucket, "get", vanish)
    with pytest.raises(MissingObjectError, match=key.replace("+", r"\+")):
        world.inspects("verify", "new")


def test_many_batches_are_read_in_groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the same for any number of objects, and manifests do not accumulate in memory."""
    everything = world.inspects("verify", "new")
    monkeypatch.setattr(inspection, "_GROUP", 1)
    engine = Engine(world.bucket, world.kafka)
    assert engine.run("new", action="verify").verification == everything
    assert not any(name.endswith(".manifest.json") for name in engine.log._cache)


def test_times_deleted_by_retention_are_reported_and_offsets_still_work(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It is unknown which landed offsets belong to a window of time: they are reported, not guessed."""
    for partition in (0, 1):
        world.kafka.delete_records(TOPIC, partition, 8)
    with caplog.at_level(logging.WARNING):
        found = world.inspects("verify", "new", "data_interval", window=(0, 10))
    assert (found.objects, found.undated) == (0, Offsets({0: [(0, 8)], 1: [(0, 8)]}))
    assert "Give offsets instead of times" in caplog.text
    assert world.inspects("verify", "new", "data_interval", window=(20, 30)).undated == NO_OFFSETS
    mine = world.inspects("verify", "hour-0", "data_interval", window=(0, 10))
    assert mine.objects == len(world.of_run("hour-0"))
    world.kafka.delete_topic(TOPIC)
    by_offsets = world.inspects("verify", "new", "data_interval", window={0: (0, 15), 1: (0, 15)})
    assert by_offsets.objects == len(world.keys())


def test_times_of_a_recreated_topic_are_refused_and_an_old_run_is_read_by_its_record(world: World) -> None:
    """Offsets of the new incarnation are others; after the reset each run is held against its own generation."""
    world.kafka.create_topic(TOPIC, 2)
    with pytest.raises(TopicRecreatedError):
        world.inspects("verify", "new", "data_interval", window=(0, 30))
    reset(Engine(world.bucket, world.kafka).committer, operator="me")
    assert world.inspects("verify", "hour-0", "data_interval", window=(0, 10)).objects == len(world.of_run("hour-0"))
    assert world.inspects("verify", "new") == Verification(objects=0, size=0)


def test_missing_documents_are_named(world: World) -> None:
    """A missing marker or batch is an error."""
    plan = world.bucket.get(keys.plan_key(CONTROL, 1))
    assert plan is not None
    world.bucket.delete(plan.key)
    with pytest.raises(LogTamperedError, match="no batch of the log covers them"):
        world.inspects("verify", "new")
    world.bucket.put_new(plan.key, plan.body)
    world.bucket.delete(keys.marker_key(CONTROL))
    with pytest.raises(MarkerMissingError):
        world.inspects("verify", "new")
    for info in list(world.bucket.list(f"{CONTROL}batches/")):
        world.bucket.delete(info.key)
    with pytest.raises(MarkerMissingError):
        world.inspects("verify", "hour-1", "data_interval", window=(10, 20))


# -- restore ----------------------------------------------------------------------------------------------------------


def test_restore_writes_what_is_missing_again_and_nothing_else(world: World) -> None:
    """The same bytes at the same keys; control documents and other objects are as before; then verify succeeds."""
    mine = world.of_run("hour-1")
    before, whole = stored(world, mine), snapshot(world.bucket)
    world.bucket.delete(mine[0])
    world.bucket.delete(mine[2])
    found = world.inspects("restore", "hour-1", "data_interval", window=(10, 20))
    assert (sorted(found.restored), found.objects) == (sorted([mine[0], mine[2]]), len(mine))
    for key, was in before.items():
        now = world.bucket.get(key)
        assert was is not None
        assert now is not None
        assert now.body == was.body
    again = {key: etag for key, etag in snapshot(world.bucket).items() if key not in found.restored}
    check_unchanged({key: etag for key, etag in whole.items() if key not in found.restored}, again)
    assert world.inspects("verify", "hour-1", "data_interval", window=(10, 20)).objects == len(mine)
    assert world.inspects("restore", "hour-1", "data_interval", window=(10, 20)).restored == ()
    world.check()


def test_restore_reads_a_slice_once_for_all_its_objects(world: World) -> None:
    """Four objects of two slices: two reads."""
    for key in world.of_run("hour-1"):
        world.bucket.delete(key)
    before = world.polls
    assert len(world.inspects("restore", "hour-1", "data_interval", window=(10, 20)).restored) == 4
    assert world.polls - before == 2
    world.check()


def test_restore_names_what_retention_has_deleted_and_restores_the_rest(world: World) -> None:
    """Keys, partition and offsets; both remedies; the other objects are restored."""
    lost = [key for key in world.of_run("hour-0") if f"{TOPIC}+0+" in key]
    everything = world.keys()
    world.kafka.delete_records(TOPIC, 0, 3)
    for key in everything:
        world.bucket.delete(key)
    with pytest.raises(BatchLossError, match=r"partition 0, offsets \d to \d, .*on_missing='ignore'") as caught:
        world.inspects("restore", "new")
    assert all(key in str(caught.value) for key in lost)
    assert sorted(world.keys()) == sorted(set(everything) - set(lost))
    assert f"{len(everything) - len(lost)} other objects were written again" in str(caught.value)


def test_restore_keeps_an_object_that_was_created_meanwhile(world: World) -> None:
    """Between the check and the write another process wrote an object."""
    gone = world.of_run("hour-1")[0]
    world.bucket.delete(gone)

    class ConcurrentWriter(FaultyStore):
        def put_new(self, key: str, body: bytes, *, metadata: Any = None) -> str:
            self.store.put_new(key, b"mine")
            return super().put_new(key, body, metadata=metadata)

    with pytest.raises(ForeignObjectError, match="came to lie there meanwhile"):
        Engine(ConcurrentWriter(world.bucket), world.kafka).run("new", action="restore")
    now = world.bucket.get(gone)
    assert now is not None
    assert now.body == b"mine"


def test_an_accepted_loss_is_neither_missing_nor_restored() -> None:
    """A person recorded it; the result counts it."""
    world = World(land=False)
    crash_after("*.manifest.json", world.bucket, world.kafka, "died", limits={"records_per_slice": 100})
    world.bucket.expire_uploads()
    world.kafka.delete_records(TOPIC, 0, 3)
    accepted = accept_loss(Engine(world.bucket, world.kafka).committer, 1, reason="gone", operator="me")
    assert accepted
    for action in ("verify", "restore"):
        found = world.inspects(action, "died")
        assert (sorted(found.accepted), found.objects) == (sorted(accepted), len(world.keys()))


@dataclass
class _Otherwise:
    """An object that another version of a library wrote: the same records, other bytes."""

    built: BuiltObject
    engine: Engine
    key: str

    content = property(lambda self: self.built.content)
    size = property(lambda self: self.built.size)
    crc32 = property(lambda self: "deadbeef")

    def put(self, metadata: dict[str, str]) -> None:
        assert metadata[CRC32_METADATA] == "deadbeef"
        body = b"z" * self.size
        checksum = f"{inspection.isal_zlib.crc32(body):08x}"
        self.engine.store.create(self.key, body, {**metadata, CRC32_METADATA: checksum})


def test_other_bytes_of_the_same_records_are_verified_by_their_own_checksum(world: World) -> None:
    """An object that was written again bears the checksum of what was written."""
    gone = world.of_run("hour-1")[0]
    world.bucket.delete(gone)
    engine = Engine(
        world.bucket,
        world.kafka,
        build=lambda store: lambda *what: {key: _Otherwise(b, engine, key) for key, b in builder(store)(*what).items()},
    )
    engine.run("new", action="restore")
    assert world.inspects("verify", "new").objects == len(world.keys())
    world.replace(gone, b"y" * len(world.body(gone)))
    with pytest.raises(ForeignObjectError, match="CRC32"):
        world.inspects("verify", "new")


# -- land, over a window that others landed -------------------------------------------------------------------------


def test_a_new_run_over_a_landed_window_checks_its_objects(world: World) -> None:
    """It fails if one is gone, with both remedies, and can ignore or restore it."""
    mine = [*world.of_run("hour-0"), *world.of_run("hour-1")]
    window: dict[str, Any] = {"offsets": "data_interval", "window": (0, 20)}
    store = FaultyStore(world.bucket)
    result = Engine(store, world.kafka).run("new", **window)
    assert (result.verified, result.wrote, result.verification) == (len(mine), False, None)
    assert store.writes() == []
    world.bucket.delete(mine[1])
    with pytest.raises(MissingObjectError, match=r"action='restore'.*on_missing='ignore'") as caught:
        world.run("new", **window)
    assert mine[1] in str(caught.value)
    assert world.run("new", "data_interval", window=(20, 30)).status == "ok"
    assert world.run("new", **window, on_missing="ignore").verified == len(mine) - 1
    restored = world.run("new", **window, on_missing="restore")
    assert (restored.verified, restored.wrote) == (len(mine), True)
    world.check()


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
        world = World()
        whole = world.keys()
        for key in whole[::2]:
            world.bucket.delete(key)
        store = FaultyStore(world.bucket, choose=lambda r, n=number: fault if r.number == n else None)  # type: ignore[misc]
        with contextlib.suppress(SimulatedCrash, TransientError):
            Engine(store, world.kafka).run("new", action="restore")
        assert {r.operation for r in store.writes()} <= {"put_new"}
        world.inspects("restore", "new")
        store.apply_late()
        assert world.keys() == whole
        assert world.inspects("verify", "new").objects == len(whole)
        world.check()
        if len(store.requests) < number:
            break
    assert number > 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.lower())
def test_verify_writes_nothing_whatever_goes_wrong(world: World, fault: Fault) -> None:
    """One fault at each request in turn, of an intact bucket and of one where objects are gone."""
    before = snapshot(world.bucket)
    number = 0
    while True:
        number += 1
        store = FaultyStore(world.bucket, choose=lambda r, n=number: fault if r.number == n else None)  # type: ignore[misc]
        with contextlib.suppress(SimulatedCrash, TransientError, TerminalError):
            Engine(store, world.kafka).run("new", action="verify")
        assert store.writes() == []
        check_unchanged(before, snapshot(world.bucket))
        if len(store.requests) < number:
            break
    assert number > 20
