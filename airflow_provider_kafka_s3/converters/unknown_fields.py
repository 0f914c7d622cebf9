"""What documents have beside their schema: where it is, its text, and how many records have some.

A *surplus* is what of a document has no place in the columns of the schema: a part of the text, or an object, a map or
an array with surpluses inside. Its text has objects with sorted names, and arrays with null for items without one. So
it is a function of the document alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from airflow_provider_kafka_s3.converters.json_scalar import (
    Convert,
    InvalidJsonError,
    ScalarConverters,
    is_nullable,
)
from airflow_provider_kafka_s3.schemas.nodes import (
    ArrayOf,
    Field,
    MapOf,
    Node,
    Record,
    Union,
    branches_without_null,
    only_branch,
)

__all__ = [
    "LONGEST_NAME",
    "MAX_NAMES",
    "Entries",
    "Part",
    "Split",
    "Surplus",
    "UnknownFieldCounter",
    "array_text",
    "joined",
    "object_text",
    "paths_of",
]

MAX_NAMES: Final = 20
"""Names of unknown fields that a result has at most."""
LONGEST_NAME: Final = 100
"""Characters of such a name at most."""
_REMEMBERED: Final = 1_000
_SPACE: Final = " \t\n\r"

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SCANNER: Final = json.JSONDecoder(parse_int=str, parse_float=str)  # Python refuses integers of 5,000 digits


class UnknownFieldCounter:
    """Counts the records of a slice with fields, or values, that have no place in the columns of their schema.

    Attributes:
        records: their number since :meth:`take`.
    """

    def __init__(self) -> None:
        self.records = 0
        self._names: dict[str, None] = {}

    def add(self, records: int, names: Iterable[str]) -> None:
        """Count records, and note the paths of what they have, those of the first records first."""
        self.records += records
        for name in names:
            self._names.setdefault(_storable(name), None)
        if len(self._names) > _REMEMBERED:
            self._names = dict.fromkeys([*self._names][-_REMEMBERED // 2 :])

    def take(self) -> tuple[int, tuple[str, ...]]:
        """The number of records and the last names in the order of their appearance; counting begins anew."""
        counted = self.records, tuple([*self._names][-MAX_NAMES:])
        self.records, self._names = 0, {}
        return counted


def _storable(name: str) -> str:
    """A name of bounded length, without halves of surrogate pairs."""
    return name[:LONGEST_NAME].encode(errors="backslashreplace").decode()[:LONGEST_NAME]


class Part:
    """A part of the text of a document, which is looked for only if it is needed."""

    __slots__ = ("_key", "_parent", "_parts", "_text")

    def __init__(self, text: bytes | None, parent: Part | None = None, key: str | int = "") -> None:
        self._text = text
        self._parent = parent
        self._key = key
        self._parts: Any = None

    def inside(self, key: str | int) -> Part:
        """The value of a member, or an item."""
        return Part(None, self, key)

    @property
    def text(self) -> bytes:
        """As it is in the document."""
        if self._text is None:
            assert self._parent is not None, "a document has its text"
            self._text = self._parent._part(self._key)
        return self._text

    def _part(self, key: str | int) -> bytes:
        if self._parts is None:
            self._parts = _members(self.text) if isinstance(key, str) else _items(self.text)
        return bytes(self._parts[key])


def _members(text: bytes) -> Mapping[str, Any]:
    """The texts of the values of an object by name, the last one of each."""
    try:
        return _MEMBERS.decode(text)
    except (msgspec.MsgspecError, UnicodeError):  # a name with half of a surrogate pair
        return dict(_scanned_members(text.decode()))


def _items(text: bytes) -> Sequence[Any]:
    """The texts of the items of an array."""
    return _ITEMS.decode(text)


def _scanned_members(text: str) -> Iterator[tuple[str, bytes]]:
    """The names and the texts of the values of an object, of a document that is valid."""
    place = _skip(text, text.index("{") + 1)
    while text[place] != "}":
        name, end = _SCANNER.raw_decode(text, place)
        begin = _skip(text, text.index(":", end) + 1)
        _, end = _SCANNER.raw_decode(text, begin)
        yield name, text[begin:end].encode()
        place = _skip(text, end)
        if text[place] == ",":
            place = _skip(text, place + 1)


def _skip(text: str, place: int) -> int:
    """The place of the next character that is no white space."""
    while text[place] in _SPACE:
        place += 1
    return place


class Entries(dict[str, Any]):
    """Surpluses in the values of a map."""


Surplus: TypeAlias = "Part | dict[str, Surplus] | Entries | list[Surplus | None]"


def joined(surplus: Surplus) -> bytes:
    """The text of a surplus."""
    match surplus:
        case Part():
            return surplus.text
        case dict():
            return object_text({name: joined(part) for name, part in surplus.items()})
        case list():
            return array_text([None if part is None else joined(part) for part in surplus])


def array_text(items: Sequence[bytes | None]) -> bytes:
    """An array of the texts of its items, with null for None."""
    return b"[" + b",".join(b"null" if item is None else item for item in items) + b"]"


def object_text(members: Mapping[str, bytes]) -> bytes:
    """An object with sorted names, of the texts of its values."""
    return b"{" + b",".join(_quoted(name) + b":" + members[name] for name in sorted(members)) + b"}"


def _quoted(name: str) -> bytes:
    try:
        return msgspec.json.encode(name)
    except UnicodeEncodeError:
        return json.dumps(name).encode()


def paths_of(surplus: Surplus, path: str = "") -> Iterator[str]:
    """The paths of the fields in a surplus, without keys of maps and positions in arrays."""
    match surplus:
        case Part():
            yield path
        case dict():
            is_map = isinstance(surplus, Entries)
            for name, part in surplus.items():
                yield from paths_of(part, f"{path}[*]" if is_map else f"{path}.{name}" if path else name)
        case list():
            for item in surplus:
                if item is not None:
                    yield from paths_of(item, f"{path}[]")


_Result: TypeAlias = "tuple[Any, Surplus | None]"
_Convert: TypeAlias = Callable[[Any, Part], _Result]


@dataclass(frozen=True)
class _FieldOfRecord:
    name: str
    convert: _Convert
    has_default: bool
    default: Any
    may_be_null: bool


class Split:
    """Splits the values of documents, one after the other, into those of the schema and the surplus.

    Args:
        converters: of the values.
        rescues_values: whether a value that does not fit its type is surplus, and null in its place, if null is a value
            of its field, its array or its map; otherwise it is an error. In a union of several types it is an error.
        looks_into_unions: whether unknown fields of records in unions of several types are surplus.
    """

    def __init__(self, converters: ScalarConverters, *, rescues_values: bool, looks_into_unions: bool = True) -> None:
        self._converters = converters
        self._rescues_values = rescues_values
        self._looks_into_unions = looks_into_unions

    def make(self, node: Node) -> Callable[[Any, Part], tuple[Any, Surplus | None]]:
        """The function for a type; its arguments are a value of a document and its text.

        It raises InvalidJsonError.
        """
        return self._made(node, rescues_values=self._rescues_values)

    def _made(self, node: Node, *, rescues_values: bool) -> _Convert:
        match node:
            case Record():
                return self._record(node, rescues_values=rescues_values)
            case ArrayOf(items=items) if _may_have_surplus(node, rescues_values=rescues_values):
                return self._array(node, items, rescues_values=rescues_values)
            case MapOf(values=values) if _may_have_surplus(node, rescues_values=rescues_values):
                return self._map(node, values, rescues_values=rescues_values)
            case Union() if _may_have_surplus(node, rescues_values=rescues_values):
                return self._union(node, rescues_values=rescues_values)
        plain = self._converters.make(node)
        return lambda value, _: (plain(value), None)

    def _record(self, node: Record, *, rescues_values: bool) -> _Convert:
        plain = self._converters.make(node)
        fields = [self._field(field, rescues_values=rescues_values) for field in node.fields]
        names = frozenset(field.name for field in node.fields)
        make_record = self._converters.make_record

        def convert(value: Any, text: Part) -> _Result:
            if type(value) is not dict:
                return plain(value), None  # it raises
            surplus: dict[str, Surplus] = {name: text.inside(name) for name in value if name not in names}
            values = []
            for field in fields:
                if field.name in value:
                    part, more = _or_null(field, value[field.name], text.inside(field.name), rescues_values)
                    if more is not None:
                        surplus[field.name] = more
                    values.append(part)
                elif field.has_default:
                    values.append(field.default)
                else:
                    raise _at(InvalidJsonError("is missing"), f".{field.name}")
            return make_record(node, values), surplus or None

        return convert

    def _field(self, field: Field, *, rescues_values: bool) -> _FieldOfRecord:
        nullable = is_nullable(field.type)
        return _FieldOfRecord(
            field.name,
            self._made(field.type, rescues_values=rescues_values),
            field.has_default or nullable,
            self._converters.default(field) if field.has_default else None,
            nullable,
        )

    def _array(self, node: ArrayOf, items: Node, *, rescues_values: bool) -> _Convert:
        plain, convert_item = self._converters.make(node), self._made(items, rescues_values=rescues_values)
        field = _FieldOfRecord("", convert_item, False, None, is_nullable(items))

        def convert(value: Any, text: Part) -> _Result:
            if type(value) is not list:
                return plain(value), None
            pairs = []
            for number, item in enumerate(value):
                try:
                    pairs.append(_or_null(field, item, text.inside(number), rescues_values))
                except InvalidJsonError as e:
                    raise _at(e, f"[{number}]") from None
            surplus: list[Surplus | None] = [more for _, more in pairs]
            return [part for part, _ in pairs], None if surplus.count(None) == len(surplus) else surplus

        return convert

    def _map(self, node: MapOf, values: Node, *, rescues_values: bool) -> _Convert:
        plain, convert_value = self._converters.make(node), self._made(values, rescues_values=rescues_values)
        check_key = self._converters.make(node.keys)
        field = _FieldOfRecord("", convert_value, False, None, is_nullable(values))

        def convert(value: Any, text: Part) -> _Result:
            if type(value) is not dict:
                return plain(value), None
            surplus: dict[str, Surplus] = Entries()
            entries = {}
            for key, item in value.items():
                try:
                    entries[check_key(key)], more = _or_null(field, item, text.inside(key), rescues_values)
                except InvalidJsonError as e:
                    raise _at(e, "[*]") from None
                if more is not None:
                    surplus[key] = more
            return entries, surplus or None

        return convert

    def _union(self, node: Union, *, rescues_values: bool) -> _Convert:
        if (single := only_branch(node)) is not None:
            convert_single, nullable = self._made(single, rescues_values=rescues_values), is_nullable(node)
            return lambda value, text: (None, None) if value is None and nullable else convert_single(value, text)
        plain: Convert = self._converters.make(node)
        if not self._looks_into_unions:
            return lambda value, _: (plain(value), None)
        branches = [self._made(branch, rescues_values=False) for branch in branches_without_null(node)]

        def convert(value: Any, text: Part) -> _Result:
            branch = plain(value)
            return branch, None if branch is None else branches[branch.number](value, text)[1]

        return convert


def _or_null(field: _FieldOfRecord, value: Any, text: Part, rescues_values: bool) -> _Result:
    """A value and its surplus; null, and all of it as surplus, if it does not fit."""
    try:
        return field.convert(value, text)
    except InvalidJsonError as e:
        if rescues_values and field.may_be_null:
            return None, text
        raise _at(e, f".{field.name}") if field.name else e from None


def _at(error: InvalidJsonError, place: str) -> InvalidJsonError:
    error.path.append(place)
    return error


def _may_have_surplus(node: Node, *, rescues_values: bool) -> bool:
    """Whether a value of a type may have a surplus inside it."""
    match node:
        case Record():
            return True
        case ArrayOf(items=part) | MapOf(values=part):
            return _may_have_surplus(part, rescues_values=rescues_values) or (rescues_values and is_nullable(part))
        case Union(branches=branches):
            return any(_may_have_surplus(branch, rescues_values=rescues_values) for branch in branches)
    return False
