"""A pipeline begins behind DeviantArt's last chunk where that is certain, also if Kafka has deleted records of it."""

from __future__ import annotations

import base64
import gzip
import json
from itertools import pairwise

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, KafkaS3Error
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from tests.unit.batch.test_takeover_by_chunks import FOLDER, MARKER, TOPIC, World


def refusal(world: World, kind: type[KafkaS3Error]) -> str:
    """The message of the error; nothing is written."""
    before = {info.key: info.etag for info in world.bucket.list("")}
    with pytest.raises(kind) as refused:
        world.plan()
    assert type(refused.value) is kind
    assert {info.key: info.etag for info in world.bucket.list("")} == before
    message = str(refused.value)
    assert f"topic {TOPIC!r}, partition 0" in message
    assert "Nothing was changed" in message
    return message


def land_behind(world: World, offset: int) -> None:
    """The pipeline begins at an offset, and each record is in exactly one object."""
    takeover = world.plan()
    assert (takeover.start, takeover.in_the_way) == ({0: offset}, ())
    world.pipeline.take_over(takeover, world.layout)
    assert world.land() == world.lines


def create_again(world: World, records: int) -> None:
    """Another topic of the same name, with other records."""
    world.kafka.create_topic(TOPIC)
    for _ in range(records):
        world.kafka.append(TOPIC, 0, b"other", 0)


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("deleted", [1, 5, 6])
def test_the_rest_of_a_chunk_shows_where_it_ends(deleted: int, gaps: bool) -> None:
    """Kafka must have some of its records: as many as follow from the first offset and the number."""
    world = World(gaps=gaps)
    world.mark(world.write([world.offsets[:7]]))
    world.kafka.delete_records(TOPIC, 0, deleted)
    land_behind(world, world.offsets[6] + 1)


def test_a_chunk_that_ends_at_the_first_offset_in_kafka_is_whole() -> None:
    """It cannot end before, and none of its records is left."""
    world = World(gaps=False)
    world.mark(world.write([world.offsets[:7]]))
    world.kafka.delete_records(TOPIC, 0, 7)
    land_behind(world, 7)


def test_a_pipeline_begins_at_the_end_of_an_empty_partition_if_the_chunk_ends_there() -> None:
    """Retention has deleted all, and the sink had landed all."""
    world = World(gaps=False)
    world.mark(world.write([world.offsets]))
    world.kafka.delete_records(TOPIC, 0, 20)
    land_behind(world, 20)
    world.values[world.kafka.append(TOPIC, 0, b"new", 21)] = b"new"
    assert world.land() == world.lines


def test_an_empty_partition_that_ends_behind_the_chunk_is_refused() -> None:
    """Records behind it may have been deleted before the sink read them."""
    world = World(gaps=False)
    world.mark(world.write([world.offsets[:18]]))
    world.kafka.delete_records(TOPIC, 0, 20)
    message = refusal(world, DataLossError)
    assert "deleted offsets [0, 20)" in message
    assert f"s3://lake/{FOLDER}/2026-01-02/{TOPIC}-00000-000000000000.gz" in message
    assert "(at 18 if offsets have no gaps)" in message
    assert "starting_offsets={'orders': {0: 20, …}} of the operator" in message


def test_a_chunk_that_goes_past_the_end_of_an_empty_partition_is_refused() -> None:
    """The topic was created again."""
    world = World(gaps=False)
    world.mark(world.write([world.offsets]))
    create_again(world, 5)
    world.kafka.delete_records(TOPIC, 0, 5)
    assert "the topic was created again" in refusal(world, ConfigurationError)


def test_a_chunk_of_which_kafka_has_compacted_the_last_record_is_refused() -> None:
    """Its first ones are deleted, and what Kafka begins with are records of the chunk: they would be landed twice."""
    world = World()
    world.mark(world.write([world.offsets[:12]], first=0))
    assert world.offsets[10:13] == [12, 14, 15]
    world.kafka.compact(TOPIC, 0, 14)
    world.kafka.delete_records(TOPIC, 0, 12)
    assert "in accordance with those in Kafka before offsets 12, 13" in refusal(world, DataLossError)


def test_a_chunk_behind_which_kafka_has_deleted_offsets_is_refused() -> None:
    """They may have had records, or not."""
    world = World(gaps=False)
    world.mark(world.write([world.offsets[:7]]))
    world.kafka.delete_records(TOPIC, 0, 9)
    message = refusal(world, DataLossError)
    assert "deleted offsets [0, 9)" in message
    assert "(at 7 if offsets have no gaps)" in message
    assert "{0: 9, …}" in message


def test_a_chunk_whose_rest_is_in_two_places_is_refused() -> None:
    """With repeated values it may end behind the first or the second one."""
    world = World([b"a", b"b", b"b", b"b", b"b", b"c"], gaps=False)
    world.mark(world.write([world.offsets[:4]]))
    world.kafka.delete_records(TOPIC, 0, 3)
    assert "in accordance with those in Kafka before offsets 4, 5" in refusal(world, DataLossError)


def test_other_records_than_the_rest_of_a_chunk_are_refused() -> None:
    """The topic was created again, and has lost its first records since."""
    world = World(gaps=False)
    world.mark(world.write([world.offsets[:7]]))
    create_again(world, 9)
    world.kafka.delete_records(TOPIC, 0, 5)
    assert "are not those in Kafka from offset 5 on" in refusal(world, ConfigurationError)


def test_offsets_that_the_sink_has_counted_are_lower_than_those_in_kafka() -> None:
    """It counts records from where it began, so each mark of a transaction makes its offsets lower by one."""
    world = World()
    world.write([world.offsets[:9]], first=0, day="2026-01-01")
    world.mark(world.write([world.offsets[9:12], world.offsets[12:16]], first=9))
    assert world.offsets[12] > 12
    land_behind(world, world.offsets[15] + 1)


def test_an_object_with_a_counted_offset_that_no_marker_leads_to_is_in_the_way() -> None:
    """The offset in its name is before the one at which the pipeline begins, but its records are behind it."""
    world = World()
    world.mark(world.write([world.offsets[:8]], first=0))
    index = world.write([world.offsets[8:12]], first=8)
    takeover = world.plan()
    assert takeover.start == {0: world.offsets[7] + 1}
    assert takeover.start[0] > 8
    assert [one.key for one in takeover.in_the_way] == [index.replace(".index.json", ".gz"), index]
    for one in takeover.in_the_way:
        world.bucket.delete(one.key)
    land_behind(world, world.offsets[7] + 1)


def test_repeated_values_are_refused_if_offsets_have_gaps() -> None:
    """The records behind the chunk may be those of the chunk."""
    world = World([b"a"] * 9)
    world.mark(world.write([world.offsets[3:4]], first=3))
    message = refusal(world, ConfigurationError)
    assert "offsets have gaps, or may have had some that Kafka has deleted" in message
    assert "before offsets 5, 6" in message


def test_repeated_values_before_the_first_gap_are_no_problem() -> None:
    """Gaps behind a chunk do not make the offsets of its index too low."""
    world = World([b"a"] * 9)
    world.mark(world.write([world.offsets[:2], world.offsets[2:3]], first=0))
    land_behind(world, 3)


def test_an_object_of_a_pipeline_that_goes_past_the_begin_is_in_the_way() -> None:
    """Its first offset is before it, and its index has a next offset behind it."""
    world = World()
    world.mark(world.write([world.offsets[:3]], ours=True))
    for records, names in ((world.offsets[1:3], []), (world.offsets[1:4], ["gz", "json"])):
        index = world.write([records], day="2026-01-03", ours=True)
        assert [one.key.rpartition(".")[2] for one in world.plan().in_the_way] == names
        world.bucket.delete(index.replace(".index.json", ".gz"))
        world.bucket.delete(index)


def test_repeated_values_are_no_problem_without_gaps() -> None:
    """The offsets of the index are right."""
    world = World([b"a"] * 9, gaps=False)
    world.mark(world.write([world.offsets[:2], world.offsets[2:4]]))
    land_behind(world, 4)


def test_repeated_values_are_refused_if_kafka_has_deleted_what_was_before_them() -> None:
    """It may have had gaps: three of them, so that the offsets of the index are too low by three."""
    world = World([b"ping"], gaps=False)
    for n in range(40):
        if n in (2, 4, 6):
            world.kafka.append_marker(TOPIC, 0)
        world.values[world.kafka.append(TOPIC, 0, b"ping", n)] = b"ping"
    world.mark(world.write([world.offsets[20:30]], first=20))
    assert world.offsets[29] + 1 == 33
    world.kafka.delete_records(TOPIC, 0, 12)
    assert "before offsets 30, 31" in refusal(world, ConfigurationError)


def test_repeated_values_far_behind_a_gap_are_refused() -> None:
    """A chunk at the offsets of its index may have a second place behind more than ten thousand other records."""
    world = World([b"%d" % (n % 12_000) for n in range(30_000)], gaps=False)
    offsets = world.offsets
    for offset in offsets[:12_000]:
        world.kafka.compact(TOPIC, 0, offset)
    # The sink began at 0 behind them, so it has counted 13,000 records before those at 25,000.
    world.mark(world.write([offsets[25_000:25_005]], first=13_000))
    assert "before offsets 13005, 25005" in refusal(world, ConfigurationError)


@pytest.mark.parametrize("deleted", [0, 2, 5, 8])
def test_the_next_offset_in_an_index_of_a_pipeline_is_used(deleted: int) -> None:
    """Whatever Kafka has deleted before it, or compacted."""
    world = World()
    world.mark(world.write([world.offsets[:3], world.offsets[3:7]], ours=True))
    assert world.offsets[6] + 1 == 8
    world.kafka.compact(TOPIC, 0, world.offsets[4])
    world.kafka.delete_records(TOPIC, 0, deleted)
    assert world.plan().start == {0: 8}


def test_another_pipeline_goes_on_behind_what_the_first_one_has_landed() -> None:
    """By the index that it wrote, also if its records are gone from Kafka."""
    world = World()
    world.mark(world.write([world.offsets[:7]], first=0))
    land_behind(world, world.offsets[6] + 1)
    end = world.offsets[-1] + 1
    store = world.pipeline.log.store
    world.pipeline = TopicPipeline(store, world.kafka, topics_dir=FOLDER, pipeline="q", topic=TOPIC)
    for deleted in (0, world.offsets[-1], end):
        world.kafka.delete_records(TOPIC, 0, deleted)
        assert world.plan().start == {0: end}


def test_offsets_that_were_deleted_behind_a_known_next_offset_are_refused() -> None:
    """They may have had records."""
    world = World()
    world.mark(world.write([world.offsets[:7]], ours=True))
    world.kafka.delete_records(TOPIC, 0, 11)
    message = refusal(world, DataLossError)
    assert f"deleted offsets [8, 11), behind the last chunk of s3://lake/{FOLDER}/2026-01-02/{TOPIC}-00000-" in message
    assert "starting_offsets={'orders': {0: 11, …}}" in message


@pytest.mark.parametrize("last_day", [1, 2])
@pytest.mark.parametrize("form", ["ranges", "runs", "none"])
def test_records_of_other_objects_between_those_of_a_chunk_are_no_other_records(last_day: int, form: str) -> None:
    """A pipeline writes an object for each day, and sets invalid records aside."""
    world = World([b"0"], gaps=False)
    day = 86_400_000
    for time in (1, 2, day, 3, day + 1, 4, *((5, 6) if last_day == 1 else (day + 2,))):
        value = b"%d" % len(world.values)
        world.values[world.kafka.append(TOPIC, 0, value, time)] = value
    world.land()
    index = world._body(MARKER).decode()
    assert f"1970-01-0{last_day}" in index
    (chunk,) = json.loads(world._body(index))["chunks"]
    ranges = chunk.pop("offset_ranges")
    if form == "ranges":
        chunk["offset_ranges"] = ranges
    elif form == "runs":
        varints = bytes(
            n
            for (start, stop), (after, _) in pairwise([*ranges, (0, 0)])
            for n in (stop - start, after - stop)
            if n > 0
        )
        chunk["offset_runs"] = base64.b64encode(gzip.compress(varints)).decode()
    world.bucket.delete(index)
    world.bucket.put_new(index, json.dumps({"chunks": [chunk]}).encode())
    store = world.pipeline.log.store
    world.pipeline = TopicPipeline(store, world.kafka, topics_dir=FOLDER, pipeline="q", topic=TOPIC)
    end = len(world.values)
    for deleted in (0, 3, end - 1, end):
        world.kafka.delete_records(TOPIC, 0, deleted)
        takeover = world.plan()
        assert (takeover.start, takeover.in_the_way) == ({0: end}, ())


@pytest.mark.parametrize("other", [3, 5])
def test_each_record_of_a_known_chunk_is_compared(other: int) -> None:
    """One of them has another value in Kafka: it is another topic."""
    world = World([b"%d" % n for n in range(6)], gaps=False)
    index = world.write([[0, 1, 3, 5]], ours=True)
    (chunk,) = json.loads(world._body(index))["chunks"]
    world.bucket.delete(index)
    chunk["offset_ranges"] = [[0, 2], [3, 4], [5, 6]]
    world.bucket.put_new(index, json.dumps({"chunks": [chunk]}).encode())
    world.mark(index)
    assert world.plan().start == {0: 6}
    world.kafka.create_topic(TOPIC)
    for n in range(6):
        world.kafka.append(TOPIC, 0, b"other" if n == other else b"%d" % n, 0)
    assert "the topic was created again" in refusal(world, ConfigurationError)


def test_the_ends_of_a_known_chunk_without_its_ranges_are_compared() -> None:
    """An earlier version wrote no ranges of many gaps: which records between are the chunk's is not known."""
    world = World([b"%d" % n for n in range(6)], gaps=False)
    world.mark(world.write([[0, 1, 3, 5]], ours=True))
    assert world.plan().start == {0: 6}
    world.kafka.create_topic(TOPIC)
    for n in range(6):
        world.kafka.append(TOPIC, 0, b"other" if n == 5 else b"%d" % n, 0)
    assert "the topic was created again" in refusal(world, ConfigurationError)


def test_damaged_ranges_of_a_known_chunk_are_refused() -> None:
    """They are no offsets."""
    world = World()
    index = world.write([world.offsets[:7]], ours=True)
    (chunk,) = json.loads(world._body(index))["chunks"]
    world.bucket.delete(index)
    world.bucket.put_new(index, json.dumps({"chunks": [{**chunk, "offset_runs": "x"}]}).encode())
    world.mark(index)
    assert "or the object is damaged" in refusal(world, ConfigurationError)


@pytest.mark.parametrize("records", [5, 20])
def test_a_known_next_offset_of_another_topic_is_refused(records: int) -> None:
    """The topic was created again: it ends before, or has other records."""
    world = World()
    world.mark(world.write([world.offsets[:7]], ours=True))
    world.kafka.create_topic(TOPIC)
    for _ in range(records):
        world.kafka.append(TOPIC, 0, b"other", 0)
    assert "the topic was created again" in refusal(world, ConfigurationError)


def test_a_known_next_offset_past_an_open_transaction_is_used() -> None:
    """A pipeline that reads what is not committed has landed its records; those before it are compared."""
    world = World()
    world.kafka.open_transaction(TOPIC, 0)
    offset = world.kafka.append(TOPIC, 0, b"open", 0)
    world.values[offset] = b"open"
    world.mark(world.write([world.offsets], ours=True))
    assert world.plan(isolation="read_uncommitted").start == {0: offset + 1}


@pytest.mark.parametrize("known", [-1, 0, 3])
def test_a_next_offset_that_cannot_be_right_is_refused(known: int) -> None:
    """There are more records before it than offsets."""
    world = World()
    index = world.write([world.offsets[:4]])
    body = world._body(index)
    world.bucket.delete(index)
    world.bucket.put_new(index, body.replace(b"}]}", b', "next_record_offset": %d}]}' % known))
    world.mark(index)
    with pytest.raises(ConfigurationError, match="does not lead to an index with chunks"):
        world.plan()


@pytest.mark.parametrize("gaps", [True, False])
def test_values_that_are_no_utf_8_have_replacement_characters_in_the_chunk(gaps: bool) -> None:
    """The sink makes texts of bytes."""
    world = World([b"\xff%d\xc3" % n for n in range(20)], gaps=gaps)
    world.mark(world.write([world.offsets[:3], world.offsets[3:7]], first=0))
    assert world.plan().start == {0: world.offsets[6] + 1}
    world.kafka.delete_records(TOPIC, 0, 6)
    assert world.plan().start == {0: world.offsets[6] + 1}


def test_values_that_are_no_utf_8_are_compared_as_bytes_first() -> None:
    """A sink that makes no texts of them writes them as they are."""
    world = World([b"\xff%d" % n for n in range(20)])
    index = world.write([world.offsets[:7]], ours=True)
    (chunk,) = json.loads(world._body(index))["chunks"]
    del chunk["next_record_offset"]
    world.bucket.delete(index)
    world.bucket.put_new(index, json.dumps({"chunks": [chunk]}).encode())
    world.mark(index)
    land_behind(world, world.offsets[6] + 1)


@pytest.mark.parametrize("marked", ["2026-01-02", "2026-01-03"])
def test_an_object_that_begins_like_the_one_of_the_marker_is_named(marked: str) -> None:
    """The sink stopped before it wrote the marker, and wrote the records again on another day. Nothing is deleted."""
    world = World()
    world.write([world.offsets[:3]], day="2026-01-01", first=0)
    written = {day: world.write([world.offsets[3:7]], day=day, first=3) for day in ("2026-01-02", "2026-01-03")}
    world.mark(written[marked])
    other = written["2026-01-03" if marked == "2026-01-02" else "2026-01-02"]
    takeover = world.plan()
    assert takeover.in_the_way == ()
    kept = f"s3://lake/{written[marked].replace('.index.json', '.gz')}"
    assert [(one.key, one.why) for one in takeover.duplicates] == [
        (key, f"begins at the same offset as {kept}, to which the marker leads")
        for key in (other.replace(".index.json", ".gz"), other)
    ]
    assert takeover.duplicates[0].move_to == f"{FOLDER}/_kafka_s3/p/{TOPIC}/set_aside/{takeover.duplicates[0].key}"
    world.pipeline.take_over(takeover, world.layout)
    for one in takeover.duplicates:
        world.bucket.delete(one.key)
    assert world.land() == world.lines
    assert world.plan().duplicates == ()


def test_the_earlier_ones_of_older_objects_that_begin_alike_are_named() -> None:
    """The sink went on behind the latest one. Of an upload without an index, the data object alone."""
    world = World()
    days = ("2026-01-01", "2026-01-02", "2026-01-03")
    first, second, third = (world.write([world.offsets[:3]], day=day, first=0) for day in days)
    world.bucket.delete(second)
    world.mark(world.write([world.offsets[3:7]], day="2026-01-04", first=3))
    takeover = world.plan()
    data, early, late = (key.replace(".index.json", ".gz") for key in (first, second, third))
    assert [one.key for one in takeover.duplicates] == [data, first, early]
    assert {one.why for one in takeover.duplicates} == {
        f"begins at the same offset as s3://lake/{late}, of a later day"
    }
    assert takeover.start == {0: world.offsets[6] + 1}


def test_objects_of_other_partitions_and_topics_are_no_duplicates() -> None:
    """Nor is an index without its data object."""
    world = World()
    index = world.write([world.offsets[:7]], first=0)
    world.mark(index)
    for name in ("orders-00001", "orders-x-00000", "refunds-00000"):
        world.bucket.put_new(f"{FOLDER}/2026-01-01/{name}-000000000000.gz", b"x")
    world.bucket.put_new(f"{FOLDER}/2026-01-01/{TOPIC}-00000-000000000000.index.json", b"x")
    assert world.plan().duplicates == ()
