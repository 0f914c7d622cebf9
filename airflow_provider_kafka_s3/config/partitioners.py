"""Partitioners: how a record chooses its encoded partition, the folders between topic and file name."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, get_args

from msgspec import Meta, field, structs

from airflow_provider_kafka_s3.config.extensions import (
    ImportPath,
    Options,
    Pinned,
    check_import_path,
    checked_options,
    hash_of_class,
)
from airflow_provider_kafka_s3.config.values import TAG, Value, make_value, reject_control_characters, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "DAY_MS",
    "ROOT_LOCALE",
    "ByField",
    "ByKey",
    "ByPartition",
    "ByTime",
    "Chain",
    "ClockTime",
    "CustomPartitioner",
    "Daily",
    "FieldTime",
    "Hourly",
    "Partitioner",
    "RecordTime",
    "TimePattern",
    "TimeUnit",
    "TimestampFrom",
    "parse_partitioner",
    "require_timezone",
]

ROOT_LOCALE: Final = "root"
"""The locale of short English names, as Kafka Connect has it for a locale with a region, such as ``en-US``."""
DAY_MS: Final = 86_400_000
"""Milliseconds of a day without a change of its zone's UTC offset."""
_LONGEST: Final = 10_000 * 365 * DAY_MS

V = TypeVar("V", bound=Value)

PathFormat = Annotated[str, Meta(min_length=1, examples=["'year'=YYYY/'month'=MM"])]
Duration = Annotated[
    int, Meta(ge=1, le=_LONGEST, description="milliseconds", extra={"why": f"a duration; a day has {DAY_MS}"})
]


MaxValueBytes = Annotated[
    int,
    Meta(ge=80, le=800, description="bytes", extra={"why": "a key has 1,024 at most, a digest of a value takes 65"}),
]
TimeUnit = Literal["s", "ms", "us", "ns"]


class RecordTime(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="record"):
    """The timestamp of the Kafka record."""


class FieldTime(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="field"):
    """The time in a field of the value: a number, a text of ISO 8601, or a timestamp or date of the schema.

    Attributes:
        name: of the field; names of nested fields have dots between them, such as ``event.time``.
        unit: of numbers, counted from 1970 in UTC, and of texts of digits alone. Timestamps of a schema, and
            Debezium's types of times, have the unit of the schema.
    """

    name: Annotated[str, Meta(examples=["event.time"])]
    unit: TimeUnit = "ms"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_field_name("timestamp_from: name", self.name)


class ClockTime(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="wallclock"):
    """The time at which the batch is planned, the same for all its records.

    Attributes:
        at_ms: this time in milliseconds since 1970, which the plan of a batch has, so that its objects keep their
            names. Not set in a DAG.
    """

    at_ms: int | None = None


TimestampFrom: TypeAlias = RecordTime | FieldTime | ClockTime
"""Where a partitioner by time has the time of a record from."""


class ByPartition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="partition"):
    """By the Kafka partition: ``partition=0``."""


class ByField(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="field"):
    """By one or more fields of the value: ``country=NO/user.age=42``.

    Texts, whole numbers, booleans, enums, decimals, dates and timestamps of a schema can be in a path; other values
    cannot, and their records are not written (see ``errors`` of the operator).

    Attributes:
        names: of the fields, in the order of the folders; names of nested fields, and keys of maps, have dots between
            them, such as ``user.address.city``.
        missing: what a record does without such a field: ``fail`` makes it a record that cannot be written; ``null``
            puts it into the folder of null.
        max_value_bytes: a value of more bytes is cut, and a digest of it appended.
    """

    names: tuple[str, ...]
    missing: Literal["fail", "null"] = "fail"
    max_value_bytes: MaxValueBytes = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        structs.force_setattr(self, "names", tuple(self.names))
        require(bool(self.names), "names of fields are missing; name one at least, such as ['country']")
        for name in self.names:
            _require_field_name("names", name)
        require(len(set(self.names)) == len(self.names), f"names={list(self.names)} has a field twice; name it once")


class ByKey(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="key"):
    """By the key of the record, as text: ``key=customer-7``.

    Attributes:
        max_value_bytes: a key of more bytes is cut, and a digest of it appended.
    """

    max_value_bytes: MaxValueBytes = 200


class ByTime(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By the time of the record.

    Attributes:
        timezone: IANA name of the zone whose days and hours count.
        timestamp_from: where the time is from: the timestamp of the Kafka record, a field of the value, or the clock.
    """

    timezone: str = "UTC"
    timestamp_from: TimestampFrom = RecordTime()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_timezone(self.timezone)


class Daily(ByTime, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="daily"):
    """By the day of the record: ``year=2026/month=01/day=02``.

    Attributes:
        timezone: IANA name of the zone whose days count.
        timestamp_from: where the time is from.
    """

    duration_ms: ClassVar[int] = DAY_MS


class Hourly(ByTime, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="hourly"):
    """By the hour of the record: ``year=2026/month=01/day=02/hour=03``.

    Attributes:
        timezone: IANA name of the zone whose hours count.
        timestamp_from: where the time is from.
    """

    duration_ms: ClassVar[int] = DAY_MS // 24


class TimePattern(ByTime, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="time"):
    """By a pattern that is applied to the record's time, cut down to a multiple of a duration.

    Attributes:
        path_format: Joda pattern of the encoded partition, such as ``'year'=YYYY/'month'=MM``.
        duration_ms: width of one time bucket in milliseconds.
        timezone: IANA name of the zone of the times in the pattern.
        timestamp_from: where the time is from.
        locale: code of the language of names of months, days and zones, such as ``fr``; ``root``: short English names,
            which Kafka Connect writes with a locale that has a region, such as ``en-US``.
    """

    path_format: PathFormat
    duration_ms: Duration
    locale: Annotated[str, Meta(min_length=1, examples=["fr"])] = ROOT_LOCALE


class CustomPartitioner(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="custom"):
    """By a class of your own package, which derives from ``airflow_provider_kafka_s3.extensions.Partitioner``.

    Attributes:
        import_path: of the class, such as ``mycompany_layouts.tenant:TenantPartitioner``. Airflow's workers and Spark's
            executors have to be able to import it.
        options: keyword arguments of the class: texts, whole numbers, booleans, None, and lists and mappings of these.
        pinned: what the class declares, which the plan of a batch has. Not set in a DAG.
    """

    import_path: ImportPath
    options: Options = field(default_factory=dict)
    pinned: Pinned | None = None

    def __hash__(self) -> int:
        return hash_of_class(self.import_path, self.options)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_import_path(self.import_path)
        structs.force_setattr(self, "options", checked_options(self.options))


_Link: TypeAlias = ByPartition | ByField | ByKey | Daily | Hourly | TimePattern | CustomPartitioner


class Chain(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="chain"):
    """By several partitioners, one folder after another: ``country=NO/year=2026/month=01/day=02``.

    Attributes:
        partitioners: two or more, in the order of the folders; at most one of each kind and one by time, but any
            number of classes of your own.
    """

    partitioners: tuple[_Link, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        structs.force_setattr(self, "partitioners", tuple(self.partitioners))
        require(
            len(self.partitioners) > 1, f"partitioners={self.partitioners!r} needs two or more; use the only one itself"
        )
        own = CustomPartitioner
        kinds = [ByTime if isinstance(p, ByTime) else type(p) for p in self.partitioners if not isinstance(p, own)]
        require(
            len(set(kinds)) == len(kinds),
            "partitioners has two of one kind: several fields are the names of one ByField, several parts of a time "
            "the path_format of one TimePattern",
        )


Partitioner: TypeAlias = ByPartition | ByField | ByKey | Daily | Hourly | TimePattern | Chain | CustomPartitioner
"""All partitioners; :func:`airflow_provider_kafka_s3.layout.partitioners.make_partitioner` applies them."""

_LINKS: Final[tuple[type[_Link], ...]] = get_args(_Link)
_PARTITIONERS: Final[tuple[type[Partitioner], ...]] = get_args(Partitioner)
_TIMESTAMPS: Final[tuple[type[TimestampFrom], ...]] = get_args(TimestampFrom)


def parse_partitioner(given: Partitioner | Mapping[str, Any] | str) -> Partitioner:
    """A partitioner, a mapping of its ``kind`` and its fields, or the ``kind`` alone.

    Raises:
        ConfigurationError: it is anything else.
    """
    settings = given
    if isinstance(given, Mapping) and isinstance(given.get("partitioners"), list | tuple):
        settings = {**given, "partitioners": tuple(_parse("partitioners", _LINKS, p) for p in given["partitioners"])}
    return _parse("partitioner", _PARTITIONERS, settings)


def _parse(name: str, kinds: Sequence[type[V]], given: Any) -> V:
    settings = given
    if isinstance(settings, Mapping) and "timestamp_from" in settings:
        settings = {**settings, "timestamp_from": make_value("timestamp_from", _TIMESTAMPS, settings["timestamp_from"])}
    if isinstance(settings, Mapping) and isinstance(settings.get("names"), str):
        settings = {**settings, "names": (settings["names"],)}
    return make_value(name, kinds, settings)


def _require_field_name(parameter: str, name: str) -> None:
    reject_control_characters(parameter, name)
    require(
        all(name.split(".")),
        f"{parameter}={name!r} is no name of a field: names of nested fields have one dot between them, such as "
        f"'user.address.city'",
    )
    require(
        not name.startswith(("_kafka_s3", "_dead_letters")),
        f"{parameter}={name!r}: folders that begin with _kafka_s3 or _dead_letters are for other objects",
    )


def require_timezone(name: str) -> None:
    """Refuse the name of a time zone that does not exist.

    Raises:
        ConfigurationError: the zone database does not have it.
    """
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise ConfigurationError(
            f"timezone={name!r} is not in the zone database; use an IANA name such as 'Europe/Berlin'"
        ) from e
