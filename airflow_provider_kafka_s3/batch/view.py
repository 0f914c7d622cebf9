"""A snapshot of a topic's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """A snapshot of a topic's log. It may be stale; every use of it stays correct.

    Attributes:
        marker: the stored offsets.
        etag: of the marker, for its compare-and-swap.
        open_plans: plans that are not folded into the marker, by number.
        next: the first number without a plan.
    """

    marker: Marker
    etag: str
    open_plans: Mapping[int, Plan]
    next: int

    @property
    def claims(self) -> Offsets:
        """Offsets claimed by open plans."""
        claims = NO_OFFSETS
        for plan in self.open_plans.values():
            claims |= plan.claim
        return claims

    @property
    def topic_id(self) -> str:
        """Incarnation of the topic; if the marker is from before the brokers had topic ids, that of an open plan."""
        planned = (p.topic_id for p in self.open_plans.values() if p.generation == self.marker.generation)
        return self.marker.topic_id or next(filter(None, planned), "")

    @property
    def start_of_log(self) -> dict[int, int] | None:
        """The marker's start, stored in the first plan of a log; None once there is a plan."""
        return dict(self.marker.start) if self.next == 1 else None

    @property
    def open_reset(self) -> Plan | None:
        """The first open reset; it is a barrier."""
        resets = [p for _, p in sorted(self.open_plans.items()) if p.type == "reset"]
        return resets[0] if resets else None
