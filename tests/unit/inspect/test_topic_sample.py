"""What ``kafka-s3 init`` sees of a topic."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.exceptions import TopicNotFoundError
from airflow_provider_kafka_s3.inspect.topic_sample import TopicSample, sample_topic
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

HOUR = 3_600_000
START = 1_767_312_000_000


def sample(*values: bytes | None, step: int = 1_000, records: int = 1_000, partitions: int = 2) -> TopicSample:
    """Of a topic with these values, ``step`` milliseconds apart."""
    kafka = SimulatedKafka()
    kafka.create_topic("orders", partitions)
    for n, value in enumerate(values):
        kafka.append("orders", n % partitions, value, timestamp=START + n * step)
    return sample_topic(kafka, "orders", records=records)


def test_kinds_of_values_are_counted() -> None:
    """The most frequent first; null values apart, and ids of schemas by their number."""
    header = b"\x00\x00\x00\x00\x07abc"
    topic = sample(b'{"a": 1}', b"[1]", header, header, header, b"a\nb", None, b"", b'{"schema": 1, "payload": 2}')
    assert topic.kinds == {
        "bytes with the header of a schema registry": 3,
        "JSON objects": 2,
        "JSON arrays": 1,
        "bytes that are not JSON": 1,
    }
    assert (topic.records, topic.null_values, topic.schema_ids) == (9, 2, {7: 3})
    assert (topic.values, topic.json_values, topic.enveloped, topic.with_line_breaks) == (7, 3, 1, 1)


def test_the_rate_is_that_of_the_last_day_with_records() -> None:
    """An old burst does not count, and neither does the time since the newest record."""
    busy = [b"1"] * 50
    kafka = SimulatedKafka()
    kafka.create_topic("orders")
    for n, value in enumerate(busy):
        kafka.append("orders", 0, value, timestamp=START + n)
    for n in range(48):
        kafka.append("orders", 0, b"1", timestamp=START + 72 * HOUR + n * HOUR // 2)
    assert sample_topic(kafka, "orders").per_hour == 2.0
    assert sample_topic(kafka, "orders", records=20).per_hour == 2.0


def test_a_topic_of_minutes_is_not_taken_for_a_fast_one() -> None:
    """The rate is never more than its records, as of one hour."""
    assert sample(*[b"1"] * 10, step=1).per_hour == 10


def test_an_empty_topic_shows_nothing() -> None:
    """Neither kinds nor a rate."""
    assert sample() == TopicSample("orders", 2, 0)


def test_records_without_a_timestamp_are_counted() -> None:
    """A partitioner by time would refuse them."""
    kafka = SimulatedKafka()
    kafka.create_topic("orders")
    kafka.append("orders", 0, b"1")
    topic = sample_topic(kafka, "orders")
    assert (topic.without_time, topic.per_hour, topic.oldest) == (1, None, None)


def test_an_absent_topic_is_an_error() -> None:
    """It is not created."""
    with pytest.raises(TopicNotFoundError):
        sample_topic(SimulatedKafka(), "orders")
