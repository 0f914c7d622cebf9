"""Times and durations as people read them on the pages."""

from __future__ import annotations

import datetime as dt
from typing import Final

from airflow_provider_kafka_s3.times import EPOCH

__all__ = ["duration", "moment", "time"]

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def moment(timestamp: int | None) -> dt.datetime | None:
    """The time of a timestamp of Kafka; None: it is unknown, or beyond the years of a calendar."""
    if timestamp is None or timestamp < 0:
        return None
    try:
        return EPOCH + dt.timedelta(milliseconds=timestamp)
    except OverflowError:
        return None


def time(moment_: dt.datetime | int | None) -> str:
    """A time, or a timestamp of Kafka, in UTC; empty: it is unknown."""
    shown = moment(moment_) if isinstance(moment_, int) else moment_
    return "" if shown is None else shown.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """A duration with one unit; empty: it is unknown."""
    if seconds is None:
        return ""
    for unit, name in _UNITS:
        if seconds >= unit:
            number = seconds / unit
            return f"{number:.1f} {name}" if number < 10 else f"{number:,.0f} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
