"""Records that cannot be written become dead letters of their batch, exactly once, or fail it."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.config import (
    AvroConverter,
    ByField,
    Csv,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Limits,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation, check_bucket
from tests.unit.batch.simulated_topic import Topic

LAYOUT = Layout(topics_dir="lake", format=JsonLines(), errors="dead_letter")
DAY = 86_400_000
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"


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


DECLARED = JsonConverter(schema='{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
ENVELOPED = JsonConverter(schemas_enable=True)
FAR: Final = json.dumps({"schema": {"type": "int64", "name": TIMESTAMP}, "payload": 10**16}).encode()
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a document": ({}, {"value": b"{"}),
    "a null value": ({}, {"value": None}),
    "bytes that are no text": ({"value_converter": StringConverter()}, {"value": b"\xff"}),
    "a declared schema": ({"value_converter": DECLARED}, {"value": b'{"a":"x"}'}),
    "an envelope": ({"value_converter": ENVELOPED}, {"value": b"{}"}),
    "a schema": ({"value_converter": ENVELOPED}, {"value": b'{"schema":{"type":"strict"},"payload":1}'}),
    "a payload": ({"value_converter": ENVELOPED}, {"value": b'{"schema":{"type":"int8"},"payload":"x"}'}),
    "a header of a registry": ({"value_converter": AvroConverter()}, {"value": b"{}"}),
    "a time that CSV cannot hold": ({"format": Csv(), "value_converter": ENVELOPED}, {"value": FAR}),
    "a document of a key": ({"content": Envelope(), "key_converter": JsonConverter()}, {"value": b"1", "key": b"{"}),
    "a null key": ({"content": SiblingObjects()}, {"value": b"1", "key": None}),
    "a header": (
        {"content": SiblingObjects(headers=JsonLines())},
        {"value": b"1", "key": b"k", "headers": [("h", None)]},
    ),
    "a field of a partitioner": ({"partitioner": ByField(names=("f",))}, {"value": b"{}"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_error_of_a_record_names_the_setting_that_sets_it_aside(name: str) -> None:
    """Whatever cannot be written; and with this setting it is set aside."""
    settings, record = REFUSED[name]
    layout = Layout(**{"topics_dir": "lake", "format": JsonLines(), **settings})
    for errors in ("fail", "dead_letter"):
        topic = Topic(msgspec.structs.replace(layout, errors=errors))
        topic.append(record["value"], **{k: v for k, v in record.items() if k != "value"})
        if errors == "fail":
            with pytest.raises(RecordError, match=r"partition 0, offset 0: .*; .*errors='dead_letter'"):
                topic.land()
        else:
            (batch,) = topic.land().batches
            assert (batch.records, batch.dead_letters) == (0, 1)


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
    with pytest.raises(RecordError, match=rf"more dead letters than max_dead_letters={limit}.*raise max_dead_letters"):
        topic.pipeline.execute(step, run="a", max_dead_letters=DeadLetterLimit(limit))
    assert topic.objects() == {}
    assert not list(topic.bucket.pending_uploads("lake/"))
    topic.pipeline.execute(step, run="a", max_dead_letters=DeadLetterLimit(3))
    assert topic.check() == 6


def test_uploads_of_other_slices_are_ended_when_a_record_is_refused() -> None:
    """No other process has their ids."""
    topic = Topic(msgspec.structs.replace(LAYOUT, errors="fail"), partitions=2)
    topic.append(b"1", partition=0)
    topic.append(b"{", partition=1)
    step = topic.pipeline.run(topic.request()).advance()
    assert not isinstance(step, TopicResult)
    with pytest.raises(RecordError, match="partition 1, offset 0"):
        topic.pipeline.execute(step, run="a")
    assert topic.objects() == {}
    assert not list(topic.bucket.pending_uploads("lake/"))


SMALL_BATCHES = Limits(records_per_batch=4)


def bad_at(*offsets: int, records: int = 12) -> Topic:
    """A topic whose records at these offsets are invalid; batches of four records each."""
    topic = Topic(LAYOUT)
    topic.append(*(b"{" if offset in offsets else b"%d" % offset for offset in range(records)))
    return topic


def limited(topic: Topic, limit: int | None, run: str = "a") -> TopicResult:
    """Land with a limit of dead letters."""
    return topic.land(run, limits=SMALL_BATCHES, max_dead_letters=limit)


@pytest.mark.parametrize("limit", [2, 3])
def test_the_limit_is_one_of_all_batches_of_a_run(limit: int) -> None:
    """The first batch that exceeds it is not landed, the ones before it are; the message has the limit and both."""
    topic = bad_at(0, 1, 4, 8, 9)
    with pytest.raises(
        RecordError,
        match=rf"batch {limit} of topic 'orders' has more dead letters than max_dead_letters={limit} in this run, "
        rf"{limit} of them in batches that are landed",
    ):
        limited(topic, limit)
    assert len(topic.dead_letters()) == limit
    assert not list(topic.bucket.pending_uploads("lake/"))
    result = limited(topic, 5)
    assert [batch.dead_letters for batch in result.batches] == [2, 1, 2]
    assert topic.check() == 12


def test_a_limit_that_the_run_does_not_exceed_lands_all() -> None:
    """Exactly as many are allowed; without a limit nothing is counted."""
    for limit in (5, None):
        topic = bad_at(0, 1, 4, 8, 9)
        assert sum(batch.dead_letters for batch in limited(topic, limit).batches) == 5


def test_a_retry_counts_what_earlier_tries_have_landed() -> None:
    """Every try of a run ends at the same batch, whatever the process remembers."""
    topic = bad_at(0, 1, 4, 8, 9)
    messages = []
    for _ in range(3):
        with pytest.raises(RecordError) as error:
            limited(topic, 3)
        messages.append(str(error.value))
    assert "batch 3 " in messages[0]
    assert len(set(messages)) == 1
    assert len(topic.dead_letters()) == 3


def test_each_run_has_a_limit_of_its_own() -> None:
    """What other runs have landed does not count."""
    topic = bad_at(0, 1, records=4)
    limited(topic, 2)
    topic.append(b"{", b"{")
    assert limited(topic, 2, "b").batches[0].dead_letters == 2
    assert len(topic.dead_letters()) == 4


def test_an_undecided_batch_counts_for_the_run_that_continues_it() -> None:
    """It is landed by that run, whichever run planned it, so it may have what the run's own batches have left."""
    topic = bad_at(0, 1, records=4)
    left = topic.pipeline.run(topic.request("dead", limits=SMALL_BATCHES)).advance()
    assert not isinstance(left, TopicResult)
    topic.append(b"{", b"{")
    with pytest.raises(RecordError, match=r"batch 1 .*max_dead_letters=3 in this run, 2 of them"):
        topic.land("next", limits=SMALL_BATCHES, max_dead_letters=3, adopt_wait=0.0)
    assert len(topic.dead_letters()) == 2
    topic.land("next", limits=SMALL_BATCHES, max_dead_letters=4, adopt_wait=0.0)
    assert topic.check() == 6


def test_a_batch_that_another_run_has_landed_does_not_count() -> None:
    """Though this run planned it: it is among the other run's."""
    topic = bad_at(0, 1, 4, 5, records=8)
    mine = topic.pipeline.run(topic.request("mine", limits=SMALL_BATCHES, max_dead_letters=2))
    first = mine.advance()
    assert not isinstance(first, TopicResult)
    topic.pipeline.execute(first, run="other", max_dead_letters=DeadLetterLimit(2))
    second = mine.advance()
    assert not isinstance(second, TopicResult)
    assert mine.dead_letters == 0
    topic.pipeline.execute(second, run="mine", max_dead_letters=DeadLetterLimit(2, mine.dead_letters))
    assert isinstance(mine.advance(), TopicResult)
    assert topic.check() == 8


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
