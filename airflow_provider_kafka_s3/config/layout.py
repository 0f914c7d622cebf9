"""The layout of objects: everything that decides their names and their bytes.

A ``Layout`` is copied whole into every plan: a batch is finished with the layout it was planned with, whatever the DAG
has by then. Field names are those of Kafka Connect's S3 sink where it has the same setting.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, assert_never

from msgspec import Meta, structs

from airflow_provider_kafka_s3.config.contents import Content, Envelope, SiblingObjects, ValuesOnly
from airflow_provider_kafka_s3.config.converters import (
    AvroConverter,
    BytesConverter,
    Converter,
    JsonConverter,
    JsonSchemaConverter,
    LandedConverter,
    ProtobufConverter,
    StringConverter,
    needs_registry,
)
from airflow_provider_kafka_s3.config.extensions import RecordPart
from airflow_provider_kafka_s3.config.formats import (
    AvroContainer,
    BlockGzip,
    Csv,
    CustomFormat,
    Format,
    JsonLines,
    Parquet,
    RawBytes,
    record_format,
)
from airflow_provider_kafka_s3.config.naming import (
    DAY_FORMATS,
    DAY_OR_GENERATION,
    RESERVED_FOLDERS,
    DeviantArtNaming,
    KeyNaming,
    Naming,
)
from airflow_provider_kafka_s3.config.partitioners import (
    DAY_MS,
    ByField,
    ByKey,
    ByPartition,
    Chain,
    ClockTime,
    CustomPartitioner,
    Daily,
    FieldTime,
    Hourly,
    Partitioner,
    RecordTime,
    TimePattern,
)
from airflow_provider_kafka_s3.config.sizes import MAX_PART_SIZE, MAX_PARTS, MIB, MIN_PART_SIZE
from airflow_provider_kafka_s3.config.stored import ObjectTags
from airflow_provider_kafka_s3.config.values import Value, reject_control_characters, require
from airflow_provider_kafka_s3.messages import either

__all__ = ["OPEN_ROW_GROUPS", "Compatibility", "Layout", "OnError", "PartSize", "Rotation", "default_partitioner"]

OnError = Literal["fail", "dead_letter"]
Compatibility = Literal["NONE", "BACKWARD", "FORWARD", "FULL"]

OPEN_ROW_GROUPS: Final = 256 * MIB
"""Bytes of the row groups of all Parquet files that a slice has open."""

_FROM_REGISTRY: Final = (AvroConverter, ProtobufConverter, JsonSchemaConverter)


def _converters_of(settings: Format) -> tuple[type[Converter], ...]:
    """The converters whose values a format can encode; the first ones are those that errors recommend."""
    match settings:
        case JsonLines():
            return (JsonConverter, *_FROM_REGISTRY, StringConverter, BytesConverter, LandedConverter)
        case AvroContainer() | Parquet() | Csv():
            return (*_FROM_REGISTRY, JsonConverter, StringConverter, BytesConverter, LandedConverter)
        case RawBytes():
            return (BytesConverter,)
        case CustomFormat():
            return (BytesConverter, JsonConverter)
        case BlockGzip(lines=lines):
            return _converters_of(lines)
    assert_never(settings)


def _holds_records(settings: Format) -> bool:
    """Whether a field of a row may be a record, or a list of them."""
    match settings:
        case JsonLines() | AvroContainer() | Parquet():
            return True
        case RawBytes() | Csv() | CustomFormat():
            return False
        case BlockGzip(lines=lines):
            return _holds_records(lines)
    assert_never(settings)


def _names(kinds: tuple[type[Converter], ...]) -> str:
    return either(str(kind.__struct_config__.tag) for kind in kinds)


PartSize = Annotated[
    int,
    Meta(
        ge=MIN_PART_SIZE,
        le=MAX_PART_SIZE,
        description="bytes",
        extra={
            "why": "S3 takes no parts below 5 MiB, and a task holds several in memory; the default of 8 MiB is enough "
            "for objects of 70 GiB"
        },
    ),
]


class Rotation(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one object ends and the next begins.

    All rules count from the start of a slice and look at records only, so the same plan cuts the same objects. They
    begin anew when all objects of the slice are closed.

    Attributes:
        flush_size: close all open objects of the Kafka partition after this many of its records, over all encoded
            partitions together (as Kafka Connect counts); None: no limit.
        rotate_interval_ms: close all open objects of the Kafka partition before a record whose time is so many
            milliseconds, or more, behind that of the first record since they were closed: Kafka Connect's
            ``rotate.interval.ms``. The time is that of the partitioner, which has to be one by time. None: no limit.
        rotate_on_partition_change: with ``rotate_interval_ms``, also before a record whose encoded partition is not
            that of the record before it: Kafka Connect's ``rotate.file.on.partition.change``, which is true there. Late
            and out-of-order records then make many small objects; without it they share one for each encoded partition.
        whole_partitions: read what a batch lands of a Kafka partition in one slice, so that these rules count from its
            first record on, as in Kafka Connect. One Spark task reads it, however many records there are:
            ``records_per_slice`` of limits has no effect. Offsets that are not contiguous are in a slice each.
        max_bytes: close an object when its uncompressed bytes reach this.
        max_open_objects: objects of a slice that are open at the same time, at most: a record that needs one more
            closes the least recently written one. Each holds about 300 KiB of the worker's memory with gzip or zstd,
            and up to 900 kB with bzip2.
        merge_partitions: let objects hold records of several Kafka partitions, partition after partition: one object
            per encoded partition for all slices that one Spark task reads (``records_per_slice`` of limits in total)
            instead of one per Kafka partition. Each object is named after its first record. Not with ``flush_size``,
            ``rotate_interval_ms`` and ``whole_partitions``, which are rules of one Kafka partition.
    """

    flush_size: Annotated[int, Meta(ge=1, description="records")] | None = None
    rotate_interval_ms: Annotated[int, Meta(ge=1, description="milliseconds")] | None = None
    rotate_on_partition_change: bool = False
    whole_partitions: bool = False
    max_bytes: Annotated[int, Meta(ge=1, description="bytes")] = 1024 * MIB
    max_open_objects: Annotated[int, Meta(ge=1, description="objects")] = 400
    merge_partitions: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {"flush_size": self.flush_size, "rotate_interval_ms": self.rotate_interval_ms}
        limits = {name: value for name, value in counts.items() if value is not None}
        require(
            not self.merge_partitions or not limits,
            f"merge_partitions does not go with {' and '.join(limits)}, which count from the first record of a Kafka "
            f"partition; remove that, and use max_bytes to end objects",
        )
        require(
            not self.merge_partitions or not self.whole_partitions,
            "merge_partitions does not go with whole_partitions, which gives each Kafka partition a slice of its own; "
            "remove one of the two",
        )


def default_partitioner(naming: KeyNaming) -> Partitioner:
    """The partitioner of a naming if none is given."""
    if isinstance(naming, DeviantArtNaming):
        return TimePattern(path_format=DAY_FORMATS[0], duration_ms=DAY_MS, timezone="UTC")
    return ByPartition()


class Layout(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the names and the bytes of objects.

    Attributes:
        topics_dir: prefix of all keys, without slashes at its ends; may be empty.
        format: what the bytes of objects are.
        value_converter: what the bytes of values are; None: JSON for JSON lines, bytes for raw bytes and
            for formats of other packages.
        key_converter: what the bytes of keys are, if the content has keys.
        content: what of a record is written.
        partitioner: how a record chooses its folder.
        rotation: where one object ends and the next begins.
        naming: how the parts of a key are put together: :class:`Naming` or :class:`DeviantArtNaming`.
        part_size: bytes of one part of an upload, 5 MiB at least and 512 MiB at most.
        errors: what happens to a record that cannot be written: ``fail`` names it, and nothing of its batch is landed;
            ``dead_letter`` writes it, as it is in Kafka, to an object below ``_dead_letters`` of the topic's folder,
            with the reason.
        on_bad_timestamp: what a time partitioner does with a record whose timestamp is no time (none, or outside the
            years 1 to 9999): ``fail`` names the record; any other text is the name of the partition that such records
            go to, in each of its folders: ``year=NAME/month=NAME/day=NAME``.
        zone_database: version of the time zone database that the plan was made with.
        schema_compatibility: what a record does whose schema is not that of the open object: ``NONE`` closes all open
            objects of the Kafka partition; with ``BACKWARD``, ``FORWARD`` and ``FULL`` it is projected to the schema of
            the object where versions and schemas allow it, and closes them otherwise, as in Kafka Connect. None: each
            schema has an open object of its own, and nothing is projected.
        tags: of the objects.
        encryption: of the store, at the time of the plan: a kind, and the id or the digest of the key; information.
    """

    topics_dir: str = "topics"
    format: Format
    value_converter: Converter | None = None
    key_converter: Converter = BytesConverter()
    content: Content = ValuesOnly()
    partitioner: Partitioner = ByPartition()
    rotation: Rotation = Rotation()
    naming: KeyNaming = Naming()
    part_size: PartSize = 8 * MIB
    errors: OnError = "fail"
    on_bad_timestamp: str = "fail"
    zone_database: str = ""
    schema_compatibility: Compatibility | None = None
    tags: ObjectTags = ObjectTags()
    encryption: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_control_characters("topics_dir", self.topics_dir)
        parts = self.topics_dir.split("/")
        require(
            self.topics_dir == "" or not any(p in ("", ".", "..") for p in parts),
            f"topics_dir={self.topics_dir!r} must not begin or end with '/', nor hold '//', '.' or '..' as a folder",
        )
        require(
            not any(p.startswith("_kafka_s3") for p in parts),
            f"topics_dir={self.topics_dir!r}: folders named _kafka_s3 are for control objects; choose another name",
        )
        if self.value_converter is None:
            # A plan holds the converter itself, so that it does not depend on the default of another version.
            structs.force_setattr(self, "value_converter", self._default_converter())
        self._check_converter("value_converter", self.value_converter, "format", self.record_format)
        self._check_content()
        self._check_schema_compatibility()
        self._check_partitioner()
        self._check_on_bad_timestamp()
        self._check_merge_partitions()
        self._check_rotation_by_time()
        self._check_days()
        limit = self.part_size * (MAX_PARTS - 1_000)
        require(
            self.rotation.max_bytes <= limit,
            f"max_bytes={self.rotation.max_bytes} does not fit into {MAX_PARTS} parts of {self.part_size} bytes; "
            f"use max_bytes of at most {limit} or a larger part_size",
        )

    def _default_converter(self) -> Converter:
        lines = self.record_format
        require(
            isinstance(lines, JsonLines | RawBytes | CustomFormat),
            f"{self.format!r} needs value_converter, what the bytes of values are: {_names(_converters_of(lines))}",
        )
        return JsonConverter() if isinstance(lines, JsonLines) else BytesConverter()

    @property
    def record_format(self) -> Format:
        """How a record is written: the format, or that of the lines in blocks."""
        return record_format(self.format)

    @property
    def has_index(self) -> bool:
        """Whether each object of values has an index beside it."""
        return isinstance(self.format, BlockGzip)

    def _check_converter(self, name: str, converter: Converter | None, place: str, settings: Format) -> None:
        kinds = _converters_of(settings)
        require(
            not isinstance(converter, JsonConverter)
            or isinstance(settings, JsonLines | CustomFormat)
            or converter.has_schema,
            f"{name}='json' needs a schema with {place}={settings!r}: JsonConverter(schema=...) with the schema "
            f"of the documents",
        )
        require(
            not isinstance(settings, CustomFormat)
            or not isinstance(converter, JsonConverter)
            or not converter.has_schema,
            f"{name}={converter!r} converts values by their schema, and {place}={settings!r} gets their bytes; use "
            f"{name}='json' or 'bytes'",
        )
        require(
            isinstance(converter, kinds),
            f"{name}={converter!r} does not go with {place}={settings!r}; use {_names(kinds)}",
        )

    def _check_content(self) -> None:
        content = self.content
        require(
            isinstance(content, ValuesOnly) or not isinstance(self.value_converter, LandedConverter),
            "value_converter='landed' has values only, since files of values have nothing else; use content='values'",
        )
        require(
            not isinstance(self.key_converter, LandedConverter),
            "key_converter='landed' has no keys: only the values of files with a schema are read again",
        )
        match content:
            case Envelope():
                require(
                    _holds_records(self.format),
                    "content='envelope' needs a format whose fields may be records; use format='json', 'avro' or "
                    "'parquet'",
                )
                self._check_converter("key_converter", self.key_converter, "format", self.record_format)
            case SiblingObjects(keys=keys) if keys is not None:
                self._check_converter("key_converter", self.key_converter, "keys", keys)
        if isinstance(content, SiblingObjects):
            extension = content.ambiguous(self.format)
            require(
                extension is None, f"extension={extension!r} is that of objects beside those of values; use another"
            )
        require(
            self.has_keys or self.key_converter == BytesConverter(),
            f"key_converter={self.key_converter!r} has no effect, as no keys are written; remove it, or use "
            f"content='envelope' or 'siblings'",
        )
        require(
            self.has_keys or self.format.on_null != "write" or isinstance(self.format, CustomFormat),
            "on_null='write' writes the keys of null values, and no keys are written; use content='envelope' or "
            "'siblings'",
        )

    @property
    def has_keys(self) -> bool:
        """Whether keys are written."""
        content = self.content
        return isinstance(content, Envelope) or (isinstance(content, SiblingObjects) and content.keys is not None)

    @property
    def needs_registry(self) -> bool:
        """Whether schemas of a registry are needed."""
        return needs_registry(self.value_converter) or needs_registry(self.key_converter)

    def _check_schema_compatibility(self) -> None:
        mode, converter = self.schema_compatibility, self.value_converter
        require(
            mode is None or self.has_typed_values,
            f"schema_compatibility={mode!r} needs values with a schema, and {converter!r} has none: use "
            f"value_converter='avro' or JsonConverter(schemas_enable=True), or remove it",
        )
        require(
            mode in (None, "NONE") or not isinstance(converter, JsonConverter) or converter.schemas_enable,
            f"schema_compatibility={mode!r} compares the versions of schemas, and the declared schema of "
            f"value_converter is the only one and has no version. Remove it",
        )
        require(
            not isinstance(converter, LandedConverter) or (mode in (None, "NONE") and self.naming.schema_affix is None),
            f"value_converter='landed' has the schemas of files, whose versions and names in a registry are unknown: "
            f"remove schema_compatibility={mode!r}, and schema_affix of naming",
        )
        keys = self.content.keys if isinstance(self.content, SiblingObjects) else None
        several = needs_registry(self.key_converter) or (
            isinstance(self.key_converter, JsonConverter) and self.key_converter.schemas_enable
        )
        require(
            mode is None or not several or keys is None or isinstance(keys, JsonLines | RawBytes),
            f"schema_compatibility={mode!r} compares the schemas of values, and keys={keys!r} has one schema of "
            f"key_converter={self.key_converter!r} in an object. Use keys='json', or remove schema_compatibility",
        )

    @property
    def max_open_objects(self) -> int:
        """Objects of a slice that are open at the same time, at most; of Parquet files also by their memory."""
        most = self.rotation.max_open_objects
        if isinstance(self.format, Parquet):
            most = min(most, max(1, OPEN_ROW_GROUPS // self.format.row_group_bytes))
        return most

    @property
    def has_typed_values(self) -> bool:
        """Whether values are converted by their schemas."""
        if isinstance(self.record_format, RawBytes | CustomFormat):
            return False
        return not isinstance(self.value_converter, JsonConverter) or self.value_converter.has_schema

    @property
    def distinguishes_schemas(self) -> bool:
        """Whether names and versions of schemas decide which object a record goes to."""
        return self.schema_compatibility is not None or self.naming.schema_affix is not None

    @property
    def whole_records(self) -> bool:
        """Whether keys and headers are read as well."""
        return (
            self.errors == "dead_letter"
            or not isinstance(self.content, ValuesOnly)
            or any(isinstance(p, ByKey) for p in self.partitioners)
            or not {"key", "headers"}.isdisjoint(self._read_by_extensions)
        )

    @property
    def extensions(self) -> tuple[CustomPartitioner | CustomFormat, ...]:
        """The partitioners and the format that are classes of other packages."""
        return tuple(x for x in (*self.partitioners, self.format) if isinstance(x, CustomPartitioner | CustomFormat))

    @property
    def _read_by_extensions(self) -> frozenset[RecordPart]:
        """Parts of records that classes of other packages look at, as far as they are pinned."""
        return frozenset(part for x in self.extensions if x.pinned is not None for part in x.pinned.reads)

    @property
    def partitioners(self) -> tuple[Partitioner, ...]:
        """The partitioner, or those of a chain."""
        return self.partitioner.partitioners if isinstance(self.partitioner, Chain) else (self.partitioner,)

    @property
    def by_time(self) -> Daily | Hourly | TimePattern | None:
        """The partitioner by time, if there is one."""
        return next((p for p in self.partitioners if isinstance(p, Daily | Hourly | TimePattern)), None)

    @property
    def reads_timestamps(self) -> bool:
        """Whether the partitioner, or a class of another package, looks at timestamps of Kafka records."""
        by_time = self.by_time is not None and isinstance(self.by_time.timestamp_from, RecordTime)
        return by_time or "timestamp" in self._read_by_extensions

    @property
    def field_names(self) -> tuple[str, ...]:
        """The fields of values that the partitioner looks at; those of classes of other packages are pinned."""
        names = [*self._named_fields]
        for p in self.partitioners:
            if isinstance(p, CustomPartitioner) and p.pinned is not None:
                names += p.pinned.fields
        return tuple(dict.fromkeys(names))

    @property
    def _named_fields(self) -> tuple[str, ...]:
        """The fields of values that are named by settings."""
        names = [name for p in self.partitioners if isinstance(p, ByField) for name in p.names]
        if self.by_time is not None and isinstance(self.by_time.timestamp_from, FieldTime):
            names.append(self.by_time.timestamp_from.name)
        return tuple(dict.fromkeys(names))

    def at(self, now_ms: int) -> Layout:
        """The layout of a batch that is planned now: with this time, if its partitioner has the time of the clock."""
        if self.by_time is None or not isinstance(self.by_time.timestamp_from, ClockTime):
            return self
        by_time = self.by_time
        pinned: Partitioner = structs.replace(by_time, timestamp_from=ClockTime(at_ms=now_ms))
        if isinstance(self.partitioner, Chain):
            links = tuple(pinned if link is by_time else link for link in self.partitioner.partitioners)
            pinned = structs.replace(self.partitioner, partitioners=links)
        return structs.replace(self, partitioner=pinned)

    def _check_partitioner(self) -> None:
        fields = self.field_names
        require(
            not fields or isinstance(self.value_converter, (JsonConverter, *_FROM_REGISTRY)),
            f"the partitioner looks at the fields {', '.join(fields)}, and {self.value_converter!r} has values without "
            f"fields; use value_converter='json' or one with a schema",
        )
        delim, kinds = self.naming.directory_delim, [type(p) for p in self.partitioners]
        require(
            not {ByField, ByKey}.intersection(kinds) or re.search("[%=A-Za-z0-9]", delim) is None,
            f"directory_delim={delim!r} has characters of names, so folders of values would be ambiguous; use '/'",
        )
        named = self._named_fields
        folded = [name.lower() for name in named] if self.naming.lowercase_paths else []
        require(
            len(set(folded)) == len(folded),
            f"lowercase_paths gives two of the fields {', '.join(named)} the same folders; rename one of them",
        )

    def _check_merge_partitions(self) -> None:
        merges = self.rotation.merge_partitions
        require(
            not merges or not any(isinstance(p, ByPartition) for p in self.partitioners),
            "merge_partitions has no effect with the partitioner 'partition', whose folders are those of one Kafka "
            "partition each; use a partitioner by time, field or key, or remove merge_partitions",
        )
        require(
            not merges or not self.tags.offsets,
            "merge_partitions does not go with offset_tags: objects with records of several Kafka partitions have "
            "several first and last offsets, which are in the manifest. Remove one of the two",
        )
        require(
            not merges or not self.has_index,
            "merge_partitions does not go with format='block_gzip': its index has the offsets of one Kafka partition. "
            "Remove merge_partitions, or use format='json' with compression='gzip'",
        )

    def _check_rotation_by_time(self) -> None:
        interval, by_time = self.rotation.rotate_interval_ms, self.by_time
        require(
            interval is not None or not self.rotation.rotate_on_partition_change,
            "rotate_on_partition_change has no effect without rotate_interval_ms: set it, too, or remove both",
        )
        require(
            interval is None or (by_time is not None and not isinstance(by_time.timestamp_from, ClockTime)),
            f"rotate_interval_ms={interval} needs the times of records, and the partitioner looks at none. Use a "
            f"partitioner by time, such as 'hourly', with the time of the record or of a field (timestamp_from); or "
            f"remove rotate_interval_ms",
        )

    def _check_days(self) -> None:
        """Whether DeviantArt's names get the one folder that is in them."""
        if not isinstance(self.naming, DeviantArtNaming):
            return
        by_time = self.partitioner
        require(
            isinstance(by_time, TimePattern) and by_time.path_format in DAY_FORMATS,
            f"naming='deviantart' has one folder for each day, such as 2026-01-31, and the partitioner {by_time!r} "
            f"makes other folders; remove it, or use TimePattern with path_format='yyyy-MM-dd'",
        )
        require(
            not isinstance(by_time, TimePattern) or not isinstance(by_time.timestamp_from, ClockTime),
            "naming='deviantart' does not go with the time of the clock: a batch that is planned again on another day "
            "would have other names. Use the time of the record or of a field (timestamp_from)",
        )
        require(
            not self.rotation.merge_partitions,
            "naming='deviantart' does not go with merge_partitions: its index and its marker files are those of one "
            "Kafka partition. Remove one of the two",
        )
        name = self.on_bad_timestamp
        require(
            name not in RESERVED_FOLDERS and DAY_OR_GENERATION.fullmatch(name) is None,
            f"on_bad_timestamp={name!r} is the name of another folder of naming='deviantart'; use a name such as "
            f"'__HIVE_DEFAULT_PARTITION__'",
        )

    def _check_on_bad_timestamp(self) -> None:
        name = self.on_bad_timestamp
        if name == "fail":
            return
        reject_control_characters("on_bad_timestamp", name)
        wrong = [part for part in ("/", "=", self.naming.directory_delim) if part in name]
        require(
            not wrong and name.strip(".") != "" and name == name.strip(),
            f"on_bad_timestamp={name!r} has to be 'fail' or the name of one folder, without '/', '=', spaces around it "
            f"or the directory_delim; use '__HIVE_DEFAULT_PARTITION__', which readers of Hive tables take for null",
        )
        require(
            not name.isdigit(),
            f"on_bad_timestamp={name!r} looks like a part of a time; use a name such as '__HIVE_DEFAULT_PARTITION__'",
        )
        require(
            not name.startswith("_kafka_s3"),
            f"on_bad_timestamp={name!r}: folders named _kafka_s3 are for control objects; choose another name",
        )
        require(
            self.by_time is not None and not isinstance(self.by_time.timestamp_from, ClockTime),
            f"on_bad_timestamp={name!r} has no effect: the partitioner looks at no timestamps. Remove it",
        )
