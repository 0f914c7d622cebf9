"""Times of values: what Joda-Time reads, in declared units."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_provider_kafka_s3.config import TimeUnit
from airflow_provider_kafka_s3.converters.field_values import Day, FieldValue, Fraction, Moment, Unusable
from airflow_provider_kafka_s3.layout.timestamps import milliseconds

AT = 1488477600000  # 2017-03-02T18:00:00Z
# Read by ISODateTimeFormat.dateTimeParser() of Joda-Time 2.13, as in Kafka Connect; None: refused by it.
READ_BY_JODA = {
    "2017-03-02T18:00:00Z": AT,
    "2017-03-02T18:00:00z": AT,
    "2017-03-02T18:00:00": AT,
    "2017-03-02T18:00": AT,
    "2017-03-02T18": AT,
    "2017-03-02T18:00:00,5Z": AT + 500,
    "2017-03-02T18.5": AT + 1_800_000,
    "2017-03-02T18:30.25Z": AT + 1_815_000,
    "2017-03-02T18:00:00.123456789Z": AT + 123,
    "2017-03-02T18:00:00+02:00": AT - 7_200_000,
    "2017-03-02T18:00:00+02": AT - 7_200_000,
    "2017-03-02T18:00:00-0330": AT + 12_600_000,
    "2017-03-02T18:00:00+02:00:30": AT - 7_230_000,
    "2017-03-02T18:00:00+23:59": 1488391260000,
    "2017-03-02T": 1488412800000,
    "2017-03-02T+02:00": 1488405600000,
    "2017-03-02": 1488412800000,
    "2017-3-2": 1488412800000,
    "2017-1-2T3:4:5Z": 1483326245000,
    "2017-03": 1488326400000,
    "2017-5": 1493596800000,
    "2017-W09": 1488153600000,
    "2017-W9-4": 1488412800000,
    "2017-W09-4T01": 1488416400000,
    "2017-061": 1488412800000,
    "18:00Z": None,
    "2017-03-02Z": None,
    "2017-03-02T24:00:00Z": None,
    "2017-03-02T18:00:60Z": None,
    "20170302T180000Z": None,
    "2017-366": None,
    "2017-W54": None,
    " 2017-03-02": None,
    "2017-03-02T18:00:00 +02:00": None,
    "2017-03-02T18:00:00+25:00": None,
    "": None,
    "def": None,
}


@pytest.mark.parametrize(("text", "time"), READ_BY_JODA.items())
def test_texts_are_read_as_joda_time_reads_them(text: str, time: int | None) -> None:
    """ISO 8601 with its weeks, days of the year and fractions; a time without a zone is in UTC."""
    found = milliseconds(text, "ms")
    assert isinstance(found, Unusable) if time is None else found == time


def test_a_space_may_stand_for_the_t() -> None:
    """RFC 3339 and databases write it; Joda-Time does not read it."""
    assert milliseconds("2017-03-02 18:00:00Z", "ms") == AT


@pytest.mark.parametrize(
    ("value", "unit", "time"),
    [
        (AT, "ms", AT),
        (AT // 1000, "s", AT),
        (AT * 1000 + 999, "us", AT),
        (AT * 10**6 + 999_999, "ns", AT),
        (-1, "us", -1),
        (-1, "ms", -1),
        ("1488477600000", "ms", AT),
        ("-1", "ms", -1),
        ("1488477600", "s", AT),
        ("2017", "ms", 2017),
        (Fraction("1488477600.5"), "s", AT + 500),
        (Fraction("1.4884776e12"), "ms", AT),
        (Fraction("1488477600000.9"), "ms", AT),
        (Moment(AT, "ms"), "s", AT),
        (Moment(AT * 1000 + 1, "us"), "s", AT),
        (Day(17227), "ms", 1488412800000),
    ],
)
def test_numbers_have_the_declared_unit(value: FieldValue, unit: TimeUnit, time: int) -> None:
    """Texts of digits too; timestamps of a schema have their own."""
    assert milliseconds(value, unit) == time


@pytest.mark.parametrize(
    "value",
    [None, True, Decimal(1), "12345678901234567890", 2**70, Fraction("1e400"), Fraction("1e30"), Unusable("is a list")],
)
def test_other_values_are_no_times(value: FieldValue) -> None:
    """TE7 and TE8 among them; none is silently some time."""
    assert isinstance(milliseconds(value, "s"), Unusable)
