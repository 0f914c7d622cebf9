"""The pinned target of a run."""

from __future__ import annotations

from typing import Literal

from airflow_provider_kafka_s3.documents.codec import Document
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.kafka.options import Isolation

__all__ = ["RunRecord"]


class RunRecord(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pinned target of a run; a retry after any crash has the same target.

    Attributes:
        run: its key.
        offsets: kind of the target: ``incremental`` (all new offsets), ``data_interval`` (a window) or ``recover``
            (claimed offsets that are not committed).
        params: parameters of the caller; information.
        topic_id: incarnation of the topic.
        generation: of the target.
        target: offsets that have to be covered for the run to succeed.
        window: of time that the target was made from, ``[start, end)`` in epoch milliseconds; information.
        low: no batch below this number can hold any of the target.
        layout_sha256: of the layout the run would plan with.
        isolation: level at which the ends of the target were resolved, and at which the run's batches are read.
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
