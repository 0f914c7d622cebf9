"""The conditions of the sensors, lag and windows, with a cluster and a store in memory."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.marker import Marker, PartitionState
from airflow_provider_kafka_s3.exceptions import (
    DataLossError,
    TerminalError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from airflow_provider_kafka_s3.inspect.lag import WindowState, lag, window_state
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

NOW = 10_000
"""Milliseconds since the epoch."""


@pytest.fixture
def kafka() -> SimulatedKafka:
    """A cluster with a topic of two partitions."""
    made = SimulatedKafka()
    made.create_topic("orders", 2)
    return made


@pytest.fixture
def log() -> TopicLog:
    """The topic's log in an empty bucket."""
    store = DurableStore(MemoryStore("lake"), Retrier(RetryPolicy(max_retries=0)))
    return TopicLog(store, TopicAddress(topics_dir="topics", pipeline="p", topic="orders"))


def fill(kafka: SimulatedKafka, partition: int, count: int, *, at: int = 0) -> None:
    """Append records."""
    for _ in range(count):
        kafka.append("orders", partition, b"{}", at)


def store_offsets(log: TopicLog, kafka: SimulatedKafka, covered: dict[int, tuple[tuple[int, int], ...]]) -> None:
    """Write a marker."""
    log.create_marker(
        Marker(
            topic="orders",
            cluster_id="simulated",
            topic_id=kafka.topic_id("orders"),
            start={0: 0, 1: 0},
            partitions={p: PartitionState(covered=ranges) for p, ranges in covered.items()},
        ),
        data_prefix="topics/orders/",
    )


def test_without_stored_offsets_all_records_are_lag(log: TopicLog, kafka: SimulatedKafka) -> None:
    """Records that retention deleted before the first run do not count."""
    fill(kafka, 0, 5)
    fill(kafka, 1, 3)
    kafka.delete_records("orders", 0, 2)
    assert lag(log, kafka, "read_committed") == 6
    assert log.read_marker() is None


def test_records_after_the_stored_offsets_are_lag(log: TopicLog, kafka: SimulatedKafka) -> None:
    """Per partition from the highest landed offset on; a hole below it is for windows, not for incremental runs."""
    fill(kafka, 0, 10)
    fill(kafka, 1, 4)
    store_offsets(log, kafka, {0: ((0, 2), (4, 7))})
    assert lag(log, kafka, "read_committed") == 3 + 4
    kafka.add_partitions("orders", 1)
    fill(kafka, 2, 2)
    assert lag(log, kafka, "read_committed") == 3 + 4 + 2


def test_an_open_transaction_is_no_lag_for_a_committed_reader(log: TopicLog, kafka: SimulatedKafka) -> None:
    """The reader could not read its records."""
    kafka.open_transaction("orders", 0)
    fill(kafka, 0, 5)
    assert lag(log, kafka, "read_committed") == 0
    assert lag(log, kafka, "read_uncommitted") == 5


def test_records_that_retention_deleted_are_lag_so_that_a_run_reports_them(
    log: TopicLog, kafka: SimulatedKafka
) -> None:
    """Otherwise the sensor would wait while data is being lost."""
    store_offsets(log, kafka, {})
    fill(kafka, 0, 5)
    kafka.delete_records("orders", 0, 5)
    assert lag(log, kafka, "read_committed") == 5


def test_a_topic_that_a_run_would_refuse_is_an_error_for_sensors_too(log: TopicLog, kafka: SimulatedKafka) -> None:
    """A sensor that waits forever would hide it: missing, created again, truncated."""
    with pytest.raises(TopicNotFoundError):
        window_state(kafka, "nowhere", 0, isolation="read_committed", overdue=True, now_ms=NOW)
    fill(kafka, 0, 5)
    store_offsets(log, kafka, {0: ((0, 9),)})
    with pytest.raises(DataLossError, match="partition 0 ends at 5, stored is 9"):
        lag(log, kafka, "read_committed")
    kafka.create_topic("orders", 2)
    with pytest.raises(TopicRecreatedError):
        lag(log, kafka, "read_committed")
    kafka.delete_topic("orders")
    with pytest.raises(TerminalError, match="orders"):
        lag(log, kafka, "read_committed")


def test_a_partition_has_passed_a_window_with_the_first_younger_record(kafka: SimulatedKafka) -> None:
    """The end is exclusive: a record of exactly that time is younger. The other partition is waited for."""
    fill(kafka, 0, 1, at=99)
    fill(kafka, 1, 1, at=99)
    nothing = window_state(kafka, "orders", 100, isolation="read_committed", overdue=False, now_ms=NOW)
    assert nothing == WindowState(passed=(), quiet=(), open=(0, 1))
    fill(kafka, 0, 1, at=100)
    half = window_state(kafka, "orders", 100, isolation="read_committed", overdue=False, now_ms=NOW)
    assert half == WindowState(passed=(0,), quiet=(), open=(1,))
    assert not half.closed
    fill(kafka, 1, 1, at=101)
    assert window_state(kafka, "orders", 100, isolation="read_committed", overdue=False, now_ms=NOW).closed


def test_a_record_of_the_future_shows_nothing_about_a_window(kafka: SimulatedKafka) -> None:
    """Its partition is waited for like one without a younger record, and is quiet when the grace is over."""
    for partition in (0, 1):
        fill(kafka, partition, 1, at=NOW + 36_000_000)
    assert window_state(kafka, "orders", 100, isolation="read_committed", overdue=False, now_ms=NOW).open == (0, 1)
    assert window_state(kafka, "orders", 100, isolation="read_committed", overdue=True, now_ms=NOW).quiet == (0, 1)


def test_a_quiet_partition_counts_when_the_grace_is_over(kafka: SimulatedKafka) -> None:
    """Also one that never had a record."""
    fill(kafka, 0, 1, at=99)
    state = window_state(kafka, "orders", 100, isolation="read_committed", overdue=True, now_ms=NOW)
    assert state == WindowState(passed=(), quiet=(0, 1), open=())
    assert state.closed


def test_an_open_transaction_keeps_a_window_open(kafka: SimulatedKafka) -> None:
    """Its records may belong to the window and cannot be read yet, neither before a younger record nor at the end."""
    kafka.open_transaction("orders", 0)
    fill(kafka, 0, 1, at=99)
    fill(kafka, 1, 1, at=100)
    quiet = window_state(kafka, "orders", 100, isolation="read_committed", overdue=True, now_ms=NOW)
    assert quiet == WindowState(passed=(1,), quiet=(), open=(0,))
    fill(kafka, 0, 1, at=100)
    assert window_state(kafka, "orders", 100, isolation="read_committed", overdue=True, now_ms=NOW).open == (0,)
    assert window_state(kafka, "orders", 100, isolation="read_uncommitted", overdue=True, now_ms=NOW).passed == (0, 1)
    kafka.commit_transaction("orders", 0)
    assert window_state(kafka, "orders", 100, isolation="read_committed", overdue=False, now_ms=NOW).passed == (0, 1)
