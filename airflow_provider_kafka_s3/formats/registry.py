"""Makes the formats of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_never

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.converters.avro import AvroRegistryConverter
from airflow_provider_kafka_s3.converters.declared_json import DeclaredJsonConverter
from airflow_provider_kafka_s3.converters.enveloped_json import EnvelopedJsonConverter
from airflow_provider_kafka_s3.converters.json_schema import JsonSchemaRegistryConverter
from airflow_provider_kafka_s3.converters.port import RecordConverter, ValueConverter
from airflow_provider_kafka_s3.converters.primitive import BytesValueConverter, StringValueConverter
from airflow_provider_kafka_s3.converters.protobuf import ProtobufRegistryConverter
from airflow_provider_kafka_s3.converters.record_parts import ColumnConverter, EnvelopeConverter, HeadersConverter
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.jsonlines import JsonDocumentConverter, JsonLinesFormat
from airflow_provider_kafka_s3.formats.parts import PartFormats
from airflow_provider_kafka_s3.formats.port import RecordFormat
from airflow_provider_kafka_s3.formats.raw import RawFormat
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.schemas.protobuf import Mapping as ProtobufMapping

__all__ = ["make_format", "make_formats"]


def make_formats(
    layout: config.Layout, *, topic: str, partition: int, schemas: SchemaSource | None = None
) -> PartFormats:
    """The formats of the objects of a slice.

    Args:
        layout: of the objects.
        topic: the Kafka topic.
        partition: the Kafka partition.
        schemas: of the registry; None: the layout needs none.

    Raises:
        ConfigurationError: see :func:`make_format`.
    """
    content, converter = layout.content, layout.value_converter or config.BytesConverter()
    evolving = topic if layout.distinguishes_schemas and layout.has_typed_values else None
    if isinstance(content, config.Envelope):
        envelope = EnvelopeConverter(
            _value_converter(layout.key_converter, schemas),
            _value_converter(converter, schemas, names_and_versions=evolving is not None),
            topic=topic,
            partition=partition,
        )
        part: Literal["value"] | None = None if layout.format.on_null == "write" else "value"
        return PartFormats(_typed_format(layout.format, envelope, part, evolving))
    values = make_format(layout.format, converter, schemas, topic=evolving)
    if isinstance(content, config.SiblingObjects):
        return PartFormats(values, _siblings(content, layout.key_converter, schemas), layout.format.on_null)
    return PartFormats(values)


def make_format(
    settings: config.Format,
    converter: config.Converter | None = None,
    schemas: SchemaSource | None = None,
    part: Literal["key", "value"] = "value",
    *,
    topic: str | None = None,
) -> RecordFormat:
    """The format of the values or the keys of a slice.

    Args:
        settings: of the format.
        converter: settings of the converter; None: the format writes their bytes.
        schemas: of the registry, for a converter that needs it.
        part: of the records that is written.
        topic: of the records, for layouts that distinguish schemas: every object of values with schemas then has one
            schema, which values of others are projected to. None: any other layout.

    Raises:
        ConfigurationError: the settings are refused, or schemas are missing.
    """
    is_document = converter is None or (isinstance(converter, config.JsonConverter) and not converter.has_schema)
    if isinstance(settings, config.JsonLines) and is_document:
        return JsonLinesFormat(settings, part)
    if isinstance(settings, config.RawBytes):
        return RawFormat(settings, part)
    values = _value_converter(converter, schemas, names_and_versions=topic is not None)
    return _typed_format(settings, ColumnConverter(values, part), part, topic)


def _siblings(
    content: config.SiblingObjects, key_converter: config.Converter, schemas: SchemaSource | None
) -> Mapping[str, RecordFormat]:
    siblings: dict[str, RecordFormat] = {}
    for name, settings in content.siblings.items():
        if name == ".keys":
            siblings[name] = make_format(settings, key_converter, schemas, "key")
        else:
            headers = HeadersConverter(in_record=isinstance(settings, config.JsonLines))
            siblings[name] = _typed_format(settings, headers, None)
    return siblings


def _value_converter(
    settings: config.Converter | None, schemas: SchemaSource | None, *, names_and_versions: bool = False
) -> ValueConverter:
    match settings:
        case None | config.BytesConverter():
            return BytesValueConverter()
        case config.StringConverter():
            return StringValueConverter()
        case config.JsonConverter(schema=str() as schema, decimal_format=decimal_format):
            return DeclaredJsonConverter(schema, decimal_format)
        case config.JsonConverter(schemas_enable=True, decimal_format=decimal_format):
            return EnvelopedJsonConverter(decimal_format, names_and_versions=names_and_versions)
        case config.JsonConverter():
            return JsonDocumentConverter()
        case config.AvroConverter():
            return AvroRegistryConverter(_registry("avro", schemas))
        case config.ProtobufConverter(unsigned=unsigned, timestamps=timestamps):
            return ProtobufRegistryConverter(_registry("protobuf", schemas), ProtobufMapping(unsigned, timestamps))
        case config.JsonSchemaConverter(decimal_format=decimal_format):
            return JsonSchemaRegistryConverter(_registry("json_schema", schemas), decimal_format)
        case _:
            assert_never(settings)


def _registry(kind: str, schemas: SchemaSource | None) -> SchemaSource:
    if schemas is None:
        raise ConfigurationError(f"the converter {kind!r} needs a schema registry; name it by registry_conn_id")
    return schemas


def _typed_format(
    settings: config.Format, converter: RecordConverter, part: Literal["key", "value"] | None, topic: str | None = None
) -> RecordFormat:
    # Parquet takes a tenth of a second to import.
    from airflow_provider_kafka_s3.formats import typed

    encoding: typed.TypedEncoding
    match settings:
        case config.JsonLines():
            encoding = typed.JsonEncoding(settings, by_schema=topic is not None)
        case config.AvroContainer():
            encoding = typed.AvroEncoding(settings)
        case config.Parquet():
            encoding = typed.ParquetEncoding(settings)
        case config.Csv():
            encoding = typed.CsvEncoding(settings)
        case config.RawBytes():
            raise ConfigurationError("format='bytes' writes bytes; use value_converter='bytes'")
        case _:
            assert_never(settings)
    return typed.TypedFormat(converter, encoding, settings.on_null, part, topic)
