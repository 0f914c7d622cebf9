"""A snapshot has exactly the committed objects: in flight, after losses, at earlier batches, of changes alone."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from importlib import import_module
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import (
    BlockGzip,
    Daily,
    DeviantArtNaming,
    Format,
    Hourly,
    JsonLines,
    Layout,
    Limits,
    Rotation,
    SiblingObjects,
    default_partitioner,
)
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.manifest import Amend
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, LogTamperedError, MarkerMissingError
from airflow_provider_kafka_s3.reading import Snapshot, snapshots
from airflow_provider_kafka_s3.reading.records import read_records, record_objects
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from airflow_provider_kafka_s3.testing.decompress import decompress
from tests.unit.batch.simulated_topic import Topic

HOUR = 3_600_000
DAY = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
START = int(DAY.timestamp() * 1000)


def layout_of(record_format: Format | None = None, **more: Any) -> Layout:
    """A layout of the tests."""
    return Layout(topics_dir="lake", format=record_format or JsonLines(), **more)


def log_of(topic: Topic, store: ObjectStore | None = None) -> TopicLog:
    """The log, as a reader has it."""
    opened = DurableStore(store or topic.bucket, Retrier())
    return TopicLog(opened, TopicAddress(topics_dir="lake", pipeline="orders-to-lake", topic="orders"))


def append(topic: Topic, *numbers: int, partition: int = 0) -> None:
    """Append records; number n has the time n hours after the start."""
    for n in numbers:
        topic.append(json.dumps({"n": n}).encode(), partition=partition, timestamp=START + n * HOUR)


def numbers_of(topic: Topic, objects: tuple[SnapshotObject, ...]) -> list[int]:
    """The numbers in objects, in their order."""
    found = []
    for one in objects:
        stored = topic.bucket.get(one.key)
        assert stored is not None
        lines = decompress(one.key, stored.body).splitlines()
        assert len(lines) == one.records
        found += [json.loads(line)["n"] for line in lines]
    return found


@pytest.fixture
def topic() -> Topic:
    """Three batches of two records each."""
    topic = Topic(layout_of(partitioner=Hourly()))
    for run in range(3):
        append(topic, 2 * run, 2 * run + 1)
        topic.land(f"run-{run}")
    return topic


def test_it_has_every_landed_record_once_and_in_order(topic: Topic) -> None:
    """And its counts are those of the log."""
    snapshot = Snapshot(log_of(topic))
    assert snapshot.batch == 3
    assert snapshot.records == 6
    objects = snapshot.objects()
    assert numbers_of(topic, objects) == [*range(6)]
    assert [one.batch for one in objects] == [1, 1, 2, 2, 3, 3]
    assert objects[0].columns == {"year": "2026", "month": "01", "day": "02", "hour": "00"}
    assert objects[0].times == (START, START)
    assert snapshot.urls() == [one.url for one in objects]


def test_a_batch_in_flight_is_in_no_snapshot_and_a_listing_has_some_of_it(topic: Topic) -> None:
    """Its objects become visible one after another."""
    append(topic, 6, 7)
    step = topic.pipeline.run(topic.request("in-flight")).advance()
    assert isinstance(step, Plan)
    committer = topic.pipeline.committer
    before = {info.key for info in topic.bucket.list("lake/orders/")}
    complete = topic.bucket.complete_upload
    refused = iter([False, True])

    def interrupted(*args: Any, **more: Any) -> Any:
        if next(refused, True):
            raise KeyboardInterrupt
        return complete(*args, **more)

    topic.bucket.complete_upload = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        topic.pipeline.execute(step, run="in-flight", on_data_loss="fail")
    topic.bucket.complete_upload = complete  # type: ignore[method-assign]
    assert len({info.key for info in topic.bucket.list("lake/orders/")} - before) == 1
    assert numbers_of(topic, Snapshot(log_of(topic)).objects()) == [*range(6)]
    topic.land("in-flight")
    assert numbers_of(topic, Snapshot(log_of(topic)).objects()) == [*range(8)]
    assert committer.log.require_marker()[0].is_resolved(4)


def test_it_stays_what_it_was_while_batches_land(topic: Topic) -> None:
    """Also what it reads only later."""
    snapshot = Snapshot(log_of(topic))
    append(topic, 6)
    topic.land("later")
    assert numbers_of(topic, snapshot.objects()) == [*range(6)]
    assert snapshot.records == 6


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_earlier_batch_gives_what_was_landed_then(topic: Topic, at: int) -> None:
    """Time travel."""
    snapshot = Snapshot(log_of(topic), at=at)
    assert numbers_of(topic, snapshot.objects()) == [*range(2 * at)]
    assert (snapshot.batch, snapshot.records) == (at, 2 * at)


def test_consecutive_changes_have_every_record_once(topic: Topic) -> None:
    """Whatever lands between two of them."""
    found: list[int] = []
    seen = 0
    for n in range(6, 9):
        snapshot = Snapshot(log_of(topic))
        changes = snapshot.changes(seen)
        found += numbers_of(topic, changes.objects())
        seen = snapshot.batch
        append(topic, n)
        topic.land(f"more-{n}")
    found += numbers_of(topic, Snapshot(log_of(topic)).changes(seen).objects())
    assert found == [*range(9)]


def test_an_object_that_was_accepted_as_lost_is_left_out(topic: Topic) -> None:
    """With the objects beside it that are still there."""
    lost = Snapshot(log_of(topic)).objects()[2]
    topic.bucket.delete(lost.key)
    topic.pipeline.accept_deleted(2, reason="test", operator="me")
    assert numbers_of(topic, Snapshot(log_of(topic)).objects()) == [0, 1, 3, 4, 5]
    assert numbers_of(topic, Snapshot(log_of(topic)).objects(batches=[2])) == [3]


def test_a_window_selects_objects_by_the_times_of_their_records(topic: Topic) -> None:
    """The end is not in it; an object without times is in every window."""
    snapshot = Snapshot(log_of(topic))
    hour = dt.timedelta(hours=1)
    assert numbers_of(topic, snapshot.objects(since=DAY + hour, until=DAY + 3 * hour)) == [1, 2]
    assert numbers_of(topic, snapshot.objects(until=DAY)) == []
    assert numbers_of(topic, snapshot.objects(since=DAY + 5 * hour)) == [5]
    with pytest.raises(ConfigurationError, match=r"since=.* has no time zone"):
        snapshot.objects(since=dt.datetime(2026, 1, 2))  # noqa: DTZ001 - it is refused
    for until in (DAY, DAY - hour):
        with pytest.raises(ConfigurationError, match=r"no time is at .* or later and before"):
            snapshot.objects(since=DAY, until=until)


def test_offsets_partitions_and_folders_select_objects() -> None:
    """Each alone, and together."""
    topic = Topic(layout_of(partitioner=Daily(), rotation=Rotation(flush_size=2)), partitions=2)
    append(topic, 0, 1, 2, 3, 30)
    append(topic, 4, 5, partition=1)
    topic.land()
    snapshot = Snapshot(log_of(topic))
    assert numbers_of(topic, snapshot.objects(offsets={0: (1, 3)})) == [0, 1, 2, 3]
    assert numbers_of(topic, snapshot.objects(offsets={0: (2, 3)})) == [2, 3]
    assert numbers_of(topic, snapshot.objects(partitions=[1])) == [4, 5]
    assert numbers_of(topic, snapshot.objects(folders=lambda c: c["day"] == "03")) == [30]
    assert numbers_of(topic, snapshot.objects(partitions=[1], offsets={0: (0, 9)})) == []


def test_merged_objects_have_the_ranges_of_all_their_partitions() -> None:
    """And are found by each of them."""
    rotation = Rotation(merge_partitions=True)
    topic = Topic(layout_of(partitioner=Daily(), rotation=rotation), partitions=2)
    append(topic, 0, 1)
    append(topic, 2, partition=1)
    topic.land()
    (one,) = Snapshot(log_of(topic)).objects(partitions=[1])
    assert one.partitions == (0, 1)
    assert [(r.partition, r.min_offset, r.max_offset, r.records, r.has_gaps) for r in one.ranges] == [
        (0, 0, 1, 2, False),
        (1, 0, 0, 1, False),
    ]


def test_objects_beside_others_and_dead_letters_are_not_data() -> None:
    """Objects of keys and indices belong to their object."""
    naming = DeviantArtNaming()
    layout = layout_of(
        BlockGzip(),
        content=SiblingObjects(keys=JsonLines()),
        errors="dead_letter",
        naming=naming,
        partitioner=default_partitioner(naming),
    )
    topic = Topic(layout)
    topic.append(b'{"n": 0}', b"no JSON", key=b'"k"', timestamp=START)
    topic.land()
    snapshot = Snapshot(log_of(topic))
    (one,) = snapshot.objects()
    assert numbers_of(topic, (one,)) == [0]
    assert {name: entry.key.rpartition("/")[2] for name, entry in one.siblings.items()} == {
        ".index": "orders-00000-000000000000.index.json",
        ".keys": "orders-00000-000000000000.keys.json",
    }
    assert (one.folders, snapshot.records, snapshot.dead_letters) == ("2026-01-02", 1, 1)


def test_null_values_without_an_object_of_values_are_counted() -> None:
    """What consumers of values read, and these, are all records."""
    topic = Topic(layout_of(JsonLines(on_null="write"), content=SiblingObjects(keys=JsonLines())))
    topic.append(b'{"n": 0}', None, b'{"n": 2}', None, None, key=b'"k"', timestamp=START)
    topic.land()
    log = log_of(topic)
    snapshot = Snapshot(log)
    assert (snapshot.records, snapshot.tombstones, numbers_of(topic, snapshot.objects())) == (5, 3, [0, 2])
    (plan, _), (decision, _) = log.require_plan(1), log.require_decision(1)
    objects = record_objects(log, plan, decision)
    found = [record for one in objects for some in read_records(log, plan, decision, one) for record in some]
    assert sorted(record.value is None for record in found) == [False] * 2 + [True] * 3


def test_a_topic_that_was_created_again_has_the_objects_of_all_its_generations(topic: Topic) -> None:
    """Offsets are those of the latest one, unless another is given."""
    topic.kafka.delete_topic("orders")
    topic.kafka.create_topic("orders")
    topic.pipeline.reset(operator="me")
    append(topic, 100)
    topic.land("again")
    snapshot = Snapshot(log_of(topic))
    assert snapshot.generation == 1
    assert numbers_of(topic, snapshot.objects()) == [*range(6), 100]
    assert numbers_of(topic, snapshot.objects(generation=0)) == [*range(6)]
    assert numbers_of(topic, snapshot.objects(offsets={0: (0, 1)})) == [100]
    assert numbers_of(topic, snapshot.objects(offsets={0: (0, 1)}, generation=0)) == [0]
    assert Snapshot(log_of(topic), at=3).generation == 0


def test_a_state_that_is_not_complete_is_refused(topic: Topic) -> None:
    """With the last one that is."""
    for at in (-1, 4):
        with pytest.raises(ConfigurationError, match=f"no state at batch {at}: batches up to 3 are complete"):
            Snapshot(log_of(topic), at=at)
    with pytest.raises(ConfigurationError, match="changes since batch 3 up to batch 2 cannot be"):
        Snapshot(log_of(topic), at=2).changes(3)


def test_a_topic_without_records_is_empty_and_one_without_its_marker_is_an_error(topic: Topic) -> None:
    """An absent marker never means that nothing was landed."""
    nothing = Topic(layout_of())
    nothing.land()
    empty = Snapshot(log_of(nothing))
    assert (empty.batch, empty.records, empty.generation, empty.objects()) == (0, 0, 0, ())
    log = log_of(topic)
    topic.bucket.delete(addresses.marker_key(log.prefix))
    with pytest.raises(MarkerMissingError):
        Snapshot(log)


def test_a_topic_that_no_run_has_begun_to_land_is_refused(topic: Topic) -> None:
    """It may be misspelt, so it is not taken for an empty one; the error has the names that are there."""
    log = log_of(topic)
    for name, pipeline, expected in (
        ("order", log.pipeline, r"has not begun to land topic 'order' below s3://.*Nothing was read.*'orders'"),
        ("clicks", log.pipeline, "it lands orders"),
        ("orders", log.pipeline + "s", f"{log.pipeline!r}"),
        ("orders", "other", f"the pipelines there are {log.pipeline}"),
    ):
        other = TopicLog(log.store, TopicAddress(topics_dir=log.topics_dir, pipeline=pipeline, topic=name))
        with pytest.raises(ConfigurationError, match=expected):
            Snapshot(other)
    elsewhere = TopicLog(log.store, TopicAddress(topics_dir="elsewhere", pipeline=log.pipeline, topic="orders"))
    with pytest.raises(ConfigurationError, match=r"there is no pipeline below .*; check bucket and topics_dir"):
        Snapshot(elsewhere)


def test_a_snapshot_is_opened_at_an_endpoint(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also all snapshots of a pipeline; with ``s3`` it may be given once."""
    log = log_of(topic)
    opened: list[S3Settings] = []

    def open_bucket(bucket: str, settings: S3Settings, credentials: object) -> DurableStore:
        opened.append(settings)
        return log.store

    for module in ("batch.location", "reading.snapshots"):
        monkeypatch.setattr(import_module(f"airflow_provider_kafka_s3.{module}"), "open_bucket", open_bucket)
    place: dict[str, Any] = {"pipeline": log.pipeline, "topics_dir": log.topics_dir}
    at, region = "http://store:9000", S3Settings(region="eu-central-1")
    assert Snapshot.open("lake", "orders", **place, endpoint_url=at).batch > 0
    Snapshot.open("lake", "orders", **place, endpoint_url=at, s3=region)
    snapshots("lake", **place, endpoint_url=at)
    Snapshot.open("lake", "orders", **place)
    assert opened == [
        S3Settings(endpoint_url=at),
        msgspec.structs.replace(region, endpoint_url=at),
        S3Settings(endpoint_url=at),
        S3Settings(),
    ]
    with pytest.raises(ConfigurationError, match="name two stores"):
        Snapshot.open("lake", "orders", **place, endpoint_url=at, s3=S3Settings(endpoint_url="http://other:9000"))


class CountedStore(MemoryStore):
    """Counts requests of readers."""

    def __init__(self, other: MemoryStore) -> None:
        super().__init__()
        self.__dict__.update(other.__dict__)
        self.requests: Counter[str] = Counter()

    def get(self, *args: Any, **more: Any) -> Any:
        """Count it."""
        self.requests["GET"] += 1
        return super().get(*args, **more)

    def list(self, *args: Any, **more: Any) -> Any:
        """Count it."""
        self.requests["LIST"] += 1
        return super().list(*args, **more)


def test_a_small_window_of_a_long_history_takes_few_requests() -> None:
    """The index of the log says which batches have records of that time; each is read once."""
    topic = Topic(layout_of(partitioner=Hourly()))
    append(topic, *range(230))
    topic.land(limits=Limits(records_per_batch=1))
    store = CountedStore(topic.bucket)
    snapshot = Snapshot(log_of(topic, store))
    window = {"since": DAY + dt.timedelta(hours=50), "until": DAY + dt.timedelta(hours=52)}
    assert numbers_of(topic, snapshot.objects(**window)) == [50, 51]
    # Marker, what was deleted on purpose, two indexes with a plan each, their list, the documents of 30 batches without
    # an index, those of two.
    assert sum(store.requests.values()) <= 7 + 60 + 6
    before = sum(store.requests.values())
    snapshot.objects(**window)
    assert sum(store.requests.values()) == before


@pytest.mark.parametrize(
    ("since", "at", "lists"),
    [(0, 60, 1), (9, 50, 1), (10, 49, 1), (29, 60, 0)],
    ids=["all", "first and last of them accepted", "neither", "few"],
)
def test_objects_that_were_accepted_as_lost_are_listed_for_many_batches(since: int, at: int, lists: int) -> None:
    """Those of exactly the selected batches, the first and the last one among them; for few, each is looked up."""
    topic = Topic(layout_of())
    append(topic, *range(60))
    topic.land(limits=Limits(records_per_batch=1))
    log = log_of(topic)
    for batch in (1, 10, 50, 60):
        keys_of_batch = tuple(entry.key for entry in log.require_decision(batch)[0].objects)
        log.create_amend(Amend(batch=batch, keys=keys_of_batch, reason="gone", operator="me"), 1)
    store = CountedStore(topic.bucket)
    found = Snapshot(log_of(topic, store), since=since, at=at).objects()
    assert [one.batch for one in found] == [n for n in range(since + 1, at + 1) if n not in (1, 10, 50, 60)]
    assert store.requests["LIST"] == lists


def land_around_an_open_batch(topic: Topic) -> list[int]:
    """Plan batch 4, whose run ends then, and land what is behind it; returns the numbers of the landed batches."""
    append(topic, 6, 7)
    assert isinstance(topic.pipeline.run(window_of(topic, "interrupted", 6, 8)).advance(), Plan)
    append(topic, 8, 9)
    return [batch.batch for batch in topic.pipeline.land(window_of(topic, "next", 8, 10)).batches]


def window_of(topic: Topic, run: str, start: int, end: int) -> RunRequest:
    """A run over some offsets, which does not wait for another one."""
    return RunRequest(
        run=run,
        offsets="data_interval",
        layout=topic.layout,
        starting={0: 0},
        window={0: (start, end)},
        adopt_wait=0,
    )


def test_complete_batches_that_are_named_are_read_also_behind_an_open_one(topic: Topic) -> None:
    """Those of a run's XCom are never silently empty, whatever the range of the snapshot is."""
    (landed,) = land_around_an_open_batch(topic)
    snapshot = Snapshot(log_of(topic))
    assert (snapshot.batch, landed) == (3, 5)
    assert numbers_of(topic, snapshot.objects(batches=[landed])) == [8, 9]
    assert numbers_of(topic, snapshot.objects(batches=[landed, 1])) == [0, 1, 8, 9]
    assert numbers_of(topic, snapshot.changes(2).objects(batches=[1])) == [0, 1]
    assert numbers_of(topic, Snapshot(log_of(topic), at=1).objects(batches=[2])) == [2, 3]
    assert snapshot.objects(batches=[]) == ()
    assert numbers_of(topic, snapshot.objects()) == [*range(6)]


def test_batches_that_are_not_complete_are_refused_with_what_completes_them(topic: Topic) -> None:
    """An open one by a run or a command, and one that does not exist by its number."""
    land_around_an_open_batch(topic)
    snapshot = Snapshot(log_of(topic))
    with pytest.raises(
        ConfigurationError,
        match=r"topic 'orders' of pipeline 'orders-to-lake' has no complete batches 0, 4, 99\. Nothing was read\. "
        r"Batches 4 are open: complete them by the runs that planned them, or by `kafka-s3 recover .*`\. Then open "
        r"another snapshot\. Batches 0, 99 have no plan: correct the numbers\.",
    ):
        snapshot.objects(batches=[99, 1, 4, 0])
    topic.pipeline.land(window_of(topic, "interrupted", 6, 8))
    assert numbers_of(topic, Snapshot(log_of(topic)).objects(batches=[4])) == [6, 7]


def test_changes_have_every_record_once_also_those_that_an_open_batch_held_back(topic: Topic) -> None:
    """They come late, with the open one; a number of a batch behind it is refused as the beginning."""
    (landed,) = land_around_an_open_batch(topic)
    before = Snapshot(log_of(topic))
    for wrong in ({"at": landed}, {"since": landed}):
        with pytest.raises(ConfigurationError, match=r"Batch 4 is open, and holds back the complete ones behind it"):
            Snapshot(log_of(topic), **wrong)
    topic.pipeline.land(window_of(topic, "interrupted", 6, 8))
    after = Snapshot(log_of(topic))
    assert numbers_of(topic, before.objects()) == [*range(6)]
    assert numbers_of(topic, after.changes(before.batch).objects()) == [6, 7, 8, 9]


def test_an_index_of_other_documents_is_refused_when_its_batches_are_read() -> None:
    """A selection by it may hide batches."""
    topic = Topic(layout_of(partitioner=Hourly()))
    append(topic, *range(100))
    topic.land(limits=Limits(records_per_batch=1))
    log = log_of(topic)
    index = log.read_index(range(1, 101))
    assert index is not None
    other = msgspec.structs.replace(index.batches[6], manifest_sha256="0" * 64)
    batches = (*index.batches[:6], other, *index.batches[7:])
    assert log.replace_index(msgspec.structs.replace(index, batches=batches))
    snapshot = Snapshot(log_of(topic))
    assert numbers_of(topic, snapshot.objects(offsets={0: (7, 9)})) == [7, 8]
    with pytest.raises(
        LogTamperedError, match=r"has another plan or manifest of batch 7 .*`kafka-s3 repair .*--every-document`"
    ):
        snapshot.objects()
