"""The shipped checkers find and name each kind of damage to a valid bucket."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import Envelope, JsonLines, Layout, SiblingObjects, StringConverter
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import (
    BucketSummary,
    InvariantViolation,
    check_bucket,
    check_unchanged,
    decode_lines,
    read_source,
    snapshot,
)
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, Engine, crash_after
from tests.unit.batch.simulated_topic import Topic

MARKER = addresses.marker_key(CONTROL)
FOLDER = f"{TOPICS_DIR}/{TOPIC}/"


class Pipeline:
    """A valid bucket of two batches, to be damaged."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.bucket = MemoryStore()
        for i in range(8):
            self.kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)
            if i in (3, 7):
                Engine(self.bucket, self.kafka).run(f"run-{i}")

    def check(self, **settings: Any) -> BucketSummary:
        return check_bucket(
            self.bucket,
            topics_dir=TOPICS_DIR,
            pipeline=PIPELINE,
            topic=TOPIC,
            is_optional=self.kafka.is_optional,
            **({"source": self.kafka.all_records(), "recovered": True, "complete": True} | settings),
        )

    def objects(self) -> list[str]:
        return [info.key for info in self.bucket.list(FOLDER)]

    def put(self, key: str, body: bytes, metadata: dict[str, str] | None = None) -> None:
        self.bucket.delete(key)
        self.bucket.put_new(key, body, metadata=metadata)

    def change(self, key: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a document and its checksum."""
        body = self.body(key)
        document = json.loads(body)
        document.pop("sha256")
        change(document)
        document["sha256"] = digest(document)
        self.put(key, canonical(document))

    def body(self, key: str) -> bytes:
        stored = self.bucket.get(key)
        assert stored is not None
        return stored.body

    def rewrite(self, key: str, body: bytes) -> None:
        stored = self.bucket.get(key)
        assert stored is not None
        self.put(key, body, dict(stored.metadata))

    def plan_only(self) -> None:
        self.kafka.append(TOPIC, 0, b"more", timestamp=9)
        crash_after("*.plan.json", self.bucket, self.kafka, "died")


def test_a_sound_bucket_passes_and_is_summed_up() -> None:
    """Batches, objects, records and bytes."""
    pipeline = Pipeline()
    summary = pipeline.check()
    size = sum(info.size for info in pipeline.bucket.list(FOLDER))
    assert summary == BucketSummary(batches=2, objects=len(pipeline.objects()), records=8, size=size)


DAMAGES: dict[str, tuple[Callable[[Pipeline], object], str]] = {
    "object deleted": (lambda w: w.bucket.delete(w.objects()[0]), "I4 object .* is absent"),
    "stray object": (lambda w: w.put(f"{FOLDER}parity=0/stray", b"x\n"), "I2 object .*stray is in no manifest"),
    "object copied": (lambda w: w.put(f"{FOLDER}copy.bin", w.body(w.objects()[0])), "I2 object .*copy"),
    "bytes changed": (lambda w: w.rewrite(w.objects()[0], b"9\n2\n"[:4]), "I3 object .* other bytes"),
    "record missing": (lambda w: w.rewrite(w.objects()[0], b""), "I1 .* records .* are in no object"),
    "record twice": (lambda w: w.rewrite(w.objects()[0], b"0\n0\n"), "I1 .* or occur twice"),
    "object cut off": (lambda w: w.rewrite(w.objects()[0], b"0"), "I3 object .* cannot be decoded"),
    "metadata lost": (lambda w: w.put(w.objects()[0], w.body(w.objects()[0])), "I2 object .* was not written by"),
    "marker deleted": (lambda w: w.bucket.delete(MARKER), "I4 there are batches but no marker"),
    "marker behind": (
        lambda w: w.change(MARKER, lambda d: d["partitions"]["0"].update(covered=[[0, 5]])),
        "I4 generation 0: 0: .* differs from the coverage of the resolved batches",
    ),
    "marker ahead": (
        lambda w: w.change(MARKER, lambda d: d.update(resolved=[[1, 9]])),
        "I4 batches .* are resolved without",
    ),
    "lost invented": (
        lambda w: w.change(MARKER, lambda d: d["partitions"]["0"].update(lost=[[0, 1]])),
        "I4 generation 0: lost offsets are",
    ),
    "debt invented": (
        lambda w: w.change(MARKER, lambda d: d["partitions"]["0"].update(debt=[[50, 60]])),
        "I4 the debt of the marker",
    ),
    "revision": (lambda w: w.change(MARKER, lambda d: d.update(revision=9)), "I4 the marker was written 9 times"),
    "plan deleted": (lambda w: w.bucket.delete(addresses.plan_key(CONTROL, 1)), "I4 the plans have numbers"),
    "run record deleted": (
        lambda w: w.bucket.delete(addresses.run_key(CONTROL, "run-3")),
        "I4 plan 1 .* record of its run",
    ),
    "manifest deleted": (lambda w: w.bucket.delete(addresses.manifest_key(CONTROL, 2)), "I4 batches .2. are resolved"),
    "manifest of another plan": (
        lambda w: w.change(addresses.manifest_key(CONTROL, 2), lambda d: d.update(plan_sha256="x")),
        "I4 manifest 2 decides another plan",
    ),
    "slice missing": (
        lambda w: w.change(addresses.manifest_key(CONTROL, 2), lambda d: d.update(slices=[])),
        "I2 manifest 2: it commits slices",
    ),
    "claims overlap": (
        lambda w: w.change(
            addresses.plan_key(CONTROL, 2), lambda d: d.update(slices=[{"id": 0, "partition": 0, "start": 3, "end": 8}])
        ),
        r"I1 offsets 0: \[3, 4\) of generation 0 are claimed by two batches",
    ),
    "document broken": (
        lambda w: w.put(addresses.plan_key(CONTROL, 2), b"{}"),
        "I4 control document .*cannot be trusted",
    ),
    "stray document": (lambda w: w.put(f"{CONTROL}batches/lock", b""), "I4 control document .*lock"),
    "plan left open": (Pipeline.plan_only, "I6 batch 3 is planned and not resolved"),
    "records not landed": (lambda w: w.kafka.append(TOPIC, 0, b"x"), r"I1 offsets 0: \[8, 9\) .* never landed"),
}


@pytest.mark.parametrize(("damage", "finding"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_found_and_named(damage: Callable[[Pipeline], object], finding: str) -> None:
    """Each invariant, broken on purpose."""
    pipeline = Pipeline()
    damage(pipeline)
    with pytest.raises(InvariantViolation, match=finding):
        pipeline.check()


def test_all_findings_are_reported_at_once() -> None:
    """All violations are reported together."""
    pipeline = Pipeline()
    for key in pipeline.objects():
        pipeline.bucket.delete(key)
    with pytest.raises(InvariantViolation) as error:
        pipeline.check()
    assert len(error.value.findings) >= 4
    assert "findings:" in str(error.value)


def test_debt_is_a_finding_only_after_recovery() -> None:
    """Before that it is normal."""
    pipeline = Pipeline()
    pipeline.plan_only()
    abandon(Engine(pipeline.bucket, pipeline.kafka).committer, 3, release="debt", reason="", operator="me")
    pipeline.check(recovered=False, complete=False)
    with pytest.raises(InvariantViolation, match=r"I6 offsets 0: \[8, 9\) are debt"):
        pipeline.check(complete=False)


def test_a_deleted_object_that_is_back_is_a_finding() -> None:
    """An object that a user deleted is excused, and is a finding if it is back."""
    pipeline = Pipeline()
    key = pipeline.objects()[0]
    stored = pipeline.bucket.get(key)
    assert stored is not None
    pipeline.bucket.delete(key)
    pipeline.check(deleted=[key])
    pipeline.put(key, stored.body, dict(stored.metadata))
    with pytest.raises(InvariantViolation, match=r"I7 object .* came back"):
        pipeline.check(deleted=[key])


def test_records_that_were_compacted_may_be_absent() -> None:
    """They may also be there, if they were read before."""
    pipeline = Pipeline()
    pipeline.kafka.compact(TOPIC, 0, 7)
    pipeline.check()
    pipeline.kafka.append(TOPIC, 0, b"8", timestamp=8)
    pipeline.kafka.compact(TOPIC, 0, 8)
    Engine(pipeline.bucket, pipeline.kafka).run("more")
    pipeline.check()


def test_contents_can_be_checked_without_kafka() -> None:
    """Against the manifests alone: number of records, bytes, names."""
    pipeline = Pipeline()
    pipeline.check(source=None, complete=False)
    pipeline.rewrite(pipeline.objects()[0], b"0\n0\n")
    with pytest.raises(InvariantViolation, match=r"I1 object .* has 2 records, its manifest has 1"):
        pipeline.check(source=None, complete=False)


def test_the_records_of_kafka_can_be_read_through_the_port() -> None:
    """The same as the state of the simulated cluster."""
    pipeline = Pipeline()
    assert read_source(pipeline.kafka, TOPIC) == pipeline.kafka.all_records()


def test_lines_are_decoded_whole_or_not_at_all() -> None:
    """With and without gzip; an object without its last separator was truncated."""
    assert decode_lines("k.bin", b"a\nb\n") == [b"a", b"b"]
    assert decode_lines("k.bin", b"a||b||", separator=b"||") == [b"a", b"b"]
    assert decode_lines("k.json.gz", gzip.compress(b"{}\n")) == [b"{}"]
    assert decode_lines("k.bin", b"") == []
    with pytest.raises(ValueError, match="truncated"):
        decode_lines("k.bin", b"a\nb")


def test_snapshots_show_every_kind_of_write() -> None:
    """New, gone, rewritten, and a pending upload."""
    pipeline = Pipeline()
    before = snapshot(pipeline.bucket)
    check_unchanged(before, snapshot(pipeline.bucket))
    first, second = pipeline.objects()[:2]
    pipeline.bucket.delete(first)
    pipeline.rewrite(second, b"other")
    pipeline.put("new", b"")
    upload = pipeline.bucket.create_upload("upload")
    with pytest.raises(InvariantViolation) as error:
        check_unchanged(before, snapshot(pipeline.bucket))
    assert set(error.value.findings) == {
        f"I5 {first} is gone",
        f"I5 {second} was written again",
        "I5 new is new",
        f"I5 upload (upload {upload}) is new",
    }


WITH_KEYS = Layout(
    topics_dir="lake",
    format=JsonLines(on_null="write"),
    key_converter=StringConverter(),
    content=SiblingObjects(headers=JsonLines()),
)
NAME = "lake/orders/partition=0/orders+0+0000000000"
GONE = "lake/orders/tombstone/orders+0+0000000001"


def landed(layout: Layout) -> Topic:
    """A topic with two values and two null values, landed."""
    topic = Topic(layout)
    for n, value in enumerate([b"0", None, b"2", None]):
        topic.append(value, key=b"k%d" % n)
    topic.land()
    return topic


@pytest.mark.parametrize("ending", [f"{NAME}.keys.json", f"{NAME}.headers.json", f"{GONE}.keys.json"])
def test_an_object_beside_others_that_is_gone_or_has_fewer_records_is_a_finding(ending: str) -> None:
    """Those of null values as well."""
    topic = landed(WITH_KEYS)
    assert topic.check() == 2
    stored = topic.bucket.get(ending)
    assert stored is not None
    topic.bucket.delete(ending)
    with pytest.raises(InvariantViolation, match=f"I4 object {re.escape(ending)} .* is absent"):
        topic.check()
    topic.bucket.put_new(ending, stored.body.splitlines(keepends=True)[0], metadata=stored.metadata)
    with pytest.raises(InvariantViolation, match=f"I1 object {re.escape(ending)} has 1 records, its manifest has 2"):
        topic.check()


@pytest.mark.parametrize(
    ("offset", "value", "finding"),
    [
        (0, None, "I1 .*: null values .0. are in no object"),
        (2, None, "I1 .*: 2 records are in objects of null values, and Kafka has 3"),
        (3, b"3", "I1 .*: 2 records are in objects of null values, and Kafka has 1"),
    ],
)
def test_null_values_whose_keys_are_in_no_object_are_a_finding(
    offset: int, value: bytes | None, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And objects with other ones than Kafka."""
    topic = landed(WITH_KEYS)
    records = topic.kafka.all_records()
    records[topic.kafka.topic_id("orders")][0][offset] = value
    monkeypatch.setattr(topic.kafka, "all_records", lambda: records)
    with pytest.raises(InvariantViolation, match=finding):
        topic.check()


def test_null_values_in_envelopes_are_compared_with_kafka() -> None:
    """A decoder returns None for them; without it an object has fewer values than records."""
    layout = Layout(
        topics_dir="lake", format=JsonLines(on_null="write"), key_converter=StringConverter(), content=Envelope()
    )
    topic = landed(layout)

    def values(key: str, body: bytes) -> list[bytes | None]:
        rows = [json.loads(line)["value"] for line in body.splitlines()]
        return [None if value is None else b"%d" % value for value in rows]

    assert topic.check(values) == 4
    with pytest.raises(InvariantViolation, match=r"I1 .* records .1, 3. are in no object"):
        topic.check(lambda key, body: [value or b"9" for value in values(key, body)])
