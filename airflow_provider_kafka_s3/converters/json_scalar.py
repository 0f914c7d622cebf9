"""JSON documents, one after the other: the values of a schema, or why a document is not one of them."""

from __future__ import annotations

import binascii
import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias, cast

from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.avro_scalar import TIMES_OF_DAY
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Enum,
    Field,
    Fixed,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    only_branch,
)

__all__ = [
    "DEEPEST",
    "INTEGER_LOGICAL",
    "LARGEST_FLOAT",
    "Branch",
    "Convert",
    "InvalidJsonError",
    "Number",
    "ScalarConverters",
    "document",
    "integer_bounds",
    "is_nullable",
]


Convert: TypeAlias = Callable[[Any], Any]
"""Converts a value of a document. Raises InvalidJsonError."""

DEEPEST: Final = 200
"""Objects and arrays inside each other. The limit of Python's parser depends on the depth of its caller."""

LARGEST_FLOAT: Final = float.fromhex("0x1.fffffep+127")
INTEGER_LOGICAL: Final = frozenset(
    [
        "date",
        "time-millis",
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    ]
)
"""Logical types of int and long."""

_BITS: Final = {"int": 31, "long": 63}
_LONG_NUMBER: Final = 30
_MOST_DIGITS: Final = 100
_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
# One that does not end is matched as well: otherwise each quote in it would be tried.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"((?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?)(?:\.([0-9]{1,18}))?")
_ZONE: Final = re.compile(r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)$")
_EPOCH: Final = date(1970, 1, 1).toordinal()


class Branch(NamedTuple):
    """A value of a union.

    Attributes:
        number: of its branch, among those that are not null.
        value: of the branch.
    """

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it stands in a document: with a fraction or an exponent, or long."""

    text: str


class InvalidJsonError(Exception):
    """A text is no JSON document, or its value does not fit the schema."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []  # from the inside to the outside

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).removeprefix(".")
        return f"{f'field {path}' if path else 'the value'} {self.reason}"


class MakeRecord(Protocol):
    """Makes the value of a record from the values of its fields, in their order."""

    def __call__(self, node: Record, values: Sequence[Any], /) -> Any: ...


def document(text: bytes) -> Any:
    """The value of a JSON document.

    Raises:
        InvalidJsonError: the text is not one JSON document in UTF-8, or is nested too deeply.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError as e:
        raise InvalidJsonError(f"is not UTF-8: byte {e.start}") from None
    if text.count(b"[") + text.count(b"{") > DEEPEST and _depth(text) > DEEPEST:
        raise InvalidJsonError(f"has more than {DEEPEST} objects and arrays inside each other")
    if not decoded.strip(" \t\n\r"):
        raise InvalidJsonError("is empty")
    try:
        return _DECODER.decode(decoded)
    except json.JSONDecodeError as e:
        raise InvalidJsonError(f"is not one JSON document: {e.msg} at character {e.pos}") from None


def _depth(text: bytes) -> int:
    depth = deepest = 0
    for byte in _STRING.sub(b"", text).translate(None, _NO_BRACKETS):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _LONG_NUMBER else Number(text)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJsonError(f"is not one JSON document: {name} is no number of JSON")


_DECODER: Final = json.JSONDecoder(parse_float=Number, parse_int=_integer, parse_constant=_refuse_constant)


def integer_bounds(node: Primitive) -> tuple[int, int]:
    """Least and largest value of an int or a long."""
    if isinstance(node.logical, str) and node.logical in TIMES_OF_DAY:
        return 0, TIMES_OF_DAY[node.logical] - 1
    bound = 1 << _BITS[node.name]
    return -bound, bound - 1


class ScalarConverters:
    """Makes the functions that convert values of documents.

    The value of a date, a time or a timestamp is its integer, that of a decimal its unscaled value, that of a map a
    dict, that of a union other than of null and one type a :class:`Branch`, or None.

    Attributes:
        make_record: makes the values of records.
    """

    def __init__(
        self,
        decimal_format: DecimalFormat,
        make_record: MakeRecord,
        *,
        null_is_default: bool = False,
        defaults: bool = False,
    ) -> None:
        """Prepare.

        Args:
            decimal_format: of strings.
            make_record: makes the values of records.
            null_is_default: whether null in a field that has a default is the default.
            defaults: convert the defaults of a schema, in which bytes are text with one character per byte.
        """
        self._format = decimal_format
        self.make_record = make_record
        self._null_is_default = null_is_default
        self._defaults = defaults
        self._of_defaults = self if defaults else ScalarConverters("BASE64", make_record, defaults=True)
        self._records: dict[int, Convert] = {}

    def make(self, node: Node) -> Convert:
        """The function for a type that is not recursive."""
        match node:
            case Primitive(logical=Decimal() as decimal) | Fixed(logical=Decimal() as decimal):
                return _decimals(decimal, self._unscaled)
            case Primitive(name="int" | "long"):
                return _integers(node)
            case Primitive(name=("float" | "double") as name):
                return _floats(name)
            case Primitive(name="bytes"):
                return self._bytes
            case Primitive(name=name):
                return _PLAIN[name]
            case Fixed(size=size):
                return self._fixed(size)
            case Enum(symbols=symbols):
                return _symbols(frozenset(symbols))
            case ArrayOf(items=items):
                return _arrays(self.make(items))
            case MapOf(values=values, keys=Primitive("string")):
                return _maps(self.make(values))
            case MapOf(values=values, keys=keys):
                return _pairs(self.make(keys), self.make(values))
            case Record():
                if id(node) not in self._records:
                    self._records[id(node)] = self._record(node)
                return self._records[id(node)]
            case Union():
                return self._union(node)

    def default(self, field: Field) -> Any:
        """The value of a field's default.

        Raises:
            ConfigurationError: it does not fit the type of the field.
        """
        try:
            return self._of_defaults.make(field.type)(field.default)
        except InvalidJsonError as e:
            raise ConfigurationError(f"the default of field {field.name!r} does not fit its type: {e}") from None

    def _bytes(self, value: Any) -> bytes:
        if type(value) is not str:
            raise _unlike(value, "bytes")
        if self._defaults:
            return _latin(value)
        return _base64(value)

    def _unscaled(self, value: str, scale: int) -> int:
        if self._defaults:
            return int.from_bytes(_latin(value), signed=True)
        if self._format == "BASE64":
            data = _base64(value)
            if not data:
                raise InvalidJsonError("is an empty string, which is no decimal")
            return int.from_bytes(data, signed=True)
        if _NUMBER.fullmatch(value) is None:
            raise InvalidJsonError("is a string that is no decimal number")
        return _scaled(value, scale)

    def _fixed(self, size: int) -> Convert:
        def convert(value: Any) -> bytes:
            data = self._bytes(value)
            if len(data) != size:
                raise InvalidJsonError(f"has {len(data)} bytes, not {size}")
            return data

        return convert

    def _record(self, node: Record) -> Convert:
        fields = []
        for field in node.fields:
            has_default, default = field.has_default, None
            if has_default:
                default = self.default(field)
            elif is_nullable(field.type):
                has_default = True
            fields.append((field.name, self.make(field.type), has_default, default))
        make_record, null_is_default = self.make_record, self._null_is_default

        def convert(value: Any) -> Any:
            if type(value) is not dict:
                raise _unlike(value, "a record")
            values = []
            for name, part, has_default, default in fields:
                try:
                    if name in value and not (null_is_default and has_default and value[name] is None):
                        values.append(part(value[name]))
                    elif has_default:
                        values.append(default)
                    else:
                        raise InvalidJsonError("is missing")
                except InvalidJsonError as e:
                    e.path.append(f".{name}")
                    raise
            return make_record(node, values)

        return convert

    def _union(self, node: Union) -> Convert:
        nullable = NULL in node.branches
        single = only_branch(node)
        others = [b for b in node.branches if b != NULL]
        branches = [self.make(b) for b in others]
        if single is not None:
            only = branches[0]
            if not nullable:
                return only
            return lambda value: None if value is None else only(value)
        in_order = list(enumerate(branches))
        names = [frozenset(f.name for f in b.fields) if isinstance(b, Record) else frozenset() for b in others]
        several = sum(isinstance(b, Record) for b in others) > 1

        def convert(value: Any) -> Any:
            if value is None and nullable:
                return None
            choices = in_order
            if several and type(value) is dict:
                choices = sorted(in_order, key=lambda choice: -len(value.keys() & names[choice[0]]))
            for number, part in choices:
                try:
                    return Branch(number, part(value))
                except InvalidJsonError:
                    continue
            raise InvalidJsonError(f"is {_kind(value)} that fits no branch of its union")

        return convert


def is_nullable(node: Node) -> bool:
    """Whether null is a value of the type."""
    return node == NULL or (isinstance(node, Union) and NULL in node.branches)


def _kind(value: Any) -> str:
    kinds = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        Number: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return kinds[type(value)]


def _unlike(value: Any, expected: str) -> InvalidJsonError:
    return InvalidJsonError(f"is {_kind(value)}, not {expected}")


def _null(value: Any) -> None:
    if value is not None:
        raise _unlike(value, "null")


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _unlike(value, "a boolean")
    return value


def _string(value: Any) -> str:
    if type(value) is not str:
        raise _unlike(value, "a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidJsonError("has half of a surrogate pair") from None
    return value


_PLAIN: Final[dict[str, Convert]] = {"null": _null, "boolean": _boolean, "string": _string}


def _symbols(symbols: frozenset[str]) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is not str:
            raise _unlike(value, "a symbol of an enum")
        if value not in symbols:
            raise InvalidJsonError("is a string that is no symbol of its enum")
        return value

    return convert


def _latin(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise InvalidJsonError("has characters that are no bytes") from None


def _base64(value: str) -> bytes:
    try:
        return binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
    except ValueError:
        raise InvalidJsonError("is a string that is no base64") from None


def _scaled(text: str, scale: int) -> int:
    """A number times a power of ten, as an integer."""
    parsed = cast("re.Match[str]", _NUMBER.fullmatch(text))
    sign, whole, fraction, power = parsed.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    short = digits.rstrip("0")
    if len(power.lstrip("+-0")) > _LONG_NUMBER:
        power = "-1" + "0" * _LONG_NUMBER if power[0] == "-" else "1" + "0" * _LONG_NUMBER
    exponent = int(power or "0") + scale - len(fraction) + len(digits) - len(short)
    if exponent < 0:
        raise InvalidJsonError(f"has more than {scale} digits of its fraction" if scale else "has a fraction")
    if len(short) + exponent > _MOST_DIGITS:
        raise InvalidJsonError("is out of range")
    return int(sign + short + "0" * exponent)


def _integers(node: Primitive) -> Convert:
    least, most = integer_bounds(node)
    read_text = _TEXTS.get(str(node.logical))
    name = str(node.logical or node.name)

    def convert(value: Any) -> int:
        if type(value) is Number:
            number = _scaled(value.text, 0)
        elif type(value) is int:
            number = value
        elif type(value) is float and value.is_integer():  # of a default
            number = int(value)
        elif type(value) is str and read_text is not None:
            number = _read_time(read_text, value, name)
        else:
            raise _unlike(value, f"of the type {name}")
        if not least <= number <= most:
            raise InvalidJsonError(f"is out of the range of {name}")
        return number

    return convert


def _floats(name: str) -> Convert:
    most = LARGEST_FLOAT if name == "float" else float.fromhex("0x1.fffffffffffffp+1023")

    def convert(value: Any) -> float:
        if type(value) is str and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if type(value) is Number:
            number = float(value.text)
        elif type(value) in (int, float):
            number = float(value)
        else:
            raise _unlike(value, f"of the type {name}")
        if not -most <= number <= most:
            raise InvalidJsonError(f"is out of the range of {name}")
        return number

    return convert


def _decimals(decimal: Decimal, unscaled: Callable[[str, int], int]) -> Convert:
    scale, bound = decimal.scale, 10**decimal.precision

    def convert(value: Any) -> int:
        if type(value) is str:
            number = unscaled(value, scale)
        elif type(value) is int:
            number = value * 10**scale
        elif type(value) is Number:
            number = _scaled(value.text, scale)
        else:
            raise _unlike(value, "a decimal")
        if not -bound < number < bound:
            raise InvalidJsonError(f"has more digits than its precision of {decimal.precision}")
        return number

    return convert


def _arrays(item: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _unlike(value, "an array")
        items: list[Any] = []
        try:
            for part in value:
                items.append(item(part))  # noqa: PERF401 - its length is the position of an error
        except InvalidJsonError as e:
            e.path.append(f"[{len(items)}]")
            raise
        return items

    return convert


def _maps(part: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _unlike(value, "a map")
        try:
            return {_string(key): part(item) for key, item in value.items()}
        except InvalidJsonError as e:
            e.path.append("[*]")  # without the key, which is content
            raise

    return convert


def _pairs(key: Convert, part: Convert) -> Convert:
    """Maps whose keys are no strings."""

    def convert(value: Any) -> dict[Any, Any]:
        if type(value) is not list:
            raise _unlike(value, "an array of the entries of a map")
        entries = {}
        for entry in value:
            try:
                first, second = _pair(entry)
                entries[key(first)] = part(second)
            except InvalidJsonError as e:
                e.path.append("[*]")
                raise
        return entries

    return convert


def _pair(entry: Any) -> tuple[Any, Any]:
    if type(entry) is dict and entry.keys() == {"key", "value"}:
        return entry["key"], entry["value"]
    if type(entry) is list and len(entry) == 2:
        return entry[0], entry[1]
    raise InvalidJsonError("is no pair of a key and a value")


def _read_time(read: Callable[[str], int], text: str, name: str) -> int:
    try:
        return read(text)
    except ValueError:
        raise InvalidJsonError(f"is a string that is no {name}") from None


@functools.lru_cache(maxsize=1024)  # records of a batch are of few days
def _days(text: str) -> int:
    if _DATE.fullmatch(text) is None:
        raise ValueError
    return date.fromisoformat(text).toordinal() - _EPOCH


def _of_day(text: str, digits: int) -> int:
    parsed = _TIME.fullmatch(text)
    if parsed is None:
        raise ValueError
    fraction = (parsed[2] or "").rstrip("0")
    if len(fraction) > digits:
        raise InvalidJsonError(f"has more than {digits} digits of a second")
    unit: int = 10**digits
    return _second(parsed[1]) * unit + int(fraction.ljust(digits, "0"))


@functools.lru_cache(maxsize=8192)
def _second(text: str) -> int:
    clock = time.fromisoformat(text)
    return (clock.hour * 60 + clock.minute) * 60 + clock.second


def _instant(text: str, digits: int, *, zone: bool) -> int:
    day, separator, time_text = text[:10], text[10:11], text[11:]
    offset = 0
    match = _ZONE.search(time_text)
    if (match is not None) is not zone:
        raise InvalidJsonError("is a timestamp without a zone" if zone else "is a timestamp with a zone")
    if match is not None:
        time_text = time_text[: match.start()]
        if match[1] != "Z":
            number = match[1][1:].replace(":", "").ljust(4, "0")
            hours, minutes = int(number[:2]), int(number[2:])
            if hours > 23 or minutes > 59:
                raise ValueError
            offset = (hours * 60 + minutes) * (-60 if match[1][0] == "-" else 60)
    if separator not in ("T", " "):
        raise ValueError
    unit = {3: 1000, 6: 1_000_000}[digits]
    return (_days(day) * 86_400 - offset) * unit + _of_day(time_text, digits)


_TEXTS: Final[dict[str, Callable[[str], int]]] = {
    "date": _days,
    "time-millis": lambda text: _of_day(text, 3),
    "time-micros": lambda text: _of_day(text, 6),
    "timestamp-millis": lambda text: _instant(text, 3, zone=True),
    "timestamp-micros": lambda text: _instant(text, 6, zone=True),
    "local-timestamp-millis": lambda text: _instant(text, 3, zone=False),
    "local-timestamp-micros": lambda text: _instant(text, 6, zone=False),
}
