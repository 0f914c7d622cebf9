"""Reads Protobuf schemas that are the text of a ``.proto`` file.

The registry has checked the text when it was registered, so this parser only reads what decoding needs: messages,
enums, and the options that change what the bytes mean. It leaves out services, extensions and all other options.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.proto_file import (
    SCALARS,
    Presence,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
)

__all__ = ["parse_proto", "unescaped"]

_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
    | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<sign>[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)
_SHORT_ESCAPES: Final = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}
_LARGEST_NUMBER: Final = 2**29 - 1
_DEEPEST: Final = 100


_PRESENCES: Final[dict[str, Presence]] = {
    "EXPLICIT": "explicit",
    "IMPLICIT": "implicit",
    "LEGACY_REQUIRED": "required",
    "1": "explicit",
    "2": "implicit",
    "3": "required",
}
"""By the names of a feature's values, and by their numbers, which aggregates may have."""


@dataclass
class _Options:
    """Options that change what the bytes mean, of a file, a message, a oneof or a field.

    Options may stand behind the definitions that they apply to, so nothing is inherited before the file has ended.

    Attributes:
        outer: those that these inherit features from.
        features: those that are set here.
        default: of a field.
    """

    outer: _Options | None = None
    features: dict[str, str] = field(default_factory=dict)
    default: str | bytes | None = None

    def feature(self, name: str) -> str:
        """A feature, here or inherited; empty: no options have it."""
        scope: _Options | None = self
        while scope is not None:
            if name in scope.features:
                return scope.features[name]
            scope = scope.outer
        return ""


def parse_proto(text: str) -> ProtoFile:
    """The messages and enums of a file; the types of fields are not resolved yet.

    Raises:
        ConfigurationError: the text is no ``.proto`` file.
    """
    return _Parser(text.removeprefix("\ufeff")).file()


def unescaped(text: str) -> bytes:
    """The bytes of a text with the escapes of C.

    Raises:
        ConfigurationError: an escape is beyond the characters of Unicode.
    """

    def byte(found: re.Match[bytes]) -> bytes:
        hexadecimal, octal, pair, short, long, other = found.groups()
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if octal is not None:
            return bytes([int(octal, 8) & 0xFF])
        if pair is not None:  # of surrogates: one character
            return bytes.fromhex((pair[1:5] + pair[7:]).decode()).decode("utf-16-be").encode()
        if (code := short or long) is not None:
            if int(code, 16) > sys.maxunicode:
                raise ConfigurationError("the Protobuf schema has a text with an escape of no character")
            return chr(int(code, 16)).encode("utf-8", "surrogatepass")
        return bytes([_SHORT_ESCAPES[other]]) if other in _SHORT_ESCAPES else bytes(other)

    return _ESCAPE.sub(byte, text.encode("utf-8", "surrogatepass"))


class _Parser:
    """Reads the tokens of one file. The end is an empty token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._places: list[int] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:  # such as a quote without its end
                raise self._error(position)
            if match.lastgroup is not None:
                self._tokens.append(match.group())
                self._places.append(position)
            position = match.end()
        self._tokens.append("")
        self._places.append(len(text))
        self._at = 0
        self._depth = 0
        self._fields: list[tuple[ProtoField, _Options]] = []

    def file(self) -> ProtoFile:
        file, options = ProtoFile(), _Options()
        while (token := self._next()) != "":
            match token:
                case "syntax":
                    self._expect("=")
                    if self._string() == b"proto3":
                        options.features["field_presence"] = "IMPLICIT"
                    self._expect(";")
                case "package":
                    file.package = self._name()
                    self._expect(";")
                case "option":
                    self._option_statement(options)
                case "message":
                    file.messages.append(self._message(file.package, options))
                case "enum":
                    file.enums.append(self._enum(file.package))
                case "import" | "edition":
                    self._skip_statement()
                case "extend":
                    file.messages.extend(self._extend(file.package, options))
                case "service":
                    self._skip_block()
                case ";" | "export" | "local":
                    pass
                case _:
                    raise self._error()
        for part, own in self._fields:
            _inherit(part, own)
        return file

    # -- definitions --------------------------------------------------------------------------------------------------

    def _message(self, scope: str, outer: _Options) -> ProtoMessage:
        message = ProtoMessage(_joined(scope, self._word()))
        self._body(message, outer)
        return message

    def _body(self, message: ProtoMessage, outer: _Options) -> None:
        options = _Options(outer)
        self._expect("{")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConfigurationError(f"the Protobuf schema has more than {_DEEPEST} messages inside each other")
        oneofs = 0
        while (token := self._next()) != "}":
            match token:
                case "message":
                    message.messages.append(self._message(message.full_name, options))
                case "enum":
                    message.enums.append(self._enum(message.full_name))
                case "oneof":
                    self._oneof(message, oneofs, options)
                    oneofs += 1
                case "option":
                    self._option_statement(options)
                case "extend":
                    message.messages.extend(self._extend(message.full_name, options))
                case "extensions" | "reserved":
                    self._skip_statement()
                case ";":
                    pass
                case "export" | "local" if self._peek() in ("message", "enum"):
                    pass
                case "map" if self._peek() == "<":
                    self._map(message)
                case _:
                    self._field(message, token, options)
        self._depth -= 1

    def _extend(self, scope: str, outer: _Options) -> list[ProtoMessage]:
        """The messages of groups among fields of extensions, which themselves are left out."""
        fields = ProtoMessage(scope)
        self._name()
        self._expect("{")
        while (token := self._next()) != "}":
            if token != ";":
                self._field(fields, token, outer)
        return fields.messages

    def _oneof(self, message: ProtoMessage, index: int, outer: _Options) -> None:
        options = _Options(outer)
        self._word()
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option":
                self._option_statement(options)
            elif token != ";":
                self._field(message, token, options, oneof=index)

    def _field(self, message: ProtoMessage, token: str, outer: _Options, *, oneof: int | None = None) -> None:
        label = ""
        if token in ("optional", "required", "repeated"):
            label, token = token, self._next()
        self._at -= 1
        type_name = self._name()
        group = type_name == "group"
        name = self._word()
        self._expect("=")
        number = self._number()
        options = self._options(outer)
        if label or oneof is not None:
            options.features["field_presence"] = "LEGACY_REQUIRED" if label == "required" else "EXPLICIT"
        scalar = type_name in SCALARS
        part = ProtoField(
            name=name.lower() if group else name,
            number=number,
            kind=type_name if scalar else "group" if group else "",
            type_name="" if scalar else f".{_joined(message.full_name, name)}" if group else type_name,
            repeated=label == "repeated",
            raw_default=options.default,
            oneof=oneof,
        )
        message.fields.append(part)
        self._fields.append((part, options))
        if group:
            inside = ProtoMessage(_joined(message.full_name, name))
            message.messages.append(inside)
            self._body(inside, outer)
        else:
            self._expect(";")

    def _map(self, message: ProtoMessage) -> None:
        self._expect("<")
        key = self._word()
        self._expect(",")
        value = self._name()
        self._expect(">")
        name = self._word()
        self._expect("=")
        number = self._number()
        self._options()
        self._expect(";")
        camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        entry = ProtoMessage(_joined(message.full_name, f"{camel}Entry"), is_map_entry=True)
        scalar = value in SCALARS
        entry.fields = [
            ProtoField("key", 1, key, presence="implicit"),
            ProtoField("value", 2, value if scalar else "", "" if scalar else value, presence="implicit"),
        ]
        message.messages.append(entry)
        # Without features: entries of a map and their values are never groups.
        message.fields.append(ProtoField(name, number, "message", f".{entry.full_name}", repeated=True))

    def _enum(self, scope: str) -> ProtoEnum:
        enum = ProtoEnum(_joined(scope, self._word()))
        self._expect("{")
        while (token := self._next()) != "}":
            match token:
                case "option" | "reserved":
                    self._skip_statement()
                case ";":
                    pass
                case _:
                    self._expect("=")
                    enum.values.append((token, self._number(signed=True)))
                    self._options()
                    self._expect(";")
        return enum

    # -- options ------------------------------------------------------------------------------------------------------

    def _options(self, outer: _Options | None = None) -> _Options:
        """The options behind a field, if there are any."""
        options = _Options(outer)
        if self._peek() != "[":
            return options
        self._next()
        while True:
            self._option(options, ",]")
            if self._next() == "]":
                return options

    def _option_statement(self, options: _Options) -> None:
        self._option(options, ";")
        self._expect(";")

    def _option(self, options: _Options, ends: str) -> None:
        """One option; the token that ends it is the next one."""
        name = ""
        while (token := self._next()) != "=":
            if token in ("", ";"):
                raise self._error()
            name += token
        depth, value = 0, list[str]()
        while depth or self._peek() not in ends:
            token = self._next()
            if token == "":
                raise self._error()
            depth += (token in "{[(") - (token in "}])")
            value.append(token)
        if name == "default":
            quoted = value[0][0] in "\"'" if value else False
            options.default = b"".join(unescaped(v[1:-1]) for v in value) if quoted else "".join(value)
        elif name == "features":
            options.features |= _aggregate(value)
        elif name.startswith("features."):
            options.features[name.removeprefix("features.")] = "".join(value)

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        # An empty token is part of every text, so the end is a sign that no text has.
        return self._tokens[self._at] or "\0"

    def _next(self) -> str:
        token = self._tokens[self._at]
        if token == "" and self._depth:
            raise self._error(len(self._text))
        self._at = min(self._at + 1, len(self._tokens) - 1) if token else self._at
        return token

    def _expect(self, wanted: str) -> None:
        if self._next() != wanted:
            raise self._error()

    def _word(self) -> str:
        token = self._next()
        if not (token[:1].isalpha() or token[:1] == "_"):
            raise self._error()
        return token

    def _name(self) -> str:
        """A name with dots."""
        name = ""
        if self._peek() == ".":
            name = self._next()
        name += self._word()
        while self._peek() == ".":
            name += self._next() + self._word()
        return name

    def _number(self, *, signed: bool = False) -> int:
        token = self._next()
        negative = signed and token == "-"
        if negative:
            token = self._next()
        try:
            number = int(token, 8 if token.isdigit() and token[0] == "0" else 0)
        except ValueError:
            raise self._error() from None
        if not (signed or 0 < number <= _LARGEST_NUMBER):
            raise self._error()
        return -number if negative else number

    def _string(self) -> bytes:
        """A text, which may be in several parts."""
        parts = [self._next()]
        while self._peek()[0] in "'\"":
            parts.append(self._next())
        if parts[0][:1] not in ("'", '"'):
            raise self._error()
        return b"".join(unescaped(part[1:-1]) for part in parts)

    def _skip_statement(self) -> None:
        """Move behind the next semicolon that is outside of braces."""
        depth = 0
        while (token := self._next()) != ";" or depth:
            if token == "":
                raise self._error()
            depth += (token == "{") - (token == "}")

    def _skip_block(self) -> None:
        """Move behind the next block of braces."""
        while (token := self._next()) != "{":
            if token == "":
                raise self._error()
        depth = 1
        while depth:
            token = self._next()
            if token == "":
                raise self._error()
            depth += (token == "{") - (token == "}")

    def _error(self, position: int | None = None) -> ConfigurationError:
        if position is None:
            position = self._places[max(self._at - 1, 0)]
        line = self._text.count("\n", 0, position) + 1
        return ConfigurationError(f"the Protobuf schema is no .proto file: line {line} cannot be read")


def _inherit(found: ProtoField, options: _Options) -> None:
    """Set what a field has by features, its own ones and those of all that is around it."""
    found.presence = _PRESENCES.get(options.feature("field_presence"), "explicit")
    if found.kind == "" and options.feature("message_encoding") in ("DELIMITED", "2"):
        found.kind = "group"


def _aggregate(tokens: list[str]) -> dict[str, str]:
    """The values of ``{ name: value … }`` that are neither messages nor lists, by their names."""
    values: dict[str, str] = {}
    depth = 0
    for name, colon, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        depth += (name in "{[<") - (name in "}]>")
        if depth == 1 and colon == ":":
            values[name] = value
    return values


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
