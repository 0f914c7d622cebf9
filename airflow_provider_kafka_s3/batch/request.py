"""The request of a run over a topic, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config import Layout, Limits
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.planner import PlannerTask
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "Action",
    "BatchSummary",
    "OnFutureTimestamp",
    "OnMissing",
    "RequestedWindow",
    "RunRequest",
    "Starting",
    "TargetOffsets",
    "TopicResult",
    "Verification",
]

TargetOffsets = Literal["incremental", "data_interval", "recover"]
"""What a run aims at: all that is new, a window, or what is claimed and not committed."""

OnMissing = Literal["fail", "restore", "ignore"]
Action = Literal["land", "verify", "restore"]
"""What a run does: land what is missing; check what is landed; check it and write again what was deleted."""
OnFutureTimestamp = Literal["fail", "read_to_end"]
Starting = Literal["earliest", "latest"] | Mapping[int, int]
RequestedWindow = tuple[int, int] | Mapping[int, tuple[int, int]]
"""``[start, end)`` in epoch milliseconds; or offsets: partition -> ``[start, end)``, without partitions that are not
named."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What a run should do for a topic.

    Attributes:
        run: its key; the same for every try.
        offsets: what the target is.
        layout: of the batches it plans.
        starting: where the topic begins when the marker is created; None: where the window does.
        window: see :data:`RequestedWindow` (``data_interval``).
        action: ``land``: land what the target lacks, and look whether what is landed is still there. ``verify``:
            read every object of the window (without one: of the run's target; without a record of the run: of all that
            is landed) and compare it with its manifest; nothing is written. ``restore``: the same, then write again
            from Kafka what is missing. Neither of these two lands offsets that are not landed yet.
        attempt: which try this is and where it runs, such as ``try 2 on worker-1``; information for whoever finds its
            plans.
        task: of Airflow that the run belongs to, if one does; stands in its plans, so that another run can see whether
            it still runs.
        isolation: of the end offsets and of the read.
        limits: of the run, its batches and their slices; ``records_per_run`` is for ``incremental`` only.
        on_data_loss: whether offsets that retention deleted are an error or a recorded gap.
        on_future_timestamp: a record of the future hides where a window of time ends: an error, or the window is read
            to the current end.
        on_missing: what a rerun does about an object that is gone (``land``); ``ignore`` also lets ``verify`` report
            it without failing.
        adopt_wait: seconds to wait for another run's batch before doing its work again, unless its planner has
            ended; it only saves work.
        unsafe_single_writer: do not check that the store honours conditional writes.
        params: what the caller requested, as text, for people who read the run record.
    """

    run: str
    offsets: TargetOffsets
    layout: Layout
    starting: Starting | None
    window: RequestedWindow | None = None
    action: Action = "land"
    attempt: str = ""
    task: PlannerTask | None = None
    isolation: Isolation = "read_committed"
    limits: Limits = field(default_factory=Limits)
    on_data_loss: Literal["fail", "skip"] = "fail"
    on_future_timestamp: OnFutureTimestamp = "fail"
    on_missing: OnMissing = "fail"
    adopt_wait: float = 120.0
    unsafe_single_writer: bool = False
    params: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.offsets == "data_interval") != (self.window is not None):
            raise ConfigurationError(f"offsets={self.offsets!r} does not go with the window {self.window}")
        if self.starting is None and self.window is None and self.action == "land":
            raise ConfigurationError("a run without a window needs starting offsets: 'earliest', 'latest' or a mapping")
        if isinstance(self.window, Mapping):
            self._check_offsets(self.window)
        elif self.window is not None and self.window[0] >= self.window[1]:
            raise ConfigurationError(f"the window [{self.window[0]}, {self.window[1]}) is empty or reversed")
        if self.offsets != "incremental" and self.limits.records_per_run is not None:
            raise ConfigurationError(
                f"limits: records_per_run would leave a {self.offsets!r} run incomplete; use records_per_batch, which "
                f"splits the run into several batches"
            )

    def _check_offsets(self, window: Mapping[int, tuple[int, int]]) -> None:
        if not window:
            raise ConfigurationError("the window names no partition; give [start, end) for one at least")
        for partition, (start, end) in window.items():
            if partition < 0 or not 0 <= start < end:
                raise ConfigurationError(
                    f"the window of partition {partition}, offsets [{start}, {end}), is empty, reversed or negative"
                )


@dataclass(frozen=True)
class BatchSummary:
    """One batch that covers some of a run's target.

    Attributes:
        batch: its number.
        manifest: where it lies.
        mine: whether this run planned it.
        landed: whether this run decided it. Of all runs that report a batch, exactly one has.
        objects: of the whole batch, as the next two.
        records: in its data objects.
        dead_letters: records that could not be written, in objects of their own.
        size: bytes of all its objects.
        offsets: that the batch claims.
    """

    batch: int
    manifest: str
    mine: bool
    landed: bool
    objects: int
    records: int
    dead_letters: int
    size: int
    offsets: Offsets


@dataclass(frozen=True)
class Verification:
    """What ``verify`` and ``restore`` found when they read the objects of a window.

    Attributes:
        objects: that are there and hold what their manifests say, the restored ones included.
        size: bytes that were read.
        missing: keys of objects that are gone and stay away (``verify`` with ``on_missing="ignore"``; else their
            absence is an error).
        restored: keys that were written again from Kafka.
        accepted: keys that are absent because somebody accepted their loss.
        uncovered: offsets of the window that no committed batch covers. They are for a run to ``land``.
        undated: landed offsets that retention has deleted from Kafka, and of which no timestamp tells any more whether
            they belong to a window of time. They were not looked at.
    """

    objects: int
    size: int
    missing: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    uncovered: Offsets = NO_OFFSETS
    undated: Offsets = NO_OFFSETS


@dataclass(frozen=True)
class TopicResult:
    """How a run ended for a topic.

    Attributes:
        topic: the Kafka topic.
        status: ``ok``: every offset of the target is committed, by this run or another. ``empty``: nothing to do.
        target: the offsets that had to be covered; of ``verify`` and ``restore``: the covered ones of the window.
        batches: that cover them.
        skipped: offsets of the target that are recorded as lost.
        verified: objects that a rerun looked at and found.
        wrote: whether this attempt planned, executed, completed or restored anything.
        verification: of ``verify`` and ``restore``; None of ``land``.
    """

    topic: str
    status: Literal["ok", "empty"]
    target: Offsets
    batches: tuple[BatchSummary, ...]
    skipped: Offsets
    verified: int = 0
    wrote: bool = False
    verification: Verification | None = None

    @property
    def shared(self) -> bool:
        """Whether some batch was planned by another run."""
        return not all(b.mine for b in self.batches)
