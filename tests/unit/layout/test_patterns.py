"""Path patterns: Joda's letters, and an error with the correction for anything else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.patterns import DAY_MS, compile_pattern

MOMENT = datetime(2015, 1, 4, 0, 5, 9, 78_000, tzinfo=UTC)  # a Sunday
EVENING = datetime(2014, 12, 29, 23, 59, 59, 999_000, tzinfo=UTC)  # a Monday, of 2015 by weeks
LETTERS = "GCYyxweEDMdaKhHkmsSzZ"


@pytest.mark.parametrize(
    ("pattern", "moment", "evening"),
    [
        ("G", "CE", "CE"),
        ("C", "20", "20"),
        ("YYYY", "2015", "2014"),
        ("yyyy", "2015", "2014"),
        ("Y", "2015", "2014"),
        ("yy", "15", "14"),
        ("YY", "15", "14"),
        ("yyyyyy", "002015", "002014"),
        ("xxxx", "2015", "2015"),
        ("xx", "15", "15"),
        ("ww", "01", "01"),
        ("w", "1", "1"),
        ("e", "7", "1"),
        ("EEE", "Sun", "Mon"),
        ("EEEE", "Sun", "Mon"),
        ("D", "4", "363"),
        ("DD", "04", "363"),
        ("DDD", "004", "363"),
        ("M", "1", "12"),
        ("MM", "01", "12"),
        ("MMM", "Jan", "Dec"),
        ("MMMM", "Jan", "Dec"),
        ("d", "4", "29"),
        ("dd", "04", "29"),
        ("a", "AM", "PM"),
        ("K", "0", "11"),
        ("KK", "00", "11"),
        ("h", "12", "11"),
        ("hh", "12", "11"),
        ("H", "0", "23"),
        ("HH", "00", "23"),
        ("k", "24", "23"),
        ("kk", "24", "23"),
        ("m", "5", "59"),
        ("mm", "05", "59"),
        ("s", "9", "59"),
        ("ss", "09", "59"),
        ("S", "0", "9"),
        ("SS", "07", "99"),
        ("SSS", "078", "999"),
        ("SSSSS", "07800", "99900"),
    ],
)
def test_letters_have_the_meaning_of_joda(pattern: str, moment: str, evening: str) -> None:
    """Not as in java.time: YYYY is the calendar year, DD the day of the year."""
    compiled = compile_pattern(pattern)
    assert compiled.format(MOMENT) == moment
    assert compiled.format(EVENING) == evening


@pytest.mark.parametrize(
    ("hour", "expected"), [(0, "12 0 AM 24"), (1, "1 1 AM 1"), (12, "12 0 PM 12"), (13, "1 1 PM 13")]
)
def test_hours_of_half_days_and_clocks(hour: int, expected: str) -> None:
    """Noon is 12 PM, midnight 12 AM, and 24 on a clock without 0."""
    assert compile_pattern("h K a k").format(MOMENT.replace(hour=hour)) == expected


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("'year'=YYYY/'month'=MM", "year=2015/month=01"),
        ("YYYY-MM-dd", "2015-01-04"),
        ("'dt'=YYYY'-'MM'-'dd/'hr'=HH'/us-east-1'", "dt=2015-01-04/hr=00/us-east-1"),
        ("'it''s' YYYY", "it's 2015"),
        ("''YYYY''", "'2015'"),
        ("'all'", "all"),
        ("é=YYYY", "é=2015"),
        ("YYYYMMdd", "20150104"),
        ("'a'''YYYY", "a'2015"),
    ],
)
def test_text_is_not_interpreted(pattern: str, path: str) -> None:
    """Between quotes any text, outside of them all but letters; two quotes are a quote."""
    assert compile_pattern(pattern).format(MOMENT) == path


@pytest.mark.parametrize("letter", sorted(set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") - set(LETTERS)))
def test_letters_without_a_meaning_are_refused(letter: str) -> None:
    """The message contains the letter, its position, and what to write."""
    with pytest.raises(ConfigurationError, match=rf"pattern .* the letter '{letter}' at character 6 has no meaning"):
        compile_pattern(f"YYYY/{letter}{letter}")


@pytest.mark.parametrize(("letter", "fix"), [("u", "year is Y"), ("Q", "quarters are not"), ("T", "'T' in quotes")])
def test_letters_of_other_notations_get_the_correction(letter: str, fix: str) -> None:
    """Letters of java.time and ISO 8601 get Joda's counterpart."""
    with pytest.raises(ConfigurationError, match=fix):
        compile_pattern(letter)


def test_swapped_quotes_are_refused() -> None:
    """TE5: letters quoted and text not; the message has an example."""
    with pytest.raises(ConfigurationError, match="put text between single quotes and letters outside"):
        compile_pattern("year='YYYY'/month='MM'")


@pytest.mark.parametrize(
    ("strftime", "joda", "path"),
    [
        ("%Y-%m-%d", "YYYY-MM-dd", "2015-01-04"),
        ("year=%Y/month=%m/day=%d", "'year'=YYYY/'month'=MM/'day'=dd", "year=2015/month=01/day=04"),
        ("'dt'=%F/%H%%", "'dt'=YYYY-MM-dd/HH'%'", "dt=2015-01-04/00%"),
    ],
)
def test_a_pattern_of_strftime_is_refused_with_the_same_in_joda_s_letters(strftime: str, joda: str, path: str) -> None:
    """Its letters have other meanings: '%Y-%m-%d' would be '%2015-%5-%4'."""
    with pytest.raises(ConfigurationError) as refused:
        compile_pattern(strftime)
    assert str(refused.value).startswith(f"path_format {strftime!r} is a pattern of strftime; write {joda!r}. ")
    assert compile_pattern(joda).format(MOMENT) == path


@pytest.mark.parametrize("pattern", ["%Y%z", "%", "YYYY/%", "%-d"])
def test_strftime_codes_without_a_joda_letter_are_refused(pattern: str) -> None:
    """A per cent sign outside of quotes is never text."""
    with pytest.raises(ConfigurationError, match="is a pattern of strftime; write it in Joda's letters"):
        compile_pattern(pattern)
    assert compile_pattern("'100%'").format(MOMENT) == "100%"


@pytest.mark.parametrize("pattern", ["'year=YYYY", "YYYY'", "'a''"])
def test_open_quotes_are_refused(pattern: str) -> None:
    """The rest of the pattern would silently be text."""
    with pytest.raises(ConfigurationError, match=r"the quote at character \d+ is not closed"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ("'all'", DAY_MS),
        ("YYYY", DAY_MS),
        ("dd", DAY_MS),
        ("'d'=dd/a", DAY_MS // 2),
        ("YYYY/HH", 3_600_000),
        ("kk", 3_600_000),
        ("mm/HH", 60_000),
        ("ss", 1_000),
        ("S", 100),
        ("SS", 10),
        ("SSS", 1),
        ("SSSSSS", 1),
        ("YYYY z", 1),
        ("YYYY Z", 1),
        ("YYYY ZZZ", DAY_MS),
    ],
)
def test_the_unit_of_a_pattern_is_its_finest_one(pattern: str, unit: int) -> None:
    """Within it a path stays the same."""
    assert compile_pattern(pattern).unit_ms == unit


@given(st.text("YMdHmsS'/=-x ", max_size=12), st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001
def test_no_path_is_longer_than_the_longest(pattern: str, moment: datetime) -> None:
    """So a key that is valid with the longest path is valid with every path."""
    try:
        compiled = compile_pattern(pattern)
    except ConfigurationError:
        return
    assert len(compiled.format(moment)) <= len(compiled.longest)
