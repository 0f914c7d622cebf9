"""Times that users write, and the epoch of Kafka's timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["EPOCH", "parse_time", "time_text"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_WRITE: Final = "write it with its offset from UTC, such as '2026-01-01T00:00:00Z' or '2026-01-01T00:00:00+01:00'"


def parse_time(label: str, given: object) -> datetime:
    """A time with a zone, or its text of ISO 8601.

    Args:
        label: what stands before the value in errors, such as ``"since="``.
        given: the time.

    Raises:
        ConfigurationError: it is no time, or has no zone.
    """
    time = given
    if isinstance(given, str):
        try:
            time = datetime.fromisoformat(given)
        except ValueError:
            raise ConfigurationError(f"{label}{given!r} is not a time; {_WRITE}") from None
    if not isinstance(time, datetime):
        raise ConfigurationError(f"{label}{given!r} is not a time; {_WRITE}")
    if time.tzinfo is None:
        raise ConfigurationError(f"{label}{time.isoformat()!r} has no time zone; {_WRITE}")
    return time


def time_text(timestamp: int) -> str:
    """A timestamp in milliseconds for people: its time in UTC, or the number if that is none."""
    try:
        return (EPOCH + timedelta(milliseconds=timestamp)).isoformat()
    except OverflowError:  # most likely nanoseconds
        return f"{timestamp} ms since 1970, after the year 9999"
