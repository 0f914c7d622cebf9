"""Records with keys and headers, and their dead letters, read by Spark and by librdkafka."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, Limits, Rotation
from airflow_provider_kafka_s3.spark.packing import PIECE_BYTES
from dev.kafka_broker import KafkaBroker, Message
from tests.spark.pipeline import MakePipeline, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

MakeTopic = Callable[..., str]

DAY = 86_400_000
EPOCH = 1_700_000_000_000
COUNT = 120
SET_ASIDE = Layout(format=JsonLines(), errors="dead_letter")
BATCH_SIZE = "spark.sql.execution.arrow.maxRecordsPerBatch"

SIZES = (0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 10_000)
KEYS = (None, *(b"k" * size for size in SIZES))
HEADERS: tuple[tuple[tuple[str, bytes | None], ...] | None, ...] = (
    None,
    (),
    (("trace", b"1"),),
    (("trace", None), ("trace", b""), ("ü", b"\xff")),
    (("long", b"h" * 20_000),),
)


def value(number: int) -> bytes | None:
    """Every third value is invalid: null, or of any size; the others are documents of any size."""
    if number % 3 == 0:
        return None if number % 9 == 0 else b"{" + b"x" * SIZES[number % len(SIZES)]
    return json.dumps({"n": number, "fill": "v" * SIZES[number % len(SIZES)]}).encode()


def records() -> list[Message]:
    """Every key with all headers, on valid and on invalid values."""
    return [
        Message(
            value(n),
            key=KEYS[n % len(KEYS)],
            headers=HEADERS[n % len(HEADERS)],
            partition=n % 2,
            timestamp=EPOCH + n % 4 // 2 * DAY,
        )
        for n in range(COUNT)
    ]


def read_by_librdkafka(broker: KafkaBroker, topic: str, partitions: int) -> Iterator[Any]:
    """All messages of a topic, in the order of their partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    try:
        for partition in range(partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, 0)])
            position = 0
            while position < end:
                message = consumer.poll(30)
                assert message is not None, f"no record at {position} of partition {partition}"
                assert message.error() is None, message.error()
                position = message.offset() + 1
                yield message
    finally:
        consumer.close()


def letter_of(message: Any) -> dict[str, Any]:
    """The dead letter of a message, without the cause."""
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": encoded(message.key()),
        "value": encoded(message.value()),
        "headers": [{"key": name, "value": encoded(content)} for name, content in message.headers() or ()],
    }


def encoded(content: bytes | None) -> str | None:
    """As in a dead letter."""
    return None if content is None else base64.b64encode(content).decode()


def dead_letters(pipeline: Pipeline) -> list[dict[str, Any]]:
    """All dead letters of a bucket, in the order of partition and offset."""
    found = [
        json.loads(line)
        for key, body in pipeline.bodies().items()
        if "/_dead_letters/" in key
        for line in body.splitlines()
    ]
    return sorted(found, key=lambda letter: (letter["partition"], letter["offset"]))


def is_document(content: bytes | None) -> bool:
    """Whether a value can be written."""
    return content is not None and content.startswith(b'{"')


@pytest.mark.newest_spark
def test_invalid_records_become_dead_letters_with_all_that_kafka_has_of_them(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """What librdkafka reads. A driver without Spark writes the same objects; every offset is in exactly one."""
    topic = make_topic(2)
    kafka_broker.produce(topic, records())
    settings = {
        "layout": msgspec.structs.replace(SET_ASIDE, partitioner=Daily(), rotation=Rotation(flush_size=20)),
        "settings": {"limits": Limits(records_per_slice=30)},
    }
    by_driver = make_pipeline(**settings)
    by_driver.land_here(topic)
    usual = spark.conf.get(BATCH_SIZE)
    for batch_size in (usual, "3"):
        pipeline = make_pipeline(**settings)
        spark.conf.set(BATCH_SIZE, batch_size)
        (result,) = pipeline.land(spark, topic)
        assert pipeline.bodies() == by_driver.bodies()
    spark.conf.set(BATCH_SIZE, usual)

    messages = list(read_by_librdkafka(kafka_broker, topic, 2))
    expected = [letter_of(m) for m in messages if not is_document(m.value())]
    found = dead_letters(pipeline)
    assert [letter["stage"] for letter in found] == ["value"] * len(expected)
    assert [{name: letter[name] for name in expected[0]} for letter in found] == expected
    (batch,) = result.batches
    assert (batch.records, batch.dead_letters) == (COUNT - COUNT // 3, COUNT // 3)
    assert pipeline.check(topic).records == COUNT


def test_a_topic_with_dead_letters_and_one_without_are_read_by_one_job(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """The one that needs no keys and headers has the same objects as it has alone."""
    plain, whole = make_topic(2), make_topic(2)
    good = [m for m in records() if is_document(m.value)]
    kafka_broker.produce(plain, good)
    kafka_broker.produce(whole, records())
    first = make_pipeline(layout=Layout(format=JsonLines()))
    second = make_pipeline(layout=SET_ASIDE, bucket=first.bucket, name="whole")
    specs = [
        pipeline.spec({topic: pipeline.plan(topic, "run")}, "run", "unused")
        for pipeline, topic in ((first, plain), (second, whole))
    ]
    job = msgspec.structs.replace(specs[0], plans=specs[0].plans + specs[1].plans)
    assert first.job(job, spark).succeeded

    alone = make_pipeline(layout=Layout(format=JsonLines()))
    alone.land(spark, plain)
    landed = first.bodies()
    assert {key: body for key, body in landed.items() if f"/{plain}/" in key} == alone.bodies()
    assert sum(len(body.splitlines()) for key, body in landed.items() if f"/{whole}/" in key) == COUNT


def test_more_dead_letters_than_the_limit_fail_a_job(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """In one slice, or only over all slices: a terminal error, no object, no upload; with a higher limit it lands."""
    topic = make_topic(2)
    kafka_broker.produce(topic, records())
    pipeline = make_pipeline(layout=SET_ASIDE)
    plan = pipeline.plan(topic, "run")
    for limit in (0, COUNT // 3 - 1):
        (outcome,) = pipeline.job(pipeline.spec({topic: plan}, "run", "unused", max_dead_letters=limit), spark).topics
        assert (outcome.kind, pipeline.decision(topic), pipeline.data_keys()) == ("record", None, [])
        assert f"more dead letters than max_dead_letters={limit}" in str(outcome.message)
        assert list(pipeline.store.pending_uploads("")) == []
    assert pipeline.job(pipeline.spec({topic: plan}, "run", "unused", max_dead_letters=COUNT // 3), spark).succeeded
    assert len(dead_letters(pipeline)) == COUNT // 3
