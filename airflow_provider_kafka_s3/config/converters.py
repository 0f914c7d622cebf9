"""Converters: what the bytes of a record's key or value are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta, structs

from airflow_provider_kafka_s3.config.formats import DecimalFormat
from airflow_provider_kafka_s3.config.values import TAG, Value, make_value, require
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "RESCUED",
    "AvroConverter",
    "BytesConverter",
    "Converter",
    "JsonConverter",
    "JsonSchemaConverter",
    "LandedConverter",
    "OnUnknownFields",
    "ProtobufConverter",
    "StringConverter",
    "needs_registry",
    "parse_converter",
]


OnUnknownFields = Literal["leave_out", "rescue", "fail"]

RESCUED: Final = "_rescued"
"""Name of the column that has what a declared schema does not have."""


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
        unknown_fields: what happens to fields that ``schema`` does not have: ``leave_out`` writes the others;
            ``rescue`` writes them as JSON text into the column ``_rescued``, beside values that do not fit the type of
            a field that may be null; ``fail`` makes the value invalid.
    """

    schema: Annotated[str, Meta(min_length=1)] | None = None
    schemas_enable: bool = False
    decimal_format: DecimalFormat | None = None
    unknown_fields: OnUnknownFields = "leave_out"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimal_format is None:
            # A plan holds the format itself, so that it does not depend on the default of another version.
            structs.force_setattr(self, "decimal_format", "BASE64" if self.schema is None else "NUMERIC")
        require(
            not (self.schemas_enable and self.schema is not None),
            "schemas_enable=True takes the schema of each value; remove schema",
        )
        require(
            self.unknown_fields == "leave_out" or self.schema is not None,
            f"unknown_fields={self.unknown_fields!r} is about fields that the declared schema does not have, and there "
            f"is none; set schema, or remove unknown_fields",
        )
        if self.unknown_fields == "rescue" and self.schema is not None:
            _require_room_for_rescued(self.schema)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        decimal_format: DecimalFormat | None = None,
        unknown_fields: OnUnknownFields = "leave_out",
    ) -> JsonConverter:
        """A converter with the schema in a file, which is read now: plans hold its text.

        Args:
            path: of the file, such as ``Path(__file__).with_name("orders.avsc")`` for one beside the DAG.
            decimal_format: see the class.
            unknown_fields: see the class.

        Raises:
            ConfigurationError: the path is relative, the file cannot be read, or a setting is wrong.
        """
        require(
            Path(path).is_absolute(),
            f"the schema file {os.fspath(path)!r} has a relative path, which depends on the process that reads it; use "
            f"Path(__file__).with_name({Path(path).name!r}) for a file beside the DAG",
        )
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            reason = "it is not UTF-8" if isinstance(e, UnicodeDecodeError) else e.strerror
            raise ConfigurationError(
                f"the schema file {os.fspath(path)!r} cannot be read ({reason}); put it beside the DAG, also where "
                f"workers parse it"
            ) from None
        return cls(schema=text, decimal_format=decimal_format, unknown_fields=unknown_fields)

    @property
    def has_schema(self) -> bool:
        """Whether values have a schema."""
        return self.schemas_enable or self.schema is not None


def _require_room_for_rescued(schema: str) -> None:
    """Refuse a schema to which the column of rescued fields cannot be added."""
    try:
        declared = json.loads(schema)
    except (ValueError, RecursionError):
        return  # The error of the schema itself says more.
    fields = declared.get("fields") if isinstance(declared, dict) and declared.get("type") == "record" else None
    require(
        isinstance(fields, list),
        "unknown_fields='rescue' adds a column to those of the schema, which has to be a record for this; use a schema "
        "of the type record, or unknown_fields='fail'",
    )
    names = [field.get("name") for field in fields or () if isinstance(field, dict)]
    same = next((name for name in names if isinstance(name, str) and name.lower() == RESCUED), None)
    require(
        same is None,
        f"the schema has the field {same!r}, and unknown_fields='rescue' adds a column of this name; rename the field, "
        f"or use unknown_fields='leave_out' or 'fail'",
    )


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


class LandedConverter(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="landed"):
    """Values are those of another pipeline's files of Avro or Parquet, with the schema of each file.

    It goes with ``source``. Columns of Parquet are what they are there: an enum of a schema is a string.
    """


Converter: TypeAlias = (
    BytesConverter
    | StringConverter
    | JsonConverter
    | AvroConverter
    | ProtobufConverter
    | JsonSchemaConverter
    | LandedConverter
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
