"""A writer below ``_kafka_s3/`` can stop a pipeline, but can neither crash it nor change the keys it writes.

Each example puts one hostile document into the bucket of a pipeline with open batches, and then calls every reader of
control documents once. The outcome is a result or one of our own errors, in bounded time, and no object changes.
"""

from __future__ import annotations

import contextlib
import json
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch import roll_forward as decided
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import MAX_BYTES, canonical, decode, digest
from airflow_provider_kafka_s3.documents.manifest import Amend, Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.documents.topic_summary import TopicSummary
from airflow_provider_kafka_s3.exceptions import (
    ControlError,
    CorruptControlError,
    ForeignObjectError,
    KafkaS3Error,
    LogTamperedError,
    UnsupportedFormatError,
)
from airflow_provider_kafka_s3.inspect.lag import lag
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.inspect.topics import owned_topics
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.maintenance import recover as recovery
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import absent, accept_deleted, accept_gone, accept_loss
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage import port
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.protocol.engine import CONTROL, SUMMARY, TOPIC, TOPICS_DIR, Engine, crash_after

MARKER = addresses.marker_key(CONTROL)
OWNER = addresses.owner_key(TOPICS_DIR, TOPIC)
MINE, OTHER = addresses.run_key(CONTROL, "interrupted"), addresses.run_key(CONTROL, "first")
COMMITTED, OPEN, UNDECIDED = 1, 2, 3
HOSTILE_TEXTS = (
    "../../other/key",
    "/absolute",
    "topics/_kafka_s3/pipeline/events/marker.json",
    "topics/other-topic/parity=0/other-topic+0+0000000000.bin",
    "topics/events/parity=0/../x/events+0+0000000000.bin",
    "",
    "\x1b[31mred\n2026-01-01 INFO forged line",
    "x" * 5_000,
    "%s%n{0.__class__}",
    "${jndi:ldap://example.org/x}",
    "(a+)+$",
    ".*",
    "'" * 999,
    "Y" * 3_000,
)
NUMBERS = (-1, 0, 1, 2**31, 10**9, 10**10, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, True, 1.5)


class Scene:
    """A pipeline with a batch that is complete, one that is decided and one that is planned; rebuilt quickly."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.kafka.create_topic("other-topic")
        self.records(6)
        bucket = MemoryStore()
        Engine(bucket, self.kafka).run("first")
        for run, last in (("interrupted", "*.manifest.json"), ("planned", "*.plan.json")):
            self.records(6)
            crash_after(last, bucket, self.kafka, run)
        bucket.put_new("topics/other-topic/parity=0/other-topic+0+0000000000.bin", b"theirs")
        bucket.put_new("elsewhere", b"theirs")
        self.other_upload = bucket.create_upload("topics/other-topic/parity=0/other-topic+0+0000000009.bin")
        bucket.upload_part("topics/other-topic/parity=0/other-topic+0+0000000009.bin", self.other_upload, 1, b"x")
        self.stored = {info.key: bucket.get(info.key) for info in bucket.list("")}
        self.manifest = addresses.manifest_key(CONTROL, OPEN)
        self.bucket = bucket

    def records(self, count: int) -> None:
        for _ in range(count):
            offset = self.kafka.bounds(TOPIC, 0)[1]
            self.kafka.append(TOPIC, 0, b"%d" % offset, offset)

    def with_document(self, key: str, body: bytes) -> Watched:
        """The bucket with one document replaced."""
        bucket = self.bucket.copy()
        bucket.delete(key)
        bucket.put_new(key, body)
        return Watched(bucket)

    def body(self, key: str) -> dict[str, Any]:
        stored = self.stored[key]
        assert stored is not None
        document: dict[str, Any] = json.loads(stored.body)
        return document


class Watched(FaultyStore):
    """A bucket that records its requests."""

    def touched(self) -> set[str]:
        """Keys of writes, completes and HEAD requests, without the control documents."""
        operations = {
            "head",
            "put_new",
            "put_if_match",
            "create_upload",
            "upload_part",
            "complete_upload",
            "abort_upload",
        }
        return {
            r.key for r in self.requests if r.operation in operations and not r.key.startswith(f"{TOPICS_DIR}/_kafka")
        }


@pytest.fixture(scope="module")
def scene() -> Scene:
    """Created once; examples get copies of its bucket."""
    return Scene()


def entry_points(engine: Engine) -> Iterator[Callable[[], object]]:
    """All readers of control documents: operator, Spark driver, sensor and command line."""
    committer, log, source = engine.committer, engine.log, engine.source
    window = {0: (0, 9)}
    yield lambda: topic_status(log, source)
    yield lambda: owned_topics(engine.store, topics_dir=TOPICS_DIR)
    yield lambda: lag(log, source, "read_committed")
    yield lambda: gc.find_garbage(log, now=time.time() + 10**8)
    yield lambda: engine.run("first", action="verify")
    yield lambda: engine.run("new", "data_interval", window=window, action="verify")
    yield lambda: repair(committer, start={}, dry_run=True)
    yield lambda: absent(committer, COMMITTED)
    yield lambda: absent(committer, OPEN)
    yield lambda: log.planned_by(OPEN)
    yield lambda: decided.roll_forward(committer)
    yield lambda: accept_deleted(committer, COMMITTED, reason="", operator="")
    yield lambda: engine.run("first")
    yield lambda: engine.run("interrupted")
    yield lambda: engine.run("planned", on_missing="restore")
    yield lambda: engine.run("another", "data_interval", window=window)
    yield lambda: engine.run("late", action="restore")
    yield lambda: recovery.recover(committer, operator="")
    yield lambda: accept_loss(committer, OPEN, reason="", operator="")
    yield lambda: abandon(committer, UNDECIDED, release="debt", reason="", operator="")
    yield lambda: accept_gone(committer, recovery_of(engine), reason="", operator="")
    yield lambda: reset(committer, operator="")
    yield lambda: repair(committer, start={})


def recovery_of(engine: Engine) -> Any:
    """Offsets to accept as lost."""
    return engine.log.view().claims


def call_every_reader(scene: Scene, bucket: Watched, *, prefix: str = f"{TOPICS_DIR}/{TOPIC}/") -> list[KafkaS3Error]:
    """Call every entry point in a separate process; returns its errors. Any other exception is raised."""
    before = {k: stored for k, stored in scene.stored.items() if not k.startswith(CONTROL) and k != SUMMARY}
    before[OWNER] = bucket.get(OWNER)
    errors = []
    for number in range(sum(1 for _ in entry_points(Engine(bucket, scene.kafka)))):
        entry_point = list(entry_points(Engine(bucket, scene.kafka)))[number]
        try:
            entry_point()
        except KafkaS3Error as e:
            errors.append(e)
    for message in map(str, errors):
        assert len(message) < 20_000
        assert not any(ord(c) < 32 for c in message), message
    for key, stored in before.items():
        assert bucket.get(key) == stored, f"{key} changed"
    assert all(key.startswith(prefix) for key in bucket.touched()), bucket.touched()
    return errors


def signed(body: dict[str, Any]) -> bytes:
    """A document with a valid checksum, as a hostile writer can make it."""
    return canonical({**body, "sha256": digest({k: v for k, v in body.items() if k != "sha256"})})


def documents(scene: Scene) -> list[str]:
    """One of each kind."""
    return [
        MARKER,
        OWNER,
        SUMMARY,
        MINE,
        *(addresses.plan_key(CONTROL, n) for n in (COMMITTED, OPEN, UNDECIDED)),
        *(addresses.manifest_key(CONTROL, n) for n in (COMMITTED, OPEN)),
    ]


# -- bytes ------------------------------------------------------------------------------------------------------------

KINDS = (Plan, Manifest, Marker, RunRecord, Owner, Amend, TopicSummary)


def mutated(data: st.DataObject, body: bytes) -> bytes:
    """Damaged bytes of a document."""
    how = data.draw(st.sampled_from(["cut", "flip", "double", "insert", "encode", "number", "twin", "nest"]))
    at = data.draw(st.integers(0, len(body) - 1))
    if how == "cut":
        return body[:at]
    if how == "flip":
        return body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :]
    if how == "double":
        return body[:at] + body[: data.draw(st.integers(0, len(body)))]
    if how == "insert":
        what = [
            b"\xff",
            b"\x00",
            b"NaN",
            b"Infinity",
            b"\\ud800",
            b"1e999",
            b"-",
            b'"',
            b"{",
            b"[" * 50,
            b"\xef\xbb\xbf",
        ]
        return body[:at] + data.draw(st.sampled_from(what)) + body[at:]
    if how == "encode":
        return body.decode().encode(data.draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig", "utf-16-le"])))
    if how == "number":
        return body.replace(b":1", b":" + b"1" * data.draw(st.sampled_from([1, 19, 20, 4_000, 5_000])), 1)
    if how == "twin":
        return body.replace(b"{", b'{"topic":"other-topic",', 1)
    return b'{"format":1,"kind":"marker","x":' + b"[" * (10 * at) + b"]" * (10 * at) + b"}"


@settings(max_examples=60)
@given(st.data())
def test_a_document_with_damaged_bytes_is_our_own_error(scene: Scene, data: st.DataObject) -> None:
    """Cut, flipped, doubled, encoded otherwise, with numbers or names that JSON should not have."""
    key = data.draw(st.sampled_from(documents(scene)))
    stored = scene.stored[key]
    assert stored is not None
    body = mutated(data, stored.body)
    for kind in KINDS:
        with contextlib.suppress(ControlError):
            assert decode(kind, body, "here")[0] == decode(kind, stored.body, "here")[0]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 10_000_000,
        b'{"format":1,"kind":"marker","topic":"' + b"x" * 10_000_000 + b'"}',
        b'{"format":1,"kind":"marker","resolved":[' + b"[]," * 3_000_000 + b"[1,2]]}",
        b'{"a":' * 2_000_000,
        b'{"format":1,"kind":"marker","generation":' + b"9" * 10_000_000 + b"}",
    ],
    ids=["lists", "text", "ranges", "objects", "digits"],
)
def test_ten_megabytes_are_refused_in_bounded_time_and_memory(body: bytes) -> None:
    """No stack overflows, nothing grows with more than the length, and the error is short."""
    started = time.process_time()
    json.loads(b"[" + b"[]," * 3_000_000 + b"[]]")
    floor = time.process_time() - started
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(CorruptControlError) as refused:
        decode(Marker, body, "here")
    assert len(str(refused.value)) < 1_000
    # The least time to read such a document, times a factor; a busy machine delays both in the same way.
    assert time.process_time() - started < 20 * floor, floor
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


def test_a_document_that_is_too_long_is_not_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long object at the key of a document is not read into memory; the error has its length."""
    monkeypatch.setattr(port, "MAX_WHOLE", 1_000)
    bucket = scene.with_document(MARKER, b"x" * 1_001)
    with pytest.raises(CorruptControlError, match=r"it has 1,001 bytes.*marker\.json"):
        Engine(bucket, scene.kafka).run("first")
    with pytest.raises(CorruptControlError, match="no document has more"):
        decode(Marker, b"x" * (MAX_BYTES + 1), "here")


# -- content ----------------------------------------------------------------------------------------------------------


def leaves(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of values that can be replaced."""
    yield path
    children = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, child in children:
        yield from leaves(child, (*path, name))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return value
    if isinstance(body, dict):
        return {**body, path[0]: replaced(body[path[0]], path[1:], value)}
    return [*body[: path[0]], replaced(body[path[0]], path[1:], value), *body[path[0] + 1 :]]


hostile_values = (
    st.sampled_from(HOSTILE_TEXTS)
    | st.sampled_from(NUMBERS)
    | st.none()
    | st.sampled_from([[], {}, [[]], [[0, 2**62]], [[5, 1]], [[1, 3], [2, 4]], {"0": [[0, 2**62]]}, {"9" * 30: 1}])
    | st.sampled_from([["x"] * 50, [{"id": 0}], {"0": {"covered": [[0, 10**6]], "lost": [], "debt": []}}])
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_hostile_content_with_a_valid_checksum_does_no_harm(scene: Scene, data: st.DataObject) -> None:
    """Any field replaced by any value: results or errors of this package, and no foreign object is changed."""
    key = data.draw(st.sampled_from(documents(scene)))
    body = scene.body(key)
    names = [path for path in leaves(body) if path and path[0] not in ("sha256", "kind", "format")]
    path = data.draw(st.sampled_from(names))
    try:
        hostile = signed(replaced(body, path, data.draw(hostile_values)))
    except ValueError:
        return  # without a canonical form there is no checksum
    call_every_reader(scene, scene.with_document(key, hostile))


MANIFEST_LIES: dict[str, dict[str, Any]] = {
    "another topic's key": {"key": "topics/other-topic/parity=0/other-topic+0+0000000006.bin"},
    "another topic's object": {"key": "topics/other-topic/parity=0/other-topic+0+0000000000.bin"},
    "a key outside": {"key": "elsewhere"},
    "a key with ..": {"key": "topics/events/../other-topic/parity=0/events+0+0000000006.bin"},
    "an absolute key": {"key": "/topics/events/parity=0/events+0+0000000006.bin"},
    "a control document": {"key": "topics/_kafka_s3/pipeline/events/parity=0/events+0+0000000006.bin"},
    "another batch's key": {"key": "topics/events/parity=0/events+0+0000000000.bin"},
    "another partition's key": {"key": "topics/events/parity=0/events+1+0000000006.bin"},
    "another generation's key": {"key": "topics/events/parity=0/events+0+0000000006+g1.bin"},
    "offsets of another batch": {"min_offset": 0},
    "offsets beyond the slice": {"max_offset": 2**62},
    "no parts": {"parts": []},
    "parts that are no headers": {"parts": [['"e"\r\nX-Evil: 1', "c"]]},
    "too many parts": {"parts": [['"e"', "c"]] * 10_001},
    "an upload id that is a path": {"upload_id": "x y\n"},
    "a negative size": {"size": -1},
    "records that do not add up": {"records": 10**9},
    "no such slice": {"slices": [10**9]},
}


@pytest.mark.parametrize("lie", MANIFEST_LIES, ids=str)
def test_a_forged_manifest_causes_no_request_for_its_keys(scene: Scene, lie: str) -> None:
    """It is refused before any object that it lists is completed, checked or written."""
    body = scene.body(scene.manifest)
    body["objects"][0] |= MANIFEST_LIES[lie]
    bucket = scene.with_document(scene.manifest, signed(body))
    with pytest.raises(CorruptControlError, match=r"cannot be trusted.*0000000002\.manifest\.json"):
        Engine(bucket, scene.kafka).run("interrupted")
    assert bucket.touched() == set()
    assert call_every_reader(scene, bucket)
    assert lie not in str(bucket.touched())


def test_an_upload_of_another_key_is_not_completed(scene: Scene) -> None:
    """An upload id works for its own key only: the store refuses it, and the object is written again from Kafka."""
    body = scene.body(scene.manifest)
    body["objects"][0]["upload_id"] = scene.other_upload
    bucket = scene.with_document(scene.manifest, signed(body))
    Engine(bucket, scene.kafka).run("interrupted")
    assert bucket.get("topics/other-topic/parity=0/other-topic+0+0000000009.bin") is None
    assert bucket.upload_exists("topics/other-topic/parity=0/other-topic+0+0000000009.bin", scene.other_upload)


def test_a_forged_manifest_cannot_claim_the_object_of_another_batch(scene: Scene) -> None:
    """The object's own metadata has to name this batch and this upload, or the same records."""
    body = scene.body(scene.manifest)
    key = body["objects"][0]["key"]
    bucket = scene.with_document(scene.manifest, signed(body))
    bucket.put_new(key, b"somebody else's")
    with pytest.raises(ForeignObjectError, match="was not changed"):
        Engine(bucket, scene.kafka).run("interrupted")
    stored = bucket.get(key)
    assert stored is not None
    assert stored.body == b"somebody else's"


PLAN_LIES: dict[str, dict[str, Any]] = {
    "another topic": {"topic": "other-topic"},
    "a pattern of topics": {"topic": ".*"},
    "another topics_dir": {"layout": {"topics_dir": "elsewhere", "format": {"kind": "bytes"}}},
    "an unknown partitioner": {
        "layout": {"topics_dir": "topics", "format": {"kind": "bytes"}, "partitioner": {"kind": "x"}}
    },
    "an unknown format": {"layout": {"topics_dir": "topics", "format": {"kind": "pickle"}}},
    "many slices": {"slices": [{"id": i, "partition": 0, "start": i, "end": i + 1} for i in range(10**4)] * 2},
    "a slice that ends before it starts": {"slices": [{"id": 0, "partition": 0, "start": 9, "end": 3}]},
    "a negative offset": {"slices": [{"id": 0, "partition": 0, "start": -5, "end": 3}]},
    "slices that overlap": {
        "slices": [{"id": 0, "partition": 0, "start": 0, "end": 9}, {"id": 1, "partition": 0, "start": 8, "end": 12}]
    },
    "a partition that cannot be": {"slices": [{"id": 0, "partition": 2**31, "start": 0, "end": 3}]},
    "offsets that are landed": {"slices": [{"id": 0, "partition": 0, "start": 0, "end": 3}]},
    "a batch number that cannot be": {"batch": 10**10},
    "a reset with slices": {"type": "reset", "layout": None, "new_topic_id": "x"},
}


@pytest.mark.parametrize("lie", PLAN_LIES, ids=str)
def test_a_forged_plan_with_a_valid_checksum_reads_and_writes_no_other_keys(scene: Scene, lie: str) -> None:
    """It is refused before a record is requested from Kafka."""
    key = addresses.plan_key(CONTROL, UNDECIDED)
    bucket = scene.with_document(key, signed(scene.body(key) | PLAN_LIES[lie]))
    with pytest.raises(ControlError, match=r"(cannot be trusted|claims offsets).*0000000003\.plan\.json"):
        Engine(bucket, scene.kafka).run("planned")
    assert call_every_reader(scene, bucket)


def test_a_plan_with_a_pattern_for_huge_paths_is_an_error_of_its_batch(scene: Scene) -> None:
    """A path of a megabyte per record is not a key; memory does not grow with the number of records."""
    key = addresses.plan_key(CONTROL, UNDECIDED)
    body = scene.body(key)
    body["layout"] |= {
        "partitioner": {"kind": "time", "path_format": "S" * 1_000_000, "duration_ms": 1},
        "naming": {"directory_delim": "/(a+)+$", "file_delim": "(a+)+$", "offset_pad_width": 10},
    }
    bucket = scene.with_document(key, signed(body))
    started = time.process_time()
    call_every_reader(scene, bucket, prefix=f"{TOPICS_DIR}/")
    assert time.process_time() - started < 20


MARKER_LIES: dict[str, dict[str, Any]] = {
    "batch 0 is resolved": {"resolved": [[0, 4]]},
    "batches below zero are resolved": {"resolved": [[-3, 4]]},
    "a billion batches are resolved": {"resolved": [[1, 10**9]]},
    "all batches that can be are resolved": {"resolved": [[1, 10**10]]},
    "more batches than can be are resolved": {"resolved": [[1, 2**63 - 1]]},
    "only the last batch is resolved": {"resolved": [[10**10 - 1, 10**10]]},
    "nothing is resolved and all is covered": {
        "resolved": [],
        "partitions": {"0": {"covered": [[0, 18]], "lost": [], "debt": []}},
    },
    "all offsets there are are covered": {"partitions": {"0": {"covered": [[0, 2**63 - 1]], "lost": [], "debt": []}}},
    "all offsets there are are owed": {"partitions": {"0": {"covered": [], "lost": [], "debt": [[0, 2**63 - 1]]}}},
    "a partition that cannot be": {"partitions": {str(2**31): {"covered": [[0, 1]], "lost": [], "debt": []}}},
    "a million generations": {"generation": 10**6},
    "a generation out of order": {
        "generation": 1,
        "history": [{"generation": 7, "topic_id": "x", "partitions": {}}],
    },
    "no topic id": {"topic_id": ""},
    "another cluster's text": {"cluster_id": "\x1b[2J"},
}


@pytest.mark.parametrize("lie", MARKER_LIES, ids=str)
def test_a_forged_marker_with_a_valid_checksum_causes_a_bounded_number_of_requests(scene: Scene, lie: str) -> None:
    """Every entry point ends within a bounded number of requests, for any content of the marker."""
    bucket = scene.with_document(MARKER, signed(scene.body(MARKER) | MARKER_LIES[lie]))
    started = time.process_time()
    call_every_reader(scene, bucket)
    assert time.process_time() - started < 20
    assert len(bucket.requests) < 5_000


def test_a_plan_with_a_huge_number_is_a_gap_that_is_not_counted_through(scene: Scene) -> None:
    """The number of steps does not depend on a number in a name."""
    plan = scene.stored[addresses.plan_key(CONTROL, 1)]
    assert plan is not None
    bucket = scene.with_document(addresses.plan_key(CONTROL, 9_999_999_999), plan.body)
    with pytest.raises(LogTamperedError, match=r"batch 4 is gone from the middle.*0000000004\.plan\.json"):
        repair(Engine(bucket, scene.kafka).committer, start={})


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (MINE, {"run": "another"}),
        (MINE, {"low": 10**9}),
        (MINE, {"offsets": "\x1b[31m"}),
        (MINE, {"target": {"0": [[0, 2**62]]}}),
        (MINE, {"target": {"2147483647": [[0, 5]]}}),
        (MINE, {"generation": 10**9}),
        (OWNER, {"topic": "../../x"}),
        (OWNER, {"topic": "other-topic"}),
        (OWNER, {"pipeline": "../x"}),
        (addresses.amend_key(CONTROL, OPEN, 1), {"batch": 1}),
    ],
    ids=str,
)
def test_records_of_runs_owners_and_losses_are_compared_with_their_keys(
    scene: Scene, key: str, change: dict[str, Any]
) -> None:
    """A document at another document's key, or with impossible values, ends in an error of this package."""
    amend = {"kind": "amend", "format": 1, "batch": OPEN, "keys": ["x"], "reason": "", "operator": ""}
    body = scene.body(key) if key in scene.stored else amend
    bucket = scene.with_document(key, signed(body | change))
    assert call_every_reader(scene, bucket)


def test_text_in_documents_cannot_forge_lines_of_output(scene: Scene) -> None:
    """The planner of a batch is shown on one line, without control characters, and of bounded length."""
    key = addresses.plan_key(CONTROL, OPEN)
    body = scene.body(key) | {"written_by": "\x1b[2Jme\nERROR forged " + "x" * 10_000, "run": "interrupted"}
    log = Engine(scene.with_document(key, signed(body)), scene.kafka).log
    planned_by = log.planned_by(OPEN)
    assert len(planned_by) < 500
    assert planned_by.isprintable()


# -- newer versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [MARKER, addresses.plan_key(CONTROL, UNDECIDED), addresses.manifest_key(CONTROL, OPEN)])
def test_an_older_worker_changes_nothing_that_a_newer_one_has_written(scene: Scene, key: str) -> None:
    """Runs and `repair` name what to upgrade; a marker that is only newer is not built again."""
    bucket = scene.with_document(key, signed(scene.body(key) | {"version": "9.1.0", "priority": 1}))
    before = {info.key: bucket.get(info.key) for info in bucket.list("")}
    for act in (
        lambda engine: engine.run("new"),
        lambda engine: recovery.recover(engine.committer, operator=""),
        lambda engine: repair(engine.committer, start={}),
    ):
        with pytest.raises(UnsupportedFormatError, match=r"^upgrade airflow-provider-kafka-s3 here: this worker"):
            act(Engine(bucket, scene.kafka))
    assert {key: bucket.get(key) for key in before} == before
