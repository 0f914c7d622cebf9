"""What a run has to cover, and the next batch towards it. Pure: everything from outside comes in as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import fair_share
from airflow_provider_kafka_s3.exceptions import DataLossError

__all__ = [
    "Claimable",
    "Window",
    "claimable",
    "incremental_target",
    "interval_target",
    "next_claim",
    "recovery_target",
    "untouched",
]


@dataclass(frozen=True)
class Window:
    """A window of time as offsets: per partition ``[start, end)``, empty where no record is as young as the window."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def offsets(self) -> Offsets:
        """The offsets in the window."""
        return Offsets({p: [(start, self.ends[p])] for p, start in self.starts.items()})


def untouched(view: View, partitions: Iterable[int]) -> dict[int, int]:
    """Per partition where the offsets begin that no run has touched: nothing is left out below them.

    That is behind the highest offset that is covered, owed or claimed, and never below where the marker starts the
    partition: history is landed window by window. One that was added after the marker was made starts at 0: what it
    held before the first run that touches it is landed by that run.
    """
    known = view.marker.covered | view.marker.debt | view.claims
    return {p: max(known.end(p) or 0, view.marker.start.get(p, 0)) for p in partitions}


def incremental_target(view: View, ends: Mapping[int, int]) -> Offsets:
    """All that is new, and all that earlier runs promised and did not cover.

    Without the debt and the open tail plans, a dead or abandoned batch below the end of the coverage would never be
    picked up by a later run.
    """
    begin = untouched(view, ends)
    new = Offsets({p: [(begin[p], end)] for p, end in ends.items()})
    promised = view.marker.debt
    for plan in view.open_plans.values():
        if plan.tail:
            promised |= plan.claim
    return (new | promised) - view.marker.covered


def interval_target(view: View, window: Window) -> Offsets:
    """What of a window is not covered, and all below it that no run has touched.

    The second part is why nothing is left out: no later run would look for it.
    """
    begin = untouched(view, window.ends)
    wanted = Offsets({p: [(min(window.starts[p], begin[p]), end)] for p, end in window.ends.items()})
    return wanted - view.marker.covered


def recovery_target(view: View) -> Offsets:
    """All that is owed: debt, and the claims of all open plans."""
    return (view.marker.debt | view.claims) - view.marker.covered


@dataclass(frozen=True)
class Claimable:
    """What the next plan may claim.

    Attributes:
        read: offsets to read.
        skipped: offsets that are gone and may be skipped.
    """

    read: Offsets
    skipped: Offsets


def next_claim(view: View, free: Offsets, *, max_records: int | None) -> tuple[Offsets, bool]:
    """The part of ``free`` that one plan may claim, and whether that is tail.

    A plan holds either only what goes on from the end (or is owed), or only history: an abandoned tail plan becomes
    debt of the next incremental run, an abandoned backfill does not.
    """
    known, start = view.marker.covered | view.claims, view.marker.start
    ahead = Offsets({p: [(max(known.end(p) or 0, start.get(p, 0)), 2**63 - 1)] for p in free})
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
) -> Claimable:
    """Tell apart what Kafka still has of a claim from what is gone.

    Args:
        topic: name of the topic.
        claim: offsets that a plan would claim.
        earliest: per partition the first offset that is still there.
        ends: per partition the end of what can be read.
        on_data_loss: whether what is gone is an error, or skipped.
        accept: the command that records offsets as lost, for the error.

    Raises:
        DataLossError: offsets are gone and ``on_data_loss`` is ``fail``, or they lie past the end of the log.
    """
    beyond = Offsets({p: [(ends.get(p, 0), 2**63 - 1)] for p in claim}) & claim
    if beyond:
        raise DataLossError(
            f"topic {topic!r}: offsets {beyond} were there when the run was planned and lie past the end of the log "
            f"now: the log was truncated (unclean leader election). Nothing was planned. Run again when the topic has "
            f"grown past them: what stands there then is landed"
        )
    gone = Offsets({p: [(0, earliest.get(p, 0))] for p in claim}) & claim
    if gone and on_data_loss == "fail":
        raise DataLossError(
            f"topic {topic!r}: offsets {gone} were deleted by retention before they were landed (the log starts at "
            f"{dict(earliest)}). Nothing was planned. Accept the gap, which is then recorded as lost in plan and "
            f"marker: {accept(gone)}, then run again; or accept every such gap with on_data_loss='skip'"
        )
    return Claimable(read=claim - gone, skipped=gone)
