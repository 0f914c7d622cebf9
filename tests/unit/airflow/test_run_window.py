"""Window of a run: every line of the table in docs/windows.md, with contexts of Airflow 2 and 3."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest

from airflow_provider_kafka_s3.airflow.run_window import RunWindow, parse_topic_offsets, resolve_window
from airflow_provider_kafka_s3.config import ByPartition, Daily, Hourly, Partitioner, TimePattern, Window
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TransientError

NOW = datetime(2026, 6, 1, tzinfo=UTC)
JANUARY = ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]
JANUARY_1 = 1_767_225_600_000
HOUR = 3_600_000
DAY = 24 * HOUR


def airflow_2(**more: Any) -> dict[str, Any]:
    """The context of a run with an interval: every run of Airflow 2.11, and most of Airflow 3."""
    start, end = more.pop("interval", (pendulum.datetime(2026, 3, 1), pendulum.datetime(2026, 3, 2)))
    run = SimpleNamespace(conf=more.pop("conf", {}), data_interval_start=start, data_interval_end=end)
    return {"dag_run": run, "params": {}, "data_interval_start": start, "data_interval_end": end, **more}


def airflow_3(**more: Any) -> dict[str, Any]:
    """The context of a run of Airflow 3 without a logical date: the keys of the interval are absent."""
    run = SimpleNamespace(conf=more.pop("conf", None), data_interval_start=None, data_interval_end=None)
    return {"dag_run": run, "params": {}, "partition_key": None, "partition_date": None, **more}


def resolve(context: Any, *, offsets: Any = "data_interval", **more: Any) -> RunWindow:
    """Resolve at a known time."""
    return resolve_window(context, offsets=offsets, **{"now": NOW, **more})


# -- explicit windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", ["incremental", "data_interval"])
@pytest.mark.parametrize("context", [airflow_2, airflow_3])
@pytest.mark.parametrize("source", ["conf", "params"])
def test_an_explicit_window_overrides_everything(context: Any, offsets: str, source: str) -> None:
    """With any timetable, and also for incremental runs."""
    made = context(**{source: {"kafka_s3": {"window": JANUARY}}})
    resolved = resolve(made, offsets=offsets)
    assert (resolved.source, resolved.window) == (source, (JANUARY_1, JANUARY_1 + DAY))
    assert resolved.of_topic("orders") == (JANUARY_1, JANUARY_1 + DAY)


def test_conf_wins_over_params_as_a_whole() -> None:
    """Also if Airflow has merged the two: offsets in conf replace a window in params."""
    params = {"kafka_s3": {"window": JANUARY, "action": "verify"}}
    resolved = resolve(airflow_3(conf={"kafka_s3": {"offsets": {"orders": {"0": [5, 7]}}}}, params=params))
    assert (resolved.source, resolved.action, resolved.offsets) == ("conf", "land", {"orders": {0: (5, 7)}})
    restored = resolve(airflow_3(conf={"kafka_s3": {"action": "restore"}}, params=params))
    assert (restored.action, restored.source) == ("restore", "stored offsets")


@pytest.mark.parametrize("nothing", [{}, {"kafka_s3": None}, {"kafka_s3": {}}, {"kafka_s3": {"window": None}}])
def test_empty_settings_have_no_effect(nothing: dict[str, Any]) -> None:
    """As those of a form that is left empty."""
    assert resolve(airflow_2(params=nothing)).source == "data interval"
    assert resolve(airflow_2(conf=nothing)).source == "data interval"


def test_conf_of_other_tasks_is_ignored() -> None:
    """A run has one conf for all its tasks; only settings below ``kafka_s3`` are checked."""
    assert resolve(airflow_2(conf={"window": 3, "offsets": "x"})).source == "data interval"


@pytest.mark.parametrize("zone", ["Z", "+00:00"])
def test_times_may_have_any_offset(zone: str) -> None:
    """The instant counts."""
    window = [f"2026-01-01T00:00:00{zone}", "2026-01-02T01:00:00+01:00"]
    assert resolve(airflow_3(conf={"kafka_s3": {"window": window}})).window == (JANUARY_1, JANUARY_1 + DAY)


def test_offsets_are_per_topic() -> None:
    """A topic that is not named is an error, unless it is left out by ``{}``; more topics are those of other tasks."""
    ranges = {"orders": {"0": [0, 100], 1: [5, 6]}, "clicks": {}, "another": {"0": [1, 2]}}
    resolved = resolve(airflow_3(conf={"kafka_s3": {"offsets": ranges}}), offsets="incremental")
    assert resolved.of_topic("orders") == {0: (0, 100), 1: (5, 6)}
    assert resolved.of_topic("clicks") == {}
    with pytest.raises(ConfigurationError, match=r"no offsets of topic 'idle'.*\"idle\": \{\}\} to leave it out"):
        resolved.of_topic("idle")
    assert resolved.to_xcom() == {
        "source": "conf",
        "offsets": {"orders": {"0": [0, 100], "1": [5, 6]}, "clicks": {}, "another": {"0": [1, 2]}},
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["x"], "must be a mapping; its settings are 'action', 'window', 'offsets'"),
        (
            {"windw": JANUARY},
            "kafka_s3 has no 'windw'; did you mean 'window'. Its settings are 'action', 'window', 'offsets'$",
        ),
        ({"mode": "verify"}, "kafka_s3 has no 'mode'; its settings are 'action', 'window', 'offsets'$"),
        ({"window": JANUARY, "offsets": {"a": {"0": [0, 1]}}}, "has both window and offsets"),
        ({"window": JANUARY[0]}, r"must be two times, \[start, end\]"),
        ({"window": [*JANUARY, JANUARY[0]]}, "must be two times"),
        ({"window": [JANUARY[1], JANUARY[0]]}, "is empty; its end is exclusive"),
        ({"window": [JANUARY[0], JANUARY[0]]}, "is empty"),
        ({"window": ["2026-01-01", "2026-01-02"]}, r"has no time zone; write it with its offset from"),
        ({"window": ["yesterday", "today"]}, "'yesterday' is not a time; write it with its offset from UTC"),
        ({"window": [0, 1]}, "0 is not a time"),
        ({"window": []}, "must be two times"),
    ],
)
def test_an_invalid_setting_is_never_ignored(given: Any, message: str) -> None:
    """With an unknown name or a time without a zone, the run would land other records."""
    for context in (airflow_2(conf={"kafka_s3": given}), airflow_3(params={"kafka_s3": given})):
        with pytest.raises(ConfigurationError, match=message):
            resolve(context)


@pytest.mark.parametrize(
    "given",
    [
        {},
        [],
        "orders",
        {"orders": [0, 1]},
        {"orders": {"x": [0, 1]}},
        {"orders": {"-1": [0, 1]}},
        {"orders": {"01": [0, 1]}},
        {"orders": {True: [0, 1]}},
        {"orders": {"0": 5}},
        {"orders": {"0": [0]}},
        {"orders": {"0": [1, 1]}},
        {"orders": {"0": [2, 1]}},
        {"orders": {"0": [-1, 1]}},
        {"orders": {"0": [False, True]}},
        {"orders": {"0": [0, 1.5]}},
        {"orders": {"0": ["0", "1"]}},
    ],
)
def test_invalid_offsets_are_refused_with_an_example(given: Any) -> None:
    """The error has the right form."""
    with pytest.raises(ConfigurationError, match=r'conf: kafka_s3.offsets: .*write .*"orders": \{"0": \[0, 100\]'):
        parse_topic_offsets("conf", given)


# -- what a run does -----------------------------------------------------------------------------------------------


def test_the_action_is_that_of_conf_then_params_then_the_operator() -> None:
    """So a person who triggers a run can override the DAG."""
    land, restore = {"kafka_s3": {"action": "land"}}, {"kafka_s3": {"action": "restore"}}
    assert resolve(airflow_2()).action == "land"
    assert resolve(airflow_2(), action="verify").action == "verify"
    assert resolve(airflow_2(params=land), action="verify").action == "land"
    assert resolve(airflow_2(params=land, conf=restore), action="verify").action == "restore"


def test_an_unknown_action_is_refused() -> None:
    """Rather than replaced by a default."""
    with pytest.raises(ConfigurationError, match=r"^conf: kafka_s3.action='repair' is not known; use 'land', 'ver"):
        resolve(airflow_2(conf={"kafka_s3": {"action": "repair"}}))
    with pytest.raises(ConfigurationError, match=r"^action='repair' is not known; use 'land', 'verify' or 'restore'$"):
        resolve(airflow_2(), action="repair")


# -- windows of timetables ---------------------------------------------------------------------------------------


def test_an_incremental_run_needs_no_timetable() -> None:
    """It lands all records since the stored offsets, whatever interval or partition its run has."""
    for context in (airflow_2(), airflow_3(), airflow_3(partition_date=NOW, partition_key="x")):
        resolved = resolve(context, offsets="incremental")
        assert (resolved.source, resolved.window, resolved.to_xcom()) == ("stored offsets", None, None)
        assert str(resolved) == "land all records since the stored offsets"


def test_a_data_interval_is_the_window() -> None:
    """Of a scheduled or backfilled run, and of a manual one for which the timetable infers an interval."""
    resolved = resolve(airflow_2())
    assert resolved.source == "data interval"
    assert resolved.to_xcom() == {
        "source": "data interval",
        "start": "2026-03-01T00:00:00+00:00",
        "end": "2026-03-02T00:00:00+00:00",
    }
    assert "2026-03-01T00:00:00+00:00 until 2026-03-02T00:00:00+00:00 (data interval)" in str(resolved)


def test_timetables_with_intervals_give_windows_and_others_an_error_with_a_timetable() -> None:
    """The real timetables of this Airflow: data intervals, plain triggers (what @hourly is on 3.x), and no schedule."""
    from airflow.timetables.interval import CronDataIntervalTimetable
    from airflow.timetables.simple import NullTimetable
    from airflow.timetables.trigger import CronTriggerTimetable

    at = pendulum.datetime(2026, 3, 1, 5, 30)
    interval = CronDataIntervalTimetable("@hourly", timezone=pendulum.timezone("UTC"))
    manual = interval.infer_manual_data_interval(run_after=at)
    window = resolve(airflow_2(interval=(manual.start, manual.end))).window
    assert window == (
        pendulum.datetime(2026, 3, 1, 4).timestamp() * 1000,
        pendulum.datetime(2026, 3, 1, 5).timestamp() * 1000,
    )
    for timetable in (CronTriggerTimetable("@hourly", timezone=pendulum.timezone("UTC")), NullTimetable()):
        manual = timetable.infer_manual_data_interval(run_after=at)
        assert manual.start == manual.end
        with pytest.raises(
            ConfigurationError,
            match=r"interval of this run is empty: .*; schedule the DAG with CronDataIntervalTimetable",
        ):
            resolve(airflow_2(interval=(manual.start, manual.end)))


def test_a_plain_cron_schedule_makes_intervals_on_airflow_2_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the table of schedules in docs/windows.md, with Airflow's own defaults."""
    from airflow.configuration import retrieve_configuration_description
    from airflow.providers.common.compat.sdk import DAG
    from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

    # Airflow has other defaults for unit tests, so those of its reference are set.
    options = retrieve_configuration_description()["scheduler"]["options"]
    for name in ("create_cron_data_intervals", "create_delta_data_intervals"):
        monkeypatch.setenv(f"AIRFLOW__SCHEDULER__{name.upper()}", options[name]["default"])
    start = pendulum.datetime(2026, 1, 1)
    made = [
        type(DAG("d", schedule=schedule, start_date=start).timetable).__name__
        for schedule in ("@hourly", "0 * * * *", timedelta(hours=1), None, "@once")
    ]
    if AIRFLOW_V_3_0_PLUS:
        assert made[:3] == ["CronTriggerTimetable", "CronTriggerTimetable", "DeltaTriggerTimetable"]
    else:
        assert made[:3] == ["CronDataIntervalTimetable", "CronDataIntervalTimetable", "DeltaDataIntervalTimetable"]
    assert made[3:] == ["NullTimetable", "OnceTimetable"]


@pytest.mark.parametrize(
    ("day", "hours"), [(datetime(2026, 3, 29, tzinfo=UTC), 23), (datetime(2026, 10, 25, tzinfo=UTC), 25)]
)
def test_days_on_which_the_clocks_change_are_windows_of_23_and_25_hours(day: datetime, hours: int) -> None:
    """By a data interval in that zone, and by a partition in the partitioner's."""
    from airflow.timetables.interval import CronDataIntervalTimetable

    berlin = pendulum.timezone("Europe/Berlin")
    end = pendulum.datetime(day.year, day.month, day.day, tz=berlin).add(days=1)
    run = CronDataIntervalTimetable("@daily", timezone=berlin).infer_manual_data_interval(run_after=end)
    later = {"now": NOW + timedelta(days=365)}
    by_interval = resolve(airflow_2(interval=(run.start, run.end)), **later)
    assert by_interval.window is not None
    assert by_interval.window[1] - by_interval.window[0] == hours * HOUR
    daily = Daily(timezone="Europe/Berlin")
    by_partition = resolve(airflow_3(partition_date=run.start.in_timezone("UTC")), partitioner=daily, **later)
    assert by_partition.window == by_interval.window


def test_the_error_of_a_manual_run_without_a_logical_date_has_a_conf() -> None:
    """It has no interval, and may be triggered with a window."""
    with pytest.raises(
        ConfigurationError, match=r"has no data interval.*; schedule .*trigger a single run with the conf"
    ):
        resolve(airflow_3())


def test_the_error_of_an_empty_interval_has_the_schedule_and_the_window_that_was_meant() -> None:
    """On Airflow 3 the interval of a DAG with ``@daily`` ends where it begins."""
    at = datetime(2026, 3, 5, tzinfo=UTC)
    context = airflow_2(interval=(at, at)) | {"dag": SimpleNamespace(schedule="0 3 * * *")}
    with pytest.raises(ConfigurationError, match="is empty") as refused:
        resolve(context)
    hint = str(refused.value)
    assert "CronDataIntervalTimetable('0 3 * * *', timezone='UTC') of airflow.timetables.interval" in hint
    conf = re.search(r"the conf (\{.*\});", hint)
    assert conf is not None
    end = int(at.timestamp() * 1000)
    assert resolve(airflow_3(conf=json.loads(conf[1]))).window == (end - DAY, end)


@pytest.mark.parametrize(
    ("partitioner", "window", "hours"),
    [
        (Hourly(), Window(), 1),
        (Daily(), Window(), 24),
        (TimePattern(path_format="YYYY", duration_ms=15 * 60_000), Window(), 0.25),
        (TimePattern(path_format="YYYY", duration_ms=DAY, timezone="Europe/Berlin"), Window(), 25),
        (Hourly(), Window(partition_length=timedelta(days=1)), 24),
        (ByPartition(), Window(partition_length=timedelta(hours=6)), 6),
        (ByPartition(), Window(partition_length=timedelta(days=1)), 24),
        (ByPartition(), Window(partition_length=timedelta(days=1), timezone="Europe/Berlin"), 25),
    ],
)
def test_a_partition_is_a_window_with_the_partitioner_s_or_a_given_length(
    partitioner: Partitioner, window: Window, hours: float
) -> None:
    """From the date of the partition on; the day of this one has 25 hours in Berlin."""
    start = datetime(2025, 10, 26, tzinfo=ZoneInfo("Europe/Berlin"))
    context = airflow_3(partition_date=pendulum.instance(start), partition_key="any name")
    resolved = resolve(context, partitioner=partitioner, settings=window)
    begin = int(start.timestamp() * 1000)
    assert (resolved.source, resolved.window) == ("partition", (begin, begin + hours * HOUR))


def test_partitions_of_a_zone_whose_midnight_is_missing_follow_one_another() -> None:
    """In Beirut clocks go from midnight to one: the day before ends where the day begins."""
    beirut = ZoneInfo("Asia/Beirut")
    daily = Daily(timezone="Asia/Beirut")
    dates = [datetime(2025, 3, day, tzinfo=beirut) for day in (29, 30, 31)]
    found = [resolve(airflow_3(partition_date=date.astimezone(UTC)), partitioner=daily).window for date in dates]
    windows = [window for window in found if window is not None]
    assert [end - start for start, end in windows] == [24 * HOUR, 23 * HOUR, 24 * HOUR]
    assert [start for start, _ in windows[1:]] == [end for _, end in windows[:-1]]


def test_a_partition_without_a_length_is_refused() -> None:
    """There is no default length."""
    with pytest.raises(
        ConfigurationError, match=r"^the length of the partition .* is unknown: .*window={'partition_length'"
    ):
        resolve(airflow_3(partition_date=NOW, partition_key="k"))


@pytest.mark.parametrize(
    ("key", "start"),
    [
        ("2026-01-07T03:00:00+00:00", datetime(2026, 1, 7, 3, tzinfo=UTC)),
        ("2026-01-07T03:00:00", datetime(2026, 1, 7, 2, tzinfo=UTC)),
        ("2026-01-07T03", datetime(2026, 1, 7, 2, tzinfo=UTC)),
    ],
)
def test_a_key_that_is_a_time_replaces_a_missing_date(key: str, start: datetime) -> None:
    """Without an offset it is in the partitioner's time zone."""
    hourly = Hourly(timezone="Europe/Berlin")
    resolved = resolve(airflow_3(partition_key=key), partitioner=hourly)
    assert resolved.window == (start.timestamp() * 1000, start.timestamp() * 1000 + HOUR)


@pytest.mark.parametrize("zone", ["America/New_York", pendulum.timezone("America/New_York")])
def test_a_key_without_a_date_is_parsed_by_the_timetable_s_format(zone: object) -> None:
    """Airflow 3.2 has no date in the context. Format and zone are the timetable's, not the partitioner's."""
    dag = SimpleNamespace(timetable=SimpleNamespace(key_format="%d.%m.%Y %H h", timezone=zone))
    resolved = resolve(airflow_3(partition_key="07.01.2026 03 h", dag=dag), partitioner=Hourly())
    start = datetime(2026, 1, 7, 8, tzinfo=UTC).timestamp() * 1000
    assert resolved.window == (start, start + HOUR)


@pytest.mark.parametrize("dag", [None, SimpleNamespace(timetable=SimpleNamespace(key_format="%Y", timezone="UTC"))])
def test_a_key_that_is_no_time_is_refused(dag: object) -> None:
    """A partition by customer or region is not a window of time."""
    with pytest.raises(ConfigurationError, match=r"^the partition key of this run is not a time: 'EMEA', .*schedule"):
        resolve(airflow_3(partition_key="EMEA", dag=dag), partitioner=Hourly())


@pytest.mark.parametrize("length", [timedelta(0), timedelta(hours=-1), 3600, "1h"])
def test_an_invalid_length_is_refused(length: Any) -> None:
    """It is a positive timedelta."""
    with pytest.raises(ConfigurationError, match=r"^partition_length=.* must be (positive|a timedelta .* or None)$"):
        Window(partition_length=length)


# -- the end of a window -------------------------------------------------------------------------------------------

ENDS_LATER = (pendulum.datetime(2026, 5, 31), pendulum.datetime(2026, 6, 1, 1))


@pytest.mark.parametrize(
    ("context", "hint"),
    [
        (airflow_2(interval=ENDS_LATER), r"in the future, .*\(data interval; .*run it after its end"),
        (airflow_3(conf={"kafka_s3": {"window": [str(t) for t in ENDS_LATER]}}), r"\(conf; .*run it after its end"),
        (airflow_3(partition_date=NOW), r"\(partition; .*CronPartitionTimetable.*run_offset=-1"),
    ],
)
def test_a_window_that_ends_in_the_future_is_refused_unless_it_may_be_open(context: Any, hint: str) -> None:
    """From any source; the error names the parameter that allows it."""
    hourly = Hourly()
    with pytest.raises(ConfigurationError, match=f"{hint}.*window=.'allow_open': True"):
        resolve(context, partitioner=hourly)
    resolved = resolve(context, partitioner=hourly, settings=Window(allow_open=True))
    assert resolved.window is not None
    assert resolved.window[1] == (NOW + timedelta(hours=1)).timestamp() * 1000


@pytest.mark.parametrize(
    ("seconds", "refused"), [(5, None), (6, TransientError), (60, TransientError), (61, ConfigurationError)]
)
def test_a_clock_that_is_a_little_slow_is_waited_for(seconds: int, refused: type[Exception] | None) -> None:
    """Clocks always differ by seconds; within a minute a retry succeeds; beyond, the error is terminal."""
    now = datetime(2026, 3, 2, tzinfo=UTC) - timedelta(seconds=seconds)
    if refused is None:
        assert resolve(airflow_2(), now=now).window is not None
    else:
        with pytest.raises(refused, match="in the future"):
            resolve(airflow_2(), now=now)


@pytest.mark.parametrize("at", [datetime, pendulum.DateTime])
def test_a_window_is_in_whole_milliseconds(at: type[datetime]) -> None:
    """Times of pendulum and of the standard library give the same window; fractions are rounded up."""
    interval = (
        at(1969, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC),
        at(2013, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    )
    assert resolve(airflow_2(interval=interval)).window == (0, 1_356_998_400_001)


# -- beside kafka_s3, and without a window -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "write"),
    [
        ({"window": JANUARY}, {"kafka_s3": {"window": JANUARY}}),
        ({"window": ["2026-01-01", "2026-01-02"]}, {"kafka_s3": {"window": ["2026-01-01", "2026-01-02"]}}),
        ({"offsets": {"orders": {"0": [0, 5]}}}, {"kafka_s3": {"offsets": {"orders": {"0": [0, 5]}}}}),
        ({"window": JANUARY, "kafka_s3": {}}, {"kafka_s3": {"window": JANUARY}}),
        ({"window": JANUARY, "kafka_s3": {"action": "restore"}}, {"kafka_s3": {"window": JANUARY}}),
        ({"action": "restore"}, {"kafka_s3": {"action": "restore"}}),
    ],
)
@pytest.mark.parametrize("offsets", ["incremental", "data_interval"])
def test_a_window_beside_kafka_s3_is_an_error_with_the_corrected_conf(
    conf: dict[str, Any], write: dict[str, Any], offsets: Any
) -> None:
    """The run would land other records, and succeed."""
    corrected = re.escape(json.dumps(write))
    for params in ({}, {"kafka_s3": {"window": JANUARY}}):
        with pytest.raises(
            ConfigurationError, match=rf"^conf: '(action|window|offsets)' has to be in 'kafka_s3': write {corrected}"
        ):
            resolve(airflow_3(conf=conf, params=params), offsets=offsets)


@pytest.mark.parametrize(
    "others",
    [
        {"window": 7},
        {"window": "daily"},
        {"window": [1, 2]},
        {"window": ["a", "b"]},
        {"offsets": {}},
        {"offsets": {"a": 1}},
        {"offsets": [1, 2]},
        {"action": "resume"},
        {"action": 3},
    ],
)
def test_keys_of_other_tasks_are_ignored(others: dict[str, Any]) -> None:
    """Those of another form; and with an explicit window below ``kafka_s3``, all of them."""
    assert resolve(airflow_3(conf=others), offsets="incremental").source == "stored offsets"
    ours = {"kafka_s3": {"window": JANUARY}, "window": ["2025-01-01", "2025-01-02"]}
    assert resolve(airflow_3(conf=ours), offsets="incremental").source == "conf"
    assert resolve(airflow_3(params={"window": JANUARY}), offsets="incremental").source == "stored offsets"


@pytest.mark.parametrize("name", ["kafka-s3", "KAFKA_S3", "Kafka-S3"])
def test_another_spelling_of_kafka_s3_is_an_error(name: str) -> None:
    """It would be ignored as the key of another task."""
    with pytest.raises(ConfigurationError, match=f"conf: '{name}' is not known; did you mean 'kafka_s3'"):
        resolve(airflow_3(conf={name: {"window": JANUARY}}), offsets="incremental")


@pytest.mark.parametrize("action", ["verify", "restore"])
def test_a_run_without_a_window_verifies_all_landed_batches(action: str) -> None:
    """Also of a DAG of windows, triggered without a logical date or with an empty interval; landing needs a window."""
    empty = datetime(2026, 1, 1, tzinfo=UTC)
    conf = {"kafka_s3": {"action": action}}
    for context in (airflow_3(conf=conf), airflow_2(conf=conf, interval=(empty, empty))):
        found = resolve(context)
        assert (found.action, found.source, found.of_topic("orders")) == (action, "stored offsets", None)
        assert (found.to_xcom(), str(found)) == (
            None,
            f"{action} the batches that this run landed; if it is a new run, all landed batches",
        )
        with pytest.raises(ConfigurationError, match="data interval"):
            resolve({**context, "dag_run": SimpleNamespace(conf={})})
