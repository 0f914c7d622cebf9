"""The parameters of a new pipeline's operator, each with the reason for its choice, by what a topic looks like."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError, SchemaNotFoundError
from airflow_provider_kafka_s3.formats.registry import unusable
from airflow_provider_kafka_s3.inspect.infer_schema import WITH_HEADER
from airflow_provider_kafka_s3.inspect.topic_sample import TopicSample
from airflow_provider_kafka_s3.layout.keys import hidden_names
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.registry.client import RegistryClient

__all__ = [
    "FORMATS",
    "PARTITIONERS",
    "Choice",
    "FormatChoice",
    "choose_format",
    "choose_naming",
    "choose_partitioner",
    "registry_converter",
    "retained",
    "suggest_format",
]

FORMATS: Final = ("json", "bytes", "parquet", "avro")
"""Formats that need no settings which a sample does not show."""
PARTITIONERS: Final = ("daily", "hourly", "partition")

_HOURLY_FROM: Final = 100_000
"""Records of an hour from which on a folder is one of an hour: a folder of a day would have 2.4 million or more."""
_LOOKED_UP: Final = 5
"""Schemas of a sample that are looked up: those of most values."""
_CONVERTERS: Final[Mapping[str, config.Converter]] = {
    "AVRO": config.AvroConverter(),
    "PROTOBUF": config.ProtobufConverter(),
    "JSON": config.JsonSchemaConverter(),
}


@dataclass(frozen=True)
class Choice:
    """A choice that the sample suggests.

    Attributes:
        value: suggested value; None: the sample shows none, so that a person has to choose.
        reason: for it, or why there is none.
    """

    value: str | None
    reason: str


@dataclass(frozen=True)
class FormatChoice:
    """Format and converter of a pipeline.

    Attributes:
        format: of the objects.
        value_converter: what the bytes of values are; None: the default of the format.
        reason: for both.
        warning: what a person should look at before the first run; empty if nothing.
    """

    format: config.Format
    value_converter: config.Converter | None
    reason: str
    warning: str = ""


def suggest_format(sample: TopicSample, converter: config.Converter | None) -> Choice:
    """The kind of the format that the values of a sample suggest.

    Args:
        sample: of the topic.
        converter: of values with the header of a schema registry; None: there is no registry.
    """
    values, seen = sample.values, _seen(sample)
    if not values:
        return Choice(None, f"the topic has no values that show a format ({seen})")
    if sample.json_values == values:
        return Choice("json", f"{seen}: each is a line of JSON")
    with_header = sample.kinds.get(WITH_HEADER, 0)
    if with_header == values and converter is not None:
        return Choice("parquet", f"{seen}: the fields of their schemas are columns")
    if sample.json_values or (converter is not None and with_header):
        return Choice(None, f"the values are of several kinds ({seen})")
    if with_header:
        return Choice(
            None,
            f"{seen}: name the registry by --registry-url or --registry-conn-id, so that they are decoded; parquet "
            f"lands their bytes",
        )
    if sample.with_line_breaks:
        return Choice("parquet", f"{seen}; they may contain line breaks, so each is a row of the column `value`")
    return Choice("bytes", f"{seen}, without line breaks: each is a line")


def choose_format(
    sample: TopicSample, kind: str, reason: str, on_null: config.OnNull, converter: config.Converter | None
) -> FormatChoice:
    """The format and the converter of a kind of format.

    Args:
        sample: of the topic.
        kind: one of :data:`FORMATS`.
        reason: for the kind.
        on_null: what a null value does.
        converter: of values with the header of a schema registry; None: there is no registry.

    Raises:
        ConfigurationError: the values of the sample cannot be landed in this format.
    """
    values, as_json = sample.values, sample.json_values
    with_header = sample.kinds.get(WITH_HEADER, 0) if converter is not None else 0
    if kind == "bytes":
        broken = sample.with_line_breaks
        warning = f"{count(broken, 'sampled value')} have line breaks, so a line is not a value" if broken else ""
        return FormatChoice(config.RawBytes(compression="gzip", on_null=on_null), None, reason, warning)
    used = converter if with_header > as_json else None
    fitting = with_header if used is not None else as_json
    if kind == "json":
        if values and not fitting:
            raise ConfigurationError(f"--format json: none of the values is JSON ({_seen(sample)}); use --format bytes")
        warning = _others(values - fitting, values)
        if sample.enveloped and sample.enveloped == values:
            warning = (
                "The values have their schema beside them: format=Parquet() with JsonConverter(schemas_enable=True) "
                "makes columns of their fields"
            )
        return FormatChoice(config.JsonLines(compression="gzip", on_null=on_null), used, reason, warning)
    format_: config.Format = (
        config.Parquet(compression="zstd", on_null=on_null)
        if kind == "parquet"
        else config.AvroContainer(on_null=on_null)
    )
    if used is None and as_json:
        if sample.enveloped != values:
            raise ConfigurationError(
                f"--format {kind} needs a schema, and the values of topic {sample.topic!r} are JSON without one; use "
                f"--format json, or make the schema by the command infer-schema and give it to the operator "
                f"(docs/formats.md#json-with-a-schema)"
            )
        return FormatChoice(format_, config.JsonConverter(schemas_enable=True), reason)
    if used is None:
        return FormatChoice(format_, config.BytesConverter(), reason)
    return FormatChoice(format_, used, reason, _others(values - fitting, values))


def registry_converter(
    sample: TopicSample, registry: RegistryClient | None, kind: str = "parquet"
) -> config.Converter | None:
    """The converter of the schemas that values name; None: there is no registry, or no value names one.

    Args:
        sample: of the topic.
        registry: that has the schemas.
        kind: of the format, which has to hold them.

    Raises:
        ConfigurationError: the registry lacks a schema, schemas have several types, or one cannot be landed.
        KafkaS3Error: the registry refuses the request, or gives no answer.
    """
    if registry is None or not sample.schema_ids:
        return None
    schemas = []
    for schema_id in [*sample.schema_ids][:_LOOKED_UP]:
        try:
            schemas.append(registry.schema(schema_id))
        except (SchemaNotFoundError, RecordError) as e:
            raise ConfigurationError(
                f"{count(sample.schema_ids[schema_id], 'value')} of topic {sample.topic!r} begin as values with the "
                f"schema {schema_id} of a registry do, and {e}. Name the registry of the producers by --registry-url "
                f"or --registry-conn-id, or land the bytes by --format bytes"
            ) from e
    types = sorted({schema.type for schema in schemas})
    if len(types) > 1:
        raise ConfigurationError(
            f"the values of topic {sample.topic!r} have schemas of several types ({few(types)}), and a converter reads "
            f"one; set the others aside by errors='dead_letter' in a DAG that is written by hand"
        )
    converter = _CONVERTERS[types[0]]
    formats: dict[str, config.Format] = {"avro": config.AvroContainer(), "json": config.JsonLines()}
    layout = config.Layout(format=formats.get(kind, config.Parquet()), value_converter=converter)
    for schema in schemas:
        if (reason := unusable(layout, "value", schema)) is not None:
            raise ConfigurationError(
                f"schema {schema.id} of topic {sample.topic!r} cannot be landed as {kind}: {reason}. Name "
                f"another format by --format; bytes lands the values as they are"
            )
    return converter


def choose_partitioner(sample: TopicSample) -> Choice:
    """The partitioner that the times and the rate of a sample suggest."""
    if sample.without_time:
        return Choice("partition", f"{count(sample.without_time, 'sampled record')} without a timestamp")
    if sample.per_hour is None:
        return Choice("daily", "the topic has no records that show their rate; hourly for more than 100,000 an hour")
    rate = f"about {count(round(sample.per_hour), 'record')} an hour on the last day with records"
    if sample.per_hour >= _HOURLY_FROM:
        return Choice("hourly", f"{rate}: a folder of a day would have more than 2.4 million")
    return Choice("daily", f"{rate}; hourly from {_HOURLY_FROM:,} on")


def choose_naming(format_: config.Format, converter: config.Converter | None, topic: str) -> config.Naming | None:
    """The names of objects that readers do not skip; None: the default."""
    layout = config.Layout(format=format_, value_converter=converter)
    naming = config.Naming(topic_prefix="topic=")
    if not hidden_names(layout, topic) or hidden_names(structs.replace(layout, naming=naming), topic):
        return None
    return naming


def retained(sample: TopicSample) -> str:
    """What Kafka still has of a topic, in words."""
    if not sample.retained:
        return "the topic is empty"
    since = ""
    if sample.oldest is not None:
        since = f", the oldest of {dt.datetime.fromtimestamp(sample.oldest / 1000, dt.UTC):%Y-%m-%d %H:%M} UTC"
    return f"Kafka has {count(sample.retained, 'offset')} of it{since}"


def _seen(sample: TopicSample) -> str:
    kinds = {**sample.kinds, **({"null values": sample.null_values} if sample.null_values else {})}
    listed = few([f"{kind} ({number:,})" for kind, number in kinds.items()])
    return (f"sampled values are {listed}" if kinds else "no records") + sample.other_header


def _others(number: int, values: int) -> str:
    if not number:
        return ""
    return (
        f"{number:,} of {values:,} sampled values cannot be landed so, and end a run with an error; "
        f"errors='dead_letter' sets them aside (docs/dead-letters.md)"
    )
