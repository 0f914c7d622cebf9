"""Names in paths: those of Joda-Time in every language and time zone, from a file that never changes."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_kafka_s3 import layout as package
from airflow_provider_kafka_s3.config import ROOT_LOCALE, Daily, JsonLines, Layout, TimePattern
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.locales import FILE, connect_locale, time_names, zone_names
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner
from airflow_provider_kafka_s3.layout.patterns import compile_pattern
from airflow_provider_kafka_s3.layout.zones import load_zone

# [locale of Kafka Connect, time zone, milliseconds, path]: printed by Joda-Time 2.13 on Java 17.
PRINTED = json.loads(Path(__file__).with_name("joda_names.json").read_text())
PATTERN = "G MMMM MMM EEEE EEE a z zzzz Z ZZ ZZZ"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_names_are_those_of_joda_time_in_every_language() -> None:
    """Eras, months, days, halves of the day, names and offsets of zones, in standard and in summer time."""
    assert len({locale for locale, *_ in PRINTED}) > 200
    for locale, timezone, time, path in PRINTED:
        pattern = compile_pattern(PATTERN, locale=connect_locale(locale), timezone=timezone)
        assert pattern.format((EPOCH + timedelta(milliseconds=time)).astimezone(load_zone(timezone))) == path
        assert len(pattern.longest.encode()) >= len(path.encode())


def test_the_file_of_names_never_changes() -> None:
    """Plans depend on it: other names need another file, and a setting that chooses it."""
    content = importlib.resources.files(package).joinpath(FILE).read_bytes()
    assert hashlib.sha256(content).hexdigest() == "64091741321eef915ced26f585e7bd569680119ac8ad3f60faa9f3414d309e9e"


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("fr", "fr"),
        ("FR", "fr"),
        ("iw", "he"),
        ("en", "en"),
        ("en-US", ROOT_LOCALE),
        ("fr_FR", ROOT_LOCALE),
        ("", ROOT_LOCALE),
    ],
)
def test_a_locale_of_connect_is_a_language_or_the_root(text: str, locale: str) -> None:
    """Connect takes the whole text as a language, and for an unknown one the names of the root locale."""
    assert connect_locale(text) == locale


@pytest.mark.parametrize(
    ("locale", "hint"),
    [
        ("fr-FR", "use locale='fr' for the names of this language, or 'root'"),
        ("de_AT", "use locale='de' for the names"),
        ("xx", "use one such as 'en' or 'fr', or 'root'"),
    ],
)
def test_other_locales_are_refused_with_both_choices(locale: str, hint: str) -> None:
    """A locale with a region is a language to people, and the root locale to Connect."""
    with pytest.raises(ConfigurationError, match=f"locale={locale!r} is not the code of a language; {hint}"):
        time_names(locale)


def test_a_zone_without_names_is_refused() -> None:
    """Its letters would have no meaning; a pattern without them needs no names."""
    with pytest.raises(ConfigurationError, match=r"timezone='Factory' has no names that the letters z and Z"):
        zone_names("fr", "Factory")
    assert compile_pattern("YYYY", timezone="Factory").format(EPOCH) == "1970"


def test_the_root_locale_is_that_of_plans_without_one() -> None:
    """A pattern that was planned before locales existed has the same paths."""
    pattern = TimePattern(path_format="'m'=MMMM/'d'=EEEE", duration_ms=1000)
    assert pattern.locale == ROOT_LOCALE
    assert make_partitioner(Layout(format=JsonLines(), partitioner=pattern)).longest == "m=Jan/d=Mon"
    assert "locale" not in Daily.__struct_fields__
