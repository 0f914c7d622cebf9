"""Topics whose objects share folders of days, also with those of DeviantArt's sink: each has its own records."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from msgspec import structs

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import (
    DeviantArtNaming,
    JsonLines,
    KeyNaming,
    Layout,
    Naming,
    RawBytes,
    default_partitioner,
)
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.exceptions import PipelineConflictError
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import (
    BucketSummary,
    InvariantViolation,
    check_bucket,
    check_unchanged,
    snapshot,
)
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

DAY = 86_400_000
JAN_31 = 1_769_817_600_000
"""2026-01-31, 00:00 UTC."""
LAYOUT = Layout(
    topics_dir="lake",
    format=RawBytes(extension="", compression="gzip"),
    naming=DeviantArtNaming(),
    partitioner=default_partitioner(DeviantArtNaming()),
)


class World:
    """Pipelines over one bucket and one cluster, in memory."""

    def __init__(self) -> None:
        self.bucket = MemoryStore("bucket", clock=lambda: 0.0)
        self.kafka = SimulatedKafka()

    def append(self, topic: str, *values: bytes, partition: int = 0, at: int = JAN_31) -> None:
        """Append records of a time."""
        for value in values:
            self.kafka.append(topic, partition, value, at)

    def pipeline(self, topic: str, *, topics_dir: str = "lake") -> TopicPipeline:
        """A topic of the pipeline."""
        store = DurableStore(self.bucket, Retrier())
        return TopicPipeline(store, self.kafka, topics_dir=topics_dir, pipeline="p", topic=topic)

    def land(self, topic: str, run: str = "run", *, layout: Layout = LAYOUT, **more: Any) -> TopicResult:
        """Land all that is new."""
        pipeline = self.pipeline(topic, topics_dir=layout.topics_dir)
        return pipeline.land(RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest", **more))

    def check(self, topic: str, *, topics_dir: str = "lake", **more: Any) -> BucketSummary:
        """Compare a topic with Kafka."""
        return check_bucket(
            self.bucket,
            topics_dir=topics_dir,
            pipeline="p",
            topic=topic,
            source=self.kafka.all_records(),
            recovered=True,
            **more,
        )

    def visible(self) -> dict[str, bytes]:
        """Values in visible objects by key."""
        found = {}
        for info in self.bucket.list(""):
            stored = self.bucket.get(info.key)
            if "_kafka_s3/" not in info.key and stored is not None:
                found[info.key] = gzip.decompress(stored.body) if info.key.endswith(".gz") else stored.body
        return found


@pytest.fixture
def world() -> World:
    """With three topics whose names begin with one another."""
    made = World()
    for topic in ("a", "a-00001", "a-00001-000000000000"):
        made.kafka.create_topic(topic, partitions=2)
        made.append(topic, b"1", b"2")
        made.append(topic, b"3", at=JAN_31 + DAY)
        made.append(topic, b"4", partition=1)
    return made


def test_topics_share_the_folders_of_days(world: World) -> None:
    """Each object is of one topic and one day; a rerun writes nothing."""
    for topic in ("a", "a-00001", "a-00001-000000000000"):
        assert world.land(topic).status == "ok"
    assert world.visible() == {
        f"lake/{day}/{topic}-{partition:05d}-{offset:012d}.gz": body
        for topic in ("a", "a-00001", "a-00001-000000000000")
        for day, partition, offset, body in (
            ("2026-01-31", 0, 0, b"1\n2\n"),
            ("2026-01-31", 1, 0, b"4\n"),
            ("2026-02-01", 0, 2, b"3\n"),
        )
    }
    before = snapshot(world.bucket)
    for topic in ("a", "a-00001", "a-00001-000000000000"):
        assert (world.check(topic).objects, world.check(topic).records) == (3, 4)
        world.land(topic)
        world.land(topic, "later")
    check_unchanged(before, snapshot(world.bucket))


def test_an_object_of_a_topic_in_no_manifest_is_found_among_those_of_others(world: World) -> None:
    """Whoever wrote it, unless it is of offsets before the pipeline's first."""
    for topic in ("a", "a-00001"):
        world.land(topic)
    world.bucket.put_new("lake/2026-03-01/a-00001-00000-000000000007.gz", gzip.compress(b"x\n"))
    assert world.check("a").objects == 3
    with pytest.raises(InvariantViolation, match=r"I2 object lake/2026-03-01/a-00001-00000-000000000007\.gz is in no"):
        world.check("a-00001")


def test_objects_that_the_sink_left_are_not_those_of_the_pipeline(world: World) -> None:
    """They are in the same folders, of offsets before the pipeline's first; checks, verify and repair ignore them."""
    theirs = "lake/2026-01-31/a-00000-000000000000.gz"
    world.bucket.put_new(theirs, gzip.compress(b"1\n2\n"))
    pipeline = world.pipeline("a")
    info = world.kafka.describe("a")
    pipeline.log.create_marker(
        Marker(topic="a", cluster_id="", topic_id=info.topic_id or "", start={0: 2, 1: 0}), data_prefix="lake/"
    )
    world.land("a")
    assert world.check("a").records == 2
    assert world.visible() == {
        theirs: b"1\n2\n",
        "lake/2026-02-01/a-00000-000000000002.gz": b"3\n",
        "lake/2026-01-31/a-00001-000000000000.gz": b"4\n",
    }
    before = snapshot(world.bucket)
    assert pipeline.repair(start={}).was == "right"
    assert world.land("a", action="verify").verified == 2
    check_unchanged(before, snapshot(world.bucket))


def test_a_topic_that_was_created_again_is_landed_outside_the_folders_of_days(world: World) -> None:
    """Its offsets begin at 0 again; the objects of its first incarnation stay."""
    world.land("a")
    before = world.visible()
    world.kafka.create_topic("a")
    world.append("a", b"new")
    pipeline = world.pipeline("a")
    assert pipeline.reset(operator="me")
    world.land("a", "again")
    assert world.visible() == before | {"lake/generation-1/2026-01-31/a-00000-000000000000-g1.gz": b"new\n"}
    assert world.check("a").records == 5


def test_dead_letters_of_topics_are_apart(world: World) -> None:
    """In a folder of the topic, which readers skip."""
    layout = structs.replace(LAYOUT, format=JsonLines(compression="gzip"), value_converter=None, errors="dead_letter")
    for topic in ("a", "a-00001"):
        world.append(topic, b"{", b'{"n": 1}')
        world.land(topic, layout=layout)
        assert world.check(topic).records == 6
    assert [key for key in world.visible() if "_dead" in key] == [
        "lake/_dead_letters/a-00001/a-00001-00000-000000000003.json",
        "lake/_dead_letters/a/a-00000-000000000003.json",
    ]


def test_gc_aborts_uploads_of_its_own_topic_only(world: World) -> None:
    """Those of other topics in the same folder are not even counted."""
    for topic in ("a", "a-00001"):
        world.land(topic)
    uploads = {
        topic: world.bucket.create_upload(f"lake/2026-01-31/{topic}-00001-000000000000.gz")
        for topic in ("a", "a-00001")
    }
    world.bucket.create_upload("lake/2026-01-31/other.bin")
    found = gc.find_garbage(world.pipeline("a").log, now=8.0 * 86_400)
    assert [upload.upload_id for upload in found.garbage] == [uploads["a"]]
    assert (found.foreign, found.needed, found.young) == ((), (), ())
    gc.collect(world.pipeline("a").log, found)
    left = {upload.key for upload in world.bucket.pending_uploads("")}
    assert left == {"lake/2026-01-31/a-00001-00001-000000000000.gz", "lake/2026-01-31/other.bin"}


def plain(topics_dir: str, naming: KeyNaming | None = None) -> Layout:
    """A layout with a folder for each topic."""
    return Layout(topics_dir=topics_dir, format=RawBytes(), naming=naming or Naming())


def test_a_topic_with_its_own_folder_lands_beside_the_folders_of_days(world: World) -> None:
    """Under the same topics_dir, or one beside the days, in either order; each has its own records."""
    for first in (False, True):
        made = world if first else World()
        for topic in ("a", "b"):
            made.kafka.create_topic(topic)
            made.append(topic, b"1")
        lands = [lambda made=made: made.land("a"), lambda made=made: made.land("b", layout=plain("lake"))]
        for land in lands if first else lands[::-1]:
            assert land().status == "ok"
        assert (made.check("a").records, made.check("b").records) == (1, 1)
        made.kafka.create_topic("c")
        made.append("c", b"1")
        made.land("c", layout=plain("lake/deeper"))
        assert made.check("c", topics_dir="lake/deeper").records == 1


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("lake", "lake/2026-01-31"), ("lake", "lake/generation-1"), ("lake", "lake/tombstone"), ("", "2026-01-31")],
)
def test_a_topics_dir_that_is_a_folder_of_days_is_refused(world: World, outer: str, inner: str) -> None:
    """When a pipeline with DeviantArt's names comes second; nothing is written."""
    world.land("a", layout=plain(inner))
    before = snapshot(world.bucket)
    with pytest.raises(PipelineConflictError, match="holds another topics_dir"):
        world.land("a-00001", layout=structs.replace(LAYOUT, topics_dir=outer))
    check_unchanged(before, snapshot(world.bucket))


@pytest.mark.parametrize("outer", ["lake", ""])
def test_a_pipeline_does_not_begin_in_a_folder_of_days(world: World, outer: str) -> None:
    """Nor deeper in it; a folder of a day beside it is not refused. Nothing is written."""
    world.land("a", layout=structs.replace(LAYOUT, topics_dir=outer))
    before = snapshot(world.bucket)
    for inner in ("2026-01-31", "2026-01-31/deeper"):
        with pytest.raises(PipelineConflictError, match="that is a folder of days, which topics share"):
            world.land("a-00001", layout=plain(f"{outer}/{inner}".strip("/")))
    check_unchanged(before, snapshot(world.bucket))
    world.land("a-00001", layout=plain("elsewhere/2026-01-31"))
    assert world.check("a-00001", topics_dir="elsewhere/2026-01-31").records == 4


def test_folders_of_days_are_not_shared_with_a_topic_called_like_a_day(world: World) -> None:
    """Whose own folder that is; nothing is written."""
    world.kafka.create_topic("2026-01-31")
    world.append("2026-01-31", b"1")
    world.land("2026-01-31", layout=plain("lake"))
    before = snapshot(world.bucket)
    with pytest.raises(PipelineConflictError, match="topic '2026-01-31' of another pipeline has a folder there"):
        world.land("a")
    check_unchanged(before, snapshot(world.bucket))
