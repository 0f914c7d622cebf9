"""Protobuf schemas: the messages and enums of files, and how the names of types are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["INTEGERS", "SCALARS", "Default", "Presence", "ProtoEnum", "ProtoField", "ProtoFile", "ProtoMessage", "link"]

INTEGERS: Final = ("int32", "int64", "uint32", "uint64", "sint32", "sint64")
"""Scalar types that are written as varints, beside ``bool``."""

SCALARS: Final = frozenset(
    {*INTEGERS, "bool", "fixed32", "fixed64", "sfixed32", "sfixed64", "float", "double", "string", "bytes"}
)

_KEYS: Final = SCALARS - {"float", "double", "bytes"}
"""Types of the keys of maps."""

Presence: TypeAlias = Literal["implicit", "explicit", "required"]
"""Whether a field that is not in a message differs from one with its default, and whether a message may lack it."""

Default: TypeAlias = "int | float | bool | str | bytes | None"


@dataclass(eq=False)
class ProtoField:
    """A field of a message.

    Attributes:
        name: of the field.
        number: of the field.
        kind: scalar type, ``message``, ``group`` or ``enum``; empty until the type is resolved.
        type_name: name of a message or enum, as the file has it.
        repeated: whether there are any number of values.
        presence: of a field that is not repeated.
        raw_default: the declared default as text; bytes of a quoted text.
        oneof: of the message, by its index; None: the field is in none.
        message: the resolved message.
        enum: the resolved enum.
    """

    name: str
    number: int
    kind: str
    type_name: str = ""
    repeated: bool = False
    presence: Presence = "explicit"
    raw_default: str | bytes | None = None
    oneof: int | None = None
    message: ProtoMessage | None = None
    enum: ProtoEnum | None = None

    @property
    def is_map(self) -> bool:
        """Whether the values are the entries of a map."""
        return self.repeated and self.message is not None and self.message.is_map_entry

    @property
    def default(self) -> Default:
        """The declared default as value of the type; the name for an enum; None: there is none.

        Raises:
            ConfigurationError: the text is no value of the type.
        """
        raw = self.raw_default
        if raw is None:
            return None
        try:
            return _default(self.kind, raw)
        except (ValueError, KeyError, OverflowError):
            raise ConfigurationError(f"the default of field {self.name!r} is no {self.kind}") from None


def _default(kind: str, raw: str | bytes) -> Default:
    if kind == "bytes":
        return raw if isinstance(raw, bytes) else raw.encode()
    if kind == "string":
        return raw.decode() if isinstance(raw, bytes) else raw
    text = raw.decode() if isinstance(raw, bytes) else raw
    if kind == "enum":
        return text
    if kind == "bool":
        return {"true": True, "false": False}[text]
    digits = text.removeprefix("-")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    if kind not in ("float", "double"):
        number: int | float = int(digits, 8 if octal else 0)
    elif octal or digits[:2] in ("0x", "0X"):
        number = float(int(digits, 8 if octal else 16))
    else:
        number = float(digits if "inf" in digits else digits.removesuffix("f"))
    return -number if text.startswith("-") else number


@dataclass(eq=False)
class ProtoEnum:
    """An enum.

    Attributes:
        full_name: with the package and the messages around it.
        values: name and number of each, in the order of the file.
    """

    full_name: str
    values: list[tuple[str, int]] = field(default_factory=list)


@dataclass(eq=False)
class ProtoMessage:
    """A message.

    Attributes:
        full_name: with the package and the messages around it.
        fields: in the order of the file.
        messages: inside it, with the entries of its maps.
        enums: inside it.
        is_map_entry: whether it is the entry of a map.
    """

    full_name: str
    fields: list[ProtoField] = field(default_factory=list, repr=False)
    messages: list[ProtoMessage] = field(default_factory=list, repr=False)
    enums: list[ProtoEnum] = field(default_factory=list, repr=False)
    is_map_entry: bool = False


@dataclass(eq=False)
class ProtoFile:
    """A file.

    Attributes:
        package: of its types; may be empty.
        messages: of the highest level.
        enums: of the highest level.
    """

    package: str = ""
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)


def link(files: Iterable[ProtoFile]) -> None:
    """Resolve the types of all fields.

    Args:
        files: with all that they import. Of two definitions of a name the first one counts.

    Raises:
        ConfigurationError: no file has a type that a field uses, or a map has keys of another type than keys can have.
    """
    known: dict[str, ProtoMessage | ProtoEnum] = {}
    messages: list[ProtoMessage] = []
    pending: list[ProtoMessage] = []
    for file in files:
        for enum in file.enums:
            known.setdefault(enum.full_name, enum)
        pending.extend(file.messages)
    while pending:
        message = pending.pop(0)
        known.setdefault(message.full_name, message)
        messages.append(message)
        pending.extend(message.messages)
        for enum in message.enums:
            known.setdefault(enum.full_name, enum)
    for message in messages:
        for part in message.fields:
            if part.type_name:
                _resolve(part, message, known)
        if message.is_map_entry and (len(message.fields) != 2 or message.fields[0].kind not in _KEYS):
            raise ConfigurationError(f"{message.full_name!r} is no map: its keys have no type that keys can have")


def _resolve(part: ProtoField, message: ProtoMessage, known: Mapping[str, ProtoMessage | ProtoEnum]) -> None:
    named_type = _found(part.type_name, message.full_name, known)
    match named_type:
        case ProtoEnum():
            part.kind, part.enum = "enum", named_type
            if not named_type.values:
                raise ConfigurationError(f"the enum {named_type.full_name!r} has no values")
        case ProtoMessage():
            # Entries of maps are never groups, whatever the features of the file.
            delimited = part.kind == "group" and not named_type.is_map_entry
            part.kind, part.message = "group" if delimited else "message", named_type
            if part.presence == "implicit" and not message.is_map_entry:
                part.presence = "explicit"
        case None:
            raise ConfigurationError(
                f"the field {part.name!r} of {message.full_name!r} has the type {part.type_name!r}, which neither the "
                f"Protobuf schema nor one that it refers to defines; register the file of the type, and name it as "
                f"reference"
            )


def _found(name: str, scope: str, known: Mapping[str, ProtoMessage | ProtoEnum]) -> ProtoMessage | ProtoEnum | None:
    """The type that a name means inside a scope: the innermost one."""
    if name.startswith("."):
        return known.get(name[1:])
    while scope:
        named_type = known.get(f"{scope}.{name}")
        if named_type is not None:
            return named_type
        scope = scope.rpartition(".")[0]
    return known.get(name)
