"""Partitioners: Connect's paths, the same whatever the batch, and no record in a wrong partition."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.extensions import Batch
from airflow_provider_kafka_s3.layout.keys import data_key
from airflow_provider_kafka_s3.layout.partitioners import RecordPartitioner, make_partitioner
from airflow_provider_kafka_s3.layout.patterns import compile_pattern
from airflow_provider_kafka_s3.layout.zones import load_zone

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "time_paths.json").read_text())
HOUR = 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [
    "UTC",
    "America/Los_Angeles",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Pacific/Apia",
    "Africa/Monrovia",
    "America/St_Johns",
    "Asia/Kathmandu",
]


def partitioner(
    kind: Any = "hourly", timezone: str = "UTC", delim: str = "/", on_bad: str = "fail", **more: Any
) -> RecordPartitioner:
    """A partitioner of these settings; ``partition`` has no time zone."""
    zone = {} if kind == "partition" else {"timezone": timezone}
    return make_partitioner(
        config.Layout(
            format=config.JsonLines(),
            partitioner=config.parse_partitioner({"kind": kind, **zone, **more}),
            naming=config.Naming(directory_delim=delim),
            on_bad_timestamp=on_bad,
        )
    )


def batch(times: list[int], first: int = 0) -> pa.RecordBatch:
    """Records with these timestamps."""
    return pa.RecordBatch.from_arrays(
        [pa.array(range(first, first + len(times)), pa.int64()), pa.array(times, pa.int64())],
        names=["offset", "timestamp"],
    )


def paths(of: RecordPartitioner, times: list[int]) -> list[str]:
    """The encoded partition of each record."""
    encoded = of.encode(Batch(batch(times), "flights", 3))
    codes, distinct = encoded.codes, encoded.paths
    assert len(distinct) == len(set(distinct))
    assert set(codes.tolist()) == set(range(len(distinct)))
    return [distinct[c] for c in codes]


def settings_of(case: dict[str, Any]) -> dict[str, Any]:
    """The settings of a vector's partitioner, by the package's names."""
    if "partitioner" in case:
        return {"kind": case["partitioner"], "timezone": case["tz"]}
    return {
        "kind": "time",
        "timezone": case.get("tz", "UTC"),
        "path_format": case.get("path_format", "YYYY"),
        "duration_ms": case.get("duration_ms", HOUR),
    }


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda c: c["id"])
def test_paths_are_those_of_the_acceptance_vectors(case: dict[str, Any]) -> None:
    """Alone (one bucket) and with others (many)."""
    made = partitioner(**settings_of(case))
    assert paths(made, [case["ms"]]) == [case["expect"]]
    assert paths(made, [0, case["ms"], 10**12])[1] == case["expect"]


def test_the_year_of_era_is_not_the_year_of_the_week() -> None:
    """T13: YYYY gives the same as yyyy, also around New Year."""
    new_year = 1_420_070_400_000
    times = [new_year - HOUR, new_year, new_year + 4 * 24 * HOUR]
    both = [partitioner("time", path_format=f, duration_ms=HOUR) for f in ("'year'=YYYY", "'year'=yyyy")]
    assert paths(both[0], times) == paths(both[1], times) == ["year=2014", "year=2015", "year=2015"]


ERRORS = [c for c in VECTORS["errors"] if not {"record_field", "field_name"} & c.keys()]


def test_the_errors_of_the_vectors_are_all_run() -> None:
    """The others, of timestamps in fields, with the partitioners by field."""
    assert [c["id"] for c in ERRORS] == ["TE1", "TE2", "TE3", "TE4", "TE5"]


@pytest.mark.parametrize("case", ERRORS, ids=lambda c: c["id"])
def test_wrong_settings_are_refused_as_in_the_vectors(case: dict[str, Any]) -> None:
    """The message names the cause: it is empty, a duration, a time zone or a pattern."""
    with pytest.raises(ConfigurationError, match=case["error"]):
        partitioner(**settings_of(case))


@pytest.mark.parametrize("path_format", ["   ", " /"])
def test_a_blank_pattern_is_refused(path_format: str) -> None:
    """As Connect does."""
    with pytest.raises(ConfigurationError, match="is empty apart from the delimiter"):
        partitioner("time", path_format=path_format, duration_ms=HOUR)


def test_a_duration_out_of_range_is_refused() -> None:
    """Probably nanoseconds; and it would overflow."""
    with pytest.raises(ConfigurationError, match=r"duration_ms=\d+ must be .* to 315,360,000,000,000: .* a day has"):
        partitioner("time", path_format="YYYY", duration_ms=10**18)


def test_one_trailing_delimiter_is_removed() -> None:
    """Connect's users end patterns with it."""
    assert paths(partitioner("time", path_format="YYYY/MM/", duration_ms=HOUR), [0]) == ["1970/01"]


@pytest.mark.parametrize("delim", ["/", "|", "_", "d", "'", "x'y"])
def test_daily_and_hourly_use_the_delimiter_whatever_it_is(delim: str) -> None:
    """Letters and quotes in it are not interpreted."""
    assert paths(partitioner("hourly", delim=delim), [0]) == [
        delim.join(["year=1970", "month=01", "day=01", "hour=00"])
    ]
    assert paths(partitioner("daily", delim=delim), [0]) == [delim.join(["year=1970", "month=01", "day=01"])]


def test_the_default_is_the_kafka_partition() -> None:
    """Timestamps do not matter, and may be missing."""
    encoded = partitioner("partition").encode(Batch(batch([-1, 5]), "flights", 12))
    codes, distinct = encoded.codes, encoded.paths
    assert (codes.tolist(), distinct) == ([0, 0], ["partition=12"])


def slow_path(kind: str, zone: str, time: int, duration: int, path_format: str) -> str:
    """One record's path, computed with the standard library."""
    tz = load_zone(zone)
    offset = (EPOCH + timedelta(milliseconds=time)).astimezone(tz).utcoffset()
    assert offset is not None
    local = time + offset // timedelta(milliseconds=1)
    begin = (EPOCH + timedelta(milliseconds=local // duration * duration)).replace(tzinfo=tz)
    return compile_pattern(path_format).format(begin.astimezone(UTC).astimezone(tz))


# Around changes of the clocks, where the paths are hardest; and anywhere.
CHANGES = [
    1_489_305_600_000,  # Los Angeles, spring 2017
    1_509_865_200_000,  # Los Angeles, autumn 2017
    1_534_046_400_000,  # Santiago, the day that begins at 01:00
    1_325_239_200_000,  # Apia, the day that never was
    1_475_942_400_000,  # Lord Howe, half an hour
    63_593_070_000,  # Monrovia, 44 minutes 30 seconds
    0,
    -1_000 * HOUR,
]
times = st.one_of(
    st.builds(lambda at, by: at + by, st.sampled_from(CHANGES), st.integers(-30 * HOUR, 30 * HOUR)),
    st.integers(-(10**13), 10**14),
).filter(lambda t: t != -1)
shapes = st.sampled_from(
    [
        (24 * HOUR, "YYYY/MM/dd"),
        (HOUR, "YYYY/MM/dd/HH"),
        (2 * HOUR, "YYYY-MM-dd/HH"),
        (HOUR // 4, "MM-dd/HH/mm"),
        (HOUR // 4, "YYYYMMdd/HH"),
        (HOUR // 4, "MM"),
        (1, "YYYY/MM/dd/HH"),
        (7 * HOUR, "YYYY/DDD/HH"),
        (30 * 24 * HOUR, "YYYY/MM"),
        (1_000, "ss.SSS"),
        (1, "ss.S"),
    ]
)


@settings(max_examples=300)
@given(st.sampled_from(ZONES), shapes, st.lists(times, min_size=1, max_size=30), st.integers(1, 30))
@example("Africa/Monrovia", (HOUR // 4, "YYYYMMdd/HH"), [63_593_070_000], 1)
@example("Africa/Monrovia", (HOUR // 4, "YYYYMMdd/HH"), [63_593_070_000 + i * 60_000 for i in range(-30, 60)], 7)
def test_the_path_of_a_record_does_not_depend_on_its_batch(
    zone: str, shape: tuple[int, str], stamps: list[int], rows: int
) -> None:
    """Vectorised, cached or alone: the path is that of the standard library."""
    duration, path_format = shape
    made = partitioner("time", zone, path_format=path_format, duration_ms=duration)
    expected = [slow_path("time", zone, t, duration, path_format) for t in stamps]
    assert paths(made, stamps) == expected
    again = [p for i in range(0, len(stamps), rows) for p in paths(made, stamps[i : i + rows])]
    assert again == expected


@given(st.sampled_from(ZONES), st.sampled_from(CHANGES))
@example("Pacific/Apia", 1_325_239_200_000)
def test_batches_in_order_get_the_same_paths_as_single_records(zone: str, around: int) -> None:
    """The cached interval ends where the UTC offset or the bucket changes."""
    stamps = np.arange(around - 4 * HOUR, around + 4 * HOUR, HOUR // 6).tolist()
    made = partitioner("hourly", zone)
    together = [p for i in range(0, len(stamps), 5) for p in paths(made, stamps[i : i + 5])]
    assert together == [paths(partitioner("hourly", zone), [t])[0] for t in stamps]


def test_times_before_1970_are_rounded_down_not_towards_zero() -> None:
    """Unlike in Connect, the hour before 1970 is not part of the first hour of 1970."""
    assert paths(partitioner("hourly"), [-2, 0]) == [
        "year=1969/month=12/day=31/hour=23",
        "year=1970/month=01/day=01/hour=00",
    ]


def test_a_record_without_timestamp_is_refused_by_name() -> None:
    """The first such record of the batch, with what to do."""
    with pytest.raises(
        RecordError,
        match=r"topic 'flights', partition 3, offset 11: the record has no timestamp.*on_bad_timestamp=.*LogAppendTime",
    ):
        partitioner("hourly").encode(Batch(batch([5, -1, 7, -1], first=10), "flights", 3))


def test_a_record_without_timestamp_is_refused_among_neighbours_of_its_number() -> None:
    """-1 means none, also after records of the last hour of 1969, whose path is cached by then."""
    for before, after in ([-2], [-2, -1]), ([0], [-1, 0]):
        made = partitioner("hourly", "Europe/Berlin")
        made.encode(Batch(batch(before), "flights", 3))
        with pytest.raises(RecordError, match="no timestamp"):
            made.encode(Batch(batch(after), "flights", 3))


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 253_402_300_800_000, 1_500_000_000_000_000, -62_135_596_800_001])
def test_a_timestamp_outside_the_calendar_is_refused_by_name(time: int) -> None:
    """Probably microseconds instead of milliseconds; alone or with others."""
    for stamps, offset in ([time], 0), ([0, time], 1):
        with pytest.raises(RecordError, match=rf"offset {offset}: the record's timestamp {time} .* outside the years"):
            partitioner("hourly", "Asia/Tokyo").encode(Batch(batch(stamps), "flights", 3))


BAD = [-1, 2**63 - 1, -(2**63), 253_402_300_800_000, 1_500_000_000_000_000, -62_135_596_800_001]


def test_records_without_a_time_go_to_the_named_partition_and_no_others() -> None:
    """None, nanoseconds, and both ends of the numbers; 0, 1970 minus five and the years 1 to 9999 are valid."""
    made = partitioner("daily", on_bad="unknown")
    unknown = "year=unknown/month=unknown/day=unknown"
    assert paths(made, BAD) == [unknown] * len(BAD)
    good = [0, -5, 1_700_000_000_000, -62_135_300_000_000, 253_402_000_000_000]
    expected = paths(partitioner("daily"), good)
    for bad in BAD:
        mixed = [t for time in good for t in (time, bad)]
        assert paths(made, mixed) == [p for path in expected for p in (path, unknown)]
    assert paths(made, good) == expected


def test_a_bucket_before_the_calendar_is_invalid_as_well() -> None:
    """The record of the year 1969 is in a bucket of 5,000 years that begins before the year 1."""
    made = partitioner("time", on_bad="unknown", path_format="YYYY", duration_ms=5_000 * 365 * 24 * HOUR)
    assert paths(made, [10**12, -5, -1, 0]) == ["1970", "unknown", "unknown", "1970"]


@pytest.mark.parametrize(
    ("path_format", "delim", "expected"),
    [
        ("'year'=YYYY/'month'=MM", "/", "year=none/month=none"),
        ("YYYY/MM/dd", "/", "none/none/none"),
        ("'dt'=YYYY-MM-dd", "/", "dt=none"),
        ("'region=eu'/'dt'=YYYYMMdd/'at'HH", "/", "region=eu/dt=none/none"),
        ("'y'YYYY=MM", "/", "none"),
        ("'year'=YYYY|'month'=MM", "|", "year=none|month=none"),
        ("'all'", "/", "all"),
    ],
)
def test_every_folder_with_a_time_gets_the_name(path_format: str, delim: str, expected: str) -> None:
    """With the same depth as the others, behind its key; folders of text alone are not changed."""
    made = partitioner("time", delim=delim, on_bad="none", path_format=path_format, duration_ms=HOUR)
    assert paths(made, [-1]) == [expected]
    assert len(paths(made, [-1, 0, -1])) == 3
    assert len(made.longest) >= len(expected)


def test_the_longest_path_may_be_the_one_of_records_without_a_time() -> None:
    """A key that is valid with it is valid with all, whatever the name."""
    made = partitioner("time", on_bad="n" * 300, path_format="YYYY", duration_ms=HOUR)
    assert made.longest == "n" * 300


@given(st.lists(st.one_of(st.sampled_from(BAD), st.integers(-(10**14), 10**14)), min_size=1, max_size=60), st.data())
def test_batches_do_not_change_the_partition_of_records_without_a_time(times: list[int], data: st.DataObject) -> None:
    """In whatever batches, the same records have the same paths."""
    cut = data.draw(st.integers(0, len(times)))
    whole = paths(partitioner("hourly", "Europe/Berlin", on_bad="none"), times)
    pieces = partitioner("hourly", "Europe/Berlin", on_bad="none")
    assert [p for part in (times[:cut], times[cut:]) if part for p in paths(pieces, part)] == whole


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"])
def test_the_ends_of_the_calendar_have_paths(zone: str) -> None:
    """In every time zone, except for the day at each end."""
    first, last = -62_135_510_400_000 + 24 * HOUR, 253_402_214_399_999
    made = paths(partitioner("daily", zone), [first, last])
    assert made[0].startswith("year=0001/month=01/day=0")
    assert made[1].startswith("year=9999/month=12/day=3")


def test_a_bucket_that_begins_before_the_calendar_is_refused_by_name() -> None:
    """A bucket of 5,000 years before 1970 begins before the year 1; the first record in it is named."""
    made = partitioner("time", path_format="YYYY", duration_ms=5_000 * 365 * 24 * HOUR)
    assert paths(made, [0, 10**12]) == ["1970", "1970"]
    for stamps, offset in ([-5], 0), ([7, -9, -5], 1):
        with pytest.raises(RecordError, match=f"offset {offset}: .* outside the years"):
            made.encode(Batch(batch(stamps), "flights", 3))


@pytest.mark.parametrize("kind", ["partition", "daily", "hourly"])
def test_no_path_is_longer_than_the_longest(kind: Any) -> None:
    """A key that is valid with it is valid with all."""
    made = partitioner(kind, "Asia/Tokyo")
    assert all(len(p) <= len(made.longest) for p in paths(made, [0, 253_402_000_000_000, 10**12]))
    assert data_key(
        config.Layout(format=config.JsonLines()),
        topic="t",
        encoded_partition=made.longest,
        partition=2**31 - 1,
        first_offset=2**63 - 1,
        generation=9,
    )


def test_the_cache_of_paths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with another time in every record does not fill the memory, and has the right paths."""
    monkeypatch.setattr("airflow_provider_kafka_s3.layout.partitioners._CACHED", 10)
    made = partitioner("hourly", "Europe/Berlin")
    stamps = [i * 25 * HOUR for i in range(100)]
    assert (
        paths(made, stamps)
        == paths(made, stamps)
        == [slow_path("", "Europe/Berlin", t, HOUR, "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH") for t in stamps]
    )
    assert len(made._paths) <= 10  # type: ignore[attr-defined]
    assert len(made._pieces) <= 10  # type: ignore[attr-defined]
