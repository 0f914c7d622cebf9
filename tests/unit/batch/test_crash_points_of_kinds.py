"""Objects of keys, headers, null values and dead letters, and stored schemas: a fault at any request, then recovery.

One topic has all of them. The engine, the encoders and the retries are the product's.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch import execute
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import Limits
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ForeignObjectError,
    MissingObjectError,
    TerminalError,
    TransientError,
)
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.maintenance.repair import GoneRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket, check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from airflow_provider_kafka_s3.testing.stores import CONDITIONAL, Fault, FaultyStore, Request, SimulatedCrash
from tests.kinds import KINDS, SCHEMAS, Landed, registry_of
from tests.protocol.engine import in_turn
from tests.unit.batch.test_crash_points import EVERY, FAULTS, before_first

TOPICS_DIR, PIPELINE, TOPIC = "lake", "pipeline", "events"
CONTROL = addresses.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)
FOLDER = f"{TOPICS_DIR}/{TOPIC}/"
TOGETHER = KINDS["together"]
LAYOUT = TOGETHER.layout(TOPICS_DIR)
DAYS = 86_400.0

KEYS = f"{FOLDER}partition=0/{TOPIC}+0+0000000000.keys.json"
HEADERS = f"{FOLDER}partition=0/{TOPIC}+0+0000000000.headers.avro"
VALUES = f"{FOLDER}partition=0/{TOPIC}+0+0000000000.parquet"
NULL_KEYS = f"{FOLDER}tombstone/{TOPIC}+0+0000000001.keys.json"
NULL_HEADERS = f"{FOLDER}tombstone/{TOPIC}+0+0000000001.headers.avro"
DEAD = f"{FOLDER}_dead_letters/{TOPIC}+0+0000000002.json"
FIRST_SLICE = {KEYS, HEADERS, VALUES, NULL_KEYS, NULL_HEADERS, DEAD}


@pytest.fixture(autouse=True)
def _slices_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests in an order that is the same each time."""
    monkeypatch.setattr(execute, "in_threads", in_turn)


class World:
    """A bucket, a cluster and a registry, with a topic."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka(records_per_poll=2)
        self.kafka.create_topic(TOPIC)
        self.registry = registry_of()
        self.bucket = MemoryStore(clock=lambda: 0.0)
        self.records: list[Landed] = []

    def fill(self, count: int = 6) -> None:
        """Append records, a third of them null and a third invalid."""
        for number in range(count):
            at = self.kafka.bounds(TOPIC, 0)[1]
            value = TOGETHER.value(number, {"at": at, "of": TOPIC, "padding": ""}, version=number // 3)
            key, headers = f"key {at}", [("trace", f"{at}")] * (number % 3)
            sent = [(name, text.encode()) for name, text in headers]
            self.kafka.append(TOPIC, 0, value, timestamp=at, key=key.encode(), headers=sent)
            self.records.append(TOGETHER.landed(key, value, headers))

    def process(self, store: ObjectStore | None = None, registry: SchemaSource | None = None) -> TopicPipeline:
        """A new process."""
        waiting = Retrier(sleep=lambda _: None)
        return TopicPipeline(
            DurableStore(store or self.bucket, waiting),
            self.kafka,
            topics_dir=TOPICS_DIR,
            pipeline=PIPELINE,
            topic=TOPIC,
            registry=registry or self.registry,
            parallel=in_turn,
            sleep=lambda _: None,
            now=lambda: 8 * DAYS,
        )

    def request(self, run: str, **settings: Any) -> RunRequest:
        """An incremental run of one batch."""
        defaults: Mapping[str, Any] = {
            "offsets": "incremental",
            "layout": LAYOUT,
            "starting": "earliest",
            "limits": Limits(records_per_slice=100),
            "adopt_wait": 0.0,
        }
        return RunRequest(run=run, **{**defaults, **settings})

    def land(self, run: str, **settings: Any) -> TopicResult:
        """A run without faults."""
        return self.process().land(self.request(run, **settings))

    def dies(self, operation: str, key: str, fault: Fault = Fault.CRASH_BEFORE, *, run: str = "died") -> None:
        """A run whose process ends at its first request of a kind."""
        store = faulty(self.bucket, fault, lambda r: r.operation == operation and fnmatch.fnmatchcase(r.key, key))
        with pytest.raises(SimulatedCrash):
            self.process(store).land(self.request(run))

    def pending(self) -> set[str]:
        """Keys of the pending uploads."""
        return {upload.key for upload in self.bucket.pending_uploads(FOLDER)}

    def objects(self) -> dict[str, bytes]:
        """Data objects and dead letters."""
        found = {info.key: self.bucket.get(info.key) for info in self.bucket.list(FOLDER)}
        return {key: stored.body for key, stored in found.items() if stored is not None}

    def check(self) -> None:
        """All records are landed once: values, keys, headers and dead letters; nothing is open."""
        check_bucket(
            self.bucket,
            topics_dir=TOPICS_DIR,
            pipeline=PIPELINE,
            topic=TOPIC,
            source=self.kafka.all_records(),
            decoder=TOGETHER.values,
            as_written=TOGETHER.as_written,
            recovered=True,
            complete=True,
        )
        TOGETHER.check_whole(LAYOUT, TOPIC, self.objects(), lambda: self.records)


def faulty(bucket: MemoryStore, fault: Fault, matches: Callable[[Request], bool]) -> FaultyStore:
    """A store with a fault at the first request that matches; a process that has ended sends nothing more."""
    struck: list[Request] = []

    def choose(request: Request) -> Fault | None:
        if struck:
            return Fault.CRASH_BEFORE if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER) else None
        if not matches(request) or (fault is Fault.CONFLICT and request.operation not in CONDITIONAL):
            return None
        struck.append(request)
        return fault

    return FaultyStore(bucket, choose=choose)


@pytest.mark.parametrize(
    ("fault", "retry"),
    [
        *((fault, "first") for fault in FAULTS),
        *((fault, "other") for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LATE)),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else f"{value}-run",
)
def test_after_a_fault_at_any_request_every_part_of_every_record_is_landed_once(fault: Fault, retry: str) -> None:
    """One fault at every fourth request of a run in turn, then the same run again or another one.

    Faults begin at different requests; `make faults` has all.
    """
    number = before_first(fault, retry)
    while True:
        number += EVERY
        world = World()
        world.fill(3)
        store = faulty(world.bucket, fault, lambda r, n=number: r.number == n)  # type: ignore[misc]
        with contextlib.suppress(SimulatedCrash, TerminalError, TransientError):
            world.process(store).land(world.request("first"))
        result = world.land(retry)
        store.apply_late()
        assert result.status == "ok" or retry == "other"
        world.process().recover(operator="me")
        world.check()
        before = snapshot(world.bucket)
        assert not world.land("first").wrote
        check_unchanged(before, snapshot(world.bucket))
        if len(store.requests) < number:
            break
    assert number > 40


@pytest.mark.parametrize("key", sorted(FIRST_SLICE), ids=lambda key: key.removeprefix(FOLDER))
@pytest.mark.parametrize("uploads", ["pending", "expired"])
def test_a_process_that_ends_between_the_objects_of_a_record_leaves_nothing_out(key: str, uploads: str) -> None:
    """The rest is completed from the uploads, or written again from Kafka with the same bytes."""
    whole = World()
    whole.fill()
    whole.land("whole")
    world = World()
    world.fill()
    world.dies("complete_upload", key)
    assert key not in world.objects()
    assert key in world.pending()
    if uploads == "expired":
        world.bucket.expire_uploads()

    assert world.land("died").status == "ok"

    assert world.objects() == whole.objects()
    assert world.pending() == set()
    world.check()


@pytest.mark.parametrize("gone", ["one", "all"])
@pytest.mark.parametrize("decision", ["stay gone", "written again"])
def test_repair_leaves_it_to_a_person_whether_objects_beside_others_stay_gone(gone: str, decision: str) -> None:
    """The marker is lost, and with it an object of keys, or all objects but those of values."""
    world = World()
    world.fill()
    world.land("first")
    before = world.objects()
    lost = {KEYS} if gone == "one" else FIRST_SLICE - {VALUES}
    for key in (*lost, addresses.marker_key(CONTROL)):
        world.bucket.delete(key)

    (found,) = world.process().repair(start={}).ambiguous
    assert {*found.keys} == lost
    stay = GoneRule(before=1.0, reason="a test", operator="me")
    repaired = world.process().repair(start={}, rule=stay if decision == "stay gone" else GoneRule(restore=True))

    assert repaired.written
    world.land("first", on_missing="ignore")
    assert world.objects().keys() == before.keys() - (lost if decision == "stay gone" else set())
    if decision == "written again":
        assert world.objects() == before
        world.check()


@pytest.mark.parametrize("key", sorted(FIRST_SLICE), ids=lambda key: key.removeprefix(FOLDER))
def test_verify_finds_each_kind_of_object_that_is_missing_or_changed(key: str) -> None:
    """A missing one is written again with the same bytes; a changed one is named and left alone."""
    world = World()
    world.fill()
    world.land("first")
    stored = world.bucket.get(key)
    assert stored is not None

    world.bucket.delete(key)
    with pytest.raises(MissingObjectError, match=re.escape(key)):
        world.process().run(world.request("check", action="verify")).advance()
    with pytest.raises(MissingObjectError, match=re.escape(key)):
        world.land("first")
    world.process().run(world.request("check", action="restore")).advance()
    world.check()
    assert world.objects()[key] == stored.body

    world.bucket.delete(key)
    changed = bytes([stored.body[0] ^ 1]) + stored.body[1:]
    world.bucket.put_new(key, changed, metadata=stored.metadata)
    for action in ("verify", "restore"):
        with pytest.raises(ForeignObjectError, match=re.escape(key)):
            world.process().run(world.request("check", action=action)).advance()
    assert world.objects()[key] == changed


def test_uploads_of_a_process_that_ended_before_its_decision_are_collected_whatever_they_hold() -> None:
    """Those of keys, headers, null values and dead letters; those of a decided batch are kept."""
    world = World()
    world.fill()
    world.dies("put_new", "*.manifest.json")
    left = world.pending()
    assert left >= FIRST_SLICE
    assert {upload.key for upload in world.process().find_garbage(older_than=7 * DAYS).needed} == left
    # The retry uploads everything again.
    assert world.land("died").status == "ok"

    found = world.process().find_garbage(older_than=7 * DAYS)
    assert {upload.key for upload in found.garbage} == left
    assert (found.needed, found.foreign, found.young) == ((), (), ())
    gc.collect(world.process().log, found)
    assert world.pending() == set()
    world.check()

    world.fill()
    world.dies("put_new", "*.manifest.json", Fault.CRASH_AFTER, run="next")
    found = world.process().find_garbage(older_than=7 * DAYS)
    assert found.garbage == ()
    assert {upload.key for upload in found.needed} == world.pending() != set()
    assert world.land("next").status == "ok"
    world.check()


class Meanwhile:
    """A registry; before its first answer something else happens."""

    def __init__(self, registry: SimulatedRegistry, event: Callable[[], object]) -> None:
        self._registry, self._event = registry, [event]

    def schema(self, schema_id: int) -> RegisteredSchema:
        found = self._registry.schema(schema_id)
        if self._event:
            self._event.pop()()
        return found

    def address(self, schema_id: int) -> str:
        return self._registry.address(schema_id)


def replaced_registry() -> SimulatedRegistry:
    """The same ids, with names of fields that are other ones."""
    registry = SimulatedRegistry()
    for text in SCHEMAS:
        registry.register(text.replace('"padding"', '"other"'))
    return registry


def test_of_two_processes_with_different_registries_the_first_that_stores_a_schema_decides_for_both() -> None:
    """Whichever of them decides the batch, and writes lost objects again."""
    world = World()
    world.fill()
    plan = world.process().run(world.request("run")).advance()
    assert isinstance(plan, Plan)

    def other_runs() -> None:
        """It stores the schemas and ends before its decision."""
        world.dies("put_new", "*.manifest.json")

    late = world.process(registry=Meanwhile(replaced_registry(), other_runs))
    late.execute(plan, run="run")
    world.check()
    first = world.objects()

    for key in first:
        world.bucket.delete(key)
    later = world.process(registry=replaced_registry())
    later.run(world.request("restore", action="restore")).advance()
    assert world.objects() == first
    world.check()


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_RESPONSE, Fault.LATE])
def test_a_process_that_ends_while_it_stores_a_schema_leaves_a_whole_one_or_none(fault: Fault) -> None:
    """A registry that was replaced before the retry decides only what was not stored."""
    world = World()
    world.fill()
    store = faulty(world.bucket, fault, lambda r: r.operation == "put_new" and "/schemas/2.json" in r.key)
    with contextlib.suppress(SimulatedCrash):
        world.process(store).land(world.request("run"))
    stored = {info.key.removeprefix(CONTROL) for info in world.bucket.list(f"{CONTROL}schemas/")}
    assert ("schemas/2.json" in stored) == (fault is not Fault.CRASH_BEFORE)
    if fault is Fault.CRASH_BEFORE:
        assert world.land("run").status == "ok"
    else:
        assert world.process(registry=replaced_registry()).land(world.request("run")).status == "ok"
    store.apply_late()
    world.check()
