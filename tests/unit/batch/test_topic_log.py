"""The log of a topic: its view, the creation of its marker, and the documents it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.exceptions import (
    CorruptControlError,
    LogTamperedError,
    MarkerMissingError,
    PipelineConflictError,
    UnsupportedStoreError,
)
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, Engine, check_landed, crash_after

MARKER = addresses.marker_key(CONTROL)


def kafka_with(records: int) -> SimulatedKafka:
    """One partition with records."""
    kafka = SimulatedKafka()
    kafka.create_topic(TOPIC)
    for i in range(records):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)
    return kafka


def open_batches(bucket: MemoryStore, kafka: SimulatedKafka, runs: int) -> None:
    """Some drivers end right after their plan: one open plan each."""
    for i in range(runs):
        store = FaultyStore(bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
        kafka.append(TOPIC, 0, b"of run %d" % i, timestamp=i)
        with pytest.raises(SimulatedCrash):
            Engine(store, kafka).run(f"died-{i}", "data_interval", window=(i, i + 1))


class Replaced:
    """A store that answers some operations by itself."""

    def __init__(self, store: MemoryStore, **operations: Callable[..., Any]) -> None:
        self._store = store
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return self._operations.get(name) or getattr(self._store, name)


# -- view -------------------------------------------------------------------------------------------------------------


def test_a_view_reads_the_plans_that_the_marker_has_not_resolved_up_to_the_first_free_number() -> None:
    """Batches resolve in any order: plans in gaps of the marker are read, resolved plans are not."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC, 4)
    for p in range(4):
        kafka.append(TOPIC, p, b"%d" % p, timestamp=p)
        crash_after("*.plan.json", bucket, kafka, f"run-{p}", "data_interval", window=(p, p + 1))
    for p in (1, 3):
        assert Engine(bucket, kafka).run(f"run-{p}", "data_interval", window=(p, p + 1)).status == "ok"
    store = FaultyStore(bucket)
    view = Engine(store, kafka).log.view()
    assert view.marker.resolved == ((2, 3), (4, 5))
    assert (sorted(view.open_plans), view.next) == ([1, 3], 5)
    assert [r.key.removeprefix(CONTROL) for r in store.requests] == [
        "marker.json",
        "batches/0000000001.plan.json",
        "batches/0000000003.plan.json",
        "batches/0000000005.plan.json",
    ]


def test_a_view_without_a_marker_is_an_error() -> None:
    """A log without its marker is never taken for a new one."""
    with pytest.raises(MarkerMissingError, match=r"marker of topic .* is gone.*restore.*marker\.json"):
        Engine(MemoryStore(), kafka_with(1)).log.view()


def test_a_deleted_marker_does_not_land_anything_again() -> None:
    """Batches exist: the run fails with the remedy, and writes nothing."""
    kafka, bucket = kafka_with(3), MemoryStore()
    Engine(bucket, kafka).run("first")
    bucket.delete(MARKER)
    store = FaultyStore(bucket)
    with pytest.raises(MarkerMissingError):
        Engine(store, kafka).run("second")
    assert store.writes() == []


# -- the creation of the marker ---------------------------------------------------------------------------------------


def test_the_marker_is_created_after_the_owner_document_and_the_probes_of_the_store() -> None:
    """Owner, both probes, marker: in this order."""
    kafka = kafka_with(1)
    store = FaultyStore(MemoryStore())
    Engine(store, kafka).run("first")
    owner = addresses.owner_key(TOPICS_DIR, TOPIC)
    assert [(r.operation, r.key) for r in store.writes()][:4] == [
        ("put_new", owner),
        ("put_new", owner),
        ("put_if_match", owner),
        ("put_new", MARKER),
    ]


def test_another_pipeline_cannot_land_a_topic_that_has_an_owner() -> None:
    """The error names the owner, and nothing of the second pipeline is written."""
    kafka, bucket = kafka_with(3), MemoryStore()
    Engine(bucket, kafka).run("first")
    before = len(list(bucket.list("")))
    with pytest.raises(PipelineConflictError, match=f"belongs to pipeline '{PIPELINE}'"):
        Engine(bucket, kafka, pipeline="other").run("second")
    assert len(list(bucket.list(""))) == before


def ignores_if_none_match(bucket: MemoryStore) -> Replaced:
    """PUT overwrites, whatever the condition."""

    def put_new(key: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> str:
        bucket.delete(key)
        return bucket.put_new(key, body, metadata=metadata)

    return Replaced(bucket, put_new=put_new)


def ignores_if_match(bucket: MemoryStore) -> Replaced:
    """PUT If-Match overwrites, whatever the ETag."""

    def put_if_match(key: str, body: bytes, *, etag: str) -> str:
        bucket.delete(key)
        return bucket.put_new(key, body)

    return Replaced(bucket, put_if_match=put_if_match)


@pytest.mark.parametrize(
    ("weak", "named"), [(ignores_if_none_match, "If-None-Match"), (ignores_if_match, "If-Match")], ids=["create", "cas"]
)
def test_a_store_that_ignores_conditions_is_refused_at_every_try(
    weak: Callable[[MemoryStore], Replaced], named: str
) -> None:
    """The error has the condition and the unsafe remedy; no marker is left, so the next run probes again."""
    kafka, bucket = kafka_with(3), MemoryStore()
    for _ in range(2):
        with pytest.raises(UnsupportedStoreError, match=rf"ignored {named}.*unsafe_single_writer=True"):
            Engine(weak(bucket), kafka).run("first")  # type: ignore[arg-type]
        assert bucket.get(MARKER) is None
    assert [info.key for info in bucket.list("")] == [addresses.owner_key(TOPICS_DIR, TOPIC)]


@pytest.mark.parametrize("weak", [ignores_if_none_match, ignores_if_match])
def test_a_store_that_ignores_conditions_can_be_used_with_unsafe_single_writer(
    weak: Callable[[MemoryStore], Replaced],
) -> None:
    """unsafe_single_writer skips the probe; with one writer everything is landed once."""
    kafka, bucket = kafka_with(7), MemoryStore()
    Engine(weak(bucket), kafka).run("first", unsafe_single_writer=True)  # type: ignore[arg-type]
    check_landed(bucket, kafka, recovered=True, complete=True)


def test_a_probe_that_meets_a_concurrent_change_is_repeated() -> None:
    """409 shows nothing about conditions: neither a refusal of the store nor the end of the run."""
    kafka, bucket = kafka_with(3), MemoryStore()
    store = FaultyStore(bucket)
    store.inject(Fault.CONFLICT, operation="put_new", key="*_owners*", nth=2, times=2)
    store.inject(Fault.CONFLICT, operation="put_if_match", key="*_owners*")
    assert Engine(store, kafka).run("first").status == "ok"


def test_two_first_runs_at_once_make_one_marker() -> None:
    """A run that finds the marker created between its reads continues with it."""
    kafka, bucket = kafka_with(3), MemoryStore()
    store = FaultyStore(bucket)
    other = Engine(bucket, kafka)
    created = []

    def choose(request: Any) -> None:
        if request.key == MARKER and request.operation == "put_new" and not created:
            created.append(True)
            other.run("other")

    store = FaultyStore(bucket, choose=choose)
    assert Engine(store, kafka).run("first").status == "empty"
    assert len(Engine(bucket, kafka).log.view().marker.resolved) == 1


# -- documents that are refused ---------------------------------------------------------------------------------------


def landed() -> tuple[SimulatedKafka, MemoryStore]:
    """A bucket after one run of five records."""
    kafka, bucket = kafka_with(5), MemoryStore()
    Engine(bucket, kafka).run("first")
    return kafka, bucket


def tamper(bucket: MemoryStore, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a document and its checksum."""
    stored = bucket.get(key)
    assert stored is not None
    body = json.loads(stored.body)
    body.pop("sha256")
    change(body)
    body["sha256"] = digest(body)
    bucket.delete(key)
    bucket.put_new(key, canonical(body))


@pytest.mark.parametrize(
    ("key", "change", "why"),
    [
        (addresses.plan_key(CONTROL, 1), lambda d: d.update(batch=2), "batch 2"),
        (addresses.plan_key(CONTROL, 1), lambda d: d.update(topic="other"), "topic 'other'"),
        (
            addresses.manifest_key(CONTROL, 1),
            lambda d: d.update(plan_sha256="0"),
            "another plan",
        ),
        (
            addresses.manifest_key(CONTROL, 1),
            lambda d: d["objects"][0].update(key="topics/../x"),
            r"'\.\.'",
        ),
        (
            addresses.manifest_key(CONTROL, 1),
            lambda d: d["objects"][0].update(key=f"{CONTROL}marker.json"),
            "control documents",
        ),
        (MARKER, lambda d: d.update(topic="other"), "topic 'other'"),
    ],
    ids=["plan-number", "plan-topic", "manifest-plan", "key-climbs", "key-control", "marker-topic"],
)
def test_a_document_at_the_wrong_key_is_refused(key: str, change: Callable[[dict[str, Any]], None], why: str) -> None:
    """Names, numbers, plans and keys are compared with the key of the document; nothing is written."""
    kafka, bucket = landed()
    tamper(bucket, key, change)
    store = FaultyStore(bucket)
    with pytest.raises(CorruptControlError, match=why):
        Engine(store, kafka).run("first")
    assert store.writes() == []


def test_a_plan_of_another_prefix_is_refused() -> None:
    """A plan cannot place a batch's objects in another topics_dir."""
    kafka, bucket = landed()

    def change(document: dict[str, Any]) -> None:
        document["layout"]["topics_dir"] = "elsewhere"
        document["layout_sha256"] = digest(document["layout"])

    tamper(bucket, addresses.plan_key(CONTROL, 1), change)
    with pytest.raises(CorruptControlError, match="writes below 'elsewhere'"):
        Engine(bucket, kafka).run("first")


def test_a_manifest_without_its_plan_is_a_tampered_log() -> None:
    """Documents are never deleted; if one is missing, nothing is guessed."""
    kafka, bucket = landed()
    bucket.delete(addresses.plan_key(CONTROL, 1))
    with pytest.raises(LogTamperedError, match="Restore"):
        Engine(bucket, kafka).log.read_manifest(1)
    with pytest.raises(LogTamperedError, match=r"the plan of batch 1 is gone.*0000000001\.plan\.json"):
        Engine(bucket, kafka).run("first")


def test_a_used_number_whose_plan_was_deleted_stops_the_run_before_it_reads() -> None:
    """A stale driver whose plan number was resolved and deleted meanwhile must not land its records again."""
    kafka, bucket = kafka_with(4), MemoryStore()

    def choose(request: Any) -> None:
        if request.key == addresses.plan_key(CONTROL, 1) and request.operation == "put_new":
            Engine(bucket, kafka).run("faster")
            bucket.delete(addresses.plan_key(CONTROL, 1))
            bucket.delete(addresses.manifest_key(CONTROL, 1))

    store = FaultyStore(bucket, choose=choose)
    with pytest.raises(LogTamperedError, match="its number was free"):
        Engine(store, kafka).run("stale")
    assert [r.operation for r in store.writes()].count("create_upload") == 0
