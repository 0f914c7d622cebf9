"""A pipeline over what another pipeline has landed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    ByPartition,
    BytesConverter,
    Daily,
    Envelope,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Landed,
    LandedConverter,
    Layout,
    Limits,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    TimePattern,
)
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError, MissingObjectError
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.arrow import arrow_batches
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.reading.read_ahead import ObjectsAhead
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket, decode_lines
from tests.unit.batch.simulated_topic import Topic

HOUR = 3_600_000
HOURLY = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly())
DAILY = Layout(topics_dir="compacted", format=JsonLines(), partitioner=Daily())
SOURCE = Landed(pipeline="orders-to-lake", topics_dir="lake")


class Compacted:
    """A pipeline over the pipeline of a topic."""

    def __init__(self, topic: Topic, layout: Layout = DAILY) -> None:
        self.topic = topic
        self.layout = layout

    @property
    def pipeline(self) -> TopicPipeline:
        """A new process."""
        store = DurableStore(self.topic.bucket, Retrier())
        return TopicPipeline(
            store,
            LandedSource(store, SOURCE),
            topics_dir="compacted",
            pipeline="orders-by-day",
            topic="orders",
        )

    def run(self, run: str, **settings: Any) -> TopicResult:
        """Run to the end."""
        return self.pipeline.land(
            RunRequest(run=run, offsets="incremental", layout=self.layout, starting="earliest", **settings)
        )

    def land(self, run: str, **settings: Any) -> int:
        """Run to the end; returns the number of its records."""
        return sum(batch.records for batch in self.run(run, **settings).batches)

    def objects(self) -> dict[str, list[Any]]:
        """The rows of data objects, by their names."""
        return {
            info.key.removeprefix("compacted/orders/"): [json.loads(line) for line in stored.body.splitlines()]
            for info in self.topic.bucket.list("compacted/orders/")
            if (stored := self.topic.bucket.get(info.key)) is not None
        }


def hourly(layout: Layout = HOURLY, *, batches: int = 3, per_batch: int = 8, partitions: int = 1) -> Topic:
    """A topic whose records are twenty minutes apart, every fifth one two hours late; landed batch by batch."""
    topic = Topic(layout, partitions)
    for batch in range(batches):
        for p in range(partitions):
            for i in range(per_batch):
                n = batch * per_batch + i
                late = 2 * HOUR if n % 5 == 4 else 0
                time = 12 * HOUR + n * HOUR // 3 - late
                topic.append(json.dumps({"p": p, "n": n}).encode(), partition=p, timestamp=time, key=b"%d" % n)
        topic.land(f"batch {batch}")
    return topic


def test_small_objects_of_hours_become_one_object_of_a_day() -> None:
    """Where an object has gaps between its offsets, too: all rows, once, object after object; a rerun adds none."""
    topic = hourly(per_batch=8)
    compacted = Compacted(topic)
    assert compacted.land("day") == 24
    days = compacted.objects()
    assert [*days] == [
        "year=1970/month=01/day=01/orders+0+0000000000.json",
    ]
    assert sorted(row["n"] for row in days["year=1970/month=01/day=01/orders+0+0000000000.json"]) == [*range(24)]
    before = topic.bucket.list("")
    assert compacted.land("day") == 24
    assert [info.key for info in topic.bucket.list("")] == [info.key for info in before]


def test_each_run_lands_what_the_source_has_landed_since() -> None:
    """Nothing twice, and nothing of batches that are open."""
    topic = hourly(batches=2)
    compacted = Compacted(topic)
    assert compacted.land("1") == 16
    assert compacted.run("2").status == "empty"
    topic.append(*(b"{}" for _ in range(3)), timestamp=30 * HOUR)
    topic.land("more")
    assert compacted.land("3") == 3


def test_an_envelope_keeps_whole_records() -> None:
    """Rows with offsets that interleave are put into their order; keys, headers and times are those of Kafka."""
    layout = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), content=Envelope())
    topic = hourly(layout, partitions=2)
    compacted = Compacted(
        topic, Layout(topics_dir="compacted", format=JsonLines(), partitioner=Daily(), content=Envelope())
    )
    compacted.land("day")
    direct = Topic(compacted.layout, 2)
    direct.kafka = topic.kafka
    direct.layout = Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily(), content=Envelope())
    direct.land("direct")
    expected = {key.removeprefix("lake/orders/"): body for key, body in direct.objects().items()}
    assert {key: [json.dumps(r) for r in rows] for key, rows in compacted.objects().items()} == {
        key: [json.dumps(json.loads(line)) for line in body.splitlines()] for key, body in expected.items()
    }


def test_what_objects_do_not_have_is_refused_when_the_run_is_planned() -> None:
    """Keys, timestamps and offsets; nothing is written but the marker."""
    topic = hourly(Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily()))
    for layout, missing in (
        (Layout(topics_dir="compacted", format=JsonLines(), content=SiblingObjects()), "the key of each record"),
        (Layout(topics_dir="compacted", format=JsonLines(), content=Envelope()), "the key of each record"),
        (Layout(topics_dir="compacted", format=JsonLines(), partitioner=Hourly()), "which of them are in"),
    ):
        with pytest.raises(ConfigurationError, match=missing):
            Compacted(topic, layout).land("a")
        assert Compacted(topic).objects() == {}


@pytest.mark.parametrize("hours", [(5, 29), (5, 28, 29), (0, 8784)])
def test_a_folder_that_comes_again_does_not_hide_others(hours: tuple[int, ...]) -> None:
    """The first and the last record of an object are in one folder, an hour of any day; those between need not be."""
    pattern = TimePattern(path_format="'hour'=HH", duration_ms=HOUR)
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=ByPartition()))
    for hour in hours:
        topic.append(b"{}", timestamp=hour * HOUR)
    topic.land()
    with pytest.raises(ConfigurationError, match="which of them are in"):
        Compacted(topic, Layout(topics_dir="compacted", format=JsonLines(), partitioner=pattern)).land("a")


def test_objects_are_restored_from_the_source(caplog: pytest.LogCaptureFixture) -> None:
    """A deleted object is written again, byte for byte; log and errors name the pipeline, and not Kafka."""
    topic = hourly()
    compacted = Compacted(topic)
    compacted.land("day")
    (key,) = [info.key for info in topic.bucket.list("compacted/orders/")]
    before = topic.bucket.get(key)
    topic.bucket.delete(key)
    request = RunRequest(run="b", offsets="incremental", layout=DAILY, starting="earliest", action="restore")
    with caplog.at_level("INFO"):
        compacted.pipeline.run(request).advance()
    assert "is written again from pipeline 'orders-to-lake'" in caplog.text
    after = topic.bucket.get(key)
    assert before is not None
    assert after is not None
    assert after.body == before.body
    topic.bucket.delete(key)
    with pytest.raises(MissingObjectError, match="Write them again: by"):
        compacted.run("day")
    (one,) = Snapshot(compacted.pipeline.log).objects()
    plan, decision = compacted.pipeline.log.require_plan(1)[0], compacted.pipeline.log.require_decision(1)[0]
    with pytest.raises(MissingObjectError, match="Write it again from pipeline 'orders-to-lake': "):
        CommittedObjects(compacted.pipeline.log, plan, decision).get(one.entry)
    for small in topic.objects():
        topic.bucket.delete(small)
    topic.pipeline.accept_deleted(1, reason="a test", operator="ann")
    with pytest.raises(BatchLossError, match="cannot be written again from pipeline 'orders-to-lake'") as raised:
        compacted.pipeline.run(request).advance()
    assert "Kafka has" not in str(raised.value)
    assert "from Kafka" not in caplog.text


def test_max_bytes_ends_objects_behind_whole_objects_of_the_source() -> None:
    """Their names stay those of their first records, which are known; so does the time of their records."""
    topic = hourly()
    layout = Layout(topics_dir="compacted", format=JsonLines(), partitioner=Daily(), rotation=Rotation(max_bytes=60))
    compacted = Compacted(topic, layout)
    compacted.land("day")
    firsts = {rows[0]["n"]: key for key, rows in compacted.objects().items()}
    assert all(key.endswith(f"+{first:010}.json") for first, key in firsts.items())
    assert sorted(row["n"] for rows in compacted.objects().values() for row in rows) == [*range(24)]


def test_many_objects_of_one_record_are_one_batch_for_the_encoder() -> None:
    """With every offset and time; what an object beside them does not keep does not keep them apart for long."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly()))
    times = [hour * HOUR for hour in range(40)]
    for n, time in enumerate(times):
        topic.append(b'{"n":%d}' % n, timestamp=time)
    topic.append(b'{"n":40}', timestamp=40 * HOUR)
    topic.append(b'{"n":41}', timestamp=40 * HOUR + 1)
    topic.land()
    assert len(topic.objects()) == 41
    source = LandedSource(DurableStore(topic.bucket, Retrier()), SOURCE)
    exact, other = source.read("orders", 0, 0, 42, "read_committed")
    assert exact.column("offset").to_pylist() == [*range(40)]
    assert exact.column("timestamp").to_pylist() == times
    assert other.column("timestamp").to_pylist() == [40 * HOUR] * 2


def test_a_task_keeps_the_objects_of_its_partition_only() -> None:
    """A manifest may list those of thousands of others."""
    pipeline = hourly(partitions=3).pipeline
    (plan, _), (decision, _) = pipeline.log.require_plan(1), pipeline.log.require_decision(1)
    objects = ObjectsAhead(pipeline.log, plan, decision)
    objects.keep(1)
    kept = objects.of_records()
    assert [plan.slices[entry.slices[0]].partition for entry in kept] == [1] * len(objects)
    assert 0 < len(kept) < len(decision.objects)


def test_a_limit_of_records_takes_whole_batches_of_the_source() -> None:
    """Several runs, or several batches of a run, land everything once."""
    topic = hourly(batches=5)
    compacted = Compacted(topic)
    counts = [compacted.land(str(i), limits=Limits(records_per_run=10)) for i in range(6)]
    assert counts == [8, 8, 8, 8, 8, 0]
    other = Compacted(topic)
    other.layout = DAILY
    assert sorted(row["n"] for rows in compacted.objects().values() for row in rows) == [*range(40)]


def test_dead_letters_stay_dead_letters() -> None:
    """With the same reason, partition, offset and value."""
    layout = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), errors="dead_letter")
    topic = Topic(layout)
    topic.append(b'{"n":0}', b"{", b'{"n":2}', timestamp=HOUR)
    topic.land()
    daily = Layout(topics_dir="compacted", format=JsonLines(), partitioner=Daily(), errors="dead_letter")
    compacted = Compacted(topic, daily)
    assert compacted.land("day") == 2
    ((letter,),) = [rows for key, rows in compacted.objects().items() if "_dead_letters/" in key]
    assert letter == topic.dead_letters()[0]


def test_null_values_and_keys_beside_values_are_kept() -> None:
    """Tombstones keep their keys in objects beside."""
    content = SiblingObjects(keys=RawBytes())
    raw = JsonLines(on_null="write")
    topic = Topic(Layout(topics_dir="lake", format=raw, partitioner=Hourly(), content=content))
    topic.append(b'{"n":0}', None, b'{"n":2}', timestamp=HOUR, key=b"k")
    topic.land()
    compacted = Compacted(topic, Layout(topics_dir="compacted", format=raw, partitioner=Daily(), content=content))
    assert compacted.land("day") == 3
    names = [info.key.removeprefix("compacted/orders/") for info in topic.bucket.list("compacted/orders/")]
    assert [name for name in names if name.startswith("tombstone")] == ["tombstone/orders+0+0000000001.keys.bin"]


SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {
                "name": "more",
                "type": ["null", {"type": "record", "name": "More", "fields": [{"name": "x", "type": "int"}]}],
            },
        ],
    }
)


def orders(topic: Topic, first: int, number: int) -> None:
    """Records with a schema, half an hour apart, some of them late."""
    for n in range(first, first + number):
        value = {"n": n, "at": None, "price": "1.50", "tags": ["a", "é"], "more": {"x": n} if n % 3 else None}
        late = 2 * HOUR if n % 5 == 4 else 0
        topic.append(json.dumps(value).encode(), timestamp=12 * HOUR + n * HOUR // 2 - late)


@pytest.mark.parametrize("kind", [Parquet(), AvroContainer()])
@pytest.mark.parametrize("target", [Parquet(), AvroContainer(), JsonLines()])
def test_values_with_a_schema_are_read_from_files_of_avro_and_parquet(kind: Format, target: Format) -> None:
    """Written in any format, they are what landing from Kafka writes."""
    declared = JsonConverter(schema=SCHEMA)
    topic = Topic(Layout(topics_dir="lake", format=kind, value_converter=declared, partitioner=Hourly()))
    for batch in range(3):
        orders(topic, batch * 8, 8)
        topic.land(str(batch))
    compacted = Compacted(
        topic,
        Layout(topics_dir="compacted", format=target, value_converter=LandedConverter(), partitioner=Daily()),
    )
    assert compacted.land("day") == 24
    direct = Topic(Layout(topics_dir="lake", format=target, value_converter=declared, partitioner=Daily()))
    direct.kafka = topic.kafka
    direct.land("direct")
    found = rows_of(topic, "compacted", "orders-by-day")
    assert sorted(found, key=str) == sorted(rows_of(direct, "lake", "orders-to-lake"), key=str)
    assert len(found) == 24


def test_one_partition_of_a_merged_file_may_have_gaps() -> None:
    """The offsets of the other one are known, and those of this one are not."""
    shared = Rotation(merge_partitions=True)
    declared = JsonConverter(schema=SCHEMA)
    layout = Layout(topics_dir="lake", format=Parquet(), value_converter=declared, partitioner=Daily(), rotation=shared)
    topic = Topic(layout, 2)
    orders(topic, 0, 3)
    for n in range(3, 6):
        value = {"n": n, "at": None, "price": None, "tags": [], "more": None}
        topic.append(json.dumps(value).encode(), partition=1, timestamp=12 * HOUR)
        topic.kafka.append_marker("orders", 1)
    topic.land()
    compacted = Compacted(
        topic, replace(layout, topics_dir="compacted", value_converter=LandedConverter(), rotation=Rotation())
    )
    assert compacted.land("day") == 6
    assert sorted(row["n"] for row in rows_of(topic, "compacted", "orders-by-day")) == [*range(6)]


def rows_of(topic: Topic, topics_dir: str, pipeline: str) -> list[dict[str, Any]]:
    """The values of all objects of a pipeline."""
    address = TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic="orders")
    log = TopicLog(DurableStore(topic.bucket, Retrier()), address)
    snapshot = Snapshot(log)
    objects = snapshot.objects()
    if isinstance(objects[0].layout.format, JsonLines):
        return [json.loads(r["value"]) for batch in arrow_batches(log.store, objects) for r in batch.to_pylist()]
    return [r for batch in arrow_batches(log.store, objects, snapshot.schema()) for r in batch.to_pylist()]


ENVELOPE = Envelope()
BYTES = RawBytes(separator="\n")
SOURCES = [
    {"format": JsonLines(compression="gzip")},
    {"format": JsonLines(), "rotation": Rotation(max_bytes=40)},
    {"format": JsonLines(), "rotation": Rotation(merge_partitions=True)},
    {"format": BlockGzip()},
    {"format": BYTES},
    {"format": JsonLines(), "content": ENVELOPE},
    {"format": AvroContainer(), "value_converter": BytesConverter(), "content": ENVELOPE},
    {"format": Parquet(), "value_converter": BytesConverter(), "content": ENVELOPE},
]
TARGETS = [
    {"format": JsonLines(compression="zstd")},
    {"format": JsonLines(), "rotation": Rotation(max_bytes=100)},
    {"format": JsonLines(), "rotation": Rotation(merge_partitions=True, max_bytes=150)},
    {"format": JsonLines(), "errors": "dead_letter"},
    {"format": Parquet(), "value_converter": JsonConverter(schema='"string"')},
]


@settings(max_examples=20, deadline=None)
@given(
    source=st.sampled_from(SOURCES),
    target=st.sampled_from(TARGETS),
    partitioners=st.sampled_from([(Hourly(), Daily()), (Hourly(), Hourly()), (Daily(), ByPartition())]),
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=12), min_size=1, max_size=5
    ),
    per_slice=st.integers(1, 20),
    per_batch=st.integers(1, 40),
)
def test_every_record_is_in_one_object_again(
    source: dict[str, Any],
    target: dict[str, Any],
    partitioners: tuple[Any, Any],
    batches: list[list[tuple[int, int]]],
    per_slice: int,
    per_batch: int,
) -> None:
    """Whatever the times, the batches, the layouts and the limits: in the folder and with the value of Kafka."""
    before, after = partitioners
    assume(after != ByPartition() or not target.get("rotation", Rotation()).merge_partitions)
    assume(before != ByPartition() or not source.get("rotation", Rotation()).merge_partitions)
    topic = Topic(Layout(topics_dir="lake", partitioner=before, **source), 3)
    number = 0
    for i, records in enumerate(batches):
        for partition, hours in records:
            if hours % 7 == 6:
                topic.kafka.append_marker("orders", partition)
            topic.append(f'"{number}"'.encode(), partition=partition, timestamp=hours * HOUR, key=b"k")
            number += 1
        topic.land(str(i))
    layout = Layout(topics_dir="compacted", partitioner=after, **target)
    compacted = Compacted(topic, layout)
    limits = Limits(records_per_slice=per_slice, records_per_batch=per_batch)
    assert compacted.land("1", limits=limits) == number
    assert compacted.run("2").status == "empty"
    direct = Topic(Layout(topics_dir="lake", partitioner=after, **target), 3)
    direct.kafka = topic.kafka
    direct.land("direct")
    assert placed(topic, "compacted", "orders-by-day") == placed(direct, "lake", "orders-to-lake")
    decoder = parquet_rows if isinstance(layout.format, Parquet) else decode_lines
    check_bucket(topic.bucket, topics_dir="compacted", pipeline="orders-by-day", topic="orders", decoder=decoder)


def parquet_rows(key: str, body: bytes) -> list[bytes]:
    """A decoder of files of Parquet."""
    del key
    return [value.as_py().encode() for value in pq.read_table(pa.BufferReader(body)).column("value")]


def placed(topic: Topic, topics_dir: str, pipeline: str) -> Counter[tuple[str, str]]:
    """The folder and the value of each row of a pipeline."""
    address = TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic="orders")
    log = TopicLog(DurableStore(topic.bucket, Retrier()), address)
    return Counter(
        (one.folders, str(row["value"]).strip("b\"'"))
        for one in Snapshot(log).objects()
        for batch in arrow_batches(log.store, [one], Snapshot(log).schema())
        for row in batch.to_pylist()
    )
