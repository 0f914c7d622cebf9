"""Partitioners: how a record chooses its encoded partition, the folders between topic and file name."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias, get_args

from msgspec import Meta

from airflow_provider_kafka_s3.config.values import TAG, Value, make_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "DAY_MS",
    "ROOT_LOCALE",
    "ByPartition",
    "ByTime",
    "Daily",
    "Hourly",
    "Partitioner",
    "TimePattern",
    "parse_partitioner",
    "require_timezone",
]

ROOT_LOCALE: Final = "root"
"""The locale of short English names, as Kafka Connect has it for a locale with a region, such as ``en-US``."""
DAY_MS: Final = 86_400_000
"""Milliseconds of a day without a change of its zone's UTC offset."""
_LONGEST: Final = 10_000 * 365 * DAY_MS

PathFormat = Annotated[str, Meta(min_length=1, examples=["'year'=YYYY/'month'=MM"])]
Duration = Annotated[
    int, Meta(ge=1, le=_LONGEST, description="milliseconds", extra={"why": f"a duration; a day has {DAY_MS}"})
]


class ByPartition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="partition"):
    """By the Kafka partition: ``partition=0``."""


class ByTime(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By the timestamp of the record.

    Attributes:
        timezone: IANA name of the zone whose days and hours count.
    """

    timezone: str = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_timezone(self.timezone)


class Daily(ByTime, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="daily"):
    """By the day of the record's timestamp: ``year=2026/month=01/day=02``.

    Attributes:
        timezone: IANA name of the zone whose days count.
    """

    duration_ms: ClassVar[int] = DAY_MS


class Hourly(ByTime, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="hourly"):
    """By the hour of the record's timestamp: ``year=2026/month=01/day=02/hour=03``.

    Attributes:
        timezone: IANA name of the zone whose hours count.
    """

    duration_ms: ClassVar[int] = DAY_MS // 24


class TimePattern(ByTime, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="time"):
    """By a pattern that is applied to the record's timestamp, cut down to a multiple of a duration.

    Attributes:
        path_format: Joda pattern of the encoded partition, such as ``'year'=YYYY/'month'=MM``.
        duration_ms: width of one time bucket in milliseconds.
        timezone: IANA name of the zone of the times in the pattern.
        locale: code of the language of names of months, days and zones, such as ``fr``; ``root``: short English names,
            which Kafka Connect writes with a locale that has a region, such as ``en-US``.
    """

    path_format: PathFormat
    duration_ms: Duration
    locale: Annotated[str, Meta(min_length=1, examples=["fr"])] = ROOT_LOCALE


Partitioner: TypeAlias = ByPartition | Daily | Hourly | TimePattern
"""All partitioners; :func:`airflow_provider_kafka_s3.layout.partitioners.make_partitioner` applies them."""

_PARTITIONERS: Final[tuple[type[Partitioner], ...]] = get_args(Partitioner)


def parse_partitioner(given: Partitioner | Mapping[str, Any] | str) -> Partitioner:
    """A partitioner, a mapping of its ``kind`` and its fields, or the ``kind`` alone.

    Raises:
        ConfigurationError: it is anything else.
    """
    return make_value("partitioner", _PARTITIONERS, given)


def require_timezone(name: str) -> None:
    """Refuse the name of a time zone that does not exist.

    Raises:
        ConfigurationError: the zone database does not have it.
    """
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise ConfigurationError(
            f"timezone={name!r} is not in the zone database; use an IANA name such as 'Europe/Berlin'"
        ) from e
