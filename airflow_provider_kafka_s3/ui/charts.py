"""Charts as inline SVG: shapes with classes, which the style sheet colours, and titles, which screen readers say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from airflow_provider_kafka_s3.documents.offsets import Ranges
from airflow_provider_kafka_s3.inspect.status import PartitionStatus
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.ui.model import ListedBatch
from airflow_provider_kafka_s3.ui.texts import duration

__all__ = ["calendar", "lag_bars", "partition_bar"]

_WIDTH: Final = 600
_CELL: Final = 12
_LEVELS: Final = 4
_BAR: Final = 12
_BARS: Final = 20
_HEIGHT: Final = 60


def partition_bar(partition: PartitionStatus, expired: Ranges) -> Markup:
    """The offsets of a Kafka partition from its first to its last one: landed, waiting, and what is missing.

    Args:
        partition: the Kafka partition.
        expired: offsets whose objects were deleted on purpose, or will be.
    """
    ranges: list[tuple[str, Ranges]] = [
        ("gap", partition.gaps),
        ("expired", expired),
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


def lag_bars(batches: Sequence[ListedBatch]) -> Markup:
    """A bar for each batch: the age of its newest record when it was planned, and above it until it was decided."""
    most = max((batch.times.lag or 0.0 for batch in batches), default=0.0)
    bars = max(len(batches), _BARS)
    shapes = []
    for number, batch in enumerate(batches, start=bars - len(batches)):
        times, x = batch.times, number * _BAR
        if times.waited is None or times.took is None:
            title = f"batch {batch.batch}: unknown"
            shapes.append(_bar("none", x, _HEIGHT - 1, 1, title))
            continue
        title = f"batch {batch.batch}: {duration(times.waited)} when planned, decided {duration(times.took)} later"
        waited, took = (seconds * _HEIGHT / (most or 1.0) for seconds in (times.waited, times.took))
        shapes += [
            _bar("waited", x, _HEIGHT - waited, waited, title),
            _bar("took", x, _HEIGHT - waited - took, took, title),
        ]
    label = f"age of the newest record of the last {count(len(batches), 'batch')}, at most {duration(most)}"
    return _svg("lag", bars * _BAR, _HEIGHT, label, shapes)


def _bar(name: str, x: int, y: float, height: float, title: str) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{:.1f}" width="{}" height="{:.1f}"><title>{}</title></rect>').format(
        name, x, y, _BAR - 2, height, title
    )


def _span(name: str, start: int, stop: int, end: int, title: str) -> Markup:
    x = start * _WIDTH / end
    # Thinner ones would not be seen.
    width = max((stop - start) * _WIDTH / end, 2.0)
    return Markup('<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="16"><title>{}</title></rect>').format(
        name, min(x, _WIDTH - 2.0), width, title
    )


def _svg(name: str, width: int, height: int, label: str, shapes: Sequence[Markup]) -> Markup:
    # Bars fill their place; squares stay squares.
    ratio = "xMinYMin" if name == "calendar" else "none"
    template = Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="{}" role="img" aria-label="{}">{}</svg>'
    )
    return template.format(name, width, height, ratio, label, Markup("").join(shapes))
