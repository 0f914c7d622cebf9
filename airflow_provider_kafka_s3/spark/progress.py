"""Run a Spark action and say how far it is, every few seconds, as long as something changes.

What can be known of tasks that run differs. On a session of this process the metrics of Spark's Kafka scan tell the
records, as often as executors report (every 10 seconds); bytes come with the end of a slice. A remote session (Spark
Connect) tells ended tasks only, but hands out the rows of tasks as these end, in the order of slices; they tell both.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec

from airflow_provider_kafka_s3.documents.manifest import ObjectEntry, SliceResult
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.spark.rows import Row, from_bytes

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Action", "Count", "LocalAction", "Progress", "RemoteAction", "action_of", "is_remote", "progress_line"]

log = logging.getLogger(__name__)

_EVERY: Final = 5.0
_MEGABYTE: Final = 1_000_000
_SCAN: Final = re.compile(r"Scan\b")
_ROWS: Final = "number of output rows"


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How far an action is.

    Attributes:
        slices: that ended.
        records: that were read.
        size: bytes of the objects of ended slices, as stored.
        live: whether ``records`` counts those of running tasks, too.
    """

    slices: int
    records: int
    size: int
    live: bool


class Action(Protocol):
    """One run of a data frame of rows."""

    @property
    def written(self) -> Accumulator[int] | None:
        """Where tasks add the bytes that they wrote; None: their rows tell."""

    def rows(self, frame: DataFrame) -> list[Row]:
        """Run it and bring all rows."""

    def count(self) -> Count:
        """How far it is. May raise anything."""


class LocalAction:
    """An action of a session whose driver is this process.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jsc.sc().statusStore()
        self._sql: Any = spark._jsparkSession.sharedState().statusStore()
        self.written: Accumulator[int] | None = spark.sparkContext.accumulator(0)

    def rows(self, frame: DataFrame) -> list[Row]:
        """See :class:`Action`."""
        return [from_bytes(row.row) for row in frame.collect()]

    def count(self) -> Count:
        """See :class:`Action`."""
        assert self.written is not None
        slices = sum(stage.numCompleteTasks() for stage in _each(self._jvm.activeStages()))
        records = sum(map(self._records, _each(self._sql.executionsList())))
        return Count(slices=slices, records=records, size=self.written.value, live=True)

    def _records(self, execution: Any) -> int:
        """What the scans of a running query have read. Metrics come as text, such as ``130,002``."""
        if execution.completionTime().isDefined():
            return 0
        values = self._sql.executionMetrics(execution.executionId())
        found = 0
        for node in _each(self._sql.planGraph(execution.executionId()).allNodes()):
            if _SCAN.search(node.name()):
                for metric in _each(node.metrics()):
                    value = values.get(metric.accumulatorId())
                    if metric.name() == _ROWS and value.isDefined():
                        found += int(re.sub(r"\D", "", value.get()) or 0)
        return found


class RemoteAction:
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

    def rows(self, frame: DataFrame) -> list[Row]:
        """See :class:`Action`."""
        self._spark.registerProgressHandler(self._told)
        rows: list[Row] = []
        try:
            for told in frame.toLocalIterator():
                row = from_bytes(told.row)
                rows.append(row)
                if row.kind == "object":
                    self._size += msgspec.json.decode(row.body, type=ObjectEntry).size
                elif row.kind == "slice":
                    ended = msgspec.json.decode(row.body, type=SliceResult)
                    self._records += ended.records + ended.ignored
        finally:
            self._spark.removeProgressHandler(self._told)
        return rows

    def count(self) -> Count:
        """See :class:`Action`."""
        return Count(slices=self._ended, records=self._records, size=self._size, live=False)

    def _told(self, *, stages: Any, **_: Any) -> None:
        self._ended = max(self._ended, sum(stage.num_completed_tasks for stage in stages or ()))


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def action_of(spark: SparkSession) -> Action:
    """An action of a session."""
    return RemoteAction(spark) if is_remote(spark) else LocalAction(spark)


class Progress:
    """Logs from a thread of its own how far an action is, while the block runs.

    Args:
        action: that is looked at.
        plans: that it executes.
        every: seconds between two looks.
    """

    def __init__(self, action: Action, plans: Sequence[Plan], *, every: float = _EVERY) -> None:
        self._action = action
        self._what = ", ".join(plan.topic for plan in plans)
        self._slices = sum(len(plan.slices) for plan in plans)
        self._offsets = sum(s.end - s.start for plan in plans for s in plan.slices)
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._started = 0.0

    def __enter__(self) -> Self:
        """Begin to look."""
        self._started = time.monotonic()
        log.info("%s: reading %d slices, %s offsets", self._what, self._slices, f"{self._offsets:,}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop looking, and say how long it took."""
        self._over.set()
        self._thread.join()
        if error is None:
            log.info("%s: %d slices read in %.1f s", self._what, self._slices, time.monotonic() - self._started)

    def _run(self) -> None:
        last = Count(slices=0, records=0, size=0, live=False)
        while not self._over.wait(self._every):
            try:
                count = self._action.count()
            except Exception:  # noqa: BLE001 - the session may be ending, and progress is not worth an error
                return
            # Spark forgets its counts when the action ends: what was said is not taken back.
            if (count.slices, count.records) > (last.slices, last.records) and count.records >= last.records:
                last = count
                seconds = time.monotonic() - self._started
                log.info("%s: %s", self._what, progress_line(count, self._slices, self._offsets, seconds))


def progress_line(count: Count, slices: int, offsets: int, seconds: float) -> str:
    """Say how far an action is.

    Args:
        count: how far it is.
        slices: in all.
        offsets: of all slices; compacted topics and transactions have fewer records.
        seconds: since it began.

    Returns:
        Such as ``3 of 8 slices, 1,250,000 of 4,000,000 records (31 %), 182.0 MB written by ended slices, 152,000
        records/s, about 18 s left``.
    """
    parts = [f"{count.slices} of {slices} slices", f"{count.records:,} of {offsets:,} records"]
    if offsets:
        parts[-1] += f" ({100 * count.records // offsets} %)"
    if not count.live:
        parts[-1] += " counted as slices end"
    parts.append(f"{count.size / _MEGABYTE:.1f} MB written by ended slices")
    if count.records and seconds > 0:
        rate = count.records / seconds
        parts += [f"{rate:,.0f} records/s", f"about {max(offsets - count.records, 0) / rate:,.0f} s left"]
    return ", ".join(parts)


def _each(sequence: Any) -> Iterator[Any]:
    """The members of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
