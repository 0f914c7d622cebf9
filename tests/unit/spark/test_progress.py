"""The progress in the log of a task while Spark reads."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.manifest import Manifest, SliceResult
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark.progress import Count, Progress, counts_line, progress_line
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.spark.rows import Row
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count(records: int, *, tasks: int = 0, size: int = 0, live: bool = True) -> Count:
    """Progress of an action."""
    return Count(tasks=tasks, records=records, size=size, live=live)


def test_a_line_has_tasks_records_bytes_rate_and_the_time_left() -> None:
    """From what was read so far, and how long that took."""
    line = progress_line(count(1_000_000, tasks=3, size=182_000_000), 8, 4_000_000, 10)
    assert line == (
        "3 of 8 tasks, 1,000,000 of 4,000,000 records (25 %), 182.0 MB written by ended tasks, 100,000 records/s, "
        "about 30 s left"
    )


def test_no_time_is_left_when_all_is_read() -> None:
    """Uploads end, and nobody knows how long that takes; counts have the form of their number."""
    line = progress_line(count(3), 1, 3, 1)
    assert line == "0 of 1 task, 3 of 3 records (100 %), 0.0 MB written by ended tasks, 3 records/s"


def test_a_committed_batch_has_counts_of_tombstones_ignored_values_and_dead_letters_if_there_are_any() -> None:
    """Most pipelines have none."""

    def line(**counts: int) -> str:
        result = SliceResult(**{"id": 0, "records": 5, "ignored": 0, "next_offset": 9, **counts})
        return counts_line(Manifest(batch=1, plan_sha256="", status="commit", run="r", slices=(result,)))

    assert line() == "0 objects, 5 records, 0 bytes"
    assert line(tombstones=2) == "0 objects, 5 records, 2 tombstones, 0 bytes"
    assert line(ignored=1) == "0 objects, 5 records, 1 ignored null value, 0 bytes"
    assert line(tombstones=2, dead_letters=3) == "0 objects, 5 records, 2 tombstones, 3 dead letters, 0 bytes"


def test_a_line_shows_that_running_tasks_do_not_count() -> None:
    """On Spark Connect their progress is unknown."""
    line = progress_line(count(500, tasks=1, live=False), 2, 1_000, 10)
    assert "500 of 1,000 records (50 %) counted as tasks end, " in line


@pytest.mark.parametrize(("records", "offsets"), [(0, 100), (0, 0)])
def test_without_records_a_line_has_no_rate(records: int, offsets: int) -> None:
    """There is no rate yet."""
    line = progress_line(count(records), 1, offsets, 5)
    assert "records/s" not in line
    assert "left" not in line


class ScriptedAction:
    """An action with scripted progress that counts its calls."""

    written = None

    def __init__(self, *counts: Count | Exception) -> None:
        self.counts = list(counts)
        self.exhausted = threading.Event()

    def rows(self, frame: DataFrame) -> list[Row]:
        return []

    def count(self) -> Count:
        result = self.counts[0]
        if len(self.counts) > 1:
            self.counts.pop(0)
        else:
            self.exhausted.set()
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def plan() -> Plan:
    """One slice of ten offsets."""
    kafka = SimulatedKafka()
    kafka.create_topic("orders")
    for _ in range(10):
        kafka.append("orders", 0, b"1")
    store = DurableStore(MemoryStore(), Retrier())
    pipeline = TopicPipeline(store, kafka, topics_dir="topics", pipeline="lake", topic="orders")
    request = RunRequest(run="run", offsets="incremental", layout=Layout(format=JsonLines()), starting="earliest")
    step = pipeline.run(request).advance()
    assert isinstance(step, Plan)
    return step


def test_the_log_shows_changes_and_counts_never_decrease(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    """Spark resets its counts when a query ends; equal or lower counts are not logged."""
    caplog.set_level(logging.INFO)
    action = ScriptedAction(count(0), count(4), count(4), count(9), count(0, tasks=0), count(3))
    with Progress(action, ReadTasks([plan]), every=0.001):
        assert action.exhausted.wait(30)
    lines = [message for message in caplog.messages if " records (" in message]
    assert [line.split(" task, ")[1].split(" records")[0] for line in lines] == ["4 of 10", "9 of 10"]
    assert "orders: reading 1 slice, 10 offsets, in 1 task" in caplog.messages
    assert caplog.messages[-1].startswith("orders: 1 slice read in ")


def test_unavailable_progress_is_no_error(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    """The action continues; the log has its start and its end."""
    caplog.set_level(logging.INFO)
    action = ScriptedAction(RuntimeError("the session is gone"))
    with Progress(action, ReadTasks([plan]), every=0.001):
        assert action.exhausted.wait(30)
    assert len(caplog.messages) - sum("offsets to land" in m or "claims" in m for m in caplog.messages) == 2
