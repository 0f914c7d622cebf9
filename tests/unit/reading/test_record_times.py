"""Bounds of windows of record times."""

from __future__ import annotations

import datetime as dt

from airflow_provider_kafka_s3.reading.record_times import milliseconds

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def test_whole_milliseconds_are_exact() -> None:
    """Also those that no floating-point number of seconds has."""
    for n in range(1_700_000_000_000, 1_700_000_100_000, 7):
        assert milliseconds("since", EPOCH + dt.timedelta(milliseconds=n)) == n


def test_a_bound_between_two_milliseconds_is_the_later_one() -> None:
    """The earlier one is before the bound; also before 1970, and in any time zone."""
    zone = dt.timezone(dt.timedelta(hours=-5))
    for n in (-3, 0, 1_700_000_000_000):
        time = EPOCH + dt.timedelta(milliseconds=n, microseconds=1)
        assert milliseconds("until", time) == milliseconds("until", time.astimezone(zone)) == n + 1
