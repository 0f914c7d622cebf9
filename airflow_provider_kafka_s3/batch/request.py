"""The request of a run over a topic, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config import Layout, Limits
from airflow_provider_kafka_s3.documents.manifest import NO_UNKNOWN_FIELDS, UnknownFields
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
"""The target of a run: all new offsets, a window, or the claimed offsets that are not committed."""

OnMissing = Literal["fail", "restore", "ignore"]
Action = Literal["land", "verify", "restore"]
"""What a run does: land missing offsets; check landed objects; check them and write deleted ones again."""
OnFutureTimestamp = Literal["fail", "read_to_end"]
Starting = Literal["earliest", "latest"] | Mapping[int, int]
RequestedWindow = tuple[int, int] | Mapping[int, tuple[int, int]]
"""``[start, end)`` in epoch milliseconds; or offsets: partition -> ``[start, end)``, without partitions that are not
named."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The request of a run over one topic.

    Attributes:
        run: its key; the same for every try.
        offsets: kind of the target.
        layout: of the batches it plans.
        starting: start offsets of the topic when the marker is created; None: the start of the window.
        window: see :data:`RequestedWindow` (``data_interval``).
        action: ``land``: land the missing offsets of the target, and check that the objects of landed ones exist.
            ``verify``: read every object of the window (without one: of the run's target; without a record of the run:
            of all landed offsets) and compare it with its manifest; nothing is written. ``restore``: the same, then
            write missing objects again from Kafka. Neither of these two lands offsets that are not landed yet.
        attempt: number and host of the try, such as ``try 2 on worker-1``; information for readers of its plans.
        task: Airflow task of the run, if any. It is stored in the run's plans, so that another run can check whether
            the task still runs.
        isolation: of the end offsets and of the read.
        limits: of the run, its batches and their slices; ``records_per_run`` is for ``incremental`` only.
        on_data_loss: whether offsets that retention deleted are an error or a recorded gap.
        max_dead_letters: of all batches that the run lands; one that would have more is not landed. None: no limit.
        on_future_timestamp: policy for a window of time whose end is hidden by a record from the future: an error, or
            the window is read to the current end.
        on_missing: policy of a rerun for missing objects (``land``); with ``ignore``, ``verify`` reports them without
            an error, too.
        adopt_wait: seconds to wait for another run's batch before executing it again, unless its planner has ended; the
            wait only saves work.
        unsafe_single_writer: do not check that the store honours conditional writes.
        params: parameters of the caller, as text, for people who read the run record.
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
    max_dead_letters: int | None = None
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
            raise ConfigurationError("the window names no partition; give [start, end) for at least one")
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
        manifest: address of its manifest.
        mine: whether this run planned it.
        landed: whether this run decided it. Of all runs that report a batch, exactly one has.
        objects: number of objects of the whole batch.
        records: number of records in its data objects.
        tombstones: number of these whose value is null and that have no object of values.
        ignored: number of null values that were left out.
        dead_letters: number of records that could not be written, in objects of their own.
        size: bytes of all its objects.
        offsets: claimed offsets.
        unknown_fields: what records have beside their declared schema.
    """

    batch: int
    manifest: str
    mine: bool
    landed: bool
    objects: int
    records: int
    tombstones: int
    ignored: int
    dead_letters: int
    size: int
    offsets: Offsets
    unknown_fields: UnknownFields = NO_UNKNOWN_FIELDS


@dataclass(frozen=True)
class Verification:
    """Result of ``verify`` and ``restore`` for the objects of a window.

    Attributes:
        objects: number of objects that match their manifests, including restored ones.
        size: bytes that were read.
        missing: keys of missing objects that were not restored (``verify`` with ``on_missing="ignore"``; else their
            absence is an error).
        restored: keys that were written again from Kafka.
        accepted: keys of absent objects whose loss was accepted.
        given: keys of absent objects that were given to a table, which may delete them.
        expired: number of objects that were deleted on purpose, or will be; they were not looked for.
        uncovered: offsets of the window that no committed batch covers; the action ``land`` lands them.
        undated: landed offsets that retention has deleted from Kafka. Without their timestamps it is unknown whether
            they belong to the window of time, so their objects were not checked.
    """

    objects: int
    size: int
    missing: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    expired: int = 0
    uncovered: Offsets = NO_OFFSETS
    undated: Offsets = NO_OFFSETS


@dataclass(frozen=True)
class TopicResult:
    """Result of a run for a topic.

    Attributes:
        topic: the Kafka topic.
        status: ``ok``: every offset of the target is committed, by this run or another. ``empty``: nothing to do.
        target: the offsets that had to be covered; of ``verify`` and ``restore``: the covered ones of the window.
        batches: the batches that cover them.
        skipped: offsets of the target that are recorded as lost.
        verified: number of objects that a rerun checked and found.
        wrote: whether this attempt planned, executed, completed or restored anything.
        verification: result of ``verify`` and ``restore``; None for ``land``.
        held_back: offsets behind an open transaction when the target was pinned; a later run lands them.
    """

    topic: str
    status: Literal["ok", "empty"]
    target: Offsets
    batches: tuple[BatchSummary, ...]
    skipped: Offsets
    verified: int = 0
    wrote: bool = False
    verification: Verification | None = None
    held_back: Offsets = NO_OFFSETS

    @property
    def shared(self) -> bool:
        """Whether another run planned some of the batches."""
        return not all(b.mine for b in self.batches)
