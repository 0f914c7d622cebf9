"""Path patterns in the letters of Joda-Time, as in Kafka Connect's ``path.format``.

They differ from those of ``java.time`` and ``strftime``: ``YYYY`` is the calendar year, ``DD`` the day of the year.
Names of months, days, halves of the day and time zones are those of a locale. Those of the root locale are the short
English ones whatever the number of letters, as Connect writes them with a locale such as ``en-US``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from airflow_provider_kafka_s3.config.partitioners import DAY_MS, ROOT_LOCALE, Daily, Hourly, TimePattern
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.locales import TimeNames, time_names, zone_names

__all__ = ["HOUR_MS", "Pattern", "compile_pattern", "time_pattern"]

HOUR_MS: Final = 3_600_000
_TWO_DIGITS: Final = 2
_TEXT_MONTH: Final = 3
_LONG_TEXT: Final = 4
_ZONE_ID: Final = 3
_NO_TIME: Final = timedelta(0)
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)

_Text: TypeAlias = Callable[[datetime], str]


class _Field(NamedTuple):
    """What stands for letters of a pattern.

    Attributes:
        text: of a local time.
        longest: the longest of all texts.
        stays_ms: milliseconds of local time for which the text certainly stays the same.
    """

    text: _Text
    longest: str
    stays_ms: int


class _Context(NamedTuple):
    """What names depend on."""

    locale: str
    timezone: str
    names: TimeNames


_Make: TypeAlias = Callable[[int, _Context], _Field]
"""From the number of letters."""


def _as_number(get: Callable[[datetime], int], stays_ms: int, width: int) -> _Field:
    def text(t: datetime) -> str:
        return str(get(t)).zfill(width)

    return _Field(text, text(_LAST), stays_ms)


def _number(get: Callable[[datetime], int], stays_ms: int) -> _Make:
    return lambda width, _: _as_number(get, stays_ms, width)


def _year(get: Callable[[datetime], int]) -> _Make:
    """Two letters: the last two digits; any other number of letters: the minimum number of digits."""
    return lambda width, _: _as_number((lambda t: get(t) % 100) if width == _TWO_DIGITS else get, DAY_MS, width)


def _text(get: _Text, choices: Sequence[str], stays_ms: int) -> _Field:
    return _Field(get, max(choices, key=lambda choice: len(choice.encode())), stays_ms)


def _era(_width: int, context: _Context) -> _Field:
    era = context.names.era
    return _text(lambda _: era, [era], DAY_MS)


def _day(width: int, context: _Context) -> _Field:
    days = context.names.days if width >= _LONG_TEXT else context.names.short_days
    return _text(lambda t: days[t.weekday()], days, DAY_MS)


def _month(width: int, context: _Context) -> _Field:
    if width < _TEXT_MONTH:
        return _as_number(lambda t: t.month, DAY_MS, width)
    months = context.names.months if width >= _LONG_TEXT else context.names.short_months
    return _text(lambda t: months[t.month - 1], months, DAY_MS)


def _half(_width: int, context: _Context) -> _Field:
    halves = context.names.halves
    return _text(lambda t: halves[t.hour >= 12], halves, 12 * HOUR_MS)


def _fraction(width: int, _: _Context) -> _Field:
    """Decimals of the second, truncated; zeros beyond the millisecond."""

    def text(t: datetime) -> str:
        return f"{t.microsecond // 1000:03d}".ljust(width, "0")[:width]

    return _Field(text, text(_LAST), 10 ** max(0, 3 - width))


def _offset(width: int, context: _Context) -> _Field:
    """The difference to UTC: ``+0100``, ``+01:00``; or, with three letters, the name of the zone in its database."""
    if width >= _ZONE_ID:
        zone = zone_names(context.locale, context.timezone).id
        return _text(lambda _: zone, [zone], DAY_MS)
    colon = ":" if width == _TWO_DIGITS else ""
    return _text(lambda t: _hours(t, colon), [f"+00{colon}00"], 1)


def _zone(width: int, context: _Context) -> _Field:
    """The name of the zone in standard or in summer time; its difference to UTC if it has none."""
    zone = zone_names(context.locale, context.timezone)
    standard, summer = zone.long if width >= _LONG_TEXT else zone.short

    def text(t: datetime) -> str:
        name = summer if _is_summer(t, zone.summer_is_standard) else standard
        return _hours(t, ":") if name is None else name

    return _text(text, ["+00:00", standard or "", summer or ""], 1)


def _is_summer(t: datetime, summer_is_standard: bool) -> bool:
    return (t.utcoffset() or _NO_TIME) > _NO_TIME if summer_is_standard else t.dst() != _NO_TIME


def _hours(t: datetime, colon: str) -> str:
    """Hours and minutes of the difference to UTC; seconds are cut off."""
    minutes = int((t.utcoffset() or _NO_TIME).total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{colon}{abs(minutes) % 60:02d}"


_LETTERS: Final[dict[str, _Make]] = {
    "G": _era,
    "C": _number(lambda t: t.year // 100, DAY_MS),
    "Y": _year(lambda t: t.year),
    "y": _year(lambda t: t.year),
    "x": _year(lambda t: t.isocalendar().year),
    "w": _number(lambda t: t.isocalendar().week, DAY_MS),
    "e": _number(lambda t: t.isoweekday(), DAY_MS),
    "E": _day,
    "D": _number(lambda t: t.timetuple().tm_yday, DAY_MS),
    "M": _month,
    "d": _number(lambda t: t.day, DAY_MS),
    "a": _half,
    "K": _number(lambda t: t.hour % 12, HOUR_MS),
    "h": _number(lambda t: t.hour % 12 or 12, HOUR_MS),
    "H": _number(lambda t: t.hour, HOUR_MS),
    "k": _number(lambda t: t.hour or 24, HOUR_MS),
    "m": _number(lambda t: t.minute, 60_000),
    "s": _number(lambda t: t.second, 1_000),
    "S": _fraction,
    "z": _zone,
    "Z": _offset,
}

_HINTS: Final = {
    "u": "the year is Y, the day of the week e",
    "L": "the month is M",
    "q": "quarters are not in Joda patterns",
    "Q": "quarters are not in Joda patterns",
    "A": "milliseconds of the second are SSS",
    "n": "milliseconds of the second are SSS",
    "T": "write the text 'T' in quotes",
}

_OF_STRFTIME: Final = {
    "Y": "YYYY",
    "y": "YY",
    "m": "MM",
    "b": "MMM",
    "d": "dd",
    "j": "DDD",
    "a": "EEE",
    "H": "HH",
    "I": "hh",
    "p": "a",
    "M": "mm",
    "S": "ss",
    "F": "YYYY-MM-dd",
    "T": "HH:mm:ss",
    "%": "'%'",
}
"""Directive of ``strftime`` -> Joda's letters, where they exist."""


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern.

    Attributes:
        text: the pattern.
        unit_ms: the result is the same within each interval of this length of local time, counted from midnight; at
            most a day.
    """

    text: str
    unit_ms: int
    _fields: tuple[str | _Field, ...]

    def format(self, local: datetime) -> str:
        """The path of a local time."""
        return "".join(f if isinstance(f, str) else f.text(local) for f in self._fields)

    @property
    def longest(self) -> str:
        """The longest possible path of this pattern."""
        return "".join(f if isinstance(f, str) else f.longest for f in self._fields)

    def without_time(self, name: str, *, separators: Sequence[str]) -> str:
        """The path of records without a valid timestamp: folders with a time are called ``name``, or ``key=name``.

        Args:
            name: of such folders.
            separators: of folders.
        """
        field_mark = "\0"
        folders = re.split(
            f"({'|'.join(map(re.escape, separators))})",
            "".join(field if isinstance(field, str) else field_mark for field in self._fields),
        )
        for i, folder in enumerate(folders):
            if field_mark in folder:
                key, equals, _ = folder.partition("=")
                folders[i] = f"{key}={name}" if equals and field_mark not in key else name
        return "".join(folders)


def compile_pattern(text: str, *, locale: str = ROOT_LOCALE, timezone: str = "UTC") -> Pattern:
    """Compile a pattern.

    Args:
        text: the pattern.
        locale: code of the language of names.
        timezone: of the local times, for the letters of the zone.

    Raises:
        ConfigurationError: a letter has no meaning, a quote is not closed, or it is a pattern of ``strftime``, with
            what to write instead; or the locale or the names of the zone are unknown.
    """
    context = _Context(locale, timezone, time_names(locale))
    if "%" in re.sub("'[^']*'", "", text):
        raise _strftime(text)
    fields: list[str | _Field] = []
    unit = DAY_MS
    position = 0
    while position < len(text):
        c = text[position]
        if c == "'":
            literal, position = _literal(text, position)
            fields.append(literal)
        elif c.isascii() and c.isalpha():
            end = position
            while end < len(text) and text[end] == c:
                end += 1
            if c not in _LETTERS:
                raise _unknown_letter(text, position)
            field = _LETTERS[c](end - position, context)
            fields.append(field)
            unit = min(unit, field.stays_ms)
            position = end
        else:
            fields.append(c)
            position += 1
    return Pattern(text=text, unit_ms=unit, _fields=tuple(fields))


def time_pattern(settings: Daily | Hourly | TimePattern, delim: str) -> Pattern:
    """The pattern of a partitioner by time.

    Args:
        settings: of the partitioner.
        delim: between folders.

    Raises:
        ConfigurationError: the pattern is empty or cannot be compiled, or its locale or zone have no names.
    """
    # The delimiter stands for itself, whatever letters or quotes it holds.
    quoted = delim.replace("'", "''")
    by_day = f"'year'=YYYY'{quoted}month'=MM'{quoted}day'=dd"
    match settings:
        case Daily():
            return compile_pattern(by_day, timezone=settings.timezone)
        case Hourly():
            return compile_pattern(f"{by_day}'{quoted}hour'=HH", timezone=settings.timezone)
    text = settings.path_format.removesuffix(delim)
    if not text.strip():
        raise ConfigurationError(
            f"path_format={settings.path_format!r} is empty apart from the delimiter {delim!r}; give a pattern such as "
            f"'year'=YYYY/'month'=MM"
        )
    return compile_pattern(text, locale=settings.locale, timezone=settings.timezone)


def _literal(text: str, position: int) -> tuple[str, int]:
    """Text between quotes, from the opening one, and the position behind it; two quotes are a quote."""
    if text.startswith("''", position):
        return "'", position + 2
    literal = []
    index = position + 1
    while index < len(text):
        if text[index] != "'":
            literal.append(text[index])
            index += 1
        elif text.startswith("''", index):
            literal.append("'")
            index += 2
        else:
            return "".join(literal), index + 1
    raise ConfigurationError(
        f"path_format pattern {text!r}: the quote at character {position + 1} is not closed; put text between single "
        f"quotes, such as 'year'=YYYY"
    )


def _strftime(text: str) -> ConfigurationError:
    """The error about a per cent sign, which Joda does not interpret, while the letters have other meanings."""
    pieces = re.findall("%(.?)|([^%]+)", text, re.DOTALL)
    if all(words or directive in _OF_STRFTIME for directive, words in pieces):
        # Letters of text are put between quotes, if they are not already.
        joda = "".join(
            words if "'" in words else re.sub("[A-Za-z]+", r"'\g<0>'", words) if words else _OF_STRFTIME[directive]
            for directive, words in pieces
        )
        write = repr(joda)
    else:
        write = "it in Joda's letters, such as 'year'=YYYY/'month'=MM"
    return ConfigurationError(
        f"path_format {text!r} is a pattern of strftime; write {write}. In a Joda pattern '%' has no meaning, and text "
        f"is put between single quotes"
    )


def _unknown_letter(text: str, position: int) -> ConfigurationError:
    letter = text[position]
    hint = _HINTS.get(letter, "put text between single quotes and letters outside of them, such as 'year'=YYYY")
    return ConfigurationError(
        f"path_format pattern {text!r}: the letter {letter!r} at character {position + 1} has no meaning in a Joda "
        f"pattern: {hint}"
    )
