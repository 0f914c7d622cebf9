"""Run a Spark action and log its progress every few seconds, as long as it changes.

The available counts of running tasks depend on the session. In a local session the metrics of Spark's Kafka scan count
records, as often as executors report (every 10 seconds); bytes are counted when a task ends. A remote session (Spark
Connect) reports ended tasks only, but returns the rows of tasks as these end, in their order; the rows contain both
counts.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec

from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SliceRows
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.spark.rows import Row, from_bytes
from airflow_provider_kafka_s3.structs import decode_struct

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Count",
    "LocalAction",
    "Progress",
    "RemoteAction",
    "SparkAction",
    "action_of",
    "counts_line",
    "is_remote",
    "parallelism_of",
    "progress_line",
]

log = logging.getLogger(__name__)

_EVERY: Final = 5.0
_MEGABYTE: Final = 1_000_000
_SCAN: Final = re.compile(r"Scan\b")
_ROWS: Final = "number of output rows"


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an action.

    Attributes:
        tasks: number of ended tasks.
        records: number of records read.
        size: bytes of the objects of ended tasks, as stored.
        live: whether ``records`` includes those of running tasks.
    """

    tasks: int
    records: int
    size: int
    live: bool


class SparkAction(Protocol):
    """One run of a data frame of rows."""

    written: Accumulator[int] | None
    """Accumulator for the bytes that tasks write; None: the bytes are taken from their rows."""

    def rows(self, frame: DataFrame) -> list[Row]:
        """Run it and return all rows."""

    def count(self) -> Count:
        """Current progress. May raise any exception."""


class LocalAction(SparkAction):
    """An action of a session whose driver is this process.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jsc.sc().statusStore()
        self._sql: Any = spark._jsparkSession.sharedState().statusStore()
        self.written: Accumulator[int] | None = spark.sparkContext.accumulator(0)

    @override
    def rows(self, frame: DataFrame) -> list[Row]:
        return [from_bytes(row.row) for row in frame.collect()]

    @override
    def count(self) -> Count:
        assert self.written is not None
        tasks = sum(stage.numCompleteTasks() for stage in _each(self._jvm.activeStages()))
        records = sum(map(self._records, _each(self._sql.executionsList())))
        return Count(tasks=tasks, records=records, size=self.written.value, live=True)

    def _records(self, execution: Any) -> int:
        """Records read by the scans of a running query. Metrics are text, such as ``130,002``."""
        if execution.completionTime().isDefined():
            return 0
        values = self._sql.executionMetrics(execution.executionId())
        records = 0
        for node in _each(self._sql.planGraph(execution.executionId()).allNodes()):
            if _SCAN.search(node.name()):
                for metric in _each(node.metrics()):
                    value = values.get(metric.accumulatorId())
                    if metric.name() == _ROWS and value.isDefined():
                        records += int(re.sub(r"\D", "", value.get()) or 0)
        return records


class RemoteAction(SparkAction):
    """An action of a Spark Connect session.

    Args:
        spark: the session.
    """

    written: Accumulator[int] | None = None

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._ended = 0
        self._records = 0
        self._size = 0

    @override
    def rows(self, frame: DataFrame) -> list[Row]:
        self._spark.registerProgressHandler(self._on_progress)
        rows: list[Row] = []
        try:
            for spark_row in frame.toLocalIterator():
                row = from_bytes(spark_row.row)
                rows.append(row)
                if row.kind == "object":
                    self._size += decode_struct(row.body, ObjectEntry).size
                elif row.kind == "slice":
                    ended = decode_struct(row.body, SliceRows).result
                    self._records += ended.records + ended.ignored + ended.dead_letters
        finally:
            self._spark.removeProgressHandler(self._on_progress)
        return rows

    @override
    def count(self) -> Count:
        return Count(tasks=self._ended, records=self._records, size=self._size, live=False)

    def _on_progress(self, *, stages: Any, **_: Any) -> None:
        self._ended = max(self._ended, sum(stage.num_completed_tasks for stage in stages or ()))


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def parallelism_of(spark: SparkSession) -> int:
    """Tasks that a session runs at the same time; 0 if that is unknown, as on a Spark Connect server."""
    return 0 if is_remote(spark) else spark.sparkContext.defaultParallelism


def action_of(spark: SparkSession) -> SparkAction:
    """An action of a session."""
    return RemoteAction(spark) if is_remote(spark) else LocalAction(spark)


class Progress:
    """Logs the progress of an action from a separate thread, while the block runs.

    Args:
        action: the action.
        tasks: that it runs.
        every: seconds between two log lines.
    """

    def __init__(self, action: SparkAction, tasks: ReadTasks, *, every: float = _EVERY) -> None:
        self._action = action
        self._topics = ", ".join(plan.topic for plan in tasks.plans)
        self._slices = sum(len(plan.slices) for plan in tasks.plans)
        self._tasks = tasks.count
        self._offsets = sum(s.end - s.start for plan in tasks.plans for s in plan.slices)
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._started = 0.0

    def __enter__(self) -> Self:
        """Start logging."""
        self._started = time.monotonic()
        slices, tasks = count(self._slices, "slice"), count(self._tasks, "task")
        log.info("%s: reading %s, %s, in %s", self._topics, slices, count(self._offsets, "offset"), tasks)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop logging, and log the duration."""
        self._over.set()
        self._thread.join()
        if error is None:
            seconds = time.monotonic() - self._started
            log.info("%s: %s read in %.1f s", self._topics, count(self._slices, "slice"), seconds)

    def _run(self) -> None:
        last = Count(tasks=0, records=0, size=0, live=False)
        while not self._over.wait(self._every):
            try:
                now = self._action.count()
            except Exception:  # noqa: BLE001 - the session may be ending, and progress is not worth an error
                return
            # Spark resets its counts when the action ends; lower counts are not logged.
            if (now.tasks, now.records) > (last.tasks, last.records) and now.records >= last.records:
                last = now
                seconds = time.monotonic() - self._started
                log.info("%s: %s", self._topics, progress_line(now, self._tasks, self._offsets, seconds))


def progress_line(now: Count, tasks: int, offsets: int, seconds: float) -> str:
    """Text about the progress of an action.

    Args:
        now: its progress.
        tasks: total number of tasks.
        offsets: total number of offsets; compacted topics and transactions have fewer records.
        seconds: since it started.

    Returns:
        Such as ``3 of 8 tasks, 1,250,000 of 4,000,000 records (31 %), 182.0 MB written by ended tasks, 152,000
        records/s, about 18 s left``.
    """
    parts = [f"{now.tasks} of {count(tasks, 'task')}", f"{now.records:,} of {count(offsets, 'record')}"]
    if offsets:
        parts[-1] += f" ({100 * now.records // offsets} %)"
    if not now.live:
        parts[-1] += " counted as tasks end"
    parts.append(f"{now.size / _MEGABYTE:.1f} MB written by ended tasks")
    if now.records and seconds > 0:
        rate = now.records / seconds
        parts.append(f"{rate:,.0f} records/s")
        # When all are read, uploads end: nobody knows how long that takes.
        if (left := (offsets - now.records) / rate) >= 1:
            parts.append(f"about {left:,.0f} s left")
    return ", ".join(parts)


def _each(sequence: Any) -> Iterator[Any]:
    """The members of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def counts_line(decision: Manifest) -> str:
    """The counts of a decided batch as text; tombstones, ignored null values and dead letters if there are any."""
    rare = {
        "tombstone": decision.tombstones,
        "ignored null value": decision.ignored,
        "dead letter": decision.dead_letters,
    }
    counts = {
        "object": len(decision.objects),
        "record": decision.records,
        **{what: number for what, number in rare.items() if number},
        "byte": decision.size,
    }
    return ", ".join(count(number, what) for what, number in counts.items())
