"""Records that cannot be written become dead letters of their batch, exactly once, or fail it."""

from __future__ import annotations

import base64

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, Limits, RawBytes, Rotation
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation, check_bucket
from tests.unit.batch.simulated_topic import Topic

LAYOUT = Layout(topics_dir="lake", format=JsonLines(), errors="dead_letter")
DAY = 86_400_000


def test_an_invalid_record_becomes_a_dead_letter_of_its_batch() -> None:
    """The whole record, what failed and why; the others are landed, and every offset is in exactly one object."""
    topic = Topic(LAYOUT)
    topic.append(b"1", b"2")
    topic.append(b"{", timestamp=5, key=b"\xff", headers=[("trace", b"1"), ("trace", None)])
    topic.append(b"4", None)
    result = topic.land()
    assert list(topic.objects()) == [
        "lake/orders/_dead_letters/orders+0+0000000002.json",
        "lake/orders/partition=0/orders+0+0000000000.json",
    ]
    assert topic.objects()["lake/orders/partition=0/orders+0+0000000000.json"] == b"1\n2\n4\n"
    first, second = topic.dead_letters()
    assert first == {
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "timestamp": 5,
        "key": base64.b64encode(b"\xff").decode(),
        "value": base64.b64encode(b"{").decode(),
        "headers": [{"key": "trace", "value": "MQ=="}, {"key": "trace", "value": None}],
        "stage": "value",
        "reason": first["reason"],
    }
    assert first["reason"].startswith("the value is not a JSON document")
    assert (second["offset"], second["value"], second["timestamp"], second["headers"]) == (4, None, None, [])
    assert "null" in second["reason"]
    (batch,) = result.batches
    assert (batch.records, batch.dead_letters, batch.objects) == (3, 2, 2)
    assert topic.check() == 5


def test_without_the_policy_the_first_invalid_record_fails_the_batch() -> None:
    """It is named, nothing is landed, and the default is this."""
    topic = Topic(msgspec.structs.replace(LAYOUT, errors="fail"))
    topic.append(b"1", b"{", b"}")
    with pytest.raises(RecordError, match=r"topic 'orders', partition 0, offset 1: the value is not a JSON document"):
        topic.land()
    assert topic.objects() == {}
    assert Layout(format=JsonLines()).errors == "fail"


def test_a_rerun_writes_nothing_and_a_lost_object_of_dead_letters_is_restored() -> None:
    """Dead letters are objects of the batch like any other: listed, verified, written again with the same bytes."""
    topic = Topic(LAYOUT)
    topic.append(b"1", b"{", b"3", b"]")
    topic.land()
    before = topic.objects()
    topic.land()
    assert topic.objects() == before
    (lost,) = [key for key in before if "/_dead_letters/" in key]
    topic.bucket.delete(lost)
    restored = topic.pipeline.run(topic.request("b", action="restore")).advance()
    assert isinstance(restored, TopicResult)
    assert restored.verification is not None
    assert restored.verification.restored == (lost,)
    assert topic.objects() == before
    assert topic.check() == 4


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_more_dead_letters_than_the_limit_fail_the_batch(limit: int) -> None:
    """In one slice, and over the slices of a batch together; the message has the limit and a way out."""
    topic = Topic(LAYOUT, partitions=3)
    for partition in range(3):
        topic.append(b"1", b"{", partition=partition)
    step = topic.pipeline.run(topic.request()).advance()
    assert not isinstance(step, TopicResult)
    with pytest.raises(RecordError, match=rf"more than max_dead_letters={limit} .*raise max_dead_letters"):
        topic.pipeline.execute(step, run="a", max_dead_letters=limit)
    assert topic.objects() == {}
    assert not list(topic.bucket.pending_uploads("lake/"))
    topic.pipeline.execute(step, run="a", max_dead_letters=3)
    assert topic.check() == 6


def test_a_batch_of_dead_letters_alone_is_landed() -> None:
    """Its offsets are covered, so the next run goes on behind them."""
    topic = Topic(LAYOUT)
    topic.append(b"{", b"}")
    assert topic.land().batches[0].records == 0
    topic.append(b"3")
    topic.land("b")
    assert [letter["offset"] for letter in topic.dead_letters()] == [0, 1]
    assert topic.check() == 3


@pytest.mark.parametrize(
    "layout",
    [
        msgspec.structs.replace(LAYOUT, partitioner=Daily()),
        msgspec.structs.replace(LAYOUT, rotation=Rotation(flush_size=2)),
        msgspec.structs.replace(LAYOUT, format=JsonLines(compression="gzip")),
        msgspec.structs.replace(LAYOUT, format=JsonLines(on_null="ignore")),
        msgspec.structs.replace(LAYOUT, format=RawBytes(extension=".json"), value_converter=None),
    ],
)
def test_dead_letters_go_with_every_layout(layout: Layout) -> None:
    """Dead letters have one folder, whatever folders, ends and names the data objects have."""
    topic = Topic(layout)
    for n in range(7):
        topic.append(b"{" if n % 3 == 1 else b"%d" % n, None if n == 4 else b"[%d]" % n, timestamp=n * DAY // 2)
    topic.land(limits=Limits(records_per_slice=5))
    expected = sum(value is not None for value in topic.kafka.all_records()[topic.kafka.topic_id("orders")][0].values())
    nulls = layout.format.on_null != "ignore"
    assert topic.check() == expected + nulls


def test_the_check_of_a_bucket_finds_a_dead_letter_that_is_no_record_of_kafka() -> None:
    """An invented one, and one whose value was changed."""
    topic = Topic(LAYOUT)
    topic.append(b"{", b"2")
    topic.land()
    records = topic.kafka.all_records()
    records[topic.kafka.topic_id("orders")][0][0] = b"}"
    with pytest.raises(InvariantViolation, match=r"dead letters \[0\] are not the records in Kafka"):
        check_bucket(topic.bucket, topics_dir="lake", pipeline="orders-to-lake", topic="orders", source=records)
