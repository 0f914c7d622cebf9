"""Converters: what the bytes of a record's value are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, get_args

from msgspec import Meta

from airflow_provider_kafka_s3.config.formats import DecimalFormat
from airflow_provider_kafka_s3.config.values import TAG, Value, make_value, require

__all__ = ["AvroConverter", "BytesConverter", "Converter", "JsonConverter", "JsonSchemaConverter", "parse_converter"]


class BytesConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="bytes"):
    """Values are bytes without a meaning."""


class JsonConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json"):
    """Values are JSON documents.

    Attributes:
        schema: Avro schema of the documents, as JSON text, for formats with a schema; None: it is not declared.
        schemas_enable: whether each value is ``{"schema": …, "payload": …}``, as Kafka Connect's JsonConverter writes
            it with ``schemas.enable=true``.
        decimal_format: what strings are where the schema has a decimal: ``BASE64`` or ``NUMERIC``.
    """

    schema: Annotated[str, Meta(min_length=1)] | None = None
    schemas_enable: bool = False
    decimal_format: DecimalFormat = "BASE64"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not (self.schemas_enable and self.schema is not None),
            "schemas_enable=True takes the schema of each value; remove schema",
        )

    @property
    def has_schema(self) -> bool:
        """Whether values have a schema."""
        return self.schemas_enable or self.schema is not None


class AvroConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="avro"):
    """Values are Avro, as serializers of a schema registry write it: a zero byte, the id of the schema, the datum."""


class JsonSchemaConverter(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json_schema"
):
    """Values are JSON, as serializers of a schema registry write it: a zero byte, the id of the schema, the document.

    Attributes:
        decimal_format: what strings are where the schema has a decimal: ``BASE64`` or ``NUMERIC``.
    """

    decimal_format: DecimalFormat = "BASE64"


Converter: TypeAlias = BytesConverter | JsonConverter | AvroConverter | JsonSchemaConverter
"""All converters; :func:`airflow_provider_kafka_s3.formats.registry.make_format` applies them."""

_CONVERTERS: Final[tuple[type[Converter], ...]] = get_args(Converter)


def parse_converter(given: Converter | Mapping[str, Any] | str) -> Converter:
    """A converter, a mapping of its ``kind`` and its fields, or the ``kind`` alone.

    Raises:
        ConfigurationError: it is anything else.
    """
    return make_value("value_converter", _CONVERTERS, given)
