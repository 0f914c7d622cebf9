"""Windows of the timestamps of records."""

from __future__ import annotations

import datetime as dt
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.times import EPOCH

__all__ = ["milliseconds", "overlap", "window"]

_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def milliseconds(name: str, time: dt.datetime | None) -> int | None:
    """A bound of a window in milliseconds since the epoch, rounded up.

    Timestamps of records are whole milliseconds, so those at or after the time are those at or after the result.

    Raises:
        ConfigurationError: it has no time zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise ConfigurationError(f"{name}={time!r} has no time zone; give it one, such as datetime.timezone.utc")
    # Without floating-point numbers, by which some times would be one millisecond less.
    return -((EPOCH - time) // _MILLISECOND)


def window(since: dt.datetime | None, until: dt.datetime | None) -> tuple[int | None, int | None]:
    """The bounds of a window in milliseconds since the epoch, see :func:`milliseconds`.

    Raises:
        ConfigurationError: one has no time zone, or no time is in the window.
    """
    low, high = milliseconds("since", since), milliseconds("until", until)
    if low is not None and high is not None and low >= high:
        raise ConfigurationError(f"no time is at {since} or later and before {until}: since, until")
    return low, high


def overlap(times: tuple[int, int], low: int | None, high: int | None) -> bool:
    """Whether some of these timestamps, both included, are at ``low`` or later, and before ``high``."""
    return (low is None or times[1] >= low) and (high is None or times[0] < high)
