"""The target of a run, and the offsets of its next batch. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import fair_share
from airflow_provider_kafka_s3.exceptions import DataLossError

__all__ = [
    "Claimable",
    "OffsetWindow",
    "claimable",
    "incremental_target",
    "interval_target",
    "next_claim",
    "recovery_target",
    "untouched",
]

_END: Final = 2**63 - 1
"""Above every offset."""


@dataclass(frozen=True)
class OffsetWindow:
    """A window of time as offsets: per partition ``[start, end)``, empty where all records are older."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def offsets(self) -> Offsets:
        """The offsets in the window."""
        return Offsets({p: [(start, self.ends[p])] for p, start in self.starts.items()})


def untouched(view: View, partitions: Iterable[int]) -> dict[int, int]:
    """Per partition the first offset above all that any run has claimed: no offset below it is left out.

    It follows the highest offset that is covered, owed or claimed, and is never below the marker's start of the
    partition: history is landed window by window. A partition that was added after the marker was created starts at 0:
    its earlier records are landed by the first run that lands any of it.
    """
    known = view.marker.covered | view.marker.debt | view.claims
    return {p: max(known.end(p) or 0, view.marker.start.get(p, 0)) for p in partitions}


def incremental_target(view: View, ends: Mapping[int, int], readable: Offsets | None = None) -> Offsets:
    """New offsets, debt, and the claims of open tail plans.

    Without the last two, no later run would land a failed or abandoned batch below the end of the coverage.

    Args:
        view: of the log.
        ends: per partition the end of the readable offsets.
        readable: what another pipeline has landed, which may have filled gaps since: all that no run has claimed is
            new. None: Kafka's log is read, and all that is new is above what any run has claimed.
    """
    if readable is None:
        begin = untouched(view, ends)
        new = Offsets({p: [(begin[p], end)] for p, end in ends.items()})
    else:
        new = (readable & Offsets({p: [(view.marker.start.get(p, 0), _END)] for p in readable})) - view.claims
    promised = view.marker.debt
    for plan in view.open_plans.values():
        if plan.tail:
            promised |= plan.claim
    return (new | promised) - view.marker.covered


def interval_target(view: View, window: OffsetWindow, readable: Offsets | None = None) -> Offsets:
    """The uncovered offsets of a window, and all offsets below it that no run has claimed.

    No later run would land the second part, so it would be left out.

    Args:
        view: of the log.
        window: its offsets.
        readable: what another pipeline has landed; None: Kafka's log is read.
    """
    begin = untouched(view, window.ends)
    wanted = Offsets({p: [(min(window.starts[p], begin[p]), end)] for p, end in window.ends.items()})
    return (wanted if readable is None else wanted & readable) - view.marker.covered


def recovery_target(view: View) -> Offsets:
    """Debt, and the claims of all open plans."""
    return (view.marker.debt | view.claims) - view.marker.covered


@dataclass(frozen=True)
class Claimable:
    """What the next plan may claim.

    Attributes:
        read: offsets to read.
        skipped: offsets that retention deleted, to be recorded as a gap.
    """

    read: Offsets
    skipped: Offsets


def next_claim(view: View, free: Offsets, *, max_records: int | None) -> tuple[Offsets, bool]:
    """The part of ``free`` that one plan may claim, and whether it is tail.

    A plan holds either only offsets above the coverage and debt, or only history: an abandoned tail plan becomes debt
    for the next incremental run, an abandoned backfill does not.
    """
    known, start = view.marker.covered | view.claims, view.marker.start
    ahead = Offsets({p: [(max(known.end(p) or 0, start.get(p, 0)), _END)] for p in free})
    tail = ahead & free | (free & view.marker.debt)
    part = tail or free
    return (part if max_records is None else fair_share(part, max_records)), bool(tail)


def claimable(
    topic: str,
    claim: Offsets,
    *,
    earliest: Mapping[int, int],
    ends: Mapping[int, int],
    on_data_loss: Literal["fail", "skip"],
    accept: Callable[[Offsets], str] = str,
    expired: Offsets = NO_OFFSETS,
) -> Claimable:
    """Split a claim into the offsets that Kafka still has and those that retention deleted.

    Args:
        topic: name of the topic.
        claim: offsets that a plan would claim.
        earliest: per partition the first offset that Kafka still has.
        ends: per partition the end of the readable offsets.
        on_data_loss: whether deleted offsets are an error, or skipped.
        accept: the command that records offsets as lost, for the error.
        expired: offsets whose objects another pipeline, which is read in place of Kafka, has deleted on purpose.

    Raises:
        DataLossError: offsets are gone and ``on_data_loss`` is ``fail``, or they lie past the end of the log.
    """
    beyond = Offsets({p: [(ends.get(p, 0), _END)] for p in claim}) & claim
    if beyond:
        raise DataLossError(
            f"topic {topic!r}: offsets {beyond} existed when the run was planned and lie past the end of the log "
            f"now: the log was truncated (unclean leader election). Nothing was planned. Run again when the topic has "
            f"grown past them: the records at these offsets are landed then"
        )
    gone = (Offsets({p: [(0, earliest.get(p, 0))] for p in claim}) | expired) & claim
    if gone & expired and on_data_loss == "fail":
        raise DataLossError(
            f"topic {topic!r}: the pipeline that is read has deleted objects of offsets {gone} on purpose "
            f"(docs/expiry.md) before they were landed here. Nothing was planned. Accept the gap, which is then "
            f"recorded as lost in plan and marker: {accept(gone)}, then run again; or accept each with "
            f"on_data_loss='skip'"
        )
    if gone and on_data_loss == "fail":
        raise DataLossError(
            f"topic {topic!r}: offsets {gone} were deleted by retention before they were landed (the log starts at "
            f"{dict(earliest)}). Nothing was planned. Accept the gap, which is then recorded as lost in plan and "
            f"marker: {accept(gone)}, then run again; or accept every such gap with on_data_loss='skip'"
        )
    return Claimable(read=claim - gone, skipped=gone)
