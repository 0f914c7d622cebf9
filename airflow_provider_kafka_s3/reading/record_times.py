"""Windows of the timestamps of records."""

from __future__ import annotations

import datetime as dt

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["milliseconds", "overlap"]


def milliseconds(name: str, time: dt.datetime | None) -> int | None:
    """A time in milliseconds since the epoch.

    Raises:
        ConfigurationError: it has no time zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise ConfigurationError(f"{name}={time!r} has no time zone; give it one, such as datetime.timezone.utc")
    return int(time.timestamp() * 1000)


def overlap(times: tuple[int, int], low: int | None, high: int | None) -> bool:
    """Whether some of these timestamps, both included, are at ``low`` or later, and before ``high``."""
    return (low is None or times[1] >= low) and (high is None or times[0] < high)
