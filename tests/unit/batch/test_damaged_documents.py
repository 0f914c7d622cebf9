"""Whatever has become of a stored document: it is read, or the error is one of ours that names the object.

Every kind of document is damaged in every place, once in its bytes and once as a writer with a valid checksum can.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.batch.derived.log_indexes import write_missing
from airflow_provider_kafka_s3.batch.expiry import read_expiry
from airflow_provider_kafka_s3.batch.given_away import owning_tables
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import checked_summaries
from airflow_provider_kafka_s3.batch.pinned_schemas import NoRegistry, PinnedSchemas
from airflow_provider_kafka_s3.batch.topic_summary import decode_summary
from airflow_provider_kafka_s3.config import Landed, Layout, RawBytes
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import Document, canonical, digest, encode
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry, WaitingExpiry
from airflow_provider_kafka_s3.documents.manifest import Amend
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.owner import decode_owner
from airflow_provider_kafka_s3.documents.owning_table import OwningTable
from airflow_provider_kafka_s3.documents.pinned_schema import PinnedSchema
from airflow_provider_kafka_s3.documents.plan import layout_digest
from airflow_provider_kafka_s3.documents.planner import planner_stamp
from airflow_provider_kafka_s3.documents.replay import (
    ForeignReplayObject,
    PinnedObject,
    ReplayBegin,
    ReplayEnd,
    ReplayEpoch,
    ReplayObject,
    ReplayPlan,
)
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import ControlError, CorruptControlError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaReference
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.plans import reset_plan
from tests.protocol.engine import CONTROL, PIPELINE, SUMMARY, TOPIC, TOPICS_DIR, Engine, in_turn
from tests.protocol.history import documents_of

BATCHES: Final = 10
NEXT: Final = BATCHES + 1
LAYOUT: Final = Layout(format=RawBytes())
REPLAYED: Final = ReplayObject(batch=1, key="topics/events/x.bin", slice=0, records=2, low=0, high=1)
PINNED: Final = PinnedObject(key="theirs", etag='"e"', size=3)
FOREIGN: Final = ForeignReplayObject(values=PINNED, records=2, keys=PINNED)


def replay_plan(**partitions: Any) -> ReplayPlan:
    """The plan of a replay of such objects."""
    return ReplayPlan(
        replay="again",
        nonce="01234567",
        topic=TOPIC,
        target="copy",
        cluster_id="",
        target_id="",
        batch=BATCHES,
        settings={"keys": "all"},
        oldest=1,
        newest=2,
        notes=("a note",),
        **partitions,
    )


MORE: Final[dict[str, Document]] = {
    addresses.plan_key(CONTROL, NEXT): reset_plan(batch=NEXT, topic=TOPIC),
    addresses.run_key(CONTROL, "first"): RunRecord(
        run="first",
        offsets="data_interval",
        params={"trigger": "manual"},
        topic_id="id",
        generation=0,
        target=Offsets({0: [(0, 2)]}),
        low=1,
        layout_sha256=layout_digest(LAYOUT),
        window=(0, 1),
    ),
    addresses.amend_key(CONTROL, 1, 1): Amend(batch=1, keys=("k",), reason="gone", operator="me"),
    addresses.schema_key(CONTROL, 7): PinnedSchema(
        schema=RegisteredSchema(
            id=7,
            type="AVRO",
            text='"string"',
            references=(SchemaReference(name="n", subject="s", version=1, text='"int"'),),
            versions={"events-value": 2},
        )
    ),
    addresses.table_key(CONTROL, "lake.events"): OwningTable(topic=TOPIC, table="lake.events", last=3),
    addresses.expiry_key(CONTROL): Expiry(
        topic=TOPIC,
        number=9,
        deleted=ExpiredObjects(batches=((1, 3),), before=((3, 5),)),
        waiting=(
            WaitingExpiry(
                objects=ExpiredObjects(batches=((4, 6),)),
                number=4,
                size=8,
                delete_from=7,
                reason="old",
                operator="ann",
                landed_in=Landed(pipeline="daily"),
            ),
        ),
    ),
    addresses.replay_key(CONTROL, "again", "plan"): replay_plan(partitions={0: ((REPLAYED,),)}),
    addresses.replay_key(CONTROL, "theirs", "plan"): replay_plan(partitions={}, foreign={0: (FOREIGN,)}),
    addresses.replay_key(CONTROL, "again", "begin-0"): ReplayBegin(replay="again", partition=0),
    addresses.replay_key(CONTROL, "again", "end-0"): ReplayEnd(replay="again", partition=0, records=2),
    addresses.replay_key(CONTROL, "again", "epoch-1"): ReplayEpoch(replay="again", epoch=1),
}

READERS: Final[dict[str, Callable[[TopicLog], object]]] = {
    addresses.marker_key(CONTROL): lambda log: log.require_marker()[0],
    addresses.plan_key(CONTROL, 1): lambda log: (log.read_plan(1), log.planned_by(1), log.planner(1)),
    addresses.plan_key(CONTROL, NEXT): lambda log: (log.read_plan(NEXT), log.planned_by(NEXT), log.planner(NEXT)),
    addresses.manifest_key(CONTROL, 1): lambda log: log.read_manifest(1),
    addresses.amend_key(CONTROL, 1, 1): lambda log: log.amended_keys(1),
    addresses.run_key(CONTROL, "first"): lambda log: log.read_run("first"),
    addresses.index_key(CONTROL, 1, BATCHES): lambda log: log.read_index(range(1, NEXT)),
    addresses.owner_key(TOPICS_DIR, TOPIC): lambda log: decode_owner(
        stored(log, addresses.owner_key(TOPICS_DIR, TOPIC)),
        addresses.owner_key(TOPICS_DIR, TOPIC),
        log.store.url(addresses.owner_key(TOPICS_DIR, TOPIC)),
        topics_dir=TOPICS_DIR,
    ),
    addresses.schema_key(CONTROL, 7): lambda log: PinnedSchemas(log.store, log.prefix, NoRegistry()).schema(7),
    addresses.table_key(CONTROL, "lake.events"): owning_tables,
    addresses.expiry_key(CONTROL): read_expiry,
    SUMMARY: lambda log: decode_summary(stored(log, SUMMARY), log.address, log.store.url(SUMMARY)),
    addresses.replay_key(CONTROL, "again", "plan"): lambda log: log.read_replay(ReplayPlan, "again", "plan"),
    addresses.replay_key(CONTROL, "theirs", "plan"): lambda log: log.read_replay(ReplayPlan, "theirs", "plan"),
    addresses.replay_key(CONTROL, "again", "begin-0"): lambda log: log.read_replay(ReplayBegin, "again", "begin-0"),
    addresses.replay_key(CONTROL, "again", "end-0"): lambda log: log.read_replay(ReplayEnd, "again", "end-0"),
    addresses.replay_key(CONTROL, "again", "epoch-1"): lambda log: log.read_replay(ReplayEpoch, "again", "epoch-1"),
}

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 2, 2**31, 10**10, 2**63 - 1, 2**63, -(2**63), 10**30),
    *("", "x", "../x", "\x1b[2J\n", "\ud800", "x" * 5_000, "9" * 30, "AVRO", "commit", "reset"),
    *([], [[]], [[0, 2]], [[5, 1]], [[0, 2**62]], ["x"], [{}], [None]),
    *({}, {"x": 1}, {"0": [[0, 2]]}, {"0": []}, {"-1": [[0, 2]]}, {"9" * 30: [[0, 1]]}, {"kind": "x"}),
)
"""What is put in the place of each part of a document."""


def stored(log: TopicLog, key: str) -> bytes:
    """The bytes of an object."""
    found = log.store.get(key)
    assert found is not None
    return found.body


@pytest.fixture(scope="module")
def bucket() -> MemoryStore:
    """Ten batches with their index, and one document of every other kind."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    where: dict[str, Any] = {"prefix": CONTROL, "topics_dir": TOPICS_DIR, "pipeline": PIPELINE}
    for key, body, metadata in documents_of(BATCHES, topic=TOPIC, topic_id=kafka.create_topic(TOPIC), **where):
        bucket.put_new(key, body, metadata=metadata)
    log = Engine(bucket, kafka).log
    log.index_sizes = (BATCHES,)
    write_missing(log, log.require_marker()[0], most=None, parallel=in_turn)
    for key, document in MORE.items():
        bucket.put_new(key, encode(document, planner_stamp(None) if key.endswith("plan.json") else {}))
    return bucket


def read(bucket: MemoryStore, key: str, body: bytes) -> object:
    """What a new process reads with this document; an error that is not ours, or does not name it, is raised."""
    bucket.delete(key)
    bucket.put_new(key, body)
    log = Engine(bucket, SimulatedKafka()).log
    try:
        return READERS[key](log)
    except ControlError as e:
        error = str(e)
    assert log.store.url(key) in error
    assert error.isprintable()
    assert len(error) < 2_000
    return None


def places(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of the parts of a document."""
    children = body.items() if isinstance(body, dict) else enumerate(body[:2]) if isinstance(body, list) else ()
    for name, child in children:
        yield (*path, name)
        yield from places(child, (*path, name))


def with_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path."""
    name, *rest = path
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[name] = with_value(copy[name], tuple(rest), value) if rest else value
    return copy


def test_every_kind_of_document_is_here(bucket: MemoryStore) -> None:
    """As it was written, each can be read."""
    for key, reader in READERS.items():
        assert reader(Engine(bucket, SimulatedKafka()).log) is not None, key
    kinds = {json.loads(stored(Engine(bucket, SimulatedKafka()).log, key))["kind"] for key in READERS}
    assert kinds == {kind.__name__.lower() for kind in Document.__subclasses__()}


@pytest.mark.parametrize("key", READERS)
def test_damaged_bytes_are_an_error_that_names_the_object(bucket: MemoryStore, key: str) -> None:
    """Cut, with a byte less, more or changed, anywhere: all of it is taken, or nothing."""
    bucket = bucket.copy()
    whole = stored(Engine(bucket, SimulatedKafka()).log, key)
    undamaged = repr(READERS[key](Engine(bucket, SimulatedKafka()).log))
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        for change in (b"", b"\0", b"\xff", b'"', b"[", b"0"):
            for rest in (whole[at + 1 :], whole[at:], b""):
                found = read(bucket, key, whole[:at] + change + rest)
                assert found is None or repr(found) == undamaged, (at, change)


@pytest.mark.parametrize("key", READERS)
def test_content_that_a_checksum_covers_is_read_or_names_the_object(bucket: MemoryStore, key: str) -> None:
    """Any part may be anything, missing, or once more under another name."""
    bucket = bucket.copy()
    body = json.loads(stored(Engine(bucket, SimulatedKafka()).log, key))
    del body["sha256"]
    read(bucket, key, canonical(body))
    for path in [*places(body)]:
        for value in VALUES:
            changed = with_value(body, path, value)
            try:
                signed = canonical({**changed, "sha256": digest(changed)})
            except UnicodeEncodeError:
                continue  # without a canonical form there is no checksum
            read(bucket, key, signed)
    for name in body:
        less = {other: value for other, value in body.items() if other != name}
        read(bucket, key, canonical({**less, "sha256": digest(less)}))
        more = {**body, f"{name}_": body[name]}
        assert read(bucket, key, canonical({**more, "sha256": digest(more)})) is None, name


def test_a_damaged_index_is_left_out_and_never_an_error_that_is_not_ours(bucket: MemoryStore) -> None:
    """Whatever is in it; batches are then those of plans and manifests."""
    bucket, key = bucket.copy(), addresses.index_key(CONTROL, 1, BATCHES)
    body = json.loads(stored(Engine(bucket, SimulatedKafka()).log, key))
    del body["sha256"]
    for path in places(body):
        for value in VALUES[::5]:
            changed = with_value(body, path, value)
            with contextlib.suppress(UnicodeEncodeError):
                signed = canonical({**changed, "sha256": digest(changed)})
                bucket.delete(key)
                bucket.put_new(key, signed)
                log = Engine(bucket, SimulatedKafka()).log
                log.index_sizes = (BATCHES,)
                found = checked_summaries(tuple, log, log.require_marker()[0], parallel=in_turn)
                assert [batch.batch for batch in found] == [*range(1, NEXT)]


def test_a_manifest_of_another_plan_names_both_documents(bucket: MemoryStore) -> None:
    """Either may be the one that was changed."""
    bucket, key = bucket.copy(), addresses.plan_key(CONTROL, 1)
    body = json.loads(stored(Engine(bucket, SimulatedKafka()).log, key)) | {"run": "another"}
    del body["sha256"]
    bucket.delete(key)
    bucket.put_new(key, canonical({**body, "sha256": digest(body)}))
    log = Engine(bucket, SimulatedKafka()).log
    with pytest.raises(CorruptControlError, match="another plan") as refused:
        log.read_manifest(1)
    assert log.plan_url(1) in str(refused.value)
    assert log.manifest_url(1) in str(refused.value)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (addresses.marker_key(CONTROL), {"topic": "other"}),
        (addresses.plan_key(CONTROL, 1), {"topic": "other"}),
        (addresses.plan_key(CONTROL, 1), {"batch": 2}),
        (addresses.manifest_key(CONTROL, 1), {"batch": 2}),
        (addresses.amend_key(CONTROL, 1, 1), {"batch": 2}),
        (addresses.run_key(CONTROL, "first"), {"run": "second"}),
        (addresses.index_key(CONTROL, 1, BATCHES), {"topic": "other"}),
        (addresses.owner_key(TOPICS_DIR, TOPIC), {"topic": "other"}),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_a_document_at_the_key_of_another_one_is_an_error(
    bucket: MemoryStore, key: str, change: dict[str, Any]
) -> None:
    """A copy, or a restored object, may be at the wrong place."""
    bucket = bucket.copy()
    body = json.loads(stored(Engine(bucket, SimulatedKafka()).log, key)) | change
    del body["sha256"]
    assert read(bucket, key, canonical({**body, "sha256": digest(body)})) is None


def test_an_index_at_the_key_of_another_one_is_an_error(bucket: MemoryStore) -> None:
    """Its batches are not those of its name."""
    bucket = bucket.copy()
    log = Engine(bucket, SimulatedKafka()).log
    bucket.put_new(addresses.index_key(CONTROL, NEXT, BATCHES), stored(log, addresses.index_key(CONTROL, 1, BATCHES)))
    with pytest.raises(CorruptControlError, match="it is of 10 batches from 1 on"):
        log.read_index(range(NEXT, NEXT + BATCHES))
