"""Which object a record belongs to: partitioner, rotation, names."""

from __future__ import annotations

from typing import Any, Final

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.config.sizes import MAX_PARTS
from airflow_provider_kafka_s3.config.values import make_value
from airflow_provider_kafka_s3.kafka_connect.settings_reader import SettingsReader, own_class
from airflow_provider_kafka_s3.layout.locales import connect_locale
from airflow_provider_kafka_s3.layout.patterns import compile_pattern

__all__ = ["naming", "partitioner", "rotation"]

_PARTITIONERS: Final = {
    f"io.confluent.connect.storage.partitioner.{name}": kind
    for name, kind in (
        ("DefaultPartitioner", "partition"),
        ("FieldPartitioner", "field"),
        ("TimeBasedPartitioner", "time"),
        ("DailyPartitioner", "daily"),
        ("HourlyPartitioner", "hourly"),
    )
}
_OF_TIME: Final = "io.confluent.connect.storage.partitioner.TimeBasedPartitioner$"
_EXTRACTORS: Final = {
    **{name: name for name in ("Wallclock", "Record", "RecordField")},
    **{f"{_OF_TIME}{name}TimestampExtractor": name for name in ("Wallclock", "Record", "RecordField")},
}

_SPARES: Final = 1_000
"""Parts of an object that a layout keeps free."""


def partitioner(reader: SettingsReader) -> config.Partitioner | None:
    """The partitioner."""
    default = "io.confluent.connect.storage.partitioner.DefaultPartitioner"
    known = ", ".join(name.rpartition(".")[2] for name in _PARTITIONERS)
    remedy = f"use one of {known}, or a Chain of them here; or your own class, in Python: {own_class('partitioner')}"
    kind = reader.one_class("partitioner.class", _PARTITIONERS, default, remedy)
    of_time = ("timezone", "locale", "timestamp.extractor", "timestamp.field")
    of_pattern = ("path.format", "partition.duration.ms")
    settings: dict[str, Any] = {"kind": kind}
    if kind == "field":
        settings["names"] = reader.names("partition.field.name")
    else:
        reader.without_effect(["partition.field.name"], "it belongs to the FieldPartitioner")
    if kind in ("time", "daily", "hourly"):
        settings |= _time(reader)
    else:
        reader.without_effect((*of_time, *of_pattern), "it belongs to partitioners by time")
    if kind == "time":
        delim = reader.text("directory.delim", "/") or "/"
        path_format = reader.text("path.format").removesuffix(delim)
        if not path_format:
            reader.refuse("path.format", "is missing: the TimeBasedPartitioner needs it")
            return None
        zone, locale = settings["timezone"], connect_locale(reader.text("locale", config.ROOT_LOCALE))
        reader.attempt("path.format", lambda: compile_pattern(path_format, locale=locale, timezone=zone))
        settings["path_format"] = path_format
        settings["duration_ms"] = reader.number("partition.duration.ms", -1)
        settings["locale"] = locale
        if settings["duration_ms"] <= 0:
            reader.refuse("partition.duration.ms", "must be a positive number of milliseconds, as in Connect")
            return None
    elif kind in ("daily", "hourly"):
        reader.without_effect((*of_pattern, "locale"), "the partitioner has its own pattern, made of numbers")
    if None in settings.values():
        return None
    return reader.attempt("partitioner.class", lambda: config.parse_partitioner(settings))


def _time(reader: SettingsReader) -> dict[str, Any]:
    timezone = reader.required("timezone", "partitioners by time need an IANA name such as 'UTC'")
    by_day = reader.attempt("timezone", lambda: config.Daily(timezone=timezone or "UTC"))
    extractor = reader.one_class(
        "timestamp.extractor", _EXTRACTORS, "Wallclock", "use Wallclock, Record or RecordField"
    )
    kinds = {"Wallclock": "wallclock", "RecordField": "field"}
    source: dict[str, Any] = {"kind": kinds.get(str(extractor), "record")}
    if extractor == "RecordField":
        source["name"] = reader.text("timestamp.field", "timestamp")
    else:
        reader.without_effect(["timestamp.field"], "it belongs to the extractor RecordField")
    return {"timezone": "UTC" if by_day is None else by_day.timezone, "timestamp_from": source}


def rotation(
    reader: SettingsReader, *, partitioner: config.Partitioner | None, part_size: int
) -> config.Rotation | None:
    """Where objects end.

    Args:
        reader: of the settings.
        partitioner: whose times count.
        part_size: of uploads, which limits the size of objects.
    """
    if reader.required("flush.size", "records of an object; Connect needs it as well") is None:
        return None
    settings = {
        "flush_size": reader.number("flush.size", 1),
        "whole_partitions": True,
        "max_bytes": part_size * (MAX_PARTS - _SPARES),
    }
    settings |= _rotation_by_time(reader, partitioner)
    if (most := reader.number("partitioner.max.open.files", -1)) != -1:
        settings["max_open_objects"] = most
    return reader.attempt("flush.size", lambda: make_value("rotation", (config.Rotation,), settings))


def _rotation_by_time(reader: SettingsReader, partitioner: config.Partitioner | None) -> dict[str, Any]:
    names = ("rotate.interval.ms", "rotate.file.on.partition.change")
    interval, on_change = reader.number(names[0], -1), reader.flag(names[1], default=True)
    links = partitioner.partitioners if isinstance(partitioner, config.Chain) else (partitioner,)
    by_time = next((link for link in links if isinstance(link, config.ByTime)), None)
    if interval <= 0:
        reader.without_effect(names[:1], "it is not positive")
        reader.without_effect(names[1:], "it belongs to rotate.interval.ms")
    elif by_time is None:
        reader.without_effect(names, "the partitioner is not one by time")
    elif isinstance(by_time.timestamp_from, config.ClockTime):
        for name in names:
            if name in reader:
                reader.note(name, "no effect: all records of a batch have one time, that of its plan", use="none")
    else:
        return {"rotate_interval_ms": interval, "rotate_on_partition_change": on_change}
    return {}


def naming(reader: SettingsReader) -> config.Naming | None:
    """How names are put together."""
    affixes: dict[str, str | None] = {"NONE": None, "PREFIX": "PREFIX", "SUFFIX": "SUFFIX"}
    settings = {
        "directory_delim": reader.text("directory.delim", "/"),
        "file_delim": reader.text("file.delim", "+"),
        "offset_pad_width": reader.number("filename.offset.zero.pad.width", 10),
        "schema_affix": reader.choice("s3.schema.partition.affix.type", affixes, "NONE"),
        "kafka_connect_names": True,
    }
    return reader.attempt("naming", lambda: make_value("naming", (config.Naming,), settings))
