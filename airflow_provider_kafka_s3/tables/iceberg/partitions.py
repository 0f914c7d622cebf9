"""Which partitions of a table the layout of a topic keeps apart; the footer of an object decides."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

from airflow_provider_kafka_s3.config import ByField, Chain, Daily, FieldTime, Hourly, Layout
from airflow_provider_kafka_s3.config.partitioners import ByTime

__all__ = ["keeping", "not_kept_apart"]

_Transform: TypeAlias = Transform[Any, Any]

_BY_TIME: Final[dict[type[_Transform], tuple[type[ByTime], ...]]] = {
    HourTransform: (Hourly,),
    DayTransform: (Daily, Hourly),
}


def not_kept_apart(layout: Layout, transform: _Transform, column: str) -> bool:
    """Whether the folders of a layout do not show that an object is inside of one partition.

    It may be all the same: objects of few records are, and so are those of patterns of time.

    Args:
        layout: of the object.
        transform: of the table's partition.
        column: that the partition is made from.
    """
    partitioner = layout.partitioner
    links = partitioner.partitioners if isinstance(partitioner, Chain) else (partitioner,)
    for link in links:
        match link:
            case ByField() if isinstance(transform, IdentityTransform) and column in link.names:
                return False
            case (
                Hourly(timezone="UTC", timestamp_from=FieldTime(name=name))
                | Daily(timezone="UTC", timestamp_from=FieldTime(name=name))
            ) if name == column and isinstance(link, _BY_TIME.get(type(transform), ())):
                return False
    return True


def keeping(layout: Layout, transform: _Transform, column: str) -> str:
    """The sentence about a layout that does not keep partitions apart: what it is, and one that does.

    Args:
        layout: of the objects.
        transform: of the table's partition.
        column: that the partition is made from.
    """
    if isinstance(transform, IdentityTransform):
        wanted = f"ByField(names=[{column!r}])"
    else:
        kind = "Hourly" if isinstance(transform, HourTransform) else "Daily"
        wanted = f"{kind}(timestamp_from=FieldTime(name={column!r}), timezone='UTC')"
    return (
        f"The topic is landed by {layout.partitioner!r}, which does not keep partitions {transform}({column}) apart. "
        f"Land it by {wanted}, or use a table without this partition"
    )
