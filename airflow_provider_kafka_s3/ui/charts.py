"""Charts as inline SVG: shapes with classes, which the style sheet colours, and titles, which screen readers say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from airflow_provider_kafka_s3.documents.offsets import Ranges
from airflow_provider_kafka_s3.inspect.status import PartitionStatus
from airflow_provider_kafka_s3.messages import count

__all__ = ["calendar", "partition_bar"]

_WIDTH: Final = 600
_CELL: Final = 12
_LEVELS: Final = 4


def partition_bar(partition: PartitionStatus) -> Markup:
    """The offsets of a Kafka partition from its first to its last one: landed, waiting, and what is missing."""
    ranges: list[tuple[str, Ranges]] = [
        ("gap", partition.gaps),
        ("lost", partition.lost),
        ("debt", partition.debt),
        ("open", partition.open),
    ]
    stored, log_end = partition.stored or 0, partition.log_end
    end = max(stored, log_end or 0, *(stop for _, spans in ranges for _, stop in spans), 1)
    log_start = partition.log_start or 0
    shapes = [_span("landed", 0, stored, end, f"landed up to offset {stored:,}")]
    if log_end is not None and log_end > stored:
        shapes.append(_span("waiting", stored, log_end, end, f"{count(log_end - stored, 'offset')} wait"))
    shapes += [
        _span(name, start, stop, end, f"{name}: offsets {start:,} to {stop - 1:,}")
        for name, spans in ranges
        for start, stop in spans
    ]
    if 0 < log_start <= end:
        shapes.append(_span("start", log_start, log_start, end, f"Kafka begins at offset {log_start:,}"))
    label = f"partition {partition.partition}: landed up to {stored:,}"
    return _svg("bar", _WIDTH, 16, label, shapes)


def calendar(days: Sequence[tuple[dt.date, int, int]]) -> Markup:
    """A square for each day, in columns of weeks; a day without records stands out."""
    if not days:
        return Markup("")
    most = max(records for _, records, _ in days) or 1
    first = days[0][0]
    shapes = []
    for day, records, _ in days:
        week, weekday = divmod((day - first).days + first.weekday(), 7)
        level = "empty" if not records else f"level{min(_LEVELS, 1 + records * _LEVELS // (most + 1))}"
        shapes.append(
            Markup('<rect class="{}" x="{}" y="{}" width="10" height="10"><title>{}</title></rect>').format(
                level, week * _CELL, weekday * _CELL, f"{day}: {count(records, 'record')}"
            )
        )
    weeks = ((days[-1][0] - first).days + first.weekday()) // 7 + 1
    label = f"records of each day from {first} to {days[-1][0]}"
    return _svg("calendar", weeks * _CELL, 7 * _CELL, label, shapes)


def _span(name: str, start: int, stop: int, end: int, title: str) -> Markup:
    x = start * _WIDTH / end
    # Thinner ones would not be seen.
    width = max((stop - start) * _WIDTH / end, 2.0)
    return Markup('<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="16"><title>{}</title></rect>').format(
        name, min(x, _WIDTH - 2.0), width, title
    )


def _svg(name: str, width: int, height: int, label: str, shapes: Sequence[Markup]) -> Markup:
    # A bar is as wide as its column; squares stay squares.
    ratio = "none" if name == "bar" else "xMinYMin"
    template = Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="{}" role="img" aria-label="{}">{}</svg>'
    )
    return template.format(name, width, height, ratio, label, Markup("").join(shapes))
