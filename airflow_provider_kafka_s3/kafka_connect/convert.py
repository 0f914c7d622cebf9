"""Converts the configuration of Confluent's or DeviantArt's S3 sink to parameters of the operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, get_args

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.config.values import make_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka_connect import deviantart
from airflow_provider_kafka_s3.kafka_connect.name_settings import naming, partitioner, rotation
from airflow_provider_kafka_s3.kafka_connect.reading import ConnectConfig, read_config
from airflow_provider_kafka_s3.kafka_connect.record_settings import content, converter, record_format
from airflow_provider_kafka_s3.kafka_connect.settings import (
    CONFLUENT,
    CONSUMER,
    CONVERTER,
    DEVIANTART,
    Sink,
    is_router,
)
from airflow_provider_kafka_s3.kafka_connect.settings_reader import Note, SettingsReader
from airflow_provider_kafka_s3.kafka_connect.store_settings import (
    aws_connection,
    kafka_connection,
    registry_connection,
    request_retry,
    upload,
)
from airflow_provider_kafka_s3.layout.patterns import time_pattern

__all__ = ["REGISTRY_CONN_ID", "Converted", "convert", "layout_of"]

REGISTRY_CONN_ID: Final = "registry_default"
"""Name of the connection of a schema registry, if none is given."""

_CONFLUENT: Final = "io.confluent.connect.s3.S3SinkConnector"
_DEVIANTART: Final = "com.deviantart.kafka_connect_s3.S3SinkConnector"
_SINKS: Final = {_CONFLUENT: CONFLUENT, "S3SinkConnector": CONFLUENT, "S3Sink": CONFLUENT, _DEVIANTART: DEVIANTART}
_OTHER_SINKS: Final = {
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": "Aiven's sink",
    "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector": "Lenses' sink",
    "S3_SINK": "the managed sink of Confluent Cloud",
}
_PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "format": config.parse_format,
    "value_converter": lambda given: None if given is None else config.parse_converter(given),
    "key_converter": lambda given: config.parse_converter(given, "key_converter"),
    "content": config.parse_content,
    "partitioner": config.parse_partitioner,
    "rotation": lambda given: make_value("rotation", (config.Rotation,), given),
    "naming": config.parse_naming,
    "upload": config.parse_upload,
}
"""What makes the values of parameters, which may be given as mappings or kinds."""


@dataclass(frozen=True)
class Converted:
    """A converted connector.

    Attributes:
        parameters: of the operator, by name; no secrets.
        connections: what is known of each Airflow connection, by its parameter; no secrets.
        notes: what became of each setting.
        consumer_group: of the connector, whose committed offsets show how far it is.
        has_markers: whether the sink's own objects show it instead.
        routers: its transforms that change the names of topics, and so the folders of its objects.
    """

    parameters: Mapping[str, Any]
    connections: Mapping[str, Mapping[str, Any]]
    notes: tuple[Note, ...]
    consumer_group: str
    has_markers: bool = False
    routers: tuple[str, ...] = ()


def convert(given: ConnectConfig, *, worker: ConnectConfig | None = None, **parameters: Any) -> Converted:
    """Convert a connector.

    Args:
        given: its configuration.
        worker: configuration of its worker, whose converters apply to a connector without its own.
        parameters: of the operator, in place of the settings they belong to.

    Raises:
        ConfigurationError: it is not the configuration of one of the two sinks, or settings are unknown, refused,
            missing or wrong; the message names all of them.
    """
    settings = read_config(given, "the connector")
    sink = _sink(settings.get("connector.class", _CONFLUENT).strip())
    if worker is not None:
        settings = {**settings, **_converters_of(read_config(worker, "the worker"), settings)}
    values = {name: _PARSERS[name](value) if name in _PARSERS else value for name, value in parameters.items()}
    group = settings.get("consumer.override.group.id", "").strip() or f"connect-{settings.get('name', '').strip()}"
    classes = (text for name, text in settings.items() if name.startswith("transforms.") and name.endswith(".type"))
    routers = tuple(filter(is_router, classes))
    return replace(_Conversion(SettingsReader(settings, values, sink), values, group).run(), routers=routers)


def layout_of(parameters: Mapping[str, Any]) -> config.Layout:
    """The layout of an operator with these parameters, which are those of :class:`Converted`.

    Raises:
        ConfigurationError: they are wrong, or do not belong together.
    """
    stored = parameters.get("upload", config.Upload())
    topics_dir = parameters.get("topics_dir", "topics")
    names = {*config.Layout.__struct_fields__} - {"topics_dir", "part_size", "tags"}
    layout = config.Layout(
        topics_dir="topics" if "{{" in str(topics_dir) else topics_dir,
        part_size=stored.part_size,
        tags=stored.object_tags,
        **{name: parameters[name] for name in names if name in parameters},
    )
    if layout.by_time is not None:
        time_pattern(layout.by_time, layout.naming.directory_delim)
    return layout


def _sink(name: str) -> Sink:
    if name in _SINKS:
        return _SINKS[name]
    kind = f" is {_OTHER_SINKS[name]}, which" if name in _OTHER_SINKS else ""
    raise ConfigurationError(
        f"connector.class={name!r}{kind} is not converted: only {CONFLUENT.name} ({_CONFLUENT}) and {DEVIANTART.name} "
        f"({_DEVIANTART}) are. Write the operator by hand, as docs/operator.md describes"
    )


def _converters_of(worker: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The converters of a worker that the connector does not replace, with their settings."""
    converters: dict[str, str] = {}
    for name in ("key.converter", "value.converter"):
        if name not in settings:
            converters |= {key: text for key, text in worker.items() if key == name or key.startswith(f"{name}.")}
    return converters


class _Conversion:
    """One connector while it is converted."""

    def __init__(self, reader: SettingsReader, given: Mapping[str, Any], group: str) -> None:
        self._reader = reader
        self._group = group
        self._given = given
        self._parameters: dict[str, Any] = {}

    def run(self) -> Converted:
        return self._deviantart() if self._reader.sink is DEVIANTART else self._confluent()

    def _deviantart(self) -> Converted:
        reader = self._reader
        self._which()
        for parameter, make in deviantart.OBJECTS.items():
            self._make(parameter, partial(make, reader))
        self._key_converter()
        self._set("errors", reader.choice("errors.tolerance", {"none": "fail", "all": "dead_letter"}, "none"))
        self._consumer()
        return self._result(
            {"aws_conn_id": deviantart.aws_connection(reader), "kafka_conn_id": kafka_connection(reader)}
        )

    def _confluent(self) -> Converted:
        reader = self._reader
        storage = reader.text("storage.class", "io.confluent.connect.s3.storage.S3Storage")
        if storage not in ("io.confluent.connect.s3.storage.S3Storage", "S3Storage"):
            reader.refuse("storage.class", f"{storage!r} is not supported: objects go to S3. Remove it")
        self._which()
        self._make("format", lambda: record_format(reader, "format.class", on_null=True))
        self._make("value_converter", self._value_converter)
        self._make("content", lambda: content(reader))
        self._make("key_converter", self._key_converter)
        self._make("partitioner", lambda: partitioner(reader))
        self._set("topics_dir", reader.text("topics.dir", "topics"))
        self._make("upload", lambda: upload(reader))
        self._make("rotation", self._rotation)
        self._make("naming", lambda: naming(reader))
        self._set("errors", reader.choice("errors.tolerance", {"none": "fail", "all": "dead_letter"}, "none"))
        self._make("request_retry", lambda: request_retry(reader))
        self._consumer()
        self._schema_compatibility()
        connections = {"aws_conn_id": aws_connection(reader), "kafka_conn_id": kafka_connection(reader)}
        if parts := [part for part in ("value", "key") if config.needs_registry(self._value(f"{part}_converter"))]:
            self._set("registry_conn_id", REGISTRY_CONN_ID)
            connections["registry_conn_id"] = registry_connection(reader, parts)
        return self._result(connections)

    def _result(self, connections: Mapping[str, Mapping[str, Any]]) -> Converted:
        reader = self._reader
        reader.require_no_problems()
        merged = {**self._parameters, **self._given}
        reader.attempt("layout", lambda: layout_of(merged))
        reader.require_no_problems()
        return Converted(
            {name: merged[name] for name in sorted(filter(self._matters, merged), key=_place)},
            connections,
            reader.notes(),
            self._group,
            reader.sink is DEVIANTART,
        )

    def _set(self, parameter: str, value: Any) -> None:
        if parameter not in self._given and value is not None:
            self._parameters[parameter] = value

    def _make(self, parameter: str, make: Callable[[], object]) -> None:
        """Set a parameter that is not given."""
        if parameter not in self._given:
            self._set(parameter, make())

    def _matters(self, parameter: str) -> bool:
        """Whether a parameter is given, or is not the default."""
        value = self._parameters.get(parameter)
        return parameter in self._given or parameter not in _DEFAULTS or value != _DEFAULTS[parameter]

    def _has(self, parameter: str) -> bool:
        return parameter in self._given

    def _value(self, parameter: str) -> Any:
        return self._given.get(parameter, self._parameters.get(parameter))

    # -- what is landed -----------------------------------------------------------------------------------------------

    def _which(self) -> None:
        reader = self._reader
        if not self._has("topics"):
            if not reader.names("topics"):
                reader.refuse("topics", "is missing: name the topics, separated by commas, or give topics=[…]")
            self._set("topics", list(reader.names("topics")))
        if not self._has("bucket"):
            self._set("bucket", reader.required(reader.sink.bucket, "name the bucket, or give bucket=…"))
        if not self._has("pipeline"):
            name = reader.required("name", "it names the pipeline, which owns the stored offsets; or give pipeline=…")
            pipeline = re.sub(r"[^A-Za-z0-9._-]+", "-", name or "").strip("-._")[:128]
            if name and not pipeline:
                reader.refuse("name", f"{name!r} has no letters; give pipeline=…")
            self._set("pipeline", pipeline)
        self._set("task_id", str(self._value("pipeline") or "kafka-to-s3"))
        self._set("offsets", "incremental")

    def _consumer(self) -> None:
        reader = self._reader
        offsets = {"earliest": "earliest", "latest": "latest"}
        start = reader.choice("consumer.override.auto.offset.reset", offsets, "earliest")
        if self._value("offsets") == "incremental":
            self._set("starting_offsets", start)
        else:
            reader.without_effect(["consumer.override.auto.offset.reset"], "a topic begins with the first window")
        levels = {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}
        if "consumer.override.isolation.level" in reader:
            self._set("isolation", reader.choice("consumer.override.isolation.level", levels, "read_uncommitted"))
        options = {
            f"kafka.{setting.name}": reader.text(name)
            for setting in CONSUMER
            if setting.parameter == "kafka_options" and (name := f"consumer.override.{setting.name}") in reader
        }
        self._set("kafka_options", options or None)

    # -- converters and their schemas ---------------------------------------------------------------------------------

    def _rotation(self) -> config.Rotation | None:
        partitioner, part_size = self._value("partitioner"), self._value("upload").part_size
        return rotation(self._reader, partitioner=partitioner, part_size=part_size)

    def _value_converter(self) -> config.Converter | None:
        if isinstance(self._value("format"), config.RawBytes) and "value.converter" not in self._reader:
            return config.BytesConverter()  # the only one that Connect can write so
        return converter(self._reader, "value")

    def _key_converter(self) -> config.Converter | None:
        stored = self._value("content")
        if isinstance(stored, config.SiblingObjects) and stored.keys is not None:
            return converter(self._reader, "key")
        unused = ("key.converter", *(f"key.converter.{setting.name}" for setting in CONVERTER))
        self._reader.without_effect(unused, "no keys are stored")
        return None

    def _schema_compatibility(self) -> None:
        """Values with a schema have Connect's rules, also by default; others have no schema that could change."""
        name, reader = "schema.compatibility", self._reader
        mode = reader.choice(name, {mode: mode for mode in get_args(config.Compatibility)}, "NONE")
        if isinstance(self._value("format"), config.RawBytes) or not _has_own_schemas(self._value("value_converter")):
            reader.without_effect([name], "values have no schema that could change")
            return
        stored = self._value("content")
        keys_format = stored.keys if isinstance(stored, config.SiblingObjects) else None
        if (
            mode == "NONE"
            and _has_own_schemas(self._value("key_converter"))
            and keys_format is not None
            and not isinstance(keys_format, config.JsonLines | config.RawBytes)
        ):
            if name in reader:
                reader.note(name, "each schema has an open object of its own, since keys have schemas as well")
            return
        self._set("schema_compatibility", mode)


def _has_own_schemas(converter: config.Converter | None) -> bool:
    """Whether each value of a converter names or has its schema."""
    is_json = isinstance(converter, config.JsonConverter) and converter.schemas_enable
    return is_json or config.needs_registry(converter)


_ORDER: Final = (
    "task_id",
    "topics",
    "bucket",
    "pipeline",
    "offsets",
    "starting_offsets",
    "format",
    "value_converter",
    "key_converter",
    "content",
    "partitioner",
    "topics_dir",
    "isolation",
    "rotation",
    "naming",
    "schema_compatibility",
    "upload",
    "errors",
    "request_retry",
    "kafka_options",
    "registry_conn_id",
)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "content": config.ValuesOnly(),
    "partitioner": config.ByPartition(),
    "topics_dir": "topics",
    "upload": config.Upload(),
    "errors": "fail",
}


def _place(parameter: str) -> int:
    return _ORDER.index(parameter) if parameter in _ORDER else len(_ORDER)
