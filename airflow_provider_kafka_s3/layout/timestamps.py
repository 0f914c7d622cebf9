"""Times of values: numbers in a declared unit, texts of ISO 8601, timestamps and dates of a schema.

A text of digits alone is a number, and a time without a zone is in UTC, as Kafka Connect reads them on a machine whose
zone is UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from airflow_provider_kafka_s3.config import TimeUnit
from airflow_provider_kafka_s3.config.partitioners import DAY_MS
from airflow_provider_kafka_s3.converters.field_values import Counted, Day, FieldValue, Fraction, Moment, Unusable
from airflow_provider_kafka_s3.times import EPOCH

__all__ = ["milliseconds"]

_MS: Final = timedelta(milliseconds=1)
_SECOND_MS: Final = 1_000
_DIGITS: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_ISO: Final = re.compile(
    r"""(?P<year>\d{4})
        (?: -W(?P<week>\d\d?) (?: -(?P<weekday>[1-7]) )?
          | -(?P<ordinal>\d{3})
          | -(?P<month>\d\d?) (?: -(?P<day>\d\d?) )? )?
        (?: [T ] (?: (?P<hour>\d\d?) (?: :(?P<minute>\d\d?) (?: :(?P<second>\d\d?) )? )? (?: [.,](?P<fraction>\d+) )? )?
            (?P<zone> [Zz] | [+-](?:[01]\d|2[0-3]) (?: :?\d\d (?: :?\d\d (?: [.,]\d{1,3} )? )? )? )? )?""",
    re.VERBOSE | re.ASCII,
)
_EXPONENTS: Final = {"s": 3, "ms": 0, "us": -3, "ns": -6}
"""Powers of ten from a unit to milliseconds."""
_LATEST: Final = 2**62
_EARLY_NUMBER: Final = Unusable("is a number outside the years 1 to 9999")
_NO_TIME: Final = Unusable("is no time of ISO 8601, such as 2026-01-02T03:04:05Z, nor a number")


def milliseconds(value: FieldValue, unit: TimeUnit) -> int | Unusable:
    """A value as milliseconds since 1970 in UTC, rounded down; or why it is no time.

    Args:
        value: of a field.
        unit: of numbers.
    """
    match value:
        case None:
            return Unusable("is null")
        case Unusable():
            return value
        case bool() | Decimal():
            return Unusable("is no time")
        case Counted(unit="days"):
            return _in_range(value * DAY_MS)
        case Counted(unit="years"):
            return _iso(f"{value:04}") if 1 <= value <= 9999 else _EARLY_NUMBER
        case Counted(unit=of_type):
            return _in_range(_to_ms(value, of_type)) if of_type in _EXPONENTS else Unusable(f"is of the type {of_type}")
        case int():
            return _in_range(_to_ms(value, unit))
        case str():
            if _DIGITS.fullmatch(value):
                return _in_range(_to_ms(int(value), unit))
            return _iso(value)
        case Fraction(text=text):
            return _fraction(text, unit)
        case Moment(value=units, unit=of_schema):
            return _in_range(_to_ms(units, of_schema))
        case Day(days=days):
            return _in_range(days * DAY_MS)


def _to_ms(value: int, unit: str) -> int:
    match unit:
        case "s":
            return value * 1_000
        case "us":
            return value // 1_000
        case "ns":
            return value // 1_000_000
    return value


def _in_range(time: int) -> int | Unusable:
    """The time if it has 64 bits; those outside the calendar are refused like timestamps of records."""
    return time if -_LATEST < time < _LATEST else _EARLY_NUMBER


def _fraction(text: str, unit: TimeUnit) -> int | Unusable:
    """A number with a fraction or an exponent; what is below the unit of a path is cut off, as in Kafka Connect."""
    number = Decimal(text)
    if number.adjusted() > 20:
        return _EARLY_NUMBER
    return _in_range(int(number.scaleb(_EXPONENTS[unit])))


def _iso(text: str) -> int | Unusable:
    match = _ISO.fullmatch(text)
    if match is None:
        return _NO_TIME
    part = {name: int(digits) for name, digits in match.groupdict().items() if digits and name not in _TEXTS}
    try:
        if "week" in part:
            day = date.fromisocalendar(part["year"], part["week"], part.get("weekday", 1))
        elif "ordinal" in part:
            day = date(part["year"], 1, 1) + timedelta(days=part["ordinal"] - 1)
            if day.year != part["year"]:
                return _NO_TIME
        else:
            day = date(part["year"], part.get("month", 1), part.get("day", 1))
        hour, minute, second = (part.get(name, 0) for name in ("hour", "minute", "second"))
        local = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
    except (ValueError, OverflowError):
        return _NO_TIME
    smallest = _SECOND_MS if "second" in part else 60 * _SECOND_MS if "minute" in part else 3_600 * _SECOND_MS
    digits = match["fraction"] or "0"
    fraction: int = int(digits) * smallest // 10 ** len(digits)
    since_epoch: int = (local - EPOCH) // _MS
    return since_epoch + fraction - _offset(match["zone"])


_TEXTS: Final = frozenset({"fraction", "zone"})


def _offset(zone: str | None) -> int:
    """Milliseconds to UTC of a zone such as ``+02:00``."""
    if zone is None or zone in "Zz":
        return 0
    digits = re.sub("[^0-9]", "", zone).ljust(9, "0")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:4]) * 60 + int(digits[4:6])
    offset = seconds * _SECOND_MS + int(digits[6:9])
    return -offset if zone[0] == "-" else offset
