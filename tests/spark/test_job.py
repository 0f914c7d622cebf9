"""The job on real parts: Spark, Kafka, and S3 over HTTP."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config import (
    MIB,
    ByPartition,
    Daily,
    JsonLines,
    Layout,
    Limits,
    RawBytes,
    Rotation,
    TimePattern,
)
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.kafka.options import spark_options
from airflow_provider_kafka_s3.spark import read_tasks
from airflow_provider_kafka_s3.spark.frames import record_frame
from airflow_provider_kafka_s3.spark.packing import PIECE_BYTES, RecordPacking
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from dev.flights import flights, load
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from tests.spark.pipeline import MakePipeline
from tests.spark.probes import Gate, WorkerMemory, python_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

MakeTopic = Callable[..., str]

DAY = 86_400_000
EPOCH = 1_700_000_000_000
JSON = Layout(format=JsonLines())
BATCH_SIZE = "spark.sql.execution.arrow.maxRecordsPerBatch"


def records(count: int, *, partitions: int = 2, size: int = 0) -> list[Message]:
    """Records whose days alternate."""
    fill = "x" * size
    return [
        Message(
            json.dumps({"n": n, "fill": fill}).encode(), partition=n % partitions, timestamp=EPOCH + n * 7 % 5 * DAY
        )
        for n in range(count)
    ]


def values(messages: Iterable[Message]) -> Counter[bytes]:
    """The values that have to be landed."""
    return Counter(m.value for m in messages if m.value is not None)


def test_the_same_plan_and_records_give_the_same_bytes_in_two_empty_buckets(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Names and bytes are equal, gzip and rotation included, though Arrow batches are cut elsewhere."""
    topic = make_topic(2)
    kafka_broker.produce(topic, records(2_000))
    layout = Layout(
        format=JsonLines(compression="gzip"),
        partitioner=Daily(),
        rotation=Rotation(flush_size=300),
    )
    stored = []
    usual = spark.conf.get(BATCH_SIZE)
    for batch_size in (usual, "37"):
        pipeline = make_pipeline(layout=layout, settings={"limits": Limits(records_per_slice=400)})
        spark.conf.set(BATCH_SIZE, batch_size)
        assert pipeline.land(spark, topic)[0].status == "ok"
        stored.append(pipeline.bodies())
        assert pipeline.lines() == values(records(2_000))
    spark.conf.set(BATCH_SIZE, usual)
    assert stored[0] == stored[1]
    assert len(stored[0]) > 30


@pytest.mark.newest_spark
def test_slices_of_several_partitions_share_objects_in_the_order_of_the_plan(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Each day is one object per group of slices; bytes are equal however Spark reads, without Spark, and restored.

    The topic has more partitions than a small set of Scala keeps in order, and one without visible records.
    """
    topic = make_topic(8)
    kafka_broker.produce(topic, records(1_400, partitions=7))
    kafka_broker.produce_transaction(topic, [Message(b'"aborted"', partition=7)], commit=False)
    layout = Layout(format=JsonLines(compression="gzip"), partitioner=Daily(), rotation=Rotation(merge_partitions=True))
    stored = []
    usual = spark.conf.get(BATCH_SIZE)
    for batch_size in (usual, "37", None):
        pipeline = make_pipeline(layout=layout, settings={"limits": Limits(records_per_slice=500)})
        if batch_size is None:
            assert pipeline.land_here(topic).status == "ok"
        else:
            spark.conf.set(BATCH_SIZE, batch_size)
            assert pipeline.land(spark, topic)[0].status == "ok"
        stored.append(pipeline.bodies())
        assert pipeline.lines() == values(records(1_400, partitions=7))
        pipeline.check(topic, decoder=lambda _, body: gzip.decompress(body).splitlines())
    spark.conf.set(BATCH_SIZE, usual)
    assert stored[0] == stored[1] == stored[2]

    plan = pipeline.log(topic).require_plan(1)[0]
    assert [len(group) for group in plan.groups] == [3, 3, 4]
    assert len(stored[0]) == 3 * 5
    for entry in pipeline.objects(topic):
        lines = [json.loads(line)["n"] for line in pipeline.body(entry.key).splitlines()]
        assert lines == sorted(lines, key=lambda n: (n % 7, n))
        assert [plan.slices[part.id].partition for part in entry.by_slice] == sorted({n % 7 for n in lines})

    lost = next(entry.key for entry in pipeline.objects(topic) if len(entry.slices) > 1)
    pipeline.client.delete_object(Bucket=pipeline.bucket, Key=lost)
    pipeline.settings["action"] = "restore"
    assert pipeline.topic_run(topic, "restore").advance().verification.restored == (lost,)  # type: ignore[union-attr]
    assert pipeline.bodies() == stored[0]


@pytest.mark.parametrize("small", [0, 5_000], ids=["one slice per task", "small slices"])
def test_every_task_reads_whole_slices(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: MakeTopic,
    make_pipeline: MakePipeline,
    kafka_config: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    small: int,
) -> None:
    """With any number of slices, partitions and topics: one task reads each slice, in order, and nothing else."""
    monkeypatch.setattr(read_tasks, "_SMALL", small)
    topics = [make_topic(3), make_topic(1)]
    pipeline = make_pipeline(layout=JSON, settings={"limits": Limits(records_per_slice=70)})
    plans: list[Plan] = []
    for topic, partitions in zip(topics, (3, 1), strict=True):
        kafka_broker.produce(topic, records(600, partitions=partitions))
        plans.append(pipeline.plan(topic, "run"))

    packing = RecordPacking(plans)
    tasks = ReadTasks(plans)
    slices = {plan.topic: sorted(plan.slices, key=lambda s: (s.partition, s.start)) for plan in plans}
    positions = {topic: packing.slice_positions(some) for topic, some in slices.items()}

    def seen(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        found: list[tuple[str, int, list[int]]] = []
        for batch in batches:
            for name, rows in packing.by_topic(batch):
                for slice_, run in packing.runs(rows, positions[str(name)]):
                    if not found or found[-1][:2] != (name, slice_.id):
                        found.append((str(name), slice_.id, []))
                    found[-1][2].extend(run.column("position").to_pylist())
        task = uuid.uuid4().hex
        for name, number, at in found:
            s = next(s for s in slices[name] if s.id == number)
            exact = [one - at[0] for one in at] == list(range(s.end - s.start))
            yield pa.RecordBatch.from_pydict({"topic": [name], "slice": [number], "exact": [exact], "task": [task]})

    isolation: Isolation = "read_committed"
    frame = record_frame(spark, tasks, {isolation: spark_options(kafka_config, isolation=isolation)})
    read = frame.mapInArrow(seen, "topic string, slice long, exact boolean, task string").collect()
    planned = [(p.topic, s.id, True) for p in plans for s in p.slices]
    assert sorted(tuple(row)[:3] for row in read) == sorted(planned)
    assert len(planned) == 3 * 3 + 9
    assert len({row.task for row in read}) == tasks.count == (8 if small else len(planned))


@pytest.mark.newest_spark
def test_values_of_any_size_arrive_whole(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Empty values, values around the size that fits into one row, larger ones, and nulls; in tiny batches too."""
    topic = make_topic(1)
    sizes = [
        0,
        1,
        PIECE_BYTES - 1,
        PIECE_BYTES,
        PIECE_BYTES + 1,
        2 * PIECE_BYTES,
        3 * PIECE_BYTES + 7,
        200 * PIECE_BYTES,
        5,
    ]
    sent: list[bytes | None] = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    sent.insert(4, None)
    kafka_broker.produce(topic, [Message(value, partition=0, timestamp=EPOCH) for value in sent])
    usual = spark.conf.get(BATCH_SIZE)
    for batch_size in (usual, "2"):
        layout = Layout(format=RawBytes(on_null="ignore"), partitioner=ByPartition())
        pipeline = make_pipeline(layout=layout)
        spark.conf.set(BATCH_SIZE, batch_size)
        assert pipeline.land(spark, topic)[0].status == "ok"
        (key,) = pipeline.data_keys()
        expected = [value for value in sent if value is not None]
        assert pipeline.body(key) == b"".join(value + b"\n" for value in expected)
    spark.conf.set(BATCH_SIZE, usual)


def test_records_out_of_order_go_to_the_partition_of_their_own_timestamp(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """A shuffled copy of all flights: each is in the bucket once, in the month of its own timestamp."""
    topic = f"shuffled-{make_topic()}"
    load(kafka_broker, topic, order="shuffled")
    monthly = TimePattern(path_format="'year'=YYYY/'month'=MM", duration_ms=DAY // 24)
    compressed = JsonLines(compression="gzip")
    pipeline = make_pipeline(layout=Layout(format=compressed, partitioner=monthly))
    pipeline.land(spark, topic)

    landed: Counter[str] = Counter()
    for key in pipeline.data_keys():
        folder = "/".join(key.split("/")[2:4])
        flown = [json.loads(line)["time_hour"] for line in pipeline.body(key).splitlines()]
        assert {f"year={hour[:4]}/month={hour[5:7]}" for hour in flown} == {folder}
        landed[folder] += len(flown)
    expected = Counter(f"year={f['time_hour'][:4]}/month={f['time_hour'][5:7]}" for f in flights() if f["time_hour"])  # type: ignore[index]
    assert landed == expected


def test_the_first_day_of_the_epoch_is_one_folder(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Its first and its last millisecond are in the same folder."""
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b'{"a":1}', timestamp=1), Message(b'{"a":2}', timestamp=DAY - 1)])
    pipeline = make_pipeline(layout=Layout(format=JsonLines(), partitioner=Daily()))
    pipeline.land(spark, topic)
    day = dt.datetime.fromtimestamp(0, dt.UTC)
    assert pipeline.data_keys() == [
        f"topics/{topic}/year={day:%Y}/month={day:%m}/day={day:%d}/{topic}+0+0000000000.json"
    ]


def test_a_slice_of_transaction_markers_only_is_read_to_its_end(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """It has no record and no object; its offsets are covered."""
    topic = make_topic(2)
    kafka_broker.produce(topic, [Message(b'"kept"', partition=0)])
    kafka_broker.produce_transaction(topic, [Message(b'"aborted"', partition=1)], commit=False)
    pipeline = make_pipeline(layout=JSON)
    result = pipeline.land(spark, topic)[0]

    manifest = pipeline.decision(topic)
    assert manifest is not None
    assert [(s.records, s.next_offset) for s in manifest.slices] == [(1, 1), (0, 2)]
    assert pipeline.lines() == Counter([b'"kept"'])
    assert str(result.target) == "0: [0, 1), 1: [0, 2)"


def test_an_invalid_record_fails_only_its_own_topic(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """The error names topic, partition and offset; the other topic is landed; the bad one leaves nothing behind."""
    good, bad = make_topic(2), make_topic(2)
    kafka_broker.produce(good, records(100))
    kafka_broker.produce(bad, [*records(30_000, size=300), Message(b'{"broken":', partition=1)])
    pipeline = make_pipeline(layout=Layout(format=JsonLines(), part_size=5 * MIB))
    outcomes = pipeline.execute(spark, good, bad, run="run")

    assert outcomes[good].status == "decided"
    assert pipeline.lines(f"topics/{good}") == values(records(100))
    assert outcomes[bad].kind == "record"
    assert f"topic '{bad}', partition 1, offset 15000" in str(outcomes[bad].message)
    assert pipeline.decision(bad) is None
    assert not list(pipeline.store.pending_uploads(""))


def test_deleted_offsets_fail_their_topic_only(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Retention between the plan and the read: the error names partition and range; the other topic is landed."""
    good, trimmed = make_topic(1), make_topic(1)
    pipeline = make_pipeline(layout=JSON)
    for topic in (good, trimmed):
        kafka_broker.produce(topic, records(50, partitions=1))
        pipeline.plan(topic, "run")
    kafka_broker.delete_records(trimmed, {0: 20})
    plans = {topic: pipeline.log(topic).require_plan(1)[0] for topic in (good, trimmed)}
    outcomes = {o.topic: o for o in pipeline.job(pipeline.spec(plans, "run", "unused"), spark).topics}

    assert outcomes[good].status == "decided"
    assert pipeline.lines(f"topics/{good}") == values(records(50))
    assert outcomes[trimmed].kind == "data_loss"
    assert f"topic '{trimmed}', 0: [0, 20) of batch 1" in str(outcomes[trimmed].message)
    assert pipeline.decision(trimmed) is None


def test_deleted_offsets_can_be_skipped(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """With the policy skip the batch is abandoned, the rest is planned again, and the gap is recorded."""
    topic = make_topic(1)
    pipeline = make_pipeline(layout=JSON, settings={"on_data_loss": "skip"})
    kafka_broker.produce(topic, records(50, partitions=1))
    plan = pipeline.plan(topic, "run")
    kafka_broker.delete_records(topic, {0: 20})
    result = pipeline.job(pipeline.spec({topic: plan}, "run", "unused", on_data_loss="skip"), spark)

    assert result.succeeded
    abandoned = pipeline.decision(topic)
    assert abandoned is not None
    assert (abandoned.status, abandoned.release) == ("abandoned", "debt")
    landed = pipeline.land(spark, topic)[0]
    assert str(landed.skipped) == "0: [0, 20)"
    assert pipeline.lines() == values(records(50, partitions=1)[20:])


def test_a_decided_batch_is_completed_without_reading(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """A driver that died after its decision left uploads behind; the next one completes them."""
    topic = make_topic(1)
    pipeline = make_pipeline(layout=JSON)
    kafka_broker.produce(topic, records(50, partitions=1))
    plan = pipeline.plan(topic, "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider_kafka_s3.batch.commit.Committer.carry_out", lambda *_: None)
        pipeline.job(pipeline.spec({topic: plan}, "run", "unused"), spark)
    assert pipeline.data_keys() == []
    assert pipeline.decision(topic) is not None

    kafka_broker.delete_records(topic, {0: 50})
    assert pipeline.job(pipeline.spec({topic: plan}, "run", "unused"), spark).succeeded
    assert pipeline.lines() == values(records(50, partitions=1))


def test_a_topic_that_was_created_again_is_not_read(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Its offsets are not those of the plan."""
    topic = make_topic(1)
    pipeline = make_pipeline(layout=JSON)
    kafka_broker.produce(topic, records(50, partitions=1))
    plan = pipeline.plan(topic, "run")
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 1)
    kafka_broker.produce(topic, records(50, partitions=1))
    (outcome,) = pipeline.job(pipeline.spec({topic: plan}, "run", "unused"), spark).topics
    assert outcome.kind == "topic_recreated"
    assert pipeline.decision(topic) is None


def test_a_killed_worker_costs_a_retry_and_no_record(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """A worker is killed while it uploads; Spark retries the task; every record is landed once."""
    topic = make_topic(1)
    kafka_broker.produce(topic, sent := records(40_000, partitions=1, size=300))
    gate = Gate()
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=Layout(format=JsonLines(), part_size=5 * MIB))
        plan = pipeline.plan(topic, "run")
        done: list[object] = []
        job = threading.Thread(
            target=lambda: done.append(pipeline.job(pipeline.spec({topic: plan}, "run", "unused"), spark))
        )
        job.start()
        assert gate.held.wait(240)
        killed = python_workers(os.getpid())
        for worker in killed:
            worker.kill()
        gate.open()
        job.join()
        assert killed
        assert done[0].succeeded  # type: ignore[attr-defined]
        assert pipeline.lines() == values(sent)
        assert set(pipeline.data_keys()) == {o.key for o in pipeline.objects(topic)}
        # The upload of the killed worker stays invisible, until the lifecycle rule removes it.
        assert len(list(pipeline.store.pending_uploads(""))) == 1


def test_a_worker_uses_at_most_300_megabytes(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """With any number of records, large ones included."""
    topic = make_topic(2)
    small = records(150_000, size=330)
    large = [Message(json.dumps("y" * MIB).encode(), partition=n % 2, timestamp=EPOCH) for n in range(40)]
    kafka_broker.produce(topic, [*small, *large], compression_type="lz4", message_max_bytes=2 * MIB)
    pipeline = make_pipeline(layout=Layout(format=JsonLines(compression="gzip"), partitioner=Daily()))
    with WorkerMemory() as memory:
        pipeline.land(spark, topic)
    assert sum(pipeline.lines().values()) == len(small) + len(large)
    assert 0 < memory.peak <= 300_000_000
