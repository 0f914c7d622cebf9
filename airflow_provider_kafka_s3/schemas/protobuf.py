"""Protobuf schemas of a registry: their messages, and as which Avro types the values of a message are landed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Enum,
    Field,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
)
from airflow_provider_kafka_s3.schemas.proto_descriptor import descriptor_bytes, parse_descriptor
from airflow_provider_kafka_s3.schemas.proto_file import ProtoEnum, ProtoField, ProtoFile, ProtoMessage, link
from airflow_provider_kafka_s3.schemas.proto_text import parse_proto

__all__ = ["TIMESTAMP", "WRAPPERS", "Mapping", "column_default", "has_null", "message_at", "parse_protobuf"]

TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# Files that every registry and compiler of Protobuf has, so no schema refers to them.
_KNOWN_FILES: Final = (
    """
    syntax = "proto3";
    package google.protobuf;
    message Timestamp { int64 seconds = 1; int32 nanos = 2; }
    message Duration { int64 seconds = 1; int32 nanos = 2; }
    message Any { string type_url = 1; bytes value = 2; }
    message Empty {}
    message FieldMask { repeated string paths = 1; }
    message SourceContext { string file_name = 1; }
    message Struct { map<string, Value> fields = 1; }
    message Value {
      oneof kind {
        NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
        Struct struct_value = 5; ListValue list_value = 6;
      }
    }
    enum NullValue { NULL_VALUE = 0; }
    message ListValue { repeated Value values = 1; }
    message DoubleValue { double value = 1; }
    message FloatValue { float value = 1; }
    message Int64Value { int64 value = 1; }
    message UInt64Value { uint64 value = 1; }
    message Int32Value { int32 value = 1; }
    message UInt32Value { uint32 value = 1; }
    message BoolValue { bool value = 1; }
    message StringValue { string value = 1; }
    message BytesValue { bytes value = 1; }
    """,
    """
    syntax = "proto3";
    package google.type;
    message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
    message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
    message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }
    message LatLng { double latitude = 1; double longitude = 2; }
    message Decimal { string value = 1; }
    message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }
    """,
    """
    syntax = "proto3";
    package confluent.type;
    message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
)

_AVRO: Final = {
    "bool": "boolean",
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "uint32": "long",
    "fixed32": "long",
    "int64": "long",
    "sint64": "long",
    "sfixed64": "long",
    "uint64": "long",
    "fixed64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_ZEROS: Final = {"boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0, "string": "", "bytes": b""}
_DEEPEST: Final = 100
_UNSIGNED: Final = Primitive("bytes", Decimal(20, 0))


def parse_protobuf(text: str, references: Sequence[str] = ()) -> ProtoFile:
    """The file of a schema.

    Args:
        text: a ``.proto`` file, or a ``FileDescriptorProto`` in base64.
        references: the files that it imports, directly or by way of others, in either form.

    Raises:
        ConfigurationError: a text is neither, or a type that is used is not defined.
    """
    file = _parsed(text)
    link([file, *map(_parsed, references), *map(parse_proto, _KNOWN_FILES)])
    return file


def _parsed(text: str) -> ProtoFile:
    data = descriptor_bytes(text)
    return parse_proto(text) if data is None else parse_descriptor(data)


def message_at(file: ProtoFile, indexes: Sequence[int]) -> ProtoMessage | None:
    """The message of a file by the indexes in the header of a value; None if there is none.

    Args:
        file: of the schema.
        indexes: of a message of the file, of a message inside it, and so on. Entries of maps are not counted, as
            serializers in Java do.
    """
    selected, messages = None, file.messages
    for index in indexes:
        declared = [message for message in messages if not message.is_map_entry]
        if not 0 <= index < len(declared):
            return None
        selected = declared[index]
        messages = selected.messages
    return selected


def has_null(part: ProtoField) -> bool:
    """Whether a field that is not in a message is null. A declared default stands for an absent field."""
    return not part.repeated and part.presence == "explicit" and (part.oneof is not None or part.default is None)


def column_default(part: ProtoField) -> Any:
    """The value of a field that is not in a message, if it is neither null nor a message.

    Raises:
        ConfigurationError: there is none.
    """
    default = part.default
    if part.enum is not None:
        numbers = dict(part.enum.values)
        if not numbers or (default is not None and default not in numbers):
            raise ConfigurationError(f"the enum {part.enum.full_name!r} has no value {default or 'at all'!r}")
        number = part.enum.values[0][1] if default is None else numbers[str(default)]
        return next(name for name, other in part.enum.values if other == number)
    return _ZEROS[_AVRO[part.kind]] if default is None else default


@dataclass(frozen=True)
class Mapping:
    """As which types the values are landed.

    Attributes:
        unsigned: of ``uint64`` and ``fixed64``, see :class:`~airflow_provider_kafka_s3.config.ProtobufConverter`.
        timestamps: of ``google.protobuf.Timestamp``, likewise.
    """

    unsigned: Literal["long", "decimal"] = "long"
    timestamps: Literal["micros", "record"] = "micros"

    def node(self, message: ProtoMessage) -> Node:
        """The type of a message.

        Raises:
            ConfigurationError: a message contains itself, or messages are inside each other too deeply.
        """
        return _Nodes(self).of_message(message)

    def is_timestamp(self, message: ProtoMessage) -> bool:
        """Whether a message is landed as timestamp."""
        kinds = [(part.number, part.kind) for part in message.fields]
        whole = message.full_name == TIMESTAMP and kinds == [(1, "int64"), (2, "int32")]
        return whole and self.timestamps == "micros"


class _Nodes:
    """Makes the nodes of messages, one for each name."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._records: dict[str, Record] = {}
        self._enums: dict[str, Enum] = {}
        self._open: list[str] = []

    def of_message(self, message: ProtoMessage) -> Node:
        if message.full_name in WRAPPERS and [part.message or part.enum for part in message.fields] == [None]:
            return self._of_scalar(message.fields[0].kind)
        if self._mapping.is_timestamp(message):
            return Primitive("long", "timestamp-micros")
        return self.record(message)

    def record(self, message: ProtoMessage) -> Record:
        name = message.full_name
        if name in self._open:
            raise ConfigurationError(
                f"the Protobuf message {name!r} contains itself, so its values have no columns; use "
                f"value_converter='bytes'"
            )
        if name not in self._records:
            if len(self._open) >= _DEEPEST:
                raise ConfigurationError(f"the Protobuf schema has more than {_DEEPEST} messages inside each other")
            self._open.append(name)
            self._records[name] = Record(name, tuple(self._field(part) for part in message.fields))
            self._open.pop()
        return self._records[name]

    def _field(self, part: ProtoField) -> Field:
        if part.is_map:
            node = self._map(part.message)
            return Field(part.name, node, {} if isinstance(node, MapOf) else [], has_default=True)
        node = self._single(part)
        if part.repeated:
            return Field(part.name, ArrayOf(node), [], has_default=True)
        if has_null(part):
            return Field(part.name, Union((NULL, node)), None, has_default=True)
        if part.presence == "required" or part.message is not None:
            return Field(part.name, node)
        default = column_default(part)
        if isinstance(default, float) and not math.isfinite(default):  # which JSON does not have
            return Field(part.name, node)
        return Field(part.name, node, _json_default(default, node), has_default=True)

    def _map(self, entry: ProtoMessage | None) -> Node:
        assert entry is not None, "a map has entries"
        record = self.record(entry)
        return MapOf(record.fields[1].type) if record.fields[0].type == Primitive("string") else ArrayOf(record)

    def _single(self, part: ProtoField) -> Node:
        if part.message is not None:
            return self.of_message(part.message)
        if part.enum is not None:
            return self._enum(part.enum)
        return self._of_scalar(part.kind)

    def _of_scalar(self, kind: str) -> Node:
        if kind in ("uint64", "fixed64") and self._mapping.unsigned == "decimal":
            return _UNSIGNED
        return Primitive(_AVRO[kind])

    def _enum(self, enum: ProtoEnum) -> Enum:
        name = enum.full_name
        if name not in self._enums:
            numbers: dict[int, str] = {}
            for symbol, number in enum.values:
                numbers.setdefault(number, symbol)
            self._enums[name] = Enum(name, tuple(numbers.values()))
        return self._enums[name]


def _json_default(default: Any, node: Node) -> Any:
    """A default as Avro's JSON has it: bytes are text of the code points 0 to 255."""
    if node == _UNSIGNED:
        return int(default).to_bytes(int(default).bit_length() // 8 + 1, "big").decode("latin-1")
    if isinstance(default, bytes):
        return default.decode("latin-1")
    return default
