"""Converters: what the bytes of a record's key or value are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta, structs

from airflow_provider_kafka_s3.config.formats import DecimalFormat
from airflow_provider_kafka_s3.config.values import TAG, Value, make_value, require

__all__ = [
    "AvroConverter",
    "BytesConverter",
    "Converter",
    "JsonConverter",
    "JsonSchemaConverter",
    "ProtobufConverter",
    "StringConverter",
    "needs_registry",
    "parse_converter",
]


class BytesConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="bytes"):
    """Values are bytes without a meaning."""


class StringConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="string"):
    """Values are text in UTF-8."""


class JsonConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json"):
    """Values are JSON documents.

    Attributes:
        schema: Avro schema of the documents, as JSON text, for formats with a schema; None: it is not declared.
        schemas_enable: whether each value is ``{"schema": …, "payload": …}``, as Kafka Connect's JsonConverter writes
            it with ``schemas.enable=true``.
        decimal_format: what every string is where the schema has a decimal: ``BASE64`` of its unscaled value, as Kafka
            Connect's JsonConverter writes it, or ``NUMERIC``, its digits such as ``"1.50"``; None: ``NUMERIC`` with
            ``schema``, otherwise ``BASE64``. Numbers are decimals with either.
    """

    schema: Annotated[str, Meta(min_length=1)] | None = None
    schemas_enable: bool = False
    decimal_format: DecimalFormat | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimal_format is None:
            # A plan holds the format itself, so that it does not depend on the default of another version.
            structs.force_setattr(self, "decimal_format", "BASE64" if self.schema is None else "NUMERIC")
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


class ProtobufConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="protobuf"):
    """Values are Protobuf messages, as serializers of a schema registry write them.

    A value is a zero byte, the id of the schema, the indexes of the message in the schema, the message.

    Attributes:
        unsigned: type of ``uint64`` and ``fixed64``: ``long``, where a record with a number above 2^63 - 1 is invalid,
            or ``decimal`` of 20 digits, which holds all of them.
        timestamps: type of ``google.protobuf.Timestamp``: ``micros``, a timestamp without the digits below
            microseconds, or ``record`` of ``seconds`` and ``nanos``.
    """

    unsigned: Literal["long", "decimal"] = "long"
    timestamps: Literal["micros", "record"] = "micros"


class JsonSchemaConverter(
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json_schema"
):
    """Values are JSON, as serializers of a schema registry write it: a zero byte, the id of the schema, the document.

    Attributes:
        decimal_format: what every string is where the schema has a decimal: ``BASE64`` of its unscaled value, as Kafka
            Connect's converter writes it, or ``NUMERIC``, its digits such as ``"1.50"``.
    """

    decimal_format: DecimalFormat = "BASE64"


Converter: TypeAlias = (
    BytesConverter | StringConverter | JsonConverter | AvroConverter | ProtobufConverter | JsonSchemaConverter
)
"""All converters; :func:`airflow_provider_kafka_s3.formats.registry.make_format` applies them."""

_CONVERTERS: Final[tuple[type[Converter], ...]] = get_args(Converter)


def needs_registry(converter: Converter | None) -> bool:
    """Whether the schemas of a converter are in a registry."""
    return isinstance(converter, AvroConverter | ProtobufConverter | JsonSchemaConverter)


def parse_converter(given: Converter | Mapping[str, Any] | str, name: str = "value_converter") -> Converter:
    """A converter, a mapping of its ``kind`` and its fields, or the ``kind`` alone; ``name`` is that of the parameter.

    Raises:
        ConfigurationError: it is anything else.
    """
    return make_value(name, _CONVERTERS, given)
