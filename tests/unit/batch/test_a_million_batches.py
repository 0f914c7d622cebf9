"""What looks at a log takes the same requests and the same memory, however long the log is."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import PartitionState
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, layout_digest
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.maintenance.gc import find_garbage
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.reading import summarized_batches
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectInfo, StoredObject
from airflow_provider_kafka_s3.testing.stores import WRITES, FaultyStore
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, Engine
from tests.protocol.made_history import LongTopic, MadeHistory

MILLION = 1_000_000

LONG = 4_000
"""Batches of a log that is long beside its indexes, of ten and of a hundred batches."""

SIZES = (10, 100)

AT_ONCE = 1_700
"""Batches of the indexes that are read at the same time, eight of a hundred, and of those before them."""


class WatchedHistory(MadeHistory):
    """Counts what is in memory while it is read.

    Attributes:
        most: the most objects of each kind that were in memory together.
    """

    def __init__(self, batches: int, **more: Any) -> None:
        super().__init__(batches, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC, **more)
        self.most: Counter[type] = Counter()
        self._gets = itertools.count(1)
        gc.collect()
        # Of other tests.
        self._before = _in_memory()

    def look(self) -> None:
        """Count what is in memory."""
        self.most |= _in_memory() - self._before

    def get(self, key: str, **more: Any) -> StoredObject | None:
        """Every so often, count."""
        every = 8 if "/index/" in key else 1_000
        if next(self._gets) % every == 0:
            self.look()
        return super().get(key, **more)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """At the end of a page, count."""
        for count, info in enumerate(super().list(prefix, after=after), start=1):
            yield info
            if count % 2_000 == 0:
                self.look()


def _in_memory() -> Counter[type]:
    """The objects of each kind."""
    kinds = (IndexedBatch, Plan, Manifest, ObjectInfo)
    return Counter(type(one) for one in gc.get_objects() if type(one) in kinds)


class Process:
    """A process that has read nothing yet."""

    def __init__(self, batches: int, **more: Any) -> None:
        self.bucket = WatchedHistory(batches, **more)
        self.kafka = LongTopic(TOPIC, 2 * batches)
        self.store = FaultyStore(self.bucket)
        self.engine = Engine(self.store, self.kafka)
        self.engine.log.index_sizes = more.get("sizes", self.engine.log.index_sizes)

    @property
    def requests(self) -> int:
        """Number of requests, with the pages of listings."""
        counts = Counter(request.operation for request in self.store.requests)
        return counts.total() - counts["list"] + self.bucket.pages

    @property
    def writes(self) -> bool:
        """Whether there was a request that writes."""
        return any(request.operation in WRITES for request in self.store.requests)


def window(first: int, batches: int) -> dict[int, tuple[int, int]]:
    """The offsets of consecutive batches."""
    return {0: (2 * first - 2, 2 * (first + batches - 1))}


def time_of(batch: int) -> dt.datetime:
    """The time of the first record of a batch."""
    return dt.datetime.fromtimestamp(batch, dt.UTC)


def numbers(snapshot: Snapshot, **selection: Any) -> Sequence[int]:
    """The selected batches."""
    return [one.batch for one in snapshot.objects(**selection)]


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_run_after_a_million_batches_takes_the_requests_of_the_first_one() -> None:
    """One that finds nothing new, and one that plans new records; no listing among them."""
    process = Process(MILLION)
    result = process.engine.topic_run(process.engine.request("nothing")).advance()
    assert isinstance(result, TopicResult)
    assert (result.status, process.requests) == ("empty", 4)
    process = Process(MILLION)
    process.kafka.records += 2
    plan = process.engine.topic_run(process.engine.request("new")).advance()
    assert isinstance(plan, Plan)
    assert (plan.batch, process.requests, process.bucket.pages) == (MILLION + 1, 8, 0)


def test_status_after_a_million_batches_takes_the_requests_of_any_status() -> None:
    """It reads the batches that it shows, lists the tables, and reads what was deleted on purpose."""
    process = Process(MILLION)
    status = topic_status(process.engine.log, process.kafka)
    assert status is not None
    assert (status.batches, process.requests) == (MILLION, 24)


@pytest.mark.parametrize("batch", [1, 432_109, MILLION])
def test_a_run_over_an_old_window_of_a_million_batches_takes_tens_of_requests(batch: int) -> None:
    """A dozen pages of the listing of indexes, a dozen indexes by bisection, and the documents of the batch."""
    process = Process(MILLION)
    result = process.engine.run("again", "data_interval", window=window(batch, 1))
    assert [one.batch for one in result.batches] == [batch]
    assert process.requests <= 50
    assert not process.writes


@pytest.mark.parametrize("batch", [2, 432_109])
def test_a_search_after_a_million_batches_that_were_landed_backward_takes_tens_of_requests(batch: int) -> None:
    """As a backfill from the end does: bisection in the other order finds them."""
    process = Process(MILLION, step=-1)
    first = process.bucket.first_offset(batch)
    result = process.engine.run("again", "data_interval", window={0: (first, first + 2)})
    assert [one.batch for one in result.batches] == [batch]
    assert process.requests <= 70


def test_a_search_among_batches_in_any_order_takes_large_indexes() -> None:
    """Bisection in both orders, what is near by, and then at most all indexes of a thousand."""
    process = Process(30_000, step=7_919)
    first = process.bucket.first_offset(17_003)
    result = process.engine.run("again", "data_interval", window={0: (first, first + 2)})
    assert [one.batch for one in result.batches] == [17_003]
    assert process.requests <= 20 + 2 * 8 + 32 + 30


def test_a_reader_of_the_latest_batches_lists_and_reads_only_these() -> None:
    """A page of two listings, an index with its plan, and the documents of each batch, whatever was landed before."""
    process = Process(MILLION)
    objects = Snapshot(process.engine.log, since=MILLION - 40).objects()
    assert [one.batch for one in objects] == [*range(MILLION - 39, MILLION + 1)]
    assert process.bucket.pages == 2
    assert process.requests <= 1 + 3 + 2 * 40 + 1 + 1


def test_a_reader_of_part_of_a_long_log_lists_only_the_indexes_of_this_part() -> None:
    """Ten indexes and their last plans, and one page of their listing."""
    process = Process(MILLION)
    assert Snapshot(process.engine.log, at=500_000, since=490_000).records == 20_000
    assert process.requests <= 1 + 1 + 2 * 10
    assert process.bucket.pages == 1


def test_a_reader_of_some_offsets_of_a_million_batches_takes_tens_of_requests() -> None:
    """They are searched for; the batches of the snapshot are selected among those that are found."""
    process = Process(MILLION)
    offsets = {0: (2 * 432_109, 2 * 432_112)}
    assert numbers(Snapshot(process.engine.log), offsets=offsets) == [432_110, 432_111, 432_112]
    assert process.requests <= 60
    assert numbers(Snapshot(process.engine.log, at=432_111), offsets=offsets) == [432_110, 432_111]
    assert numbers(Snapshot(process.engine.log, since=432_110), offsets=offsets) == [432_111, 432_112]
    assert numbers(Snapshot(process.engine.log), offsets=offsets, until=time_of(432_111)) == [432_110]


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_repair_has_few_batches_and_keys_in_memory() -> None:
    """A page of the listing, and as many indexes as are read at the same time."""
    process = Process(LONG, sizes=SIZES)
    done = repair(process.engine.committer, start={0: 0}, dry_run=True)
    assert (done.was, done.indexes) == ("right", 0)
    assert 0 < process.bucket.most[ObjectInfo] <= 2_100
    assert 0 < process.bucket.most[IndexedBatch] <= AT_ONCE


def test_a_marker_is_built_again_with_few_documents_in_memory() -> None:
    """All plans and manifests are read, a few at a time."""
    process = Process(LONG // 2, sizes=SIZES)
    marker, etag = process.engine.log.require_marker()
    wrong = {0: PartitionState(covered=((0, 2),))}
    fields = {name: getattr(marker, name) for name in marker.__struct_fields__}
    assert process.engine.log.replace_marker(type(marker)(**fields | {"partitions": wrong}), etag)
    done = repair(process.engine.committer, start={0: 0})
    assert (done.was, done.written) == ("wrong", True)
    assert done.marker.covered == Offsets({0: [(0, LONG)]})
    for kind in (Plan, Manifest):
        assert 0 < process.bucket.most[kind] <= 100


def test_a_run_that_counts_dead_letters_long_after_its_first_try_has_few_manifests_in_memory() -> None:
    """It reads those of all batches since then, some at a time."""
    process = Process(LONG // 2)
    request = process.engine.request("late", max_dead_letters=5)
    record = RunRecord(
        run="late",
        offsets="incremental",
        params={},
        topic_id=process.bucket.topic_id,
        generation=0,
        target=Offsets({0: [(LONG, LONG + 2)]}),
        window=None,
        low=1,
        layout_sha256=layout_digest(request.layout),
        isolation=request.isolation,
    )
    process.kafka.records += 2
    process.engine.log.create_run(record)
    plan = process.engine.topic_run(request).advance()
    assert isinstance(plan, Plan)
    assert 0 < process.bucket.most[Manifest] <= 100


def test_gc_has_few_batches_in_memory() -> None:
    """Those of the indexes that are read at the same time."""
    process = Process(LONG, sizes=SIZES)
    assert find_garbage(process.engine.log, now=0.0).garbage == ()
    assert 0 < process.bucket.most[IndexedBatch] <= AT_ONCE


def test_a_snapshot_of_many_batches_keeps_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first answer, too; the second one reads only what may have the records."""
    monkeypatch.setattr(summarized_batches, "_KEPT", 100)
    process = Process(LONG, sizes=SIZES)
    snapshot = Snapshot(process.engine.log)
    assert numbers(snapshot, since=time_of(3_000), until=time_of(3_010)) == [*range(3_000, 3_010)]
    process.bucket.look()
    assert 0 < process.bucket.most[IndexedBatch] <= AT_ONCE
    process.bucket.most.clear()
    process.bucket.look()
    assert process.bucket.most[IndexedBatch] == 0
    before = process.requests
    assert numbers(snapshot, since=time_of(1_500), until=time_of(1_502)) == [1_500, 1_501]
    assert snapshot.records == 2 * LONG
    # The indexes of two thousand batches with their plans, their listing, and the documents of two batches.
    assert process.requests - before <= 2 * 20 + 2 + 3 * 2


@pytest.mark.parametrize(
    "selection",
    [
        {},
        {"since": time_of(990), "until": time_of(1_011)},
        {"since": time_of(1_190)},
        {"until": time_of(5)},
        {"until": time_of(0)},
        {"offsets": {0: (1_997, 2_003)}},
        {"offsets": {0: (3, 1_003)}},
        {"offsets": {1: (0, 2_003)}},
        {"offsets": {0: (2_400, 2_409), 1: (0, 9)}},
        {"partitions": [0], "since": time_of(1_199)},
        {"partitions": [1]},
        {"generation": 1},
        {"batches": [5, 1_100]},
    ],
    ids=str,
)
def test_a_snapshot_selects_the_same_whether_its_batches_are_kept_or_not(
    selection: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first answer and in later ones, which leave out what cannot have the records."""
    process = Process(1_200, sizes=SIZES)
    expected = numbers(Snapshot(process.engine.log, since=7), **selection)
    monkeypatch.setattr(summarized_batches, "_KEPT", 100)
    snapshot = Snapshot(process.engine.log, since=7)
    assert numbers(snapshot, **selection) == expected
    assert numbers(snapshot, until=time_of(0)) == []
    assert numbers(snapshot, **selection) == expected


def test_a_snapshot_of_many_batches_has_the_sums_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, generations and offsets are those of a snapshot that keeps its batches."""
    process = Process(2_400, sizes=SIZES)

    def sums(snapshot: Snapshot) -> list[object]:
        offsets = snapshot.coverage.landed(0), snapshot.coverage.lost(0)
        return [snapshot.records, snapshot.dead_letters, snapshot.generations, snapshot.generation, *offsets]

    expected = sums(Snapshot(process.engine.log, since=7, at=2_333))
    assert expected[0] == 2 * (2_333 - 7)
    monkeypatch.setattr(summarized_batches, "_KEPT", 100)
    assert sums(Snapshot(process.engine.log, since=7, at=2_333)) == expected


def test_an_index_that_is_wrong_does_not_hide_batches_that_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first answer is compared with the marker; later ones, which could not be, do without the index, too."""
    monkeypatch.setattr(summarized_batches, "_KEPT", 100)
    process = Process(2_400, sizes=SIZES)
    log, where = process.engine.log, addresses.index_key(CONTROL, 1_001, 100)
    index = log.read_index(range(1_001, 1_101))
    assert index is not None
    wrong = [
        type(one)(**{n: getattr(one, n) for n in one.__struct_fields__} | {"claim": index.batches[48].claim})
        if one.batch == 1_050
        else one
        for one in index.batches
    ]
    body = encode(type(index)(topic=TOPIC, first=1_001, batches=tuple(wrong)), {})
    MemoryStore.put_new(process.bucket, where, body)
    snapshot = Snapshot(log)
    for _ in range(2):
        assert snapshot.select_batches(wanted=Offsets({0: [(2 * 1_050 - 2, 2 * 1_050)]})) == [1_050]
    assert "--every-document" in caplog.text
