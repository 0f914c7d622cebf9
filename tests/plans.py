"""Plans for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.plan import Plan, Slice, layout_digest

__all__ = ["data_plan", "reset_plan", "slices_of"]


def slices_of(*slices: tuple[int, int, int]) -> tuple[Slice, ...]:
    """Slices of ``(partition, start, end)``."""
    return tuple(Slice(id=i, partition=p, start=a, end=b) for i, (p, a, b) in enumerate(slices))


def data_plan(layout: Layout, slices: Sequence[Slice], **more: Any) -> Plan:
    """The plan of batch 1 of a topic; ``more`` has other attributes."""
    given = {
        "batch": 1,
        "topic": "t",
        "topic_id": "id",
        "generation": 0,
        "run": "run",
        "tail": True,
        "isolation": "read_committed",
        "skipped": NO_OFFSETS,
        **more,
    }
    return Plan(type="data", slices=tuple(slices), layout=layout, layout_sha256=layout_digest(layout), **given)


def reset_plan(**more: Any) -> Plan:
    """The plan of a reset; ``more`` has attributes, among them ``batch``."""
    given = {"topic": "t", "topic_id": "id", "generation": 0, "run": "run", "new_topic_id": "new", **more}
    return Plan(
        type="reset",
        tail=False,
        isolation="read_committed",
        slices=(),
        skipped=NO_OFFSETS,
        layout=None,
        layout_sha256="",
        **given,
    )
