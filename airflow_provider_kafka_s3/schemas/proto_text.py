"""Reads Protobuf schemas that are the text of a ``.proto`` file.

The registry has checked the text when it was registered, so this parser only reads what decoding needs: messages,
enums, and the options that change what the bytes mean. It leaves out services, extensions and all other options.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
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
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SHORT_ESCAPES: Final = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}
_LARGEST_NUMBER: Final = 2**29 - 1
_DEEPEST: Final = 100


@dataclass(frozen=True)
class _Features:
    """What the fields of a scope inherit.

    Attributes:
        presence: of a field without a label.
        delimited: whether messages are written as groups.
    """

    presence: Presence = "explicit"
    delimited: bool = False


@dataclass
class _Options:
    """Options that change what the bytes mean."""

    default: str | bytes | None = None
    features: dict[str, str] = field(default_factory=dict)

    def applied(self, features: _Features) -> _Features:
        """The features of the scope that has these options."""
        presences: dict[str, Presence] = {"IMPLICIT": "implicit", "EXPLICIT": "explicit", "LEGACY_REQUIRED": "required"}
        if (presence := self.features.get("field_presence")) in presences:
            features = replace(features, presence=presences[presence])
        if (encoding := self.features.get("message_encoding")) is not None:
            features = replace(features, delimited=encoding == "DELIMITED")
        return features


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
        hexadecimal, octal, short, long, other = found.groups()
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if octal is not None:
            return bytes([int(octal, 8) & 0xFF])
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
            found = _TOKEN.match(text, position)
            if found is None:  # such as a quote without its end
                raise self._error(position)
            if found.lastgroup is not None:
                self._tokens.append(found.group())
                self._places.append(position)
            position = found.end()
        self._tokens.append("")
        self._places.append(len(text))
        self._at = 0
        self._depth = 0

    def file(self) -> ProtoFile:
        file = ProtoFile()
        features = _Features()
        while (token := self._next()) != "":
            match token:
                case "syntax":
                    self._expect("=")
                    features = _Features("implicit" if self._string() == b"proto3" else "explicit")
                    self._expect(";")
                case "package":
                    file.package = self._name()
                    self._expect(";")
                case "option":
                    features = self._option_statement().applied(features)
                case "message":
                    file.messages.append(self._message(file.package, features))
                case "enum":
                    file.enums.append(self._enum(file.package))
                case "import" | "edition":
                    self._skip_statement()
                case "service" | "extend":
                    self._skip_block()
                case ";" | "export" | "local":
                    pass
                case _:
                    raise self._error()
        return file

    # -- definitions --------------------------------------------------------------------------------------------------

    def _message(self, scope: str, features: _Features) -> ProtoMessage:
        message = ProtoMessage(_joined(scope, self._word()))
        self._body(message, features)
        return message

    def _body(self, message: ProtoMessage, features: _Features) -> None:
        self._expect("{")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConfigurationError(f"the Protobuf schema has more than {_DEEPEST} messages inside each other")
        oneofs = 0
        while (token := self._next()) != "}":
            match token:
                case "message":
                    message.messages.append(self._message(message.full_name, features))
                case "enum":
                    message.enums.append(self._enum(message.full_name))
                case "oneof":
                    self._oneof(message, oneofs, features)
                    oneofs += 1
                case "option":
                    features = self._option_statement().applied(features)
                case "extend":
                    self._skip_block()
                case "extensions" | "reserved":
                    self._skip_statement()
                case ";" | "export" | "local":
                    pass
                case "map" if self._peek() == "<":
                    self._map(message, features)
                case _:
                    self._field(message, token, features)
        self._depth -= 1

    def _oneof(self, message: ProtoMessage, index: int, features: _Features) -> None:
        self._word()
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option":
                self._option_statement()
            elif token != ";":
                found = self._field(message, token, features)
                found.oneof, found.presence = index, "explicit"

    def _field(self, message: ProtoMessage, token: str, features: _Features) -> ProtoField:
        label = ""
        if token in ("optional", "required", "repeated"):
            label, token = token, self._next()
        self._at -= 1
        type_name = self._name()
        group = type_name == "group"
        name = self._word()
        self._expect("=")
        number = self._number()
        options = self._options()
        features = options.applied(features)
        presence: Presence = "required" if label == "required" else "explicit" if label else features.presence
        scalar = type_name in SCALARS
        found = ProtoField(
            name=name.lower() if group else name,
            number=number,
            kind=type_name if scalar else "group" if group or features.delimited else "",
            type_name="" if scalar else f".{_joined(message.full_name, name)}" if group else type_name,
            repeated=label == "repeated",
            presence=presence,
            raw_default=options.default,
        )
        message.fields.append(found)
        if group:
            inside = ProtoMessage(_joined(message.full_name, name))
            message.messages.append(inside)
            self._body(inside, features)
        else:
            self._expect(";")
        return found

    def _map(self, message: ProtoMessage, features: _Features) -> None:
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
        del features  # entries of a map and their values are never groups
        camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        entry = ProtoMessage(_joined(message.full_name, f"{camel}Entry"), is_map_entry=True)
        scalar = value in SCALARS
        entry.fields = [
            ProtoField("key", 1, key, presence="implicit"),
            ProtoField("value", 2, value if scalar else "", "" if scalar else value, presence="implicit"),
        ]
        message.messages.append(entry)
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

    def _options(self) -> _Options:
        """The options behind a field, if there are any."""
        options = _Options()
        if self._peek() != "[":
            return options
        self._next()
        while True:
            self._option(options, ",]")
            if self._next() == "]":
                return options

    def _option_statement(self) -> _Options:
        options = _Options()
        self._option(options, ";")
        self._expect(";")
        return options

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
        token = self._next()
        if token[:1] not in ("'", '"'):
            raise self._error()
        return unescaped(token[1:-1])

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


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
