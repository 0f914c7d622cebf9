"""The pinned target of a run."""

from __future__ import annotations

from typing import Literal

from airflow_provider_kafka_s3.documents.codec import Document
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.kafka.options import Isolation

__all__ = ["RunRecord"]


class RunRecord(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pinned target of a run; a retry after any crash aims at the same offsets.

    Attributes:
        run: its key.
        offsets: what the target is: ``incremental`` (all that was new), ``data_interval`` (a window) or ``recover``
            (what was claimed and not committed).
        params: what the caller requested; information.
        topic_id: incarnation of the topic.
        generation: of the target.
        target: offsets that have to be covered for the run to succeed.
        window: of time that the target was made from, ``[start, end)`` in epoch milliseconds; information.
        low: no batch below this number can hold any of the target.
        layout_sha256: of the layout the run would plan with.
        isolation: that the ends of the target were resolved with; what the run plans is read with it.
    """

    run: str
    offsets: Literal["incremental", "data_interval", "recover"]
    params: dict[str, str]
    topic_id: str
    generation: int
    target: Offsets
    low: int
    layout_sha256: str
    isolation: Isolation = "read_committed"
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.generation < 0 or self.low < 1 or not self.target:
            raise ValueError("a run record has a target, a generation and a first batch")
