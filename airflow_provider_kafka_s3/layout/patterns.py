"""Path patterns in the letters of Joda-Time, as in Kafka Connect's ``path.format``.

They differ from those of ``java.time`` and ``strftime``: ``YYYY`` is the calendar year, ``DD`` the day of the year.
Names of months, days and halves of the day are the short English ones whatever the number of letters, as Connect writes
them with a locale such as ``en-US``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from airflow_provider_kafka_s3.config.partitioners import DAY_MS
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["HOUR_MS", "Pattern", "compile_pattern"]

HOUR_MS: Final = 3_600_000
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TWO_DIGITS: Final = 2
_TEXT_MONTH: Final = 3

_Field: TypeAlias = Callable[[datetime], str]


def _number(get: Callable[[datetime], int]) -> Callable[[int], _Field]:
    return lambda width: lambda t: str(get(t)).zfill(width)


def _year(get: Callable[[datetime], int]) -> Callable[[int], _Field]:
    """Two letters: the last two digits; any other number of letters: the minimum number of digits."""
    return lambda width: lambda t: str(get(t) % 100 if width == _TWO_DIGITS else get(t)).zfill(width)


def _text(get: Callable[[datetime], str]) -> Callable[[int], _Field]:
    return lambda _width: get


def _month(width: int) -> _Field:
    if width >= _TEXT_MONTH:
        return lambda t: _MONTHS[t.month - 1]
    return lambda t: str(t.month).zfill(width)


def _fraction(width: int) -> _Field:
    """Decimals of the second, truncated; zeros beyond the millisecond."""
    return lambda t: f"{t.microsecond // 1000:03d}".ljust(width, "0")[:width]


# Letter -> (number of letters -> field, milliseconds for which its value certainly stays the same).
_LETTERS: Final[dict[str, tuple[Callable[[int], _Field], int]]] = {
    "G": (_text(lambda _: "CE"), DAY_MS),
    "C": (_number(lambda t: t.year // 100), DAY_MS),
    "Y": (_year(lambda t: t.year), DAY_MS),
    "y": (_year(lambda t: t.year), DAY_MS),
    "x": (_year(lambda t: t.isocalendar().year), DAY_MS),
    "w": (_number(lambda t: t.isocalendar().week), DAY_MS),
    "e": (_number(lambda t: t.isoweekday()), DAY_MS),
    "E": (_text(lambda t: _DAYS[t.weekday()]), DAY_MS),
    "D": (_number(lambda t: t.timetuple().tm_yday), DAY_MS),
    "M": (_month, DAY_MS),
    "d": (_number(lambda t: t.day), DAY_MS),
    "a": (_text(lambda t: "AM" if t.hour < 12 else "PM"), 12 * HOUR_MS),
    "K": (_number(lambda t: t.hour % 12), HOUR_MS),
    "h": (_number(lambda t: t.hour % 12 or 12), HOUR_MS),
    "H": (_number(lambda t: t.hour), HOUR_MS),
    "k": (_number(lambda t: t.hour or 24), HOUR_MS),
    "m": (_number(lambda t: t.minute), 60_000),
    "s": (_number(lambda t: t.second), 1_000),
    "S": (_fraction, 1),
}

_HINTS: Final = {
    "u": "the year is Y, the day of the week e",
    "L": "the month is M",
    "q": "quarters are not in Joda patterns",
    "Q": "quarters are not in Joda patterns",
    "A": "milliseconds of the second are SSS",
    "n": "milliseconds of the second are SSS",
    "z": "the zone is not part of paths; write it as text, such as 'Europe'",
    "Z": "the zone is not part of paths; write it as text, such as 'Europe'",
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
        return "".join(f if isinstance(f, str) else f(local) for f in self._fields)

    @property
    def longest(self) -> str:
        """The longest possible path of this pattern."""
        return self.format(datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC))

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


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern.

    Raises:
        ConfigurationError: a letter has no meaning, a quote is not closed, or it is a pattern of ``strftime``; with
            what to write instead.
    """
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
            make, stays = _LETTERS[c]
            fields.append(make(end - position))
            unit = min(unit, 10 ** max(0, 3 - (end - position)) if c == "S" else stays)
            position = end
        else:
            fields.append(c)
            position += 1
    return Pattern(text=text, unit_ms=unit, _fields=tuple(fields))


def _literal(text: str, position: int) -> tuple[str, int]:
    """Text between quotes, from the opening one, and the position behind it; two quotes are a quote."""
    if text.startswith("''", position):
        return "'", position + 2
    literal = []
    at = position + 1
    while at < len(text):
        if text[at] != "'":
            literal.append(text[at])
            at += 1
        elif text.startswith("''", at):
            literal.append("'")
            at += 2
        else:
            return "".join(literal), at + 1
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
