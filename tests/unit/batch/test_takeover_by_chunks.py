"""A pipeline goes on where DeviantArt's sink has ended, by its markers, indices and the records in Kafka."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from airflow_provider_kafka_s3.maintenance.takeover import Takeover
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket, check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.unit.kafka_connect.connectors import DEVIANTART

TOPIC = "orders"
FOLDER = "raw/backup"
MARKER = f"{FOLDER}/last_chunk_index.{TOPIC}-00000.txt"


class World:
    """A sink with one Kafka partition whose offsets have gaps, and its bucket."""

    def __init__(self, values: Sequence[bytes] = (), *, gaps: bool = True) -> None:
        self.layout = layout_of(convert(DEVIANTART).parameters)
        self.bucket = MemoryStore("lake")
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.values: dict[int, bytes] = {}
        values = values or [b"record %d%s" % (n, b"\n" if n % 5 == 0 else b"") for n in range(20)]
        for number, value in enumerate(values):
            if gaps and number % 4 == 3:
                self.kafka.append_marker(TOPIC, 0)
            self.values[self.kafka.append(TOPIC, 0, value, number)] = value
        self.pipeline = TopicPipeline(
            DurableStore(self.bucket, Retrier()), self.kafka, topics_dir=FOLDER, pipeline="p", topic=TOPIC
        )

    @property
    def offsets(self) -> list[int]:
        """Offsets of the records."""
        return sorted(self.values)

    def write(
        self, chunks: Sequence[Sequence[int]], *, day: str = "2026-01-02", first: int | None = None, ours: bool = False
    ) -> str:
        """Write a data object of these records in chunks, with its index; returns the key of the index.

        Args:
            chunks: offsets of the records.
            day: of the folder.
            first: first offset of the object, from which on records are counted, as by the sink; None: the offsets.
            ours: write the index as a pipeline does.
        """
        at = chunks[0][0] if first is None else first
        name = f"{FOLDER}/{day}/{TOPIC}-00000-{at:012d}"
        data, listed = b"", []
        for offsets in chunks:
            if ours:
                text = b"".join(self.values[o] + b"\n" for o in offsets)
            else:
                text = b"".join(self.values[o].removesuffix(b"\n") + b"\n" for o in offsets)
                text = text.decode("utf-8", "replace").encode()
            known = {"next_record_offset": offsets[-1] + 1} if ours else {}
            member = gzip.compress(text, mtime=0)
            listed.append(
                {
                    "byte_length_uncompressed": len(text),
                    "num_records": len(offsets),
                    "byte_length": len(member),
                    "byte_offset": len(data),
                    "first_record_offset": at if first is not None else offsets[0] if offsets else 0,
                    **known,
                }
            )
            at += len(offsets)
            data += member
        self.bucket.put_new(f"{name}.gz", data)
        self.bucket.put_new(f"{name}.index.json", json.dumps({"chunks": listed}).encode())
        return f"{name}.index.json"

    def mark(self, index: str) -> None:
        """Write the marker."""
        self.bucket.put_new(MARKER, index.encode())

    def plan(self, state: str = "", **more: Any) -> Takeover:
        """Decide where the pipeline goes on."""
        return self.pipeline.plan_takeover_by_chunks(ConsumerGroup("g", state, {}), self.layout, **more)

    def land(self) -> list[bytes]:
        """Land all that is new, and return all lines of visible objects."""
        self.pipeline.land(RunRequest(run="first", offsets="incremental", layout=self.layout, starting="earliest"))
        keys = [info.key for info in self.bucket.list("") if info.key.endswith(".gz") and "_kafka_s3/" not in info.key]
        return sorted(line for key in keys for line in gzip.decompress(self._body(key)).splitlines() if line)

    def _body(self, key: str) -> bytes:
        stored = self.bucket.get(key)
        assert stored is not None
        return stored.body

    @property
    def lines(self) -> list[bytes]:
        """All records as lines."""
        return sorted(value.removesuffix(b"\n") for value in self.values.values())


def test_a_pipeline_goes_on_behind_the_last_chunk_although_offsets_have_gaps() -> None:
    """First offset and number of records would give an offset within the chunk."""
    world = World()
    world.write([world.offsets[:3]], day="2026-01-01")
    world.mark(world.write([world.offsets[3:7], world.offsets[7:12]]))
    takeover = world.plan()
    assert takeover.start == {0: world.offsets[11] + 1}
    assert takeover.start[0] > world.offsets[7] + 5
    world.pipeline.take_over(takeover, world.layout)
    assert world.land() == world.lines
    assert world.plan().done


def test_an_object_that_no_marker_names_is_in_the_way() -> None:
    """The sink stopped between the upload and the marker: it would write the object again."""
    world = World()
    world.mark(world.write([world.offsets[:4]]))
    world.write([world.offsets[4:9]])
    takeover = world.plan()
    assert takeover.start == {0: world.offsets[3] + 1}
    assert [one.key.rpartition(".")[2] for one in takeover.in_the_way] == ["gz", "json"]
    with pytest.raises(ForeignObjectError):
        world.pipeline.take_over(takeover, world.layout)
    for one in takeover.in_the_way:
        world.bucket.delete(one.key)
    world.pipeline.take_over(world.plan(), world.layout)
    assert world.land() == world.lines


def test_an_empty_first_chunk_is_skipped() -> None:
    """A record larger than a block first makes an empty one."""
    world = World()
    world.mark(world.write([world.offsets[:2], []]))
    assert world.plan().start == {0: world.offsets[1] + 1}


def test_a_partition_without_a_marker_needs_a_decision() -> None:
    """An error that names the key, or the first offset in Kafka; the sink itself begins at 0 (D6)."""
    world = World()
    with pytest.raises(ConfigurationError, match="no marker of the sink: s3://lake/raw/backup/last_chunk_index"):
        world.plan()
    assert world.plan(without_offset="earliest").start == {0: 0}


def test_a_marker_of_a_partition_that_kafka_does_not_have_is_refused() -> None:
    """The topic was created again with fewer; markers of other topics whose names begin alike do not count."""
    world = World()
    world.mark(world.write([world.offsets[:4]]))
    for name in (f"{TOPIC}-00000-00007", f"{TOPIC}-x-00007", f"{TOPIC}s-00007"):
        world.bucket.put_new(f"{FOLDER}/last_chunk_index.{name}.txt", b"x")
    assert world.plan().start == {0: world.offsets[3] + 1}
    world.bucket.put_new(f"{FOLDER}/last_chunk_index.{TOPIC}-00001.txt", b"x")
    with pytest.raises(ConfigurationError, match=r"has 1 partition in Kafka, .*last_chunk_index\.orders-00001\.txt"):
        world.plan()


def test_the_sinks_objects_and_the_pipelines_are_not_confused() -> None:
    """In one folder: checks, verification, repair and garbage collection look at those of the pipeline only."""
    world = World()
    world.mark(world.write([world.offsets[:3], world.offsets[3:9]], day="1970-01-01"))
    theirs = {info.key: world._body(info.key) for info in world.bucket.list("")}
    world.pipeline.take_over(world.plan(), world.layout)
    world.land()
    assert {key: world._body(key) for key in theirs if "last_chunk" not in key} == {
        key: body for key, body in theirs.items() if "last_chunk" not in key
    }
    first = f"{FOLDER}/1970-01-01/{TOPIC}-00000-{world.offsets[9]:012d}"
    assert world._body(MARKER) == f"{first}.index.json".encode()
    assert json.loads(world._body(f"{first}.index.json"))["chunks"][-1]["next_record_offset"] == world.offsets[-1] + 1
    before = snapshot(world.bucket)
    assert world.pipeline.repair(start={}).was == "right"
    verified = world.pipeline.land(
        RunRequest(run="check", offsets="incremental", layout=world.layout, starting=None, action="verify")
    )
    assert verified.status in ("ok", "empty")
    assert world.pipeline.find_garbage(older_than=86_400).foreign == ()
    check_unchanged(before, snapshot(world.bucket))
    # The values that end in a newline have an empty line behind them.
    summary = check_bucket(
        world.bucket,
        topics_dir=FOLDER,
        pipeline="p",
        topic=TOPIC,
        source=world.kafka.all_records(),
        decoder=lambda key, body: re.findall(rb"record \d+(?:\n(?=\n))?", gzip.decompress(body)),
        recovered=True,
        complete=True,
    )
    assert summary.records == 11


def test_a_chunk_with_other_records_than_kafka_is_refused() -> None:
    """The topic was created again."""
    world = World()
    world.mark(world.write([world.offsets[:4]]))
    world.kafka.create_topic(TOPIC)
    for _ in range(9):
        world.kafka.append(TOPIC, 0, b"other", 0)
    with pytest.raises(ConfigurationError, match="are not those in Kafka from offset 0 on"):
        world.plan()


@pytest.mark.parametrize("index", [b"", b"[]", b'{"chunks":[]}', b'{"chunks":[{"num_records":"x"}]}', b"\xff"])
def test_a_marker_that_leads_to_no_chunk_is_refused(index: bytes) -> None:
    """It is named, and nothing is guessed."""
    world = World()
    world.bucket.put_new(f"{FOLDER}/x.index.json", index)
    world.mark(f"{FOLDER}/x.index.json")
    with pytest.raises(ConfigurationError, match=f"the marker s3://lake/{MARKER} does not lead to an index"):
        world.plan()


@pytest.mark.parametrize("damage", ["gone", "cut", "no gzip"])
def test_a_damaged_data_object_is_refused(damage: str) -> None:
    """It is named, and nothing is guessed."""
    world = World()
    index = world.write([world.offsets[:4]])
    world.mark(index)
    key = index.removesuffix(".index.json") + ".gz"
    body = world._body(key)
    world.bucket.delete(key)
    if damage != "gone":
        world.bucket.put_new(key, body[:-9] if damage == "cut" else b"x" * len(body))
    with pytest.raises(ConfigurationError, match="or the object is damaged"):
        world.plan()


def test_a_running_sink_is_refused() -> None:
    """Its consumer group has members."""
    world = World()
    world.mark(world.write([world.offsets[:4]]))
    with pytest.raises(ConfigurationError, match="active members"):
        world.plan(state="stable")
