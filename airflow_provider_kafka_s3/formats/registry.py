"""Makes the formats of a layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import Array, Bools, binary_array
from airflow_provider_kafka_s3.converters.avro import AvroRegistryConverter
from airflow_provider_kafka_s3.converters.declared_json import DeclaredJsonConverter
from airflow_provider_kafka_s3.converters.enveloped_json import EnvelopedJsonConverter
from airflow_provider_kafka_s3.converters.json_grammar import are_empty
from airflow_provider_kafka_s3.converters.json_schema import JsonSchemaRegistryConverter
from airflow_provider_kafka_s3.converters.landed import LandedValuesConverter
from airflow_provider_kafka_s3.converters.port import RecordConverter, ValueConverter
from airflow_provider_kafka_s3.converters.primitive import BytesValueConverter, StringValueConverter
from airflow_provider_kafka_s3.converters.protobuf import ProtobufRegistryConverter
from airflow_provider_kafka_s3.converters.record_parts import ColumnConverter, EnvelopeConverter, HeadersConverter
from airflow_provider_kafka_s3.converters.unknown_fields import UnknownFieldCounter
from airflow_provider_kafka_s3.exceptions import ConfigurationError, message_of
from airflow_provider_kafka_s3.formats.block_gzip import BlockGzipFormat
from airflow_provider_kafka_s3.formats.custom import CheckedFormat
from airflow_provider_kafka_s3.formats.jsonlines import JsonDocumentConverter, JsonLinesFormat
from airflow_provider_kafka_s3.formats.parts import PartFormats
from airflow_provider_kafka_s3.formats.port import RecordFormat
from airflow_provider_kafka_s3.formats.raw import RawFormat
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource
from airflow_provider_kafka_s3.schemas.protobuf import Mapping as ProtobufMapping

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.formats.typed import TypedEncoding
    from airflow_provider_kafka_s3.formats.waiting_rows import WaitingRows

__all__ = ["make_format", "make_formats", "null_finders", "unusable"]


def make_formats(
    layout: config.Layout,
    *,
    topic: str,
    partition: Callable[[], int],
    schemas: SchemaSource | None = None,
    waiting: WaitingRows | None = None,
    unknown_fields: UnknownFieldCounter | None = None,
) -> PartFormats:
    """The formats of the objects of a slice, or of several slices.

    Args:
        layout: of the objects.
        topic: the Kafka topic.
        partition: gives the Kafka partition of the records that are prepared.
        schemas: of the registry; None: the layout needs none.
        waiting: the rows of all open Parquet files; None: they stay in memory.
        unknown_fields: counts the values with fields that their declared schema does not have; None: they are not
            counted.

    Raises:
        ConfigurationError: see :func:`make_format`.
    """
    content, converter = layout.content, layout.value_converter or config.BytesConverter()
    evolving = topic if layout.distinguishes_schemas and layout.has_typed_values else None
    is_enveloped, lines = isinstance(content, config.Envelope), layout.record_format
    of_documents: Sequence[str] = ()
    fields: dict[str, Sequence[str]] = {}
    # JSON lines check each document, and read its fields at the same time; other formats do not look into documents.
    are_lines = isinstance(lines, config.JsonLines) and not is_enveloped
    if isinstance(converter, config.JsonConverter) and not converter.has_schema and not are_lines:
        of_documents = layout.field_names
    else:
        above = ("value",) if is_enveloped else ()
        fields = {name: (*above, *name.split(".")) for name in layout.field_names}
    if is_enveloped:
        envelope = EnvelopeConverter(
            _value_converter(layout.key_converter, schemas),
            _value_converter(
                converter, schemas, names_and_versions=evolving is not None, unknown_fields=unknown_fields
            ),
            topic=topic,
            partition=partition,
        )
        part: Literal["value"] | None = None if layout.format.on_null == "write" else "value"
        main = _typed_format(lines, envelope, part, evolving, fields=fields, waiting=waiting)
        return PartFormats(_in_objects(layout.format, main), document_fields=of_documents, nulls=null_finders(layout))
    values: RecordFormat
    if isinstance(layout.format, config.CustomFormat):
        values = CheckedFormat(
            layout.format,
            topic=topic,
            partition=partition,
            are_documents=isinstance(converter, config.JsonConverter),
            writes_nulls=layout.format.on_null == "write" and not isinstance(content, config.SiblingObjects),
        )
    else:
        main = make_format(
            lines,
            converter,
            schemas,
            topic=evolving,
            fields=fields,
            waiting=waiting,
            unknown_fields=unknown_fields,
        )
        values = _in_objects(layout.format, main)
    siblings: Mapping[str, RecordFormat] = {}
    if isinstance(content, config.SiblingObjects):
        siblings = _siblings(content, layout.key_converter, schemas, waiting)
    return PartFormats(values, siblings, layout.format.on_null, of_documents, null_finders(layout))


def null_finders(layout: config.Layout) -> Mapping[Literal["key", "value"], Callable[[Array], Bools]]:
    """Which keys and values are null to their converter, although they are not in Kafka; none for other parts."""
    parts: dict[Literal["key", "value"], config.Converter | None] = {"value": layout.value_converter}
    if layout.has_keys:
        parts["key"] = layout.key_converter
    return {part: _null_finder(made) for part, made in parts.items() if isinstance(made, config.JsonConverter)}


def _null_finder(settings: config.JsonConverter) -> Callable[[Array], Bools]:
    return EnvelopedJsonConverter(settings.decimal_format or "BASE64").nulls if settings.schemas_enable else are_empty


def _in_objects(settings: config.Format, lines: RecordFormat) -> RecordFormat:
    """The format of objects of lines."""
    return BlockGzipFormat(settings, lines) if isinstance(settings, config.BlockGzip) else lines


def make_format(
    settings: config.Format,
    converter: config.Converter | None = None,
    schemas: SchemaSource | None = None,
    part: Literal["key", "value"] = "value",
    *,
    topic: str | None = None,
    fields: Mapping[str, Sequence[str]] | None = None,
    waiting: WaitingRows | None = None,
    unknown_fields: UnknownFieldCounter | None = None,
) -> RecordFormat:
    """The format of the values or the keys of a slice.

    Args:
        settings: of the format.
        converter: settings of the converter; None: the format writes their bytes.
        schemas: of the registry, for a converter that needs it.
        part: of the records that is written.
        topic: of the records, for layouts that distinguish schemas: every object of values with schemas then has one
            schema, which values of others are projected to. None: any other layout.
        fields: of values with a schema, that partitioners need: by name, their paths.
        waiting: see :func:`make_formats`.
        unknown_fields: see :func:`make_formats`.

    Raises:
        ConfigurationError: the settings are refused, or schemas are missing.
    """
    is_document = converter is None or (isinstance(converter, config.JsonConverter) and not converter.has_schema)
    if isinstance(settings, config.JsonLines) and is_document:
        return JsonLinesFormat(settings, part, fields=[*(fields or {})])
    if isinstance(settings, config.RawBytes):
        return RawFormat(settings, part)
    if isinstance(converter, config.LandedConverter):
        return _typed_format(settings, LandedValuesConverter(), part, topic, fields=fields, waiting=waiting)
    values = _value_converter(converter, schemas, names_and_versions=topic is not None, unknown_fields=unknown_fields)
    return _typed_format(settings, ColumnConverter(values, part), part, topic, fields=fields, waiting=waiting)


def _siblings(
    content: config.SiblingObjects,
    key_converter: config.Converter,
    schemas: SchemaSource | None,
    waiting: WaitingRows | None,
) -> Mapping[str, RecordFormat]:
    siblings: dict[str, RecordFormat] = {}
    for name, settings in content.siblings.items():
        if name == ".keys":
            siblings[name] = make_format(settings, key_converter, schemas, "key", waiting=waiting)
        else:
            headers = HeadersConverter(in_record=isinstance(settings, config.JsonLines))
            siblings[name] = _typed_format(settings, headers, None, waiting=waiting)
    return siblings


def _value_converter(
    settings: config.Converter | None,
    schemas: SchemaSource | None,
    *,
    names_and_versions: bool = False,
    unknown_fields: UnknownFieldCounter | None = None,
) -> ValueConverter:
    match settings:
        case None | config.BytesConverter():
            return BytesValueConverter()
        case config.StringConverter():
            return StringValueConverter()
        case config.JsonConverter(schema=str() as schema, decimal_format=decimal_format):
            return DeclaredJsonConverter(
                schema, decimal_format or "NUMERIC", settings.unknown_fields, counter=unknown_fields
            )
        case config.JsonConverter(schemas_enable=True, decimal_format=decimal_format):
            return EnvelopedJsonConverter(decimal_format or "BASE64", names_and_versions=names_and_versions)
        case config.JsonConverter():
            return JsonDocumentConverter()
        case config.AvroConverter():
            return AvroRegistryConverter(_registry("avro", schemas))
        case config.ProtobufConverter(unsigned=unsigned, timestamps=timestamps):
            return ProtobufRegistryConverter(_registry("protobuf", schemas), ProtobufMapping(unsigned, timestamps))
        case config.JsonSchemaConverter(decimal_format=decimal_format):
            return JsonSchemaRegistryConverter(_registry("json_schema", schemas), decimal_format)
        case config.LandedConverter():
            raise ConfigurationError("value_converter='landed' is for the values of files with a schema")
        case _:
            assert_never(settings)


def _registry(kind: str, schemas: SchemaSource | None) -> SchemaSource:
    if schemas is None:
        raise ConfigurationError(f"the converter {kind!r} needs a schema registry; name it by registry_conn_id")
    return schemas


def _typed_format(
    settings: config.Format,
    converter: RecordConverter,
    part: Literal["key", "value"] | None,
    topic: str | None = None,
    *,
    fields: Mapping[str, Sequence[str]] | None = None,
    waiting: WaitingRows | None = None,
) -> RecordFormat:
    # Parquet takes a tenth of a second to import.
    from airflow_provider_kafka_s3.formats.typed import TypedFormat

    encoding = _encoding(settings, by_schema=topic is not None, waiting=waiting)
    return TypedFormat(converter, encoding, settings.on_null, part, topic, fields=fields)


def _encoding(settings: config.Format, *, by_schema: bool = False, waiting: WaitingRows | None = None) -> TypedEncoding:
    from airflow_provider_kafka_s3.formats import typed

    match settings:
        case config.JsonLines():
            return typed.JsonEncoding(settings, by_schema=by_schema)
        case config.AvroContainer():
            return typed.AvroEncoding(settings)
        case config.Parquet():
            return typed.ParquetEncoding(settings, waiting)
        case config.Csv():
            return typed.CsvEncoding(settings)
        case config.RawBytes():
            raise ConfigurationError("format='bytes' writes bytes; use value_converter='bytes'")
        case config.BlockGzip(lines=lines):
            return _encoding(lines, by_schema=by_schema)
        case config.CustomFormat():
            raise ConfigurationError("a format of your own gets the bytes of values; it is for values only")
        case _:
            assert_never(settings)


def unusable(layout: config.Layout, part: Literal["key", "value"], schema: RegisteredSchema) -> str | None:
    """Why keys or values with a schema of a registry cannot be landed; None if they can.

    Of a file of Protobuf it is the first message that has to be usable.

    Args:
        layout: whose converter of these keys or values reads schemas of this type.
        part: of the records.
        schema: any.
    """
    content = layout.content
    settings = content.keys if isinstance(content, config.SiblingObjects) and part == "key" else layout.format
    assert settings is not None, "the layout has keys"
    converter = _value_converter(layout.value_converter if part == "value" else layout.key_converter, _Only(schema))
    # Any value shows whether there is a decoder: it need not be valid.
    value = binary_array([b"\0" + schema.id.to_bytes(4, "big") + b"\0"], large=False)
    try:
        encoding = _encoding(settings)
        has_fields = part == "value" and bool(layout.field_names)
        decode = encoding.decode or has_fields or isinstance(content, config.Envelope)
        typed = converter.convert(value, decode=decode)
        if not converter.schemas:
            return typed.invalid[0].reason
        for _ in encoding.open("", converter.schemas[0]).close():
            pass
    except ConfigurationError as e:
        return message_of(e)
    return None


@dataclass(frozen=True)
class _Only:
    """A registry of one schema."""

    only: RegisteredSchema

    def schema(self, schema_id: int) -> RegisteredSchema:  # noqa: ARG002 - no other is asked for
        """The schema."""
        return self.only

    def address(self, schema_id: int) -> str:  # noqa: ARG002 - see above
        """See SchemaSource."""
        return "the registry"
