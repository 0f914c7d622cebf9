"""Objects with records of several Kafka partitions: one per encoded partition and group of slices."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch import execute
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import (
    ByPartition,
    Daily,
    Envelope,
    JsonLines,
    Layout,
    Limits,
    ObjectTags,
    RawBytes,
    Rotation,
    SiblingObjects,
    decode_naming,
)
from airflow_provider_kafka_s3.documents.codec import builtins, decode, encode, write_stamp
from airflow_provider_kafka_s3.documents.manifest import ContentHash, Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import (
    MAX_LANDED_OBJECTS,
    MAX_SLICES,
    LandedRange,
    Plan,
    cut_groups,
    join_ranges,
    plan_slices,
)
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    MissingObjectError,
)
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.plans import data_plan, slices_of
from tests.protocol.engine import in_turn
from tests.unit.batch.simulated_topic import Topic

DAY = 86_400_000
MERGED = Rotation(merge_partitions=True)
LAYOUT = Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily(), rotation=MERGED)


def filled(layout: Layout = LAYOUT, *, partitions: int = 3, records: int = 6, **more: Any) -> Topic:
    """A topic whose partitions each have records of two days in turn; ``p`` and ``n`` are partition and offset."""
    topic = Topic(layout, partitions, **more)
    for p, n in itertools.product(range(partitions), range(records)):
        topic.append(json.dumps({"p": p, "n": n}).encode(), partition=p, timestamp=n % 2 * DAY, key=b"%d/%d" % (p, n))
    return topic


def entries_of(topic: Topic, batch: int = 1) -> tuple[ObjectEntry, ...]:
    """The objects of a batch."""
    manifest = topic.pipeline.log.read_manifest(batch)
    assert manifest is not None
    return manifest.objects


def rows(body: bytes) -> list[tuple[int, int]]:
    """Partition and offset of each record of an object."""
    return [(row["p"], row["n"]) for row in map(json.loads, body.splitlines())]


# -- the objects ------------------------------------------------------------------------------------------------------


def test_an_object_has_the_records_of_all_partitions_in_the_order_of_the_plan() -> None:
    """Partition after partition; its name is that of its first record, and the manifest has the range of each."""
    topic = filled()
    topic.land()
    assert {key.removeprefix("lake/orders/"): rows(body) for key, body in topic.objects().items()} == {
        f"year=1970/month=01/day={day + 1:02}/orders+0+{day:010}.json": [
            (p, n) for p in range(3) for n in range(day, 6, 2)
        ]
        for day in range(2)
    }
    first = entries_of(topic)[0]
    assert (first.slices, first.records, first.min_offset, first.max_offset) == ((0, 1, 2), 9, 0, 4)
    assert [(r.id, r.records, r.min_offset, r.max_offset) for r in first.ranges] == [(i, 3, 0, 4) for i in range(3)]
    assert topic.check() == 18


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    per_slice=st.integers(1, 30),
    polls=st.lists(st.integers(1, 7), min_size=2, max_size=2),
    max_bytes=st.sampled_from([30, 60, 2**20]),
)
def test_the_same_plan_gives_the_same_objects_whatever_the_batches(
    sizes: list[int], per_slice: int, polls: list[int], max_bytes: int
) -> None:
    """Any sizes of partitions, groups, objects and Arrow batches: every record is in one object."""
    layout = msgspec.structs.replace(LAYOUT, rotation=Rotation(merge_partitions=True, max_bytes=max_bytes))
    landed = []
    for poll in polls:
        topic = Topic(layout, len(sizes), records_per_poll=poll)
        for p, size in enumerate(sizes):
            for n in range(size):
                topic.append(json.dumps({"p": p, "n": n}).encode(), partition=p, timestamp=(n * 7 + p) % 3 * DAY)
        topic.land(limits=Limits(records_per_slice=per_slice))
        landed.append((topic.objects(), [e.content for e in entries_of(topic)] if any(sizes) else []))
        assert topic.check() == sum(sizes)
    assert landed[0] == landed[1]


def test_a_plan_without_groups_gives_the_objects_of_each_partition() -> None:
    """It is the plan that decides, so that batches planned before keep their names."""
    merged, alone = filled(), filled(msgspec.structs.replace(LAYOUT, rotation=Rotation()))
    merged.land()
    alone.land()
    assert (len(merged.objects()), len(alone.objects())) == (2, 6)
    assert Counter(r for body in merged.objects().values() for r in rows(body)) == Counter(
        r for body in alone.objects().values() for r in rows(body)
    )
    plan, _ = alone.pipeline.log.require_plan(1)
    assert plan.groups == ()
    assert all("ranges" not in builtins(entry) for entry in entries_of(alone))


def test_a_group_is_bounded_by_records_per_slice() -> None:
    """18 records in groups of at most 10: two groups of 9, of which one partition belongs to both."""
    topic = filled()
    topic.land(limits=Limits(records_per_slice=10))
    plan, _ = topic.pipeline.log.require_plan(1)
    assert [(s.partition, s.start, s.end) for s in plan.slices] == [(0, 0, 6), (1, 0, 3), (1, 3, 6), (2, 0, 6)]
    assert plan.groups == ((0, 1), (2, 3))
    assert sorted(rows(body)[0] for body in topic.objects().values()) == [(0, 0), (0, 1), (1, 3), (1, 4)]
    assert topic.check() == 18


def test_slices_without_records_are_covered() -> None:
    """A partition of transaction markers only, between two others, has a result and no records in objects."""
    topic = Topic(LAYOUT, 3)
    topic.append(b'{"p":0}', b'{"p":1}', timestamp=0)
    for _ in range(3):
        topic.kafka.append_marker("orders", 1)
    topic.append(b'{"p":2}', partition=2, timestamp=0)
    result = topic.land()
    assert result.target.count == 6
    manifest = topic.pipeline.log.read_manifest(1)
    assert manifest is not None
    assert [(s.records, s.next_offset) for s in manifest.slices] == [(2, 2), (0, 3), (1, 1)]
    assert [entry.slices for entry in manifest.objects] == [(0, 2)]
    assert topic.check() == 3


def test_objects_end_by_their_bytes_across_partitions() -> None:
    """The next object begins in the middle of a partition, and is named after that record."""
    topic = filled(msgspec.structs.replace(LAYOUT, rotation=Rotation(merge_partitions=True, max_bytes=60)))
    topic.land()
    found = {key.rpartition("/")[2]: rows(body) for key, body in topic.objects().items() if "day=01" in key}
    assert found == {
        "orders+0+0000000000.json": [(0, 0), (0, 2), (0, 4), (1, 0)],
        "orders+1+0000000002.json": [(1, 2), (1, 4), (2, 0), (2, 2)],
        "orders+2+0000000004.json": [(2, 4)],
    }
    assert topic.check() == 18


def test_envelopes_have_the_partition_of_each_record() -> None:
    """Not that of the first one of the object."""
    topic = filled(msgspec.structs.replace(LAYOUT, content=Envelope()))
    topic.land()
    for body in topic.objects().values():
        for record in map(json.loads, body.splitlines()):
            value = record["value"] if isinstance(record["value"], dict) else json.loads(record["value"])
            assert (value["p"], value["n"]) == (record["partition"], record["offset"])
    assert len(topic.objects()) == 2


def test_siblings_and_tombstones_have_the_records_of_all_partitions() -> None:
    """Keys and null values of a group are in one object each, beside the same records."""
    layout = Layout(
        topics_dir="lake",
        format=RawBytes(on_null="write"),
        content=SiblingObjects(keys=RawBytes()),
        partitioner=Daily(),
        rotation=MERGED,
    )
    topic = Topic(layout, 2)
    for p, n in itertools.product(range(2), range(4)):
        value = None if n == 2 else b"v%d/%d" % (p, n)
        topic.append(value, partition=p, timestamp=0, key=b"k%d/%d" % (p, n))
    topic.land()
    found = {key.removeprefix("lake/orders/"): body.split() for key, body in topic.objects().items()}
    day = "year=1970/month=01/day=01/orders+0+0000000000"
    values = [b"0/0", b"0/1", b"0/3", b"1/0", b"1/1", b"1/3"]
    assert found == {
        f"{day}.bin": [b"v" + value for value in values],
        f"{day}.keys.bin": [b"k" + value for value in values],
        "tombstone/orders+0+0000000002.keys.bin": [b"k0/2", b"k1/2"],
    }
    topic.check()


def test_dead_letters_are_one_object_per_partition() -> None:
    """They are named after the partition that the producer has to look at; the other records are merged."""
    topic = filled(msgspec.structs.replace(LAYOUT, errors="dead_letter"))
    for p in (0, 2):
        topic.append(b"{", b"[", partition=p, timestamp=0)
    topic.land()
    names = sorted(key.rpartition("/")[2] for key in topic.objects() if "_dead_letters" in key)
    assert names == ["orders+0+0000000006.json", "orders+2+0000000006.json"]
    assert [(letter["partition"], letter["offset"]) for letter in topic.dead_letters()] == [
        (0, 6), (0, 7), (2, 6), (2, 7)
    ]  # fmt: skip
    assert len(topic.objects()) == 4
    assert topic.check() == 18 + 4


# -- the protocol -----------------------------------------------------------------------------------------------------


def test_a_lost_object_is_written_again_with_the_same_bytes() -> None:
    """All slices of its group are read again, in order, and nothing else changes."""
    topic = filled(records=40)
    topic.land(limits=Limits(records_per_slice=50))
    before = topic.objects()
    assert len(before) == 6
    for key in before:
        topic.restore(key)
        assert topic.objects() == before
    topic.restore(*before)
    assert topic.objects() == before
    assert topic.check() == 120


def process(topic: Topic, store: ObjectStore) -> TopicPipeline:
    """A process that waits for nothing, and takes one step after another."""
    return TopicPipeline(
        DurableStore(store, Retrier(sleep=lambda _: None)),
        topic.kafka,
        topics_dir="lake",
        pipeline="orders-to-lake",
        topic="orders",
        parallel=in_turn,
        sleep=lambda _: None,
    )


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_RESPONSE])
@pytest.mark.parametrize("expired", [False, True], ids=["uploads pending", "uploads expired"])
def test_a_fault_at_any_request_leaves_each_record_in_one_object(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, expired: bool
) -> None:
    """The next process makes the same objects, from the uploads or from Kafka."""
    monkeypatch.setattr(execute, "in_threads", in_turn)
    limits = Limits(records_per_slice=10)
    expected = filled()
    process(expected, expected.bucket).land(expected.request(limits=limits))
    for nth in itertools.count(1):
        topic = filled()
        store = FaultyStore(topic.bucket)
        store.inject(fault, nth=nth)
        with contextlib.suppress(SimulatedCrash):
            process(topic, store).land(topic.request(limits=limits))
        if len(store.requests) < nth:
            break
        for upload in list(topic.bucket.pending_uploads("")) if expired else ():
            topic.bucket.abort_upload(upload.key, upload.upload_id)
        process(topic, topic.bucket).land(topic.request(limits=limits))
        assert topic.objects() == expected.objects()
        assert topic.check() == 18
    assert nth > 30


def test_a_lost_upload_of_a_decided_batch_is_written_again() -> None:
    """The driver ends after the decision, and the uploads expire."""
    topic = filled()
    pipeline = process(topic, topic.bucket)
    run = pipeline.run(topic.request())
    plan = run.advance()
    assert isinstance(plan, Plan)
    carry_out = pipeline.committer.carry_out
    pipeline.committer.carry_out = lambda *_: None  # type: ignore[method-assign]
    pipeline.execute(plan, run="a")
    pipeline.committer.carry_out = carry_out  # type: ignore[method-assign]
    for upload in list(topic.bucket.pending_uploads("")):
        topic.bucket.abort_upload(upload.key, upload.upload_id)
    assert topic.objects() == {}
    pipeline.land(topic.request())
    expected = filled()
    expected.land()
    assert topic.objects() == expected.objects()
    assert topic.check() == 18


def test_an_object_whose_records_are_gone_names_all_its_partitions() -> None:
    """One partition without its records is enough: a part of an object is never written."""
    topic = filled()
    topic.land()
    key = min(topic.objects())
    topic.kafka.delete_records("orders", 1, 2)
    with pytest.raises(BatchLossError) as e:
        topic.restore(key)
    where = ", and ".join(f"partition {p}, offsets 0 to 4" for p in range(3))
    assert f"({where}, 9 records:" in str(e.value)
    assert key not in topic.objects()


@pytest.mark.parametrize("partition", range(3))
def test_verification_of_a_partition_reads_the_objects_that_have_its_records(partition: int) -> None:
    """A window of offsets selects by the ranges of each partition, not by those of the first one."""
    topic = filled()
    topic.land(limits=Limits(records_per_slice=10))

    def verify(run: str) -> TopicResult | Plan:
        window = {partition: (4, 5)}
        request = RunRequest(
            run=run, offsets="data_interval", layout=LAYOUT, starting=None, window=window, action="verify"
        )
        return topic.pipeline.run(request).advance()

    result = verify("b")
    holding = [key for key, body in topic.objects().items() if (partition, 4) in rows(body)]
    assert (len(topic.objects()), result.verified) == (4, 2)  # type: ignore[union-attr]
    topic.bucket.delete(holding[0])
    with pytest.raises(MissingObjectError, match=r"1 object of committed batch 1 .* is gone"):
        verify("c")


def test_a_rerun_writes_nothing() -> None:
    """Neither objects nor documents; and the next batch has the new records alone."""
    topic = filled()
    topic.land()
    before = {info.key: info.etag for info in topic.bucket.list("")}
    assert not topic.land().wrote
    assert {info.key: info.etag for info in topic.bucket.list("")} == before
    topic.append(b'{"p": 1, "n": 6}', partition=1, timestamp=0)
    topic.append(b'{"p": 2, "n": 6}', partition=2, timestamp=0)
    topic.land("b")
    assert [rows(body) for key, body in topic.objects().items() if "+1+0000000006" in key] == [[(1, 6), (2, 6)]]
    assert topic.check() == 20


# -- the documents ----------------------------------------------------------------------------------------------------


@given(
    ranges=st.dictionaries(
        st.integers(0, 9),
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 60)), min_size=1, max_size=8),
        max_size=8,
    ),
    max_records=st.integers(1, 100),
)
def test_groups_are_as_few_as_possible_and_of_nearly_equal_size(
    ranges: dict[int, list[tuple[int, int]]], max_records: int
) -> None:
    """Each has at most ``records_per_slice`` offsets, and together they have all."""
    offsets = Offsets({p: _apart(some) for p, some in ranges.items()})
    slices, groups = cut_groups(offsets, max_records=max_records)
    plan = data_plan(LAYOUT, slices, groups=groups, skipped=Offsets({99: [(0, 1)]}))
    assert plan.read == offsets
    sizes = [sum(s.end - s.start for s in group) for group in plan.grouped]
    assert len(sizes) == -(-offsets.count // max_records)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert max(sizes, default=0) <= max_records


def _apart(some: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges with these gaps before them and these sizes."""
    found, at = [], 0
    for gap, size in some:
        found.append((at + gap, at + gap + size))
        at += gap + size
    return found


@pytest.mark.parametrize(
    "offsets",
    [
        {0: [(0, 10**6)]},
        {p: [(0, 10**5)] for p in range(9)},
        {p: _apart([(1, 1)] * 5_000) for p in range(3)},
        {0: _apart([(1, 7)] * 500), 1: [(0, 10**6)]},
    ],
)
def test_a_batch_has_a_bounded_number_of_reads(offsets: dict[int, list[tuple[int, int]]]) -> None:
    """Spark plans a read for each slice of a partition and for each group; the rest is for the next batch."""
    slices, groups = plan_slices(Offsets(offsets), max_records=10, merge=True)
    assert 0 < len(groups) <= MAX_SLICES
    assert max(Counter(s.partition for s in slices).values()) <= MAX_SLICES
    assert {*Offsets(offsets)} == {s.partition for s in slices}


@pytest.mark.parametrize(
    "groups", [((0,),), ((1, 0), (2,)), ((0, 1), (1, 2)), ((0, 1, 2), ()), ((0, 2), (1,)), ((0, 1, 2, 3),)]
)
def test_groups_that_are_not_the_slices_are_refused(groups: tuple[tuple[int, ...], ...]) -> None:
    """Every slice is in one group, in its order."""
    with pytest.raises(ValueError, match="groups are not its slices"):
        data_plan(LAYOUT, slices_of((0, 0, 5), (1, 0, 5), (2, 0, 5)), groups=groups)


@pytest.mark.parametrize("slices", [((1, 0, 5), (0, 0, 5)), ((0, 5, 9), (0, 0, 5))])
def test_slices_of_a_group_ascend(slices: tuple[tuple[int, int, int], ...]) -> None:
    """Records of an object are in this order; slices that share no objects may have any."""
    with pytest.raises(ValueError, match="not in the order of partitions and offsets"):
        data_plan(LAYOUT, slices_of(*slices), groups=((0, 1),))
    data_plan(LAYOUT, slices_of(*slices), groups=((0,), (1,)))
    data_plan(LAYOUT, slices_of(*slices))


def test_a_plan_of_an_earlier_version_has_no_groups() -> None:
    """And an entry of its manifest no ranges: both are read as before."""
    plan = data_plan(LAYOUT, slices_of((0, 0, 5)))
    body = builtins(plan)
    assert body.pop("groups") == ()

    def of_json(kind: type, value: object) -> object:
        return Offsets.from_json(value) if kind is Offsets else decode_naming(value)

    assert msgspec.convert(body, Plan, str_keys=True, dec_hook=of_json) == plan


Change = Callable[[ObjectEntry], ObjectEntry]


def _with_range(entry: ObjectEntry, at: int, **changes: int) -> ObjectEntry:
    ranges = [*entry.ranges]
    ranges[at] = msgspec.structs.replace(ranges[at], **changes)
    return msgspec.structs.replace(entry, ranges=tuple(ranges))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda e: msgspec.structs.replace(e, slices=(0, 1)), "ranges that are not its records"),
        (lambda e: msgspec.structs.replace(e, slices=(1, 0, 2)), "not of one group in its order"),
        (lambda e: msgspec.structs.replace(e, slices=(0, 1, 3)), "not of one group in its order"),
        (lambda e: msgspec.structs.replace(e, slices=(0, 1, 9)), "which the plan does not have"),
        (lambda e: msgspec.structs.replace(e, slices=(0, 0, 1)), "not of one group in its order"),
        (lambda e: msgspec.structs.replace(e, slices=()), "which the plan does not have"),
        (lambda e: msgspec.structs.replace(e, slices=(0,)), "ranges that are not its records"),
        (lambda e: msgspec.structs.replace(e, ranges=()), "ranges that are not its records"),
        (lambda e: msgspec.structs.replace(e, records=8), "ranges that are not its records"),
        (lambda e: msgspec.structs.replace(e, max_offset=2), "ranges that are not its records"),
        (lambda e: _with_range(e, 1, max_offset=6), "does not lie within"),
        (lambda e: _with_range(e, 1, min_offset=5), "does not lie within"),
        (lambda e: _with_range(_with_range(e, 1, records=2), 2, records=4), "do not add up"),
    ],
)
def test_an_entry_that_does_not_fit_the_groups_is_refused(change: Change, why: str) -> None:
    """A commit lists objects within one group, with ranges that add up for every slice."""
    topic = filled(partitions=4)
    topic.land(limits=Limits(records_per_slice=18))
    plan, _ = topic.pipeline.log.require_plan(1)
    plan = msgspec.structs.replace(plan, groups=((0, 1, 2), (3,)), slices=slices_of(*((p, 0, 6) for p in range(4))))
    single = filled(partitions=4)
    single.land(limits=Limits(records_per_slice=100))
    manifest = _regrouped(single)
    manifest.check_against(plan)
    first, *others = manifest.objects
    with pytest.raises(ValueError, match=why):
        msgspec.structs.replace(manifest, objects=(change(first), *others)).check_against(plan)


def _regrouped(topic: Topic) -> Manifest:
    """The manifest of four partitions in one group, as if the last one were a group of its own."""
    manifest = topic.pipeline.log.read_manifest(1)
    assert manifest is not None
    entries = []
    for entry in manifest.objects:
        *first, last = entry.ranges
        key = entry.key.replace("+0+", "+3+")
        three = {"slices": (0, 1, 2), "ranges": tuple(first), "records": entry.records - last.records}
        one = {"key": key, "slices": (3,), "ranges": (), "records": last.records}
        entries += [msgspec.structs.replace(entry, **three), msgspec.structs.replace(entry, **one)]
    return msgspec.structs.replace(manifest, objects=tuple(entries))


def test_dead_letters_of_several_slices_are_refused() -> None:
    """They are objects of one slice."""
    topic = filled(partitions=2)
    topic.land()
    plan, _ = topic.pipeline.log.require_plan(1)
    manifest = topic.pipeline.log.read_manifest(1)
    assert manifest is not None
    entry = manifest.objects[0]
    dead = msgspec.structs.replace(entry, key="lake/orders/_dead_letters/orders+0+0000000000.json")
    with pytest.raises(ValueError, match="belongs to slices"):
        msgspec.structs.replace(manifest, objects=(dead, *manifest.objects[1:])).check_against(plan)


def test_digests_of_several_slices_are_unambiguous() -> None:
    """A partition is not taken for an offset: partition 5 with offset 7 is not offsets 5 and 7."""
    one, two = ContentHash("id", 0), ContentHash("id", 0)
    one.update([1, 5, 7])
    two.update([1])
    two.next_slice(5)
    two.update([7])
    assert one.hexdigest() != two.hexdigest()


def test_groups_and_ranges_are_stored_and_read() -> None:
    """In the documents of the bucket, which are checked against each other."""
    topic = filled()
    topic.land(limits=Limits(records_per_slice=10))
    stored = topic.pipeline.log
    plan, manifest = stored.require_plan(1)[0], stored.read_manifest(1)
    assert manifest is not None
    for document in (plan, manifest):
        assert decode(type(document), encode(document, write_stamp()), "here")[0] == document
    assert {entry.slices for entry in manifest.objects} == {(0, 1), (2, 3)}


# -- the checker ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "I2 object"),
        (lambda lines: [*lines[:4], *lines[5:]], "I1 batch 1, partition 1"),
        (lambda lines: [*lines[3:], *lines[:3]], "I1 batch 1, partition 0"),
    ],
    ids=["in another order", "a record less", "partitions in another order"],
)
def test_the_checker_finds_wrong_contents(change: Callable[[list[bytes]], list[bytes]], code: str) -> None:
    """It compares the part of each partition with the records in Kafka, and their order with the manifest."""
    topic = filled()
    topic.land()
    key, body = min(topic.objects().items())
    changed = change(body.splitlines(keepends=True))
    stored = topic.bucket.get(key)
    assert stored is not None
    topic.bucket.delete(key)
    topic.bucket.put_new(key, b"".join(changed), metadata=stored.metadata)
    with pytest.raises(InvariantViolation) as e:
        topic.check()
    assert any(finding.startswith(code) for finding in e.value.findings)


# -- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"partitioner": ByPartition()}, "no effect with the partitioner 'partition'"),
        ({"tags": ObjectTags(offsets=True)}, "does not go with offset_tags"),
    ],
)
def test_settings_that_contradict_merging_are_refused(more: dict[str, Any], why: str) -> None:
    """With the reason, and what to do."""
    with pytest.raises(ConfigurationError, match=why):
        Layout(**{"format": JsonLines(), "partitioner": Daily(), "rotation": MERGED, **more})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"flush_size": 10}, "does not go with flush_size, .* use max_bytes to end objects"),
        ({"rotate_interval_ms": 10}, "does not go with rotate_interval_ms, .* use max_bytes to end objects"),
        ({"whole_partitions": True}, "does not go with whole_partitions"),
    ],
)
def test_rules_of_one_kafka_partition_are_refused(more: dict[str, Any], why: str) -> None:
    """``max_bytes`` ends merged objects."""
    with pytest.raises(ConfigurationError, match=why):
        Rotation(merge_partitions=True, **more)


@pytest.mark.parametrize("merge", [False, True])
def test_a_task_does_not_read_any_number_of_landed_objects(merge: bool) -> None:
    """Ranges with very many objects are cut into several slices; one range is never cut."""
    half = MAX_LANDED_OBJECTS // 2
    numbers = [half, half, 1, 3 * half, 1]
    ranges = [LandedRange(0, 10 * i, 10 * i + 10, i + 1, number) for i, number in enumerate(numbers)]
    slices, groups, batches = join_ranges(ranges, max_records=1_000, merge=merge)
    assert [(s.start, s.end) for s in slices] == [(0, 20), (20, 30), (30, 40), (40, 50)]
    assert batches == (((1, 3),), ((3, 4),), ((4, 5),), ((5, 6),))
    assert groups == (((0,), (1,), (2,), (3,)) if merge else ())
