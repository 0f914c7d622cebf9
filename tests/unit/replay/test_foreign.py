"""Objects of other sinks are replayed as they were when it was planned, in the order of their records."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import JsonLines
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    ForeignObjectError,
    MissingObjectError,
    NothingToReplayError,
)
from airflow_provider_kafka_s3.reading.record import Record
from airflow_provider_kafka_s3.replay.foreign import ForeignReplaySource, plan_foreign_replay
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.connect_corpus import SCENARIOS
from tests.deviantart_sink import sink_objects
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import TARGET, layout_of

CONFLUENT: Any = {"written_by": "confluent", "without": ("key", "headers", "timestamp", "bytes")}
DEVIANTART: Any = {"written_by": "deviantart", "without": ("key", "headers", "timestamp")}


def sink(objects: dict[str, bytes], topics_dir: str = "topics", topic: str = "orders") -> tuple[MemoryStore, TopicLog]:
    """A bucket with these objects, and the log of a pipeline that has landed nothing."""
    memory = MemoryStore("lake")
    for key, body in objects.items():
        memory.put_new(key, body)
    return memory, TopicLog(
        DurableStore(memory, Retrier()), TopicAddress(topics_dir=topics_dir, pipeline="restore", topic=topic)
    )


def request(**more: Any) -> ReplayRequest:
    """A replay of everything."""
    return ReplayRequest(**{"replay": "r", "target": "again", **more})


def read(log: TopicLog, wanted: ReplayRequest, partition: int = 0, skip: int = 0) -> list[Record]:
    """All records of a partition."""
    source = ForeignReplaySource(log, wanted, plan_foreign_replay(log, wanted, TARGET))
    return [record for some in source.records(partition, skip) for record in some]


def values(*expected: bytes, partition: int = 0) -> list[Record]:
    """Records with values alone."""
    return [Record(partition, None, None, None, value) for value in expected]


@pytest.mark.parametrize("name", ["D03", "F01", "R01"])
def test_the_objects_of_the_real_sink_give_their_lines_in_order(name: str) -> None:
    """Of recorded runs: every line of every object, by partition and first offset."""
    scenario = SCENARIOS[name]
    objects = scenario.objects(scenario.topic)
    topics_dir = scenario.connector(scenario.topic).get("topics.dir", "topics")
    _, log = sink(objects, topics_dir, scenario.topic)
    wanted = request(**{**CONFLUENT, "without": (*CONFLUENT["without"], "order")})
    plan = plan_foreign_replay(log, wanted, TARGET)
    found = {
        partition: [r.value for some in ForeignReplaySource(log, wanted, plan).records(partition) for r in some]
        for partition in plan.numbers
    }
    by_offset = sorted(objects, key=lambda key: int(key.rsplit("+", 1)[1].split(".")[0]))
    assert found == {
        partition: [
            line
            for key in by_offset
            if f"+{partition}+" in key
            for line in (gzip.decompress(objects[key]) if key.endswith(".gz") else objects[key]).splitlines()
        ]
        for partition in plan.numbers
    }
    assert sum(map(len, found.values())) > 0


def test_keys_in_bytes_beside_all_objects_are_sent() -> None:
    """Line by line; other keys are named as missing."""
    objects = {
        "topics/orders/partition=0/orders+0+0000000000.bin": b"a\nb\n",
        "topics/orders/partition=0/orders+0+0000000000.keys.bin": b"k\n\n",
        "topics/orders/partition=0/orders+0+0000000002.bin.gz": gzip.compress(b"c\n"),
        "topics/orders/partition=0/orders+0+0000000002.keys.bin.gz": gzip.compress(b"l\n"),
    }
    _, log = sink(objects)
    wanted = request(written_by="confluent", without=("headers", "timestamp"))
    assert read(log, wanted) == [
        Record(0, None, None, b"k", b"a"),
        Record(0, None, None, b"", b"b"),
        Record(0, None, None, b"l", b"c"),
    ]
    assert read(log, request(written_by="confluent", without=("headers", "timestamp"), key=b"l")) == [
        Record(0, None, None, b"l", b"c")
    ]
    objects["topics/orders/partition=0/orders+0+0000000003.bin"] = b"d\n"
    with pytest.raises(ConfigurationError, match=r"key: there are no objects of keys in bytes beside all .*--without"):
        read(sink(objects)[1], wanted)


@pytest.mark.parametrize("prefix", ["", "pfx/"])
def test_the_objects_of_deviantarts_sink_are_read_by_their_indices(prefix: str) -> None:
    """Over days and blocks; what was sent before need not be read again."""
    lines = [(n + 2 * (n > 4), f"record {n}") for n in range(9)]
    objects = {
        **sink_objects(prefix, "2026-01-02", "orders", 3, lines[:5], block_size=20),
        **sink_objects(prefix, "2026-01-03", "orders", 3, lines[5:], block_size=20),
    }
    memory, log = sink(objects, prefix.strip("/"))
    wanted = request(**DEVIANTART)
    expected = values(*(text.encode() for _, text in lines), partition=3)
    assert plan_foreign_replay(log, wanted, TARGET).records == {3: 9}
    assert read(log, wanted, 3) == expected
    plan = plan_foreign_replay(log, wanted, TARGET)
    memory.delete(next(key for key in objects if "2026-01-02" in key and key.endswith(".gz")))
    source = ForeignReplaySource(log, wanted, plan)
    assert [r for some in source.records(3, 6) for r in some] == expected[6:]
    with pytest.raises(MissingObjectError, match=r"an object of replay 'r' is gone"):
        next(source.records(3, 4))


def test_a_selection_is_by_partitions_and_folders() -> None:
    """What objects of other sinks do not have is refused, and so is a selection without objects."""
    objects = {
        f"topics/orders/year=2026/month={month:02}/orders+{p}+{month:010}.json": b"%d\n" % month
        for month in (1, 2, 11)
        for p in (0, 1)
    }
    _, log = sink(objects)
    with pytest.raises(ConfigurationError, match=r"order: objects of partition 0 are in several folders"):
        read(log, request(**CONFLUENT))
    one = request(**CONFLUENT, folders=("year=2026/month=01/",), partitions=(1,))
    assert plan_foreign_replay(log, one, TARGET).numbers == (1,)
    assert read(log, one, 1) == values(b"1", partition=1)
    for folders in (("year=2026/month=1",), ("year=2025",)):
        with pytest.raises(
            NothingToReplayError, match=r"there is no object of topic 'orders' with a name of confluent"
        ):
            read(log, request(**CONFLUENT, folders=folders))
    with pytest.raises(ConfigurationError, match=r"selects by offsets, which objects of other sinks do not have"):
        read(log, request(**CONFLUENT, offsets={0: (0, 1)}))
    with pytest.raises(ConfigurationError, match=r"folders=.* select objects of other sinks, by written_by"):
        request(folders=("a",))
    with pytest.raises(ConfigurationError, match=r"written_by='debezium': use confluent, deviantart, or None"):
        request(written_by="debezium")


def test_what_is_no_line_or_has_changed_is_refused() -> None:
    """Nothing of it is guessed."""
    key = "topics/orders/partition=0/orders+0+0000000000"
    with pytest.raises(ConfigurationError, match=r"cannot be replayed: .*\.avro is no object of lines"):
        read(sink({f"{key}.avro": b"Obj"})[1], request(**CONFLUENT))
    with pytest.raises(ForeignObjectError, match="does not end with its separator"):
        read(sink({f"{key}.bin": b"a\nb"})[1], request(**CONFLUENT))
    for keys in (b"a\n", b"a\nb\nc\n"):
        _, log = sink({f"{key}.bin": b"1\n2\n", f"{key}.keys.bin": keys})
        with pytest.raises(ForeignObjectError, match=r"the object of its keys has (more|fewer) keys"):
            read(log, request(written_by="confluent", without=("headers", "timestamp")))
    memory, log = sink({f"{key}.bin": b"a\n"})
    plan = plan_foreign_replay(log, request(**CONFLUENT), TARGET)
    memory.delete(f"{key}.bin")
    memory.put_new(f"{key}.bin", b"b\n")
    with pytest.raises(ForeignObjectError, match="written again since the replay was planned"):
        next(ForeignReplaySource(log, request(**CONFLUENT), plan).records(0))


def test_values_with_newlines_are_refused_before_any_of_their_object_is_sent() -> None:
    """Where a value ends is not known; objects before it are sent."""
    good = sink_objects("", "2026-01-01", "orders", 0, [(0, "zero")], block_size=1_000)
    bad = sink_objects("", "2026-01-02", "orders", 0, [(1, "one"), (2, "two\nlines"), (3, "three")], block_size=1_000)
    _, log = sink({**good, **bad}, "")
    wanted = request(**DEVIANTART)
    found = ForeignReplaySource(log, wanted, plan_foreign_replay(log, wanted, TARGET)).records(0)
    assert [*next(found)] == values(b"zero")
    with pytest.raises(ForeignObjectError, match=r"it has 4 lines for 3 records of its index, so values have newlines"):
        next(found)


def test_keys_with_newlines_are_refused_before_any_of_their_object_is_sent() -> None:
    """Values would get the keys of others."""
    name = "topics/orders/partition=0/orders+0+0000000000"
    _, log = sink({f"{name}.bin": b"a\nb\n", f"{name}.keys.bin": b"k\nx\nl\n"})
    wanted = request(written_by="confluent", without=("headers", "timestamp"))
    source = ForeignReplaySource(log, wanted, plan_foreign_replay(log, wanted, TARGET))
    with pytest.raises(ForeignObjectError, match="the object of its keys has more keys"):
        next(source.records(0))


@pytest.mark.parametrize("pipeline", ["orders-to-lake", "restore"])
def test_objects_of_a_pipeline_that_has_taken_over_are_not_those_of_the_sink(pipeline: str) -> None:
    """Whatever pipeline has the documents of the replay; also after the topic was created again."""
    topic = Topic(layout_of(JsonLines()))
    first = "lake/orders/partition=0/orders+0+0000000000.json"
    topic.bucket.put_new(first, b'{"n":0}\n{"n":1}\n')
    for n in range(6):
        topic.append(b'{"n":%d}' % n, timestamp=1_700_000_000_000 + n)
    topic.pipeline.land(dataclasses.replace(topic.request(), starting={0: 2}))
    topic.bucket.put_new("lake/orders/partition=0/orders+0+0000000000+g1.json", b"{}\n")
    log = TopicLog(
        DurableStore(topic.bucket, Retrier()), TopicAddress(topics_dir="lake", pipeline=pipeline, topic="orders")
    )
    plan = plan_foreign_replay(log, request(**CONFLUENT), TARGET)
    assert [one.values.key for one in plan.foreign[0]] == [first]


@pytest.mark.parametrize("died_at", ["*/_owners/*", "*/marker.json", "*.plan.json"])
@pytest.mark.parametrize("marked", [True, False])
def test_a_pipeline_that_has_released_the_topic_has_no_objects_there(died_at: str, marked: bool) -> None:
    """All objects are those of the sink, wherever its only run and its release have ended."""
    topic = Topic(layout_of(JsonLines()))
    for n in range(6):
        topic.append(b'{"n":%d}' % n)
    objects = [f"lake/orders/partition=0/orders+0+{n:010}.json" for n in (0, 2, 4)]
    for key in objects:
        topic.bucket.put_new(key, b'{"n":0}\n{"n":1}\n')
    faults = FaultyStore(topic.bucket)
    faults.inject(Fault.CRASH_AFTER, operation="put_new", key=died_at)
    store = DurableStore(faults, Retrier())
    with pytest.raises(SimulatedCrash):
        topic.pipeline_with(store).land(dataclasses.replace(topic.request(), starting={0: 2}))
    if not marked:
        faults.inject(Fault.CRASH_BEFORE, operation="put_if_match", key="*/_owners/*")
    with contextlib.nullcontext() if marked else pytest.raises(SimulatedCrash):
        topic.pipeline_with(store).release(reason="the wrong name", operator="me")
    log = TopicLog(
        DurableStore(topic.bucket, Retrier()), TopicAddress(topics_dir="lake", pipeline="restore", topic="orders")
    )
    plan = plan_foreign_replay(log, request(**CONFLUENT), TARGET)
    assert [one.values.key for one in plan.foreign[0]] == objects


def test_null_values_of_the_confluent_sink_are_named_before_they_are_left_out() -> None:
    """It writes their keys alone, into a folder of their own; other partitions are not concerned."""
    _, log = sink(
        {
            "topics/orders/partition=0/orders+0+0000000000.json": b"{}\n{}\n",
            "topics/orders/tombstone/orders+0+0000000002.keys.bin": b"k\n",
            "topics/orders/partition=1/orders+1+0000000000.json": b"{}\n",
        }
    )
    with pytest.raises(ConfigurationError, match=r"nulls: s3://lake/\S+\+0000000002\.keys\.bin .*--without nulls"):
        plan_foreign_replay(log, request(**CONFLUENT), TARGET)
    assert plan_foreign_replay(log, request(**CONFLUENT, partitions=(1,)), TARGET).records == {1: None}
    accepted = request(**{**CONFLUENT, "without": (*CONFLUENT["without"], "nulls")})
    assert read(log, accepted) == values(b"{}", b"{}")
