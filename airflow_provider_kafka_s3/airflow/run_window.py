"""Window and action of a run, resolved from its context.

``docs/windows.md`` has the order of the sources. Neither the id, the type nor the try of a run counts: two runs over
the same window have the same offsets.
"""

from __future__ import annotations

import calendar
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from airflow_provider_kafka_s3.airflow import compat
from airflow_provider_kafka_s3.batch.request import Action
from airflow_provider_kafka_s3.config import ByTime, Chain, Partitioner, Window
from airflow_provider_kafka_s3.config.values import unknown_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TransientError
from airflow_provider_kafka_s3.layout.keys import validate_topic
from airflow_provider_kafka_s3.messages import or_nearest
from airflow_provider_kafka_s3.times import EPOCH, parse_time

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = [
    "OffsetRanges",
    "RunWindow",
    "parse_action",
    "parse_topic_offsets",
    "parse_window",
    "resolve_window",
]

OffsetRanges = Mapping[int, tuple[int, int]]
"""Kafka partition -> ``[start, end)``."""

WindowSource = Literal["stored offsets", "conf", "params", "partition", "data interval"]
"""Where the window or the offsets of a run come from."""

_ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
_ACTION: Final = "action"
_OURS: Final = "kafka_s3"
_KNOWN: Final = (_ACTION, "window", "offsets")

_CLOCK_SKEW: Final = timedelta(seconds=5)
"""How far the scheduler's clock may be ahead of the worker's before a window counts as unfinished."""

_CURED_BY_WAITING: Final = timedelta(seconds=60)
"""Up to which distance of the window's end a retry may help. Beyond, the run was started too early."""

_DAY: Final = timedelta(days=1)

_EXAMPLE: Final = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
"""A window of the conf in a hint."""


@dataclass(frozen=True, kw_only=True)
class RunWindow:
    """Window and action of a run.

    Attributes:
        action: ``land``, ``verify`` or ``restore``.
        source: source of window or offsets. With ``stored offsets`` there are none: a run that lands continues from the
            stored offsets; one that verifies or restores checks the batches that it landed itself or, if it is new, all
            landed batches.
        window: ``[start, end)`` in epoch milliseconds, by the timestamps of the records; None: no window of time.
        offsets: ``[start, end)`` per topic and Kafka partition; None: no explicit offsets.
    """

    action: Action
    source: WindowSource
    window: tuple[int, int] | None = None
    offsets: Mapping[str, OffsetRanges] | None = None

    def __str__(self) -> str:
        if self.window is not None:
            start, end = _instants(self.window)
            target = f"the records from {start.isoformat()} until {end.isoformat()} ({self.source})"
        elif self.offsets is not None:
            target = f"explicit offsets ({self.source})"
        elif self.action == "land":
            target = "all records since the stored offsets"
        else:
            target = "the batches that this run landed; if it is a new run, all landed batches"
        return f"{self.action} {target}"

    def of_topic(self, topic: str) -> tuple[int, int] | OffsetRanges | None:
        """The window of one topic; None: all since its stored offsets.

        Raises:
            ConfigurationError: explicit offsets are given, but none of this topic.
        """
        if self.offsets is None:
            return self.window
        if topic not in self.offsets:
            raise ConfigurationError(
                f"{self.source}: kafka_s3.offsets name no offsets of topic {topic!r}, which this task lands; add "
                f'{{"{topic}": {{"0": [start, end]}}}}, or {{"{topic}": {{}}}} to leave it out'
            )
        return self.offsets[topic]

    def to_xcom(self) -> dict[str, Any] | None:
        """Convert to JSON; None for a run that continues from the stored offsets."""
        if self.window is not None:
            start, end = _instants(self.window)
            return {"source": self.source, "start": start.isoformat(), "end": end.isoformat()}
        if self.offsets is not None:
            ranges_of = {t: {str(p): list(r) for p, r in sorted(ranges.items())} for t, ranges in self.offsets.items()}
            return {"source": self.source, "offsets": ranges_of}
        return None


def resolve_window(
    context: Context,
    *,
    offsets: Literal["incremental", "data_interval"],
    action: str = "land",
    partitioner: Partitioner | None = None,
    settings: Window | None = None,
    now: datetime | None = None,
) -> RunWindow:
    """Resolve window and action of a run.

    Explicit offsets or times of the run come first (``conf``, then ``params``), then, for ``data_interval``, the
    partition of the run, then its data interval.

    Args:
        context: of the task.
        offsets: parameter of the operator.
        action: parameter of the operator; overridden by that of the run (``conf``, then ``params``).
        partitioner: its duration is the default length of a partition of the DAG, and its time zone the default for
            partitions of whole days.
        settings: limits of windows; None: the defaults.
        now: the current time, with a time zone; None: the clock's.

    Raises:
        ConfigurationError: the run has no window, an empty one, one that has not ended yet, or ``conf`` or ``params``
            are invalid; the message has the right form, or a timetable.
        TransientError: the window ends within the next minute, so this machine's clock may be slow.
    """
    conf, params = compat.run_conf(context), compat.run_params(context)
    settings = settings or Window()
    # The whole of conf's `kafka_s3` replaces the whole of that of params, as Airflow itself merges the two.
    source: WindowSource = "conf" if conf.get(_OURS) is not None else "params"
    explicit = _explicit(source, (conf if source == "conf" else params).get(_OURS))
    if source != "conf" or not (explicit.keys() - {_ACTION}):
        _refuse_misplaced(conf)
    chosen = (
        parse_action(f"{source}: kafka_s3.", explicit[_ACTION]) if _ACTION in explicit else parse_action("", action)
    )
    if "offsets" in explicit:
        return RunWindow(action=chosen, source=source, offsets=parse_topic_offsets(source, explicit["offsets"]))
    if "window" in explicit:
        window = parse_window(source, explicit["window"])
        hint = "run it after its end"
    elif offsets == "incremental":
        return RunWindow(action=chosen, source="stored offsets")
    elif (partition := compat.run_partition(context)) is not None:
        source, window = "partition", _partition_window(partition, partitioner, settings)
        hint = "CronPartitionTimetable(…, run_offset=-1) starts a run when its partition has ended"
    elif chosen != "land" and not _has_interval(context):
        # Without a window, all landed batches are checked.
        return RunWindow(action=chosen, source="stored offsets")
    else:
        source, window = "data interval", _data_interval(context)
        hint = "run it after its end"
    if not settings.allow_open:
        _require_past(source, window[1], now or datetime.now(UTC), hint)
    return RunWindow(action=chosen, source=source, window=(_milliseconds(window[0]), _milliseconds(window[1])))


def parse_action(where: str, action: object) -> Action:
    """Parse ``"land"``, ``"verify"`` or ``"restore"``.

    Args:
        where: prefix of its name in an error, such as ``conf: kafka_s3.``.
        action: any value.

    Raises:
        ConfigurationError: it is none of them.
    """
    known = next((known for known in _ACTIONS if known == action), None)
    if known is None:
        raise ConfigurationError(unknown_value(f"{where}action={action!r}", action, _ACTIONS))
    return known


def parse_window(source: str, window: object) -> tuple[datetime, datetime]:
    """Parse two times with UTC offsets, ``[start, end)``.

    Raises:
        ConfigurationError: it is anything else, or the window is empty.
    """
    if not isinstance(window, list | tuple) or len(window) != 2:
        raise ConfigurationError(
            f"{source}: kafka_s3.window={window!r} must be two times, [start, end], such as "
            f'["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]'
        )
    start, end = (_time(source, moment) for moment in window)
    if start >= end:
        raise ConfigurationError(
            f"{source}: kafka_s3.window [{start.isoformat()}, {end.isoformat()}) is empty; its end is exclusive and "
            f"has to be after its start"
        )
    return start, end


def parse_topic_offsets(source: str, offsets: object) -> dict[str, dict[int, tuple[int, int]]]:
    """Parse ``{topic: {Kafka partition: [start, end)}}``; partitions may be text, as in JSON.

    Raises:
        ConfigurationError: it is anything else.
    """

    def wrong(what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{source}: kafka_s3.offsets: {what}; write {{topic: {{partition: [start, end]}}}}, such as "
            f'{{"orders": {{"0": [0, 100]}}}}'
        )

    if not isinstance(offsets, Mapping) or not offsets:
        raise wrong(f"{offsets!r} is not a mapping of topics")
    parsed: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, ranges in offsets.items():
        if not isinstance(topic, str):
            raise wrong(f"{topic!r} is not the name of a topic")
        validate_topic(topic)
        if not isinstance(ranges, Mapping):
            raise wrong(f"{ranges!r} is not a mapping of the partitions of topic {topic!r}")
        parsed[topic] = {}
        for partition, ends in ranges.items():
            text = str(partition)
            # Kafka's partitions have 32 bits. The length is checked first, since int() refuses thousands of digits.
            if not (len(text) <= 10 and text.isascii() and text.isdigit() and text == str(int(text))) or (
                int(text) >= 2**31
            ):
                raise wrong(f"{partition!r} is not a Kafka partition of topic {topic!r}")
            if (
                not isinstance(ends, list | tuple)
                or len(ends) != 2
                or not all(isinstance(end, int) and not isinstance(end, bool) and 0 <= end < 2**63 for end in ends)
                or ends[0] >= ends[1]
            ):
                raise wrong(
                    f"{ends!r} are not two whole numbers from 0, the end exclusive and above the start "
                    f"(topic {topic!r} partition {partition})"
                )
            parsed[topic][int(text)] = (ends[0], ends[1])
    return parsed


def _explicit(source: str, given: object) -> Mapping[str, Any]:
    """The settings of a run below ``kafka_s3``, without None; an unknown name is an error."""
    if given is None:
        return {}
    known = f"its settings are {', '.join(map(repr, _KNOWN))}"
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{source}: kafka_s3={given!r} must be a mapping; {known}")
    unknown = sorted(str(name) for name in given if name not in _KNOWN)
    if unknown:
        hint = or_nearest(unknown[0], _KNOWN, known)
        raise ConfigurationError(f"{source}: kafka_s3 has no {', '.join(map(repr, unknown))}{hint}")
    explicit = {name: value for name, value in given.items() if value is not None}
    if explicit.keys() >= {"window", "offsets"}:
        raise ConfigurationError(f"{source}: kafka_s3 has both window and offsets; give one of them")
    return explicit


def _refuse_misplaced(conf: Mapping[str, Any]) -> None:
    """Refuse an action, a window or offsets beside ``kafka_s3``: the run would ignore them and succeed.

    ``conf`` is for all tasks of the DAG, so only values in the form of an action, a window or offsets are refused.
    """
    for name in conf:
        if name != _OURS and name.lower().replace("-", "_") == _OURS:
            raise ConfigurationError(f"conf: {name!r} is not known; did you mean {_OURS!r}?")
    for name, has_its_form in ((_ACTION, _is_action), ("window", _is_window), ("offsets", _is_offsets)):
        if has_its_form(value := conf.get(name)):
            corrected = json.dumps({_OURS: {name: value}}, default=str)
            raise ConfigurationError(
                f"conf: {name!r} has to be in {_OURS!r}: write {corrected}. If it is for another task of the DAG, give "
                f"it another name"
            )


def _is_action(value: object) -> bool:
    return isinstance(value, str) and value in _ACTIONS


def _is_window(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_time, value))


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, datetime) or (isinstance(value, str) and bool(datetime.fromisoformat(value)))
    except ValueError:
        return False


def _is_offsets(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(of, Mapping) for of in value.values())


def _time(source: str, at: object) -> datetime:
    time = parse_time(f"{source}: kafka_s3.window: ", at)
    # A year of distance from the end of the calendar, for conversions to UTC. Kafka has no records from before 1970.
    if not 1970 <= time.year <= 9998 or time.utctimetuple().tm_year < 1970:
        raise ConfigurationError(f"{source}: kafka_s3.window: {time.isoformat()!r} is not in the years 1970 to 9998")
    return time


def _has_interval(context: Context) -> bool:
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    return start is not None and end is not None and start < end


def _data_interval(context: Context) -> tuple[datetime, datetime]:
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        how = _schedule_with(context)
        raise ConfigurationError(f"this run has no data interval, with offsets='data_interval'; {how}")
    if start >= end:
        raise ConfigurationError(
            f"the data interval of this run is empty: [{start.isoformat()}, {end.isoformat()}), with "
            f"offsets='data_interval'; {_schedule_with(context)}"
        )
    return start, end


def _schedule_with(context: Context | None = None) -> str:
    """How a run gets a data interval: the schedule of the DAG as one that makes them, and the conf of a single run."""
    dag, end = (None, None) if context is None else (context.get("dag"), context.get("data_interval_end"))
    schedule = getattr(dag, "schedule", None) or getattr(dag, "schedule_interval", None)
    cron = schedule if isinstance(schedule, str) and schedule not in ("@once", "@continuous") else "@daily"
    window = _EXAMPLE if end is None else (end - _DAY, end)
    conf = json.dumps({"kafka_s3": {"window": [time.isoformat() for time in window]}})
    return (
        f"schedule the DAG with CronDataIntervalTimetable({cron!r}, timezone='UTC') of airflow.timetables.interval, or "
        f"another timetable that makes data intervals (on Airflow 3 the plain schedule {cron!r} makes none), or with "
        f"CronPartitionTimetable (Airflow 3.2 and later); trigger a single run with the conf {conf}; or use "
        f"offsets='incremental'"
    )


def _partition_window(
    partition: compat.RunPartition, partitioner: Partitioner | None, settings: Window
) -> tuple[datetime, datetime]:
    """The window of a partition: from its date, for its length. Whole days are calendar days, of 23 to 25 hours."""
    from airflow_provider_kafka_s3.layout.zones import load_zone

    links = partitioner.partitioners if isinstance(partitioner, Chain) else (partitioner,)
    by_time = next((link for link in links if isinstance(link, ByTime)), None)
    length = settings.partition_length or (timedelta(milliseconds=by_time.duration_ms) if by_time is not None else None)
    if length is None:
        raise ConfigurationError(
            f"the length of the partition {partition.key or partition.date} of this run is unknown: the partitioner "
            f"has no duration. Set its length: window={{'partition_length': timedelta(hours=1)}}"
        )
    zone = load_zone(settings.timezone or (by_time.timezone if by_time is not None else "UTC"))
    start = partition.date
    if start is None:
        try:
            start = datetime.fromisoformat(partition.key or "")
        except ValueError:
            raise ConfigurationError(
                f"the partition key of this run is not a time: {partition.key!r}, with offsets='data_interval'; "
                f"{_schedule_with()}"
            ) from None
    if start.tzinfo is None:
        start = start.replace(tzinfo=zone)
    # Airflow's times are pendulum's. Those of the standard library add days in local time, and hours in UTC.
    start = EPOCH + timedelta(seconds=calendar.timegm(start.utctimetuple()), microseconds=start.microsecond)
    if length % _DAY:
        return start, start + length
    local = start.astimezone(zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    # A day without midnight, when clocks are set forward, begins later, and ends at midnight like others.
    local = midnight if midnight.astimezone(UTC) == start else local
    return start, (local + length).astimezone(UTC)


def _require_past(source: str, end: datetime, now: datetime, hint: str) -> None:
    if end <= now + _CLOCK_SKEW:
        return
    early = (
        f"the window of this run ends in the future, at {end.isoformat()} ({source}; it is {now.isoformat()} now), so "
        f"more records may follow"
    )
    if end <= now + _CURED_BY_WAITING:
        raise TransientError(f"{early}; a retry will succeed after its end. Check the clocks of worker and scheduler")
    raise ConfigurationError(
        f"{early}; {hint}, or allow it to be read to the current end: window={{'allow_open': True}}"
    )


def _instants(window: tuple[int, int]) -> tuple[datetime, datetime]:
    return EPOCH + timedelta(milliseconds=window[0]), EPOCH + timedelta(milliseconds=window[1])


def _milliseconds(when: datetime) -> int:
    # With integers, since differences of pendulum's times cannot be divided by a timedelta. Rounded up, since records
    # have timestamps in whole milliseconds.
    return calendar.timegm(when.utctimetuple()) * 1000 - (-when.microsecond // 1000)
