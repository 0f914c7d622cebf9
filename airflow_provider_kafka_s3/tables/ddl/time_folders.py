"""The folders that a partitioner by time makes, with the values that they may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from airflow_provider_kafka_s3.config import Daily, Hourly, TimePattern
from airflow_provider_kafka_s3.layout.locales import time_names
from airflow_provider_kafka_s3.tables.ddl.model import Choices, Dates, FolderValues, Numbers, Texts

__all__ = ["TimeFolder", "time_folders"]

_TOKEN: Final = re.compile(r"''|'(?P<quoted>(?:''|[^'])*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?s:.)")
_RANGES: Final = {
    "M": (1, 12),
    "d": (1, 31),
    "D": (1, 366),
    "e": (1, 7),
    "w": (1, 53),
    "H": (0, 23),
    "k": (1, 24),
    "h": (1, 12),
    "K": (0, 11),
    "m": (0, 59),
    "s": (0, 59),
}
_YEARS: Final = "Yyx"
_YEAR_DIGITS: Final = 4
_YEARS_AHEAD: Final = 9
_MONTH_NAME: Final = 3
_LONG_NAME: Final = 4
_UNITS: Final = {"d": ("DAYS", 86_400_000), "H": ("HOURS", 3_600_000), "m": ("MINUTES", 60_000), "s": ("SECONDS", 1000)}
_DAY_MS: Final = 86_400_000


class _Token(NamedTuple):
    """A part of a pattern: text, or letters that stand for a part of a time."""

    text: str
    is_letters: bool


class TimeFolder(NamedTuple):
    """A folder of a pattern.

    Attributes:
        name: before ``=``; None: the folder has no name.
        tokens: of the value.
    """

    name: str | None
    tokens: tuple[_Token, ...]

    def values(self, settings: Daily | Hourly | TimePattern, known: Iterable[str], *, lower: bool) -> FolderValues:
        """Which values the folder may have.

        Args:
            settings: of the partitioner.
            known: values that objects have.
            lower: whether paths are lower case.
        """
        texts = [*known]
        if len(self.tokens) == 1 and self.tokens[0].is_letters:
            return _single(self.tokens[0].text, settings, texts, lower=lower)
        return _dates(self.tokens, settings, texts) or Texts()


def time_folders(settings: Daily | Hourly | TimePattern, delim: str) -> list[TimeFolder]:
    """The folders of a partitioner by time, in their order."""
    match settings:
        case Daily():
            text = "'year'=YYYY/'month'=MM/'day'=dd"
        case Hourly():
            text = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
        case TimePattern(path_format=path_format):
            text = path_format.removesuffix(delim)
    delim = delim if isinstance(settings, TimePattern) else "/"
    folders: list[list[_Token]] = [[]]
    for token in _tokens(text):
        if token.is_letters:
            folders[-1].append(token)
            continue
        first, *others = token.text.split(delim)
        folders[-1].append(_Token(first, is_letters=False))
        folders += [[_Token(other, is_letters=False)] for other in others]
    return [_folder(tokens) for tokens in folders]


def _tokens(pattern: str) -> Iterator[_Token]:
    """Text in one token, so that a delimiter of several characters is found."""
    text = ""
    for match in _TOKEN.finditer(pattern):
        if match["letters"] is not None:
            yield _Token(text, is_letters=False)
            yield _Token(match["letters"], is_letters=True)
            text = ""
        elif match["quoted"] is not None:
            text += match["quoted"].replace("''", "'")
        else:
            text += "'" if match[0] == "''" else match[0]
    yield _Token(text, is_letters=False)


def _folder(tokens: list[_Token]) -> TimeFolder:
    tokens = [token for token in tokens if token.text]
    if not tokens or tokens[0].is_letters or "=" not in tokens[0].text:
        return TimeFolder(None, tuple(tokens))
    name, _, beginning = tokens[0].text.partition("=")
    value = [_Token(beginning, is_letters=False), *tokens[1:]]
    return TimeFolder(name, tuple(token for token in value if token.text))


def _single(
    letters: str, settings: Daily | Hourly | TimePattern, texts: list[str], *, lower: bool
) -> Numbers | Choices | Texts:
    """The values of one part of a time."""
    letter, width = letters[0], len(letters)
    names = time_names(settings.locale if isinstance(settings, TimePattern) else "root")
    choices: tuple[str, ...] = ()
    if letter == "M" and width >= _MONTH_NAME:
        choices = tuple(names.months if width >= _LONG_NAME else names.short_months)
    elif letter == "E":
        choices = tuple(names.days if width >= _LONG_NAME else names.short_days)
    if choices:
        return Choices(tuple(choice.lower() for choice in choices) if lower else choices)
    if letter in _YEARS and width in (1, _YEAR_DIGITS):
        years = [int(text) for text in texts if text.isdigit()]
        if not years:
            return Texts()
        return Numbers(min(years), max(years) + _YEARS_AHEAD, width if width > 1 else 0, "later years")
    if letter not in _RANGES:
        return Texts()
    low, high = _RANGES[letter]
    return Numbers(low, high, width if width > 1 else 0)


def _dates(tokens: tuple[_Token, ...], settings: Daily | Hourly | TimePattern, texts: list[str]) -> Dates | None:
    """A date of several parts, from the year down; None: it is none that can be counted."""
    letters = [token.text for token in tokens if token.is_letters]
    order = "".join(part[0] for part in letters)
    if len(order) < 2 or order[0] not in "Yy" or len(letters[0]) != _YEAR_DIGITS:
        return None
    if not "MdHms".startswith(order[1:]) or any(len(part) != 2 for part in letters[1:]):
        return None
    if any(text.isdigit() for text, is_letters in tokens if not is_letters):
        return None
    whole = "".join(f"[0-9]{{{len(text)}}}" if is_letters else re.escape(text) for text, is_letters in tokens)
    texts = [text for text in texts if re.fullmatch(whole, text)]
    if not texts:
        return None
    parts = [text.replace("Y", "y") if is_letters else _quoted(text) for text, is_letters in tokens]
    unit, unit_ms = _UNITS.get(order[-1], ("MONTHS", 0))
    interval = 1
    if 0 < unit_ms < _DAY_MS and settings.duration_ms % unit_ms == 0 and _DAY_MS % settings.duration_ms == 0:
        interval = settings.duration_ms // unit_ms
    return Dates("".join(parts), min(texts), interval, unit, settings.timezone == "UTC")


def _quoted(text: str) -> str:
    """Text in a format of Java."""
    return text if re.fullmatch("[-_./: ]*", text) else "'" + text.replace("'", "''") + "'"
