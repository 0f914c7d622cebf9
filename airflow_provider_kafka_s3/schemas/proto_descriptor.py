"""Reads Protobuf schemas that are a ``FileDescriptorProto``, the binary form of a ``.proto`` file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.proto_file import Presence, ProtoEnum, ProtoField, ProtoFile, ProtoMessage
from airflow_provider_kafka_s3.schemas.proto_text import unescaped

__all__ = ["descriptor_bytes", "parse_descriptor"]

_KINDS: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group"),
    *("message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""Types of fields by their numbers in a descriptor."""

_REQUIRED: Final = 2
_REPEATED: Final = 3
_PRESENCES: Final[dict[int, Presence]] = {1: "explicit", 2: "implicit", 3: "required"}
_DELIMITED: Final = 2
_DEEPEST: Final = 100


def descriptor_bytes(text: str) -> bytes | None:
    """The bytes of a descriptor in base64; None for any other text, as that of a ``.proto`` file."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def parse_descriptor(data: bytes) -> ProtoFile:
    """The messages and enums of a file; the types of fields are not resolved yet.

    Raises:
        ConfigurationError: the bytes are no ``FileDescriptorProto``.
    """
    try:
        return _file(_Parts(data))
    except (IndexError, UnicodeDecodeError):
        raise ConfigurationError("the Protobuf schema is base64, but no FileDescriptorProto") from None


class _Parts:
    """The fields of a message: numbers or bytes by their numbers.

    Raises an ``IndexError`` if the bytes are no message.
    """

    def __init__(self, data: bytes) -> None:
        self._found: dict[int, list[int | bytes]] = {}
        for number, value in _fields(data):
            self._found.setdefault(number, []).append(value)

    def all(self, number: int) -> list[bytes]:
        return [value for value in self._found.get(number, ()) if isinstance(value, bytes)]

    def parts(self, number: int) -> list[_Parts]:
        return [_Parts(value) for value in self.all(number)]

    def part(self, number: int) -> _Parts:
        """One message: several are merged, and none is an empty one."""
        return _Parts(b"".join(self.all(number)))

    def text(self, number: int) -> str:
        values = self.all(number)
        return values[-1].decode() if values else ""

    def integer(self, number: int) -> int | None:
        values = [value for value in self._found.get(number, ()) if isinstance(value, int)]
        return values[-1] if values else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, position = _varint(data, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:  # a group, which descriptors do not have
            raise IndexError
        if size > len(data) - position:
            raise IndexError
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise IndexError


class _Scope:
    """What the definitions of a file or a message inherit: the name in front of theirs, and features."""

    def __init__(self, name: str, presence: Presence, *, delimited: bool) -> None:
        self.name = name
        self.presence = presence
        self.delimited = delimited

    def inside(self, name: str, features: _Parts) -> _Scope:
        """The scope of a definition with such features."""
        presence = _PRESENCES.get(features.integer(1) or 0, self.presence)
        encoding = features.integer(5)
        full = f"{self.name}.{name}" if self.name and name else name or self.name
        return _Scope(full, presence, delimited=self.delimited if encoding is None else encoding == _DELIMITED)


def _file(parts: _Parts) -> ProtoFile:
    package = parts.text(2)
    presence: Presence = "implicit" if parts.text(12) == "proto3" else "explicit"
    scope = _Scope(package, presence, delimited=False).inside("", parts.part(8).part(50))
    messages = [_message(part, scope, 0) for part in parts.parts(4)]
    return ProtoFile(package, messages, [_enum(part, package) for part in parts.parts(5)])


def _message(parts: _Parts, around: _Scope, depth: int) -> ProtoMessage:
    if depth > _DEEPEST:
        raise ConfigurationError(f"the Protobuf schema has more than {_DEEPEST} messages inside each other")
    options = parts.part(7)
    scope = around.inside(parts.text(1), options.part(12))
    is_map_entry = options.integer(7) == 1
    return ProtoMessage(
        scope.name,
        [_field(part, scope, in_map_entry=is_map_entry) for part in parts.parts(2)],
        [_message(part, scope, depth + 1) for part in parts.parts(3)],
        [_enum(part, scope.name) for part in parts.parts(4)],
        is_map_entry,
    )


def _field(parts: _Parts, around: _Scope, *, in_map_entry: bool) -> ProtoField:
    name, label, oneof = parts.text(1), parts.integer(4), parts.integer(9)
    scope = around.inside("", parts.part(8).part(21))
    number = parts.integer(5) or 0
    kind = _KINDS[number]
    type_name = parts.text(6)
    if kind in ("", "group", "message", "enum") and not type_name:
        raise IndexError
    if kind == "message" and scope.delimited and not in_map_entry:
        kind = "group"
    presence = scope.presence
    if label == _REQUIRED:
        presence = "required"
    elif in_map_entry:
        presence = "implicit"
    elif oneof is not None or parts.integer(17) == 1:
        presence = "explicit"
    default: str | bytes | None = None
    if parts.all(7):
        default = parts.all(7)[-1].decode()
        if kind == "bytes":
            default = unescaped(default)
    return ProtoField(
        name=name,
        number=parts.integer(3) or 0,
        kind="" if kind in ("enum", "message") else kind,
        type_name=type_name,
        repeated=label == _REPEATED,
        presence=presence,
        raw_default=default,
        oneof=oneof,
    )


def _enum(parts: _Parts, scope: str) -> ProtoEnum:
    name = parts.text(1)
    values = [(value.text(1), _signed(value.integer(2) or 0)) for value in parts.parts(2)]
    return ProtoEnum(f"{scope}.{name}" if scope else name, values)


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
