"""Frozen settings of how records become objects; each validates itself and says the fix.

A ``Layout`` is copied whole into every plan: a batch is finished with the layout it was planned with, whatever the DAG
says by then. Field names are those of Kafka Connect's S3 sink where it has the same setting.
"""

from __future__ import annotations

import re
import unicodedata
import zoneinfo
from typing import Final, Literal

import msgspec

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "KIB",
    "MAX_PARTS",
    "MIB",
    "CompressionName",
    "Format",
    "FormatName",
    "Layout",
    "Partitioner",
    "PartitionerName",
    "Rotation",
]

KIB: Final = 1024
MIB: Final = 1024 * 1024
MAX_PARTS: Final = 10_000
"""Parts of one multipart upload at most (S3 user guide, multipart upload limits)."""
MIN_PART_SIZE: Final = 5 * MIB
"""Size of a part that is not the last, at least (same source)."""
MAX_PART_SIZE: Final = 512 * MIB
"""S3 takes larger ones, but a task holds several parts in memory, and no object of 4 TiB needs them."""

PartitionerName = Literal["default", "daily", "hourly", "time"]
FormatName = Literal["json", "bytes"]
CompressionName = Literal["none", "gzip"]
OnNull = Literal["fail", "ignore"]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigurationError(message)


def _reject_control_characters(name: str, value: str) -> None:
    bad = [c for c in value if unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn")]
    _require(not bad, f"{name}={value!r} has characters that no object key should have: {bad!r}; remove them")


class Partitioner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a record chooses its encoded partition.

    Attributes:
        kind: ``default`` (``partition=<Kafka partition>``), ``daily``, ``hourly``, or ``time`` (your own pattern).
        timezone: IANA name of the zone whose days and hours count.
        path_format: Joda pattern of the encoded partition, such as ``'year'=YYYY/'month'=MM`` (``time`` only).
        duration_ms: width of one time bucket in milliseconds (``time`` only).
    """

    kind: PartitionerName = "default"
    timezone: str = "UTC"
    path_format: str | None = None
    duration_ms: int | None = None

    def __post_init__(self) -> None:
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
            raise ConfigurationError(
                f"timezone={self.timezone!r} is not in the zone database; use an IANA name such as 'Europe/Berlin'"
            ) from e
        if self.kind == "time":
            _require(
                bool(self.path_format),
                "partitioner 'time' has an empty path_format; give a pattern such as \"'year'=YYYY/'month'=MM\"",
            )
            _require(
                self.duration_ms is not None and self.duration_ms > 0,
                f"partitioner 'time' needs a positive duration_ms (a duration in milliseconds), got {self.duration_ms}",
            )
        else:
            _require(
                self.path_format is None and self.duration_ms is None,
                f"path_format and duration_ms belong to partitioner 'time'; remove them or use kind='time', "
                f"not {self.kind!r}",
            )


class Format(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the bytes of an object are.

    Attributes:
        kind: ``json`` (JSON lines; every value has to be valid JSON) or ``bytes`` (values as they are).
        compression: ``none`` or ``gzip``; gzip adds ``.gz`` to the extension.
        compression_level: ISA-L level 0 (fastest) to 3 (smallest).
        separator: what follows every record of ``bytes``, the last included; may be empty.
        extension: of ``bytes``, with its dot.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it.
    """

    kind: FormatName
    compression: CompressionName = "none"
    compression_level: int = 1
    separator: str = "\n"
    extension: str = ".bin"
    on_null: OnNull = "fail"

    def __post_init__(self) -> None:
        _require(
            0 <= self.compression_level <= 3,
            f"compression_level={self.compression_level} is not an ISA-L level; use 0 (fastest) to 3 (smallest)",
        )
        _reject_control_characters("extension", self.extension)
        _require(
            "/" not in self.extension and (self.extension == "" or self.extension.startswith(".")),
            f"extension={self.extension!r} must start with a dot and hold no '/'",
        )

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.json.gz``."""
        base = ".json" if self.kind == "json" else self.extension
        return base + (".gz" if self.compression == "gzip" else "")


class Rotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one object ends and the next begins.

    All rules count from the start of a slice and look at records only, so the same plan cuts the same objects.

    Attributes:
        flush_size: close all open objects of the Kafka partition after this many of its records, over all encoded
            partitions together (as Kafka Connect counts); None: no limit.
        max_bytes: close an object when its uncompressed bytes reach this.
        max_open_objects: objects of a slice that are open at the same time, at most: a record that needs one more
            closes the one that was opened first. Each holds about 300 KiB of the worker's memory while gzip fills it.
    """

    flush_size: int | None = None
    max_bytes: int = 1024 * MIB
    max_open_objects: int = 400

    def __post_init__(self) -> None:
        _require(
            self.flush_size is None or self.flush_size > 0,
            f"flush_size={self.flush_size} must be a positive number of records, or None",
        )
        _require(self.max_bytes > 0, f"max_bytes={self.max_bytes} must be a positive number of bytes")
        _require(
            self.max_open_objects > 0, f"max_open_objects={self.max_open_objects} must be a positive number of objects"
        )


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the names and the bytes of objects.

    Attributes:
        topics_dir: prefix of all keys, without slashes at its ends; may be empty.
        format: see :class:`Format`.
        partitioner: see :class:`Partitioner`.
        rotation: see :class:`Rotation`.
        directory_delim: between the folders of a key.
        file_delim: between topic, partition and offset of a file name.
        topic_prefix: put before the topic, in its folder and in file names, such as ``topic=``: readers skip names that
            begin with ``_`` or ``.``, as names of topics may. Ends in a character that topics are not named with.
        offset_pad_width: offsets in file names are zero-padded to this width; wider ones are not cut.
        part_size: bytes of one part of an upload, 5 MiB at least and 512 MiB at most.
        on_bad_timestamp: what a time partitioner does with a record whose timestamp is no time (none, or outside the
            years 1 to 9999): ``fail`` names the record; any other text is the name of the partition that such records
            go to, in each of its folders: ``year=NAME/month=NAME/day=NAME``. Plans of older versions fail.
        zone_database: version of the time zone database that the plan was made with.
    """

    topics_dir: str = "topics"
    format: Format
    partitioner: Partitioner = Partitioner()
    rotation: Rotation = Rotation()
    directory_delim: str = "/"
    file_delim: str = "+"
    topic_prefix: str = ""
    offset_pad_width: int = 10
    part_size: int = 8 * MIB
    on_bad_timestamp: str = "fail"
    zone_database: str = ""

    def __post_init__(self) -> None:
        for name in ("topics_dir", "directory_delim", "file_delim", "topic_prefix"):
            _reject_control_characters(name, getattr(self, name))
        parts = self.topics_dir.split("/")
        _require(
            self.topics_dir == "" or not any(p in ("", ".", "..") for p in parts),
            f"topics_dir={self.topics_dir!r} must not begin or end with '/', nor hold '//', '.' or '..' as a folder",
        )
        _require(
            not any(p.startswith("_kafka_s3") for p in parts),
            f"topics_dir={self.topics_dir!r}: folders named _kafka_s3 are for control objects; choose another name",
        )
        _require(bool(self.directory_delim), "directory_delim is empty; use '/'")
        _require(bool(self.file_delim), "file_delim is empty; use '+'")
        _require("/" not in self.file_delim, f"file_delim={self.file_delim!r} must not hold '/'")
        _require(
            0 <= self.offset_pad_width <= 20,
            f"offset_pad_width={self.offset_pad_width} must be 0 to 20: Kafka's offsets have 19 digits at most",
        )
        _require(self.part_size >= MIN_PART_SIZE, f"part_size={self.part_size} is below S3's minimum of 5 MiB")
        _require(
            self.part_size <= MAX_PART_SIZE,
            f"part_size={self.part_size} is above 512 MiB, and a task holds several parts in memory; use a smaller "
            f"one, such as the default of 8 MiB, which is enough for objects of 70 GiB",
        )
        self._check_topic_prefix()
        self._check_on_bad_timestamp()
        limit = self.part_size * (MAX_PARTS - 1_000)
        _require(
            self.rotation.max_bytes <= limit,
            f"max_bytes={self.rotation.max_bytes} does not fit into {MAX_PARTS} parts of {self.part_size} bytes; "
            f"use max_bytes of at most {limit} or a larger part_size",
        )

    def _check_topic_prefix(self) -> None:
        prefix = self.topic_prefix
        if prefix == "":
            return
        _require(
            "/" not in prefix and prefix[0] not in "._" and prefix == prefix.strip(),
            f"topic_prefix={prefix!r} must not hold '/', have spaces around it, or begin with '.' or '_': readers skip "
            f"such names. Use a prefix such as 'topic='",
        )
        _require(
            re.fullmatch("[A-Za-z0-9._-]", prefix[-1]) is None,
            f"topic_prefix={prefix!r} ends in a character that topics are named with: the objects of a topic 'x' would "
            f"be named as those of a topic {prefix + 'x'!r}. Use a prefix such as 'topic='",
        )

    def _check_on_bad_timestamp(self) -> None:
        name = self.on_bad_timestamp
        if name == "fail":
            return
        _reject_control_characters("on_bad_timestamp", name)
        wrong = [part for part in ("/", "=", self.directory_delim) if part in name]
        _require(
            not wrong and name.strip(".") != "" and name == name.strip(),
            f"on_bad_timestamp={name!r} has to be 'fail' or the name of one folder, without '/', '=', spaces around it "
            f"or the directory_delim; use '__HIVE_DEFAULT_PARTITION__', which readers of Hive tables take for null",
        )
        _require(
            not name.isdigit(),
            f"on_bad_timestamp={name!r} looks like a part of a time; use a name such as '__HIVE_DEFAULT_PARTITION__'",
        )
        _require(
            not name.startswith("_kafka_s3"),
            f"on_bad_timestamp={name!r}: folders named _kafka_s3 are for control objects; choose another name",
        )
        _require(
            self.partitioner.kind != "default",
            f"on_bad_timestamp={name!r} has no effect: partitioner 'default' looks at no timestamps. Remove it",
        )
