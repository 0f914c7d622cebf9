"""Makes the format of given settings."""

from __future__ import annotations

from typing import assert_never

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.converters.avro import AvroRegistryConverter
from airflow_provider_kafka_s3.converters.declared_json import DeclaredJsonConverter
from airflow_provider_kafka_s3.converters.enveloped_json import EnvelopedJsonConverter
from airflow_provider_kafka_s3.converters.json_schema import JsonSchemaRegistryConverter
from airflow_provider_kafka_s3.converters.port import ValueConverter
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.jsonlines import JsonLinesFormat
from airflow_provider_kafka_s3.formats.port import RecordFormat
from airflow_provider_kafka_s3.formats.raw import RawFormat
from airflow_provider_kafka_s3.registry.schemas import SchemaSource

__all__ = ["make_format"]


def make_format(
    settings: config.Format, converter: config.Converter | None = None, schemas: SchemaSource | None = None
) -> RecordFormat:
    """The format of a slice.

    Args:
        settings: of the format.
        converter: settings of the converter of values; None: the format writes their bytes.
        schemas: of the registry, for a converter that needs it.

    Raises:
        ConfigurationError: the settings are refused, or schemas are missing.
    """
    if isinstance(converter, config.AvroConverter):
        if schemas is None:
            raise ConfigurationError("value_converter='avro' needs a schema registry; name it by registry_conn_id")
        return _typed_format(settings, AvroRegistryConverter(schemas))
    if isinstance(converter, config.JsonSchemaConverter):
        if schemas is None:
            raise ConfigurationError(
                "value_converter='json_schema' needs a schema registry; name it by registry_conn_id"
            )
        return _typed_format(settings, JsonSchemaRegistryConverter(schemas, converter.decimal_format))
    if isinstance(converter, config.JsonConverter) and converter.schema is not None:
        return _typed_format(settings, DeclaredJsonConverter(converter.schema, converter.decimal_format))
    if isinstance(converter, config.JsonConverter) and converter.schemas_enable:
        return _typed_format(settings, EnvelopedJsonConverter(converter.decimal_format))
    match settings:
        case config.JsonLines():
            return JsonLinesFormat(settings)
        case config.RawBytes():
            return RawFormat(settings)
        case _:
            raise ConfigurationError(
                f"{settings!r} needs values with a schema; use value_converter='avro' or JsonConverter(schema=...)"
            )


def _typed_format(settings: config.Format, converter: ValueConverter) -> RecordFormat:
    # Parquet takes a tenth of a second to import.
    from airflow_provider_kafka_s3.formats import typed

    encoding: typed.TypedEncoding
    match settings:
        case config.JsonLines():
            encoding = typed.JsonEncoding(settings)
        case config.AvroContainer():
            encoding = typed.AvroEncoding(settings)
        case config.Parquet():
            encoding = typed.ParquetEncoding(settings)
        case config.RawBytes():
            raise ConfigurationError("format='bytes' writes bytes; use value_converter='bytes'")
        case _:
            assert_never(settings)
    return typed.TypedFormat(converter, encoding, settings.on_null)
