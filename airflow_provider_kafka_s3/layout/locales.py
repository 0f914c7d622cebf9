"""Names of months, days, halves of the day, eras and time zones, by language.

They are those of Joda-Time on Java 17, as in Kafka Connect's paths, in a file of the package: names must not depend
on a machine. ``dev/locale_names.py`` made the file. Plans depend on it, so its names never change.
"""

from __future__ import annotations

import functools
import gzip
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_kafka_s3.config.partitioners import ROOT_LOCALE
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import or_nearest

__all__ = ["FILE", "TimeNames", "ZoneNames", "connect_locale", "time_names", "zone_names"]

FILE: Final = "joda_names.json.gz"
_OLD_CODES: Final = {"iw": "he", "in": "id", "ji": "yi"}
"""Codes of languages that Java replaces."""
_SUMMER_IS_STANDARD: Final = ("Europe/Dublin", "Eire")
"""Zones whose summer time is the standard one in the time zone database, but not in Joda-Time."""


@dataclass(frozen=True)
class TimeNames:
    """Names of parts of times.

    Attributes:
        months: twelve, from January.
        short_months: twelve, from January.
        days: seven, from Monday.
        short_days: seven, from Monday.
        halves: of the day: before noon, and from noon.
        era: of the years from 1 on.
    """

    months: Sequence[str]
    short_months: Sequence[str]
    days: Sequence[str]
    short_days: Sequence[str]
    halves: Sequence[str]
    era: str


@dataclass(frozen=True)
class ZoneNames:
    """Names of a time zone; None: it has no such name, and its offset is written instead.

    Attributes:
        id: in Joda-Time, which replaces old names.
        short: in standard time, and in summer time.
        long: in standard time, and in summer time.
        summer_is_standard: whether the time zone database calls summer time the standard one, and UTC in winter not.
    """

    id: str
    short: tuple[str | None, str | None]
    long: tuple[str | None, str | None]
    summer_is_standard: bool


_ROOT: Final = TimeNames(
    months=("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    short_months=("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    days=("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    short_days=("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    halves=("AM", "PM"),
    era="CE",
)


def connect_locale(text: str) -> str:
    """The locale whose names Kafka Connect writes with this ``locale``.

    Connect takes the whole text as the code of a language. With a region (``en-US``) it is no code that Java
    has, so the names are those of the root locale.
    """
    code = _OLD_CODES.get(text.lower(), text.lower())
    return code if code in _file()["languages"] else ROOT_LOCALE


def time_names(locale: str) -> TimeNames:
    """The names of a language, or of the root locale.

    Raises:
        ConfigurationError: there is no such language.
    """
    if locale == ROOT_LOCALE:
        return _ROOT  # most layouts need no file
    names = {**_file()["root"], **_language(locale)}
    return TimeNames(
        months=names["months"],
        short_months=names["short_months"],
        days=_from_monday(names["days"]),
        short_days=_from_monday(names["short_days"]),
        halves=names["halves"],
        era=names["eras"][1],
    )


def zone_names(locale: str, timezone: str) -> ZoneNames:
    """The names of a time zone.

    Raises:
        ConfigurationError: there is no such language, or Joda-Time has no such zone.
    """
    zones, language = _file()["zones"], {} if locale == ROOT_LOCALE else _language(locale)
    if timezone not in zones:
        raise ConfigurationError(
            f"timezone={timezone!r} has no names that the letters z and Z of path_format stand for; write the name of "
            f"the zone as text between single quotes"
        )
    joda_name, number = zones[timezone]
    short, long, short_summer, long_summer = {**_file()["root"]["zones"], **language.get("zones", {})}[str(number)]
    return ZoneNames(joda_name, (short, short_summer), (long, long_summer), timezone in _SUMMER_IS_STANDARD)


def _language(locale: str) -> Any:
    languages = _file()["languages"]
    if locale in languages:
        return languages[locale]
    code = locale.replace("_", "-").partition("-")[0].lower()
    code = _OLD_CODES.get(code, code)
    raise ConfigurationError(
        f"locale={locale!r} is not the code of a language; use locale={code!r} for the names of this language, or "
        f"{ROOT_LOCALE!r} for the short English names that Kafka Connect writes with it"
        if code in languages
        else f"locale={locale!r} is not the code of a language"
        + or_nearest(
            locale, list(languages), f"use one such as 'en' or 'fr', or {ROOT_LOCALE!r} for short English names"
        )
    )


def _from_monday(days: Sequence[str]) -> Sequence[str]:
    return (*days[1:], days[0])


@functools.cache
def _file() -> Any:
    packed = importlib.resources.files(__package__).joinpath(FILE).read_bytes()
    return json.loads(gzip.decompress(packed))
