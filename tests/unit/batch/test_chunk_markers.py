"""Marker files of DeviantArt's names follow the pipeline's own marker, whoever writes them and whatever fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import BlockGzip, RawBytes
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation, check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, Request, SimulatedCrash
from tests.unit.batch.test_deviantart_folders import DAY, JAN_31, LAYOUT, World

BLOCKS = structs.replace(LAYOUT, format=BlockGzip(lines=RawBytes(extension=""), encoder="zlib"))
CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "vectors" / "block_gzip.json").read_text())["cases"]
}

FIRST, SECOND = (f"last_chunk_index.bar-0000{partition}.txt" for partition in (0, 1))


class Marked(World):
    """With a topic of two Kafka partitions, whose objects have indices."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka.create_topic("bar", partitions=2)

    def lands(self, run: str = "run", **more: Any) -> None:
        """Land all that is new."""
        assert self.land("bar", run, layout=BLOCKS, **more).topic == "bar"

    def over(self, store: FaultyStore) -> TopicPipeline:
        """The pipeline with faults of the store."""
        durable = DurableStore(store, Retrier(RetryPolicy(max_retries=1), sleep=lambda _: None))
        return TopicPipeline(durable, self.kafka, topics_dir="lake", pipeline="p", topic="bar")

    def land_over(self, store: FaultyStore, run: str = "run") -> None:
        """Land all that is new, with faults of the store."""
        self.over(store).land(RunRequest(run=run, offsets="incremental", layout=BLOCKS, starting="earliest"))

    def files(self) -> dict[str, str]:
        """The marker files by their names."""
        return {
            key.removeprefix("lake/"): body.decode()
            for key, body in self.visible().items()
            if key.startswith("lake/last_chunk_index.")
        }


@pytest.fixture
def world() -> Marked:
    """With a record in each Kafka partition."""
    made = Marked()
    made.append("bar", b"1")
    made.append("bar", b"2", partition=1)
    return made


def index(partition: int, offset: int, day: str = "2026-01-31") -> str:
    """Key of an index."""
    return f"lake/{day}/bar-{partition:05d}-{offset:012d}.index.json"


def test_the_file_is_that_of_the_acceptance_vector() -> None:
    """D5: its key, and the whole key of the index as its content; a partition without objects has none."""
    case = CASES["D5"]
    world = Marked()
    world.append("bar", b"1")
    world.land("bar", layout=structs.replace(BLOCKS, topics_dir="pfx"))
    files = {key: body for key, body in world.visible().items() if "last_chunk" in key}
    assert files == {case["marker_key"]: case["marker_body"].replace("<date>", "2026-01-31").encode()}


def test_each_batch_moves_the_files_of_its_partitions(world: Marked) -> None:
    """To the object with the highest offsets; others keep theirs, and a rerun writes nothing."""
    world.lands()
    assert world.files() == {
        FIRST: index(0, 0),
        SECOND: index(1, 0),
    }
    world.append("bar", b"3", at=JAN_31 + DAY)
    world.append("bar", b"4")
    world.lands("second")
    assert world.files() == {
        FIRST: index(0, 2),
        SECOND: index(1, 0),
    }
    before = snapshot(world.bucket)
    for run in ("run", "second", "third"):
        world.lands(run)
    check_unchanged(before, snapshot(world.bucket))
    assert world.check("bar").records == 4


def test_other_formats_and_names_have_no_marker_files(world: Marked) -> None:
    """The files name indices."""
    world.land("bar", layout=LAYOUT)
    assert world.files() == {}


def test_the_file_names_the_object_whose_last_chunk_has_the_next_offset(world: Marked) -> None:
    """Of the objects of several days, the one with the last record; it may not be the last one by its name."""
    world.append("bar", b"3", at=JAN_31 + DAY)
    world.append("bar", b"4")
    world.lands()
    assert world.files()[FIRST] == index(0, 0)
    assert json.loads(world.visible()[index(0, 0)])["chunks"][-1]["next_record_offset"] == 3
    world.check("bar")


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("partition", [0, 1])
def test_a_run_writes_what_a_process_that_ended_has_not(world: Marked, fault: Fault, partition: int) -> None:
    """Also a run without new records, and one that lands other partitions."""
    for later in ("run", "other"):
        made = Marked()
        made.append("bar", b"1")
        made.append("bar", b"2", partition=1)
        store = FaultyStore(made.bucket)
        store.inject(fault, operation="put_new", key=f"*last_chunk_index.bar-{partition:05d}.txt")
        with pytest.raises(SimulatedCrash):
            made.land_over(store)
        if later == "other":
            made.append("bar", b"3", partition=1 - partition)
        made.lands(later)
        assert made.check("bar").records == (2 if later == "run" else 3)


def test_a_store_that_refuses_the_files_fails_no_run(world: Marked, caplog: pytest.LogCaptureFixture) -> None:
    """A warning has that it is harmless, the file, and what writes it; the next run does."""
    store = FaultyStore(world.bucket)
    store.inject(Fault.SERVER_ERROR, operation="put_new", key="*last_chunk_index*", times=100)
    world.land_over(store)
    warnings = [line for line in caplog.messages if "may be behind the log, which is harmless" in line]
    assert all("kafka-s3 repair" in line and "s3://bucket/lake/last_chunk_index.bar-" in line for line in warnings)
    assert len(warnings) == 2, "behind the batch, and at the end of the run"
    assert world.files() == {}
    world.lands()
    assert world.check("bar").records == 2


def test_repair_recover_and_restore_write_the_files_again(world: Marked) -> None:
    """Those that were deleted or changed, of all partitions, however old their newest object is."""
    world.lands()
    for n in range(10):
        world.append("bar", b"%d" % n)
        world.lands(f"{n}")
    expected = world.files()
    world.bucket.delete(f"lake/{SECOND}")
    world.lands("later")
    with pytest.raises(InvariantViolation, match=r"I10 partitions \[1\] have no marker file"):
        world.check("bar")
    before = snapshot(world.bucket)
    assert world.pipeline("bar").repair(start={}, dry_run=True).was == "right"
    check_unchanged(before, snapshot(world.bucket))
    assert world.pipeline("bar").repair(start={}).was == "right"
    assert world.files() == expected
    stored = world.bucket.get(f"lake/{FIRST}")
    assert stored is not None
    world.bucket.put_if_match(f"lake/{FIRST}", index(0, 0).encode(), etag=stored.etag)
    with pytest.raises(InvariantViolation, match="I10 marker file of partition 0 names"):
        world.check("bar")
    world.pipeline("bar").recover(operator="me")
    assert world.files() == expected
    world.bucket.delete(f"lake/{SECOND}")
    world.bucket.delete(expected[SECOND])
    assert world.land("bar", "restored", layout=BLOCKS, action="restore").wrote
    assert world.files() == expected
    world.check("bar")
    world.bucket.delete("lake/_kafka_s3/p/bar/marker.json")
    world.bucket.delete(f"lake/{SECOND}")
    assert world.pipeline("bar").repair(start={}).written
    assert world.files() == expected


def test_offsets_filled_in_later_do_not_move_a_file_back(world: Marked) -> None:
    """The newest object is the one with the highest offsets, whenever it was landed."""
    world.append("bar", b"3", b"4")
    pipeline = world.pipeline("bar")
    for run, offsets in (("high", (2, 3)), ("low", (0, 2))):
        window = {0: offsets}
        pipeline.land(RunRequest(run=run, offsets="data_interval", layout=BLOCKS, starting={0: 2, 1: 0}, window=window))
        assert world.files() == {FIRST: index(0, 2)}
    assert world.check("bar").records == 3


def test_the_file_of_the_sink_before_stays_until_the_first_object(world: Marked) -> None:
    """Of the partition; objects of offsets before the start do not move it back."""
    theirs = {FIRST: "lake/2020-01-01/bar-00000-000000000001.index.json"}
    for name, content in theirs.items():
        world.bucket.put_new(f"lake/{name}", content.encode())
    world.append("bar", b"3", b"4")
    info = world.kafka.describe("bar")
    marker = Marker(topic="bar", cluster_id="", topic_id=info.topic_id or "", start={0: 2, 1: 1})
    pipeline = world.pipeline("bar")
    pipeline.log.create_marker(marker, data_prefix="lake/")
    pipeline.land(RunRequest(run="below", offsets="data_interval", layout=BLOCKS, starting=None, window={0: (0, 1)}))
    assert world.files() == theirs
    world.check("bar")
    world.lands("above")
    assert world.files() == {FIRST: index(0, 2)}
    world.check("bar")


def test_a_topic_created_again_has_files_of_its_new_objects(world: Marked) -> None:
    """They are in other folders; a partition without new records keeps its file."""
    world.lands()
    world.kafka.create_topic("bar", partitions=2)
    world.append("bar", b"new")
    assert world.pipeline("bar").reset(operator="me")
    world.lands("again")
    assert world.files() == {
        FIRST: "lake/generation-1/2026-01-31/bar-00000-000000000000-g1.index.json",
        SECOND: index(1, 0),
    }
    assert world.check("bar").records == 3


@pytest.mark.parametrize("stop", range(1, 9))
def test_a_late_process_does_not_move_a_file_back(stop: int) -> None:
    """Another one lands and writes the file before any of its requests from the first for the file on."""
    made = Marked()
    made.append("bar", b"1")
    requests = 0

    def faster(request: Request) -> None:
        nonlocal requests
        requests += "last_chunk" in request.key or requests > 0
        if requests == stop:
            requests += 1
            made.append("bar", b"2")
            made.lands("faster")

    made.land_over(FaultyStore(made.bucket, choose=faster), "late")
    assert requests > stop
    assert made.files() == {FIRST: index(0, 1)}
    made.check("bar")


def test_every_refused_swap_ends(world: Marked, caplog: pytest.LogCaptureFixture) -> None:
    """A store that never takes the file is not asked for ever, and the run succeeds."""
    world.lands()
    world.append("bar", b"3")
    store = FaultyStore(world.bucket)
    store.inject(Fault.CONFLICT, operation="put_if_match", key="*last_chunk_index*", times=1_000)
    world.land_over(store, "second")
    assert "changed 10 times while they were written" in caplog.text
    world.lands("second")
    assert world.check("bar").records == 3
