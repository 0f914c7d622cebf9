"""Unusual records read by Spark and by librdkafka: both readers produce the same objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import MIB, Daily, JsonLines, Layout, Limits, Rotation, parse_format
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.testing.invariants import read_source
from dev.kafka_broker import KafkaBroker, Message
from dev.waiting import wait_until
from tests.spark.paused_read import JSON, check
from tests.spark.pipeline import MakePipeline, Pipeline
from tests.spark.probes import WorkerMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

MakeTopic = Callable[..., str]
LandBoth = Callable[..., Pipeline]

NULL = "__HIVE_DEFAULT_PARTITION__"
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.fixture
def land_both(spark: SparkSession, make_pipeline: MakePipeline) -> Iterator[LandBoth]:
    """Land a topic by Spark and, in another bucket, without it: the same objects; returns Spark's pipeline."""

    def land(topic: str, **settings: Any) -> Pipeline:
        by_spark, by_itself = make_pipeline(**settings), make_pipeline(**settings)
        by_spark.land(spark, topic)
        by_itself.land_here(topic)
        assert by_spark.bodies() == by_itself.bodies()
        first, second = by_spark.decision(topic), by_itself.decision(topic)
        assert first is not None
        assert second is not None
        assert first.slices == second.slices
        return by_spark

    return land


def lines(*values: str) -> list[Message]:
    """Records of partition 0."""
    return [Message(json.dumps(v).encode(), partition=0) for v in values]


def test_only_committed_records_are_landed_wherever_slices_cut_transactions(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, land_both: LandBoth
) -> None:
    """Slices end on markers, begin on them, or hold nothing else; readable records end at an open transaction."""
    topic = make_topic()
    kafka_broker.produce_transaction(topic, lines(*"abcde"))
    kafka_broker.produce_transaction(topic, lines(*"fghij"), commit=False)
    kafka_broker.produce_transaction(topic, lines(*"klmno"))
    with kafka_broker.open_transaction(topic, lines(*"pqr")) as transaction:
        kafka_broker.produce(topic, lines("s"))
        pipeline = land_both(topic, layout=JSON, settings={"limits": Limits(records_per_slice=3)})
        manifest = pipeline.decision(topic)
        assert manifest is not None
        assert [(s.next_offset, s.records) for s in manifest.slices] == [
            (3, 3), (6, 2), (9, 0), (12, 0), (15, 3), (18, 2)
        ]  # fmt: skip
        assert pipeline.lines() == Counter(json.dumps(v).encode() for v in "abcdeklmno")
        assert pipeline.topic_run(topic, "next").advance().status == "empty"  # type: ignore[union-attr]
        transaction.commit_transaction()
    pipeline.land(spark, topic, run="next")
    assert pipeline.lines() == Counter(json.dumps(v).encode() for v in "abcdeklmnopqrs")
    check(pipeline, topic, read_source(pipeline.source, topic))


def test_gaps_of_compaction_are_no_loss(kafka_broker: KafkaBroker, make_topic: MakeTopic, land_both: LandBoth) -> None:
    """At the start, in the middle and at the end of slices, and slices that are only a gap."""
    topic = make_topic(1, {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"})
    keys = "aaaabcccdddd"
    for n, key in enumerate(keys):
        kafka_broker.produce(topic, [Message(b"%d" % n, key=key.encode(), partition=0)])

    def compacted() -> bool:
        # A segment is rolled, and then compacted, only when another record comes after its time.
        kafka_broker.produce(topic, [Message(b"99", key=b"d", partition=0)])
        held = read_source(source, topic)
        return sorted(o for offsets in held.values() for o in offsets[0] if o < len(keys)) == [3, 4, 7]

    source = KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers})
    wait_until(compacted, f"the compaction of {topic}")
    window = {0: (0, len(keys))}
    settings = {"limits": Limits(records_per_slice=2), "window": window, "offsets": "data_interval"}
    pipeline = land_both(topic, layout=JSON, settings=settings)
    manifest = pipeline.decision(topic)
    assert manifest is not None
    assert [s.records for s in manifest.slices] == [0, 1, 1, 1, 0, 0]
    assert pipeline.lines() == Counter([b"3", b"4", b"7"])
    check(pipeline, topic, {t: {0: {o: v for o, v in held[0].items() if o < len(keys)}}
                            for t, held in read_source(source, topic).items()})  # fmt: skip


def test_records_without_a_time_are_null_for_readers_of_the_table(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, land_both: LandBoth, tmp_path: Path
) -> None:
    """None, negative, microseconds; then nanoseconds and the year 1500, which Spark itself cannot read."""
    topic = make_topic(1, ANY_TIME)
    daily = Layout(format=JsonLines(), partitioner=Daily(), on_bad_timestamp=NULL)
    null = f"year={NULL}/month={NULL}/day={NULL}"
    epoch = "year=1970/month=01/day=01"
    expected = {-1: null, -5: "year=1969/month=12/day=31", 1: epoch, 10**15: null, 1_700_000_000_000: None}
    for time in expected:
        kafka_broker.produce(topic, [Message(b'{"time":%d}' % time, partition=0, timestamp=time)])
    pipeline = land_both(topic, layout=daily)
    landed = {json.loads(line)["time"]: key.split("/", 2)[2].rpartition("/")[0]
              for key in pipeline.data_keys() for line in pipeline.body(key).splitlines()}  # fmt: skip
    assert landed == {**expected, 1_700_000_000_000: "year=2023/month=11/day=14"}

    pipeline.save(tmp_path)
    table = spark.read.json(str(tmp_path / "topics" / topic))
    assert dict(table.dtypes)["year"] == "int"
    assert {row.time: row.year for row in table.collect()} == {
        -1: None, -5: 1969, 1: 1970, 10**15: None, 1_700_000_000_000: 2023
    }  # fmt: skip

    for time in (1_700_000_000_000_000_000, 2**63 - 1, -(2**63) + 1, -14_830_974_000_000):
        kafka_broker.produce(topic, [Message(b'{"time":%d}' % time, partition=0, timestamp=time)])
    pipeline = land_both(topic, layout=daily)
    assert len([key for key in pipeline.data_keys() if null in key]) == 1
    assert any("/year=1500/month=01/day=" in key for key in pipeline.data_keys())
    check(pipeline, topic, read_source(pipeline.source, topic))


def test_a_window_includes_records_without_a_time_and_leaves_none_out_silently(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Windows are ranges of offsets; after a timestamp in nanoseconds Kafka finds no time, so a window is an error."""
    topic = make_topic(1, ANY_TIME)
    for time in (500, -1, 1000, -1, 1500, 2000, -1, 2500):
        kafka_broker.produce(topic, [Message(b"%d" % time, partition=0, timestamp=time)])
    daily = Layout(format=JsonLines(), partitioner=Daily(), on_bad_timestamp=NULL)
    pipeline = make_pipeline(layout=daily, settings={"offsets": "data_interval", "window": (1000, 2000)})
    assert str(pipeline.land_here(topic, "first").target) == "0: [2, 5)"
    assert pipeline.lines() == Counter([b"1000", b"-1", b"1500"])

    kafka_broker.produce(topic, [Message(b"9", partition=0, timestamp=1_700_000_000_000_000_000)])
    kafka_broker.produce(topic, [Message(b"3000", partition=0, timestamp=3000)])
    pipeline.settings["window"] = (2000, 3000)
    with pytest.raises(
        RecordError, match=rf"'{topic}' .*partition 0, offset 8, timestamp 17000.*offsets='incremental'"
    ):
        pipeline.land_here(topic, "second")
    pipeline.settings["window"] = {0: (5, 10)}
    pipeline.land_here(topic, "second, by offsets")
    assert pipeline.lines() == Counter([b"1000", b"-1", b"1500", b"2000", b"-1", b"2500", b"9", b"3000"])


def test_a_record_without_a_time_fails_its_batch_unless_it_has_a_partition(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """The error names it. The batch keeps its layout; after an abandon, its offsets are planned with the partition."""
    topic = make_topic(1, ANY_TIME)
    for time in (1, -1, 2):
        kafka_broker.produce(topic, [Message(b"%d" % time, partition=0, timestamp=time)])
    daily = Daily()
    pipeline = make_pipeline(layout=Layout(format=JsonLines(), partitioner=daily))
    outcome = pipeline.execute(spark, topic, run="first")[topic]
    assert outcome.kind == "record"
    assert f"topic '{topic}', partition 0, offset 1: the record has no timestamp" in str(outcome.message)
    assert "on_bad_timestamp='__HIVE_DEFAULT_PARTITION__'" in str(outcome.message)
    assert "kafka-s3 abandon" in str(outcome.message)

    pipeline.layout = Layout(format=JsonLines(), partitioner=daily, on_bad_timestamp="undated")
    abandon(pipeline.committer(topic), 1, release="debt", reason="no timestamp", operator="test")
    pipeline.land(spark, topic, run="first")
    assert pipeline.lines() == Counter([b"1", b"-1", b"2"])
    assert any("/year=undated/month=undated/day=undated/" in key for key in pipeline.data_keys())
    check(pipeline, topic, read_source(pipeline.source, topic))


def test_records_of_ten_megabytes_are_landed_byte_for_byte_by_small_workers(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, land_both: LandBoth
) -> None:
    """Of 1 and 10 MB, among small ones, as JSON and as bytes; a worker holds 300 MB at most."""
    topic = make_topic(1, {"max.message.bytes": str(16 * MIB)})
    sizes = [10 * MIB - 300, 5, MIB, 10 * MIB - 301, 1, 10 * MIB - 300]
    sent = [json.dumps(f"{n}" * size).encode() for n, size in enumerate(sizes)]
    kafka_broker.produce(topic, [Message(v, partition=0) for v in sent], message_max_bytes=16 * MIB)
    for kind in ("json", "bytes"):
        with WorkerMemory() as memory:
            pipeline = land_both(topic, layout=Layout(format=parse_format(kind)))
        (key,) = pipeline.data_keys()
        assert pipeline.body(key) == b"".join(value + b"\n" for value in sent)
        assert 0 < memory.peak <= 300_000_000


@pytest.mark.parametrize(
    ("partitions", "settings"),
    [
        (2, {}),
        (2, {"layout": Layout(format=JsonLines(), errors="dead_letter")}),
        (1, {"settings": {"limits": Limits(records_per_slice=1)}}),
        (2, {"layout": Layout(format=JsonLines(), partitioner=Daily(), rotation=Rotation(merge_partitions=True))}),
    ],
    ids=["several partitions", "whole records", "several slices", "merged partitions"],
)
def test_records_of_ten_megabytes_fit_into_a_heap_of_one_gigabyte_whatever_the_tasks_are(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: MakeTopic,
    make_pipeline: MakePipeline,
    partitions: int,
    settings: dict[str, Any],
) -> None:
    """The JVM holds each piece once, also where frames are put together or share tasks."""
    topic = make_topic(partitions, {"max.message.bytes": str(16 * MIB)})
    sent = [json.dumps(f"{n}" * size).encode() for n, size in enumerate([10 * MIB - 300, 5, 10 * MIB - 300, 5])]
    now = 1_700_000_000_000
    messages = [Message(v, partition=n // 2 % partitions, timestamp=now) for n, v in enumerate(sent)]
    kafka_broker.produce(topic, messages, message_max_bytes=16 * MIB)
    pipeline = make_pipeline(**{"layout": Layout(format=JsonLines()), **settings})
    assert pipeline.land(spark, topic)[0].status == "ok"
    assert pipeline.lines() == Counter(sent)
