"""What is seen of the values in one place of JSON documents, and the type of a schema that holds them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from airflow_provider_kafka_s3.converters.json_scalar import Convert, InvalidJsonError, Number, ScalarConverters
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.schemas.nodes import ALLOWED_NAME, Primitive

__all__ = ["FieldEvidence", "NoTypeError", "Schema", "Shape", "record_schema"]

Schema: TypeAlias = Any
"""A type as Avro's JSON."""

Kind: TypeAlias = Literal["boolean", "long", "beyond long", "double", "beyond double", "string", "array", "object"]

_LONGEST_TIME: Final = 40
_MOST_DIGITS: Final = 76
"""Digits of a decimal at most."""
_SPARK_DIGITS: Final = 38
"""Digits of a decimal that every engine has."""
_EXACT: Final = 2**53
"""Integers up to this are doubles without rounding."""
_DEEPEST: Final = 30
"""Objects and arrays inside each other: a schema has two types for each, and at most a hundred."""
_MOST_KEYS: Final = 1_000
"""Names in one place: with more, they are those of a map."""
_MOST_COLUMNS: Final = 2_000
_KEYS_OF_MAP: Final = 20
"""Objects with fewer names are records, unless the names are none of fields."""
_SHARE_OF_MAP: Final = 0.25
"""Of the names that an object of a map has, on average, at most."""

_DECIMAL_TEXT: Final = re.compile(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?")
_TIMES: Final = (
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("int", "time-millis"),
    ("long", "time-micros"),
)
_CONVERTERS: Final = ScalarConverters("NUMERIC", lambda _, values: values)
_READ_TIME: Final[dict[str, Convert]] = {
    logical: _CONVERTERS.make(Primitive(name, logical)) for name, logical in _TIMES
}
_BASE_OF: Final = {logical: name for name, logical in _TIMES}


class NoTypeError(Exception):
    """The values have no type in a schema."""


class Shape:
    """The values that were seen in one place.

    Attributes:
        count: number of values, nulls included.
        nulls: number of nulls.
        kinds: numbers of the other values by their kind.
        digits: of the longest integer beyond long.
        rounded: integers that are rounded if they are doubles.
        times: numbers of texts by the logical type that they have the form of.
        decimals: number of texts that are decimal numbers, without zeros before them.
        whole: digits before the point of the longest one.
        scale: digits behind the point of the longest one.
        fields: of objects, by name, in the order in which the names were first seen.
        members: of all objects together.
        items: of arrays.
        values: of maps; None as long as the names of the objects may be those of fields.
        more: names that are left out, since there are too many columns.
    """

    def __init__(self) -> None:
        self.count = self.nulls = self.digits = self.rounded = self.decimals = self.whole = self.scale = 0
        self.kinds: Counter[Kind] = Counter()
        self.times: Counter[str] = Counter()
        self.fields: dict[str, Shape] = {}
        self.members = 0
        self.items: Shape | None = None
        self.values: Shape | None = None
        self.more = 0
        self.is_deep = False

    def add(self, value: Any, depth: int = 0) -> None:
        """Look at a value of :func:`~airflow_provider_kafka_s3.converters.json_scalar.document`.

        Args:
            value: it.
            depth: number of objects and arrays around it; of the documents themselves 0.
        """
        self.count += 1
        match value:
            case None:
                self.nulls += 1
            case bool():
                self.kinds["boolean"] += 1
            case int() | Number():
                self._add_number(value)
            case str():
                self.kinds["string"] += 1
                self._add_text(value)
            case _ if depth >= _DEEPEST:
                self.is_deep = True
            case list():
                self.kinds["array"] += 1
                self.items = self.items or Shape()
                for item in value:
                    self.items.add(item, depth + 1)
            case dict():
                self.kinds["object"] += 1
                self._add_object(value, depth)

    def _add_number(self, value: int | Number) -> None:
        if isinstance(value, Number) and not value.text.removeprefix("-").isdigit():
            self.kinds["double" if abs(float(value.text)) != float("inf") else "beyond double"] += 1
            return
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            self.kinds["long"] += 1
            self.rounded += abs(value) > _EXACT
            return
        digits = len((value.text if isinstance(value, Number) else str(value)).removeprefix("-"))
        self.digits = max(self.digits, digits)
        self.kinds["beyond long"] += 1
        self.rounded += 1

    def _add_text(self, text: str) -> None:
        if not ("0" <= text[:1] <= "9" or text[:1] == "-"):
            return
        if (number := _DECIMAL_TEXT.fullmatch(text)) is not None:
            self.decimals += 1
            self.whole = max(self.whole, len(number[1]))
            self.scale = max(self.scale, len(number[2] or ""))
        elif len(text) <= _LONGEST_TIME and (logical := _time_of(text)) is not None:
            self.times[logical] += 1

    def _add_object(self, value: dict[str, Any], depth: int) -> None:
        self.members += len(value)
        for name, part in value.items():
            if self.values is not None:
                self.values.add(part, depth + 1)
                continue
            if name not in self.fields:
                if depth == 0 and len(self.fields) >= _MOST_COLUMNS:
                    self.more += 1
                    continue
                self.fields[name] = Shape()
            self.fields[name].add(part, depth + 1)
            if depth and len(self.fields) > _MOST_KEYS:
                self.values = self.all_fields()
                self.fields = {}

    def merge(self, other: Shape) -> None:
        """Add what another shape has seen."""
        for name in ("count", "nulls", "rounded", "decimals", "members", "more"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("digits", "whole", "scale"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.kinds += other.kinds
        self.times += other.times
        self.is_deep |= other.is_deep
        if other.items is not None:
            self.items = self.items or Shape()
            self.items.merge(other.items)
        if self.values is None and other.values is not None:
            self.values, self.fields = self.all_fields(), {}
        if self.values is not None:
            self.values.merge(other.all_fields())
            return
        for field, shape in other.fields.items():
            self.fields.setdefault(field, Shape()).merge(shape)

    def all_fields(self) -> Shape:
        """What the fields, or the values of maps, have seen together."""
        together = Shape()
        for part in ([] if self.values is None else [self.values], self.fields.values()):
            for shape in part:
                together.merge(shape)
        return together

    @property
    def is_map(self) -> bool:
        """Whether the names of the objects are keys of maps rather than names of fields."""
        if self.values is not None or not self.fields:
            return True
        refused = sum(ALLOWED_NAME.fullmatch(name) is None for name in self.fields)
        sparse = self.members <= _SHARE_OF_MAP * len(self.fields) * self.kinds["object"]
        return refused * 2 >= len(self.fields) or (len(self.fields) > _KEYS_OF_MAP and sparse)

    @property
    def time(self) -> str | None:
        """The logical type that all values have the form of as texts; None: there is none."""
        texts = self.kinds["string"]
        if not texts or self.kinds.total() != texts or self.times.total() != texts:
            return None
        names = {*self.times}
        if len(names) == 2 and len({name.rpartition("-")[0] for name in names}) == 1:
            return f"{next(iter(names)).rpartition('-')[0]}-micros"
        return names.pop() if len(names) == 1 else None

    @property
    def decimal(self) -> Schema | None:
        """The decimal that all values are as texts; None: there is none."""
        texts = self.kinds["string"]
        if not texts or self.kinds.total() != texts or self.decimals != texts:
            return None
        return _decimal(self.whole + self.scale, self.scale)


def _time_of(text: str) -> str | None:
    """The first logical type that a text has the form of."""
    for logical, read in _READ_TIME.items():
        try:
            read(text)
        except InvalidJsonError:
            continue
        return logical
    return None


def _decimal(digits: int, scale: int) -> Schema | None:
    if digits > _MOST_DIGITS:
        return None
    precision = _SPARK_DIGITS if digits <= _SPARK_DIGITS else _MOST_DIGITS
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@dataclass(frozen=True)
class FieldEvidence:
    """What was seen of one field.

    Attributes:
        field: its path: a dot before a name, ``[]`` for the items of an array, ``[*]`` for the values of a map.
        present: number of objects that have it.
        objects: number of objects that could have it.
        nulls: number of these values that are null.
        seen: numbers of the other values by their kind.
        type: in the schema, without null; None: it is not in the schema.
        offer: a type that holds all of them as well, and is more than text; None: there is none.
        notes: what a person should know.
    """

    field: str
    present: int
    objects: int
    nulls: int
    seen: dict[str, int]
    type: Schema | None
    offer: Schema | None
    notes: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of the objects that have it."""
        return self.present / self.objects

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**vars(self), "share": round(self.share, 6), "notes": [*self.notes]}


def record_schema(shape: Shape, name: str, *, logical_types: bool = False) -> tuple[Schema, list[FieldEvidence]]:
    """The schema of documents that are objects, and what was seen of each field.

    Args:
        shape: of the documents.
        name: of the record.
        logical_types: whether texts that all are times or decimals have their logical type, rather than ``string``.
    """
    maker = _Maker(logical_types)
    schema = maker.record(shape, "", name)
    return schema, maker.evidence


class _Maker:
    """Makes the types of a schema, and collects what was seen."""

    def __init__(self, logical_types: bool) -> None:
        self._logical_types = logical_types
        self._names: set[str] = set()
        self.evidence: list[FieldEvidence] = []

    def record(self, shape: Shape, path: str, name: str) -> Schema:
        """The record of objects.

        Raises:
            NoTypeError: none of their names is that of a field.
        """
        name = self._unused(name)
        fields = []
        for field, part in shape.fields.items():
            inner = f"{path}.{field}" if path else field
            place = len(self.evidence)
            try:
                if ALLOWED_NAME.fullmatch(field) is None:
                    raise NoTypeError("a schema allows letters, digits and _ in names, and no digit first")
                kind, notes = self._type(part, inner, f"{name}_{field}")
            except NoTypeError as e:
                del self.evidence[place:]
                self.evidence.append(_evidence(inner, part, shape, None, (f"not in the schema: {e}",)))
                continue
            self.evidence.insert(place, _evidence(inner, part, shape, _brief(kind), tuple(notes)))
            fields.append({"name": field, "type": kind, "default": None})
        if not fields:
            raise NoTypeError("none of its names is allowed in a schema")
        return {"type": "record", "name": name, "fields": fields}

    def _type(self, shape: Shape, path: str, name: str) -> tuple[Schema, list[str]]:
        """The type of values, which always may be null, and what a person should know."""
        if shape.is_deep:
            raise NoTypeError(f"objects and arrays are nested more than {_DEEPEST} levels deep")
        kinds, notes = shape.kinds, [*_notes(shape)]
        branches: list[Schema] = []
        # A double takes the text "NaN", and a decimal digits: text comes first, so that it stays text.
        if kinds["string"]:
            branches.append(self._text(shape))
        if kinds["boolean"]:
            branches.append("boolean")
        if number := _number(shape):
            branches.append(number)
        if shape.items is not None:
            items, more = self._type(shape.items, f"{path}[]", name)
            branches.append({"type": "array", "items": items})
            notes += [f"items: {note}" for note in more]
        if kinds["object"]:
            if shape.is_map:
                values, more = self._type(shape.all_fields(), f"{path}[*]", name)
                branches.append({"type": "map", "values": values})
                notes += [f"values: {note}" for note in more]
            else:
                branches.append(self.record(shape, path, name))
        if not branches:
            notes.append("no value but null was seen, so the type is a guess")
        return ["null", *(branches or ["string"])], notes

    def _text(self, shape: Shape) -> Schema:
        return _offer(shape) or "string" if self._logical_types else "string"

    def _unused(self, name: str) -> str:
        names = (name if n == 1 else f"{name}{n}" for n in range(1, len(self._names) + 2))
        free = next(choice for choice in names if choice not in self._names)
        self._names.add(free)
        return free


def _number(shape: Shape) -> Schema | None:
    kinds = shape.kinds
    if kinds["double"] or kinds["beyond double"]:
        return "double"
    if kinds["beyond long"]:
        return _decimal(shape.digits, 0) or "double"
    return "long" if kinds["long"] else None


def _offer(shape: Shape) -> Schema | None:
    """The logical type of texts."""
    if (logical := shape.time) is not None:
        return {"type": _BASE_OF[logical], "logicalType": logical}
    return shape.decimal


def _notes(shape: Shape) -> Iterator[str]:
    kinds = shape.kinds
    numbers = kinds["long"] + kinds["beyond long"]
    if numbers and (kinds["double"] or kinds["beyond double"]):
        yield f"{count(numbers, 'integer')} among numbers with a fraction: all are double"
    if kinds["beyond long"]:
        yield f"{count(kinds['beyond long'], 'integer')} beyond long (up to {shape.digits:,} digits)"
    if shape.rounded and _number(shape) == "double":
        yield f"{count(shape.rounded, 'integer')} with more digits than a double has, which are rounded"
    if kinds["beyond double"]:
        yield f"{count(kinds['beyond double'], 'number')} beyond double: no type holds them, so such values are invalid"
    if len({"number" if kind in _NUMBERS else kind for kind in kinds}) > 1:
        seen = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
        yield f"several types ({seen}): a union, which is a struct with a field for each type"
    if (logical := shape.time) is not None:
        yield f"all texts have the form of {logical}"
    elif shape.decimal is not None:
        yield f"all texts are decimal numbers (up to {shape.whole} digits before and {shape.scale} behind the point)"


_NUMBERS: Final = ("long", "beyond long", "double", "beyond double")


def _evidence(path: str, shape: Shape, parent: Shape, kind: Schema | None, notes: tuple[str, ...]) -> FieldEvidence:
    seen = {str(name): number for name, number in sorted(shape.kinds.items())}
    offer = None if kind is None else _offer(shape)
    return FieldEvidence(
        path, shape.count, parent.kinds["object"], shape.nulls, seen, kind, None if offer == kind else offer, notes
    )


def _brief(kind: Schema) -> Schema:
    """A type without null, and without what is inside a record."""
    others = [_without_fields(branch) for branch in kind if branch != "null"]
    return others[0] if len(others) == 1 else others


def _without_fields(kind: Schema) -> Schema:
    if isinstance(kind, dict) and kind["type"] == "record":
        return "record"
    if isinstance(kind, dict) and kind["type"] in ("array", "map"):
        inside = "items" if kind["type"] == "array" else "values"
        return {"type": kind["type"], inside: _brief(kind[inside])}
    return kind
