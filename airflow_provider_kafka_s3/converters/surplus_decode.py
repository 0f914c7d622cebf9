"""JSON documents to Arrow arrays, and what the documents have beside their schema.

msgspec refuses a document with an unknown field, so nothing is done for records without one. Of a document that it
refuses, :class:`~airflow_provider_kafka_s3.converters.unknown_fields.Split` finds the surplus. Names of unknown fields
are then learned: msgspec decodes them as texts, and the next documents with them are refused no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, NoReturn, TypeAlias

import msgspec
import numpy as np

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array
from airflow_provider_kafka_s3.config import DecimalFormat, OnUnknownFields
from airflow_provider_kafka_s3.converters.json_columns import Structs
from airflow_provider_kafka_s3.converters.json_decode import DecodedJson, JsonDecoder
from airflow_provider_kafka_s3.converters.json_scalar import InvalidJsonError, document
from airflow_provider_kafka_s3.converters.unknown_fields import (
    Entries,
    Part,
    Split,
    Surplus,
    UnknownFieldCounter,
    array_text,
    joined,
    object_text,
    paths_of,
)
from airflow_provider_kafka_s3.messages import printable
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.schemas.nodes import ArrayOf, MapOf, Node, Record, Union, only_branch
from airflow_provider_kafka_s3.structs import is_plain_name

__all__ = ["SurplusDecoder"]

_MOST_COUNTED: Final = 32
"""Names of unknown fields that are looked for at most, where they are only counted: each takes time."""
_MOST_RESCUED: Final = 256
"""Names of unknown fields that msgspec decodes at most; documents with others take longer."""
_LOOKED_AT: Final = 100
"""Documents behind a refused one that are looked at before the names are learned."""
_SHOWN: Final = 100

_Container: TypeAlias = Literal["array", "map"]


class _LearnedError(Exception):
    """Names were learned while a block was decoded: it is decoded again."""


class SurplusDecoder(JsonDecoder):
    """Decodes documents of one schema, and handles what they have beside it.

    Attributes:
        rescued: after :meth:`decode`: the text of the surplus of each row that has one, with ``rescue``.
    """

    def __init__(
        self,
        node: Node,
        *,
        decimal_format: DecimalFormat,
        unknown_fields: OnUnknownFields,
        counter: UnknownFieldCounter,
    ) -> None:
        """Prepare the decoder.

        Args:
            node: the schema.
            decimal_format: what strings are where the schema has a decimal.
            unknown_fields: what happens to documents with a surplus. With ``leave_out`` records in unions of several
                types are not looked into, and of more than 32 unknown names the first ones are counted.
            counter: of these documents.

        Raises:
            ConfigurationError: see :class:`JsonDecoder`.
        """
        self.rescued: dict[int, bytes] = {}
        self._format = decimal_format
        self._on_unknown = unknown_fields
        self._counter = counter
        self._extras: dict[int, list[str]] = {}
        self._learned: list[tuple[int, str]] = []
        self._refuses_unknown = True
        self._looks_into_each = False
        self._split: Callable[[Any, Part], tuple[Any, Surplus | None]]
        self._watched: _Watched | None = None
        self._block: tuple[Array, int] | None = None
        self._surplus: dict[int, Surplus] = {}
        self._marked: Bools | None = None
        self._texts: dict[int, bytes] = {}
        super().__init__(node, decimal_format=decimal_format)

    @override
    def _prepare(self, structs: Structs) -> None:
        structs = self._structs()  # those of the base class take any field
        super()._prepare(structs)
        looks_into_unions = self._on_unknown != "leave_out"
        self._looks_into_each = looks_into_unions and _hides_records(self._node)
        if self._looks_into_each:
            self._decode = _refuse
        self._split = Split(
            structs.converters,
            rescues_values=self._on_unknown == "rescue",
            looks_into_unions=looks_into_unions,
        ).make(self._node)
        self._watched = _watched(self._node, self._extras)

    def _structs(self) -> Structs:
        return Structs(self._format, null_is_default=False, refuses_unknown=self._refuses_unknown, extras=self._extras)

    @override
    def decode(self, values: Array) -> DecodedJson:
        self.rescued = {}
        return super().decode(values)

    @override
    def _objects(self, values: Array, first: int, reasons: dict[int, str]) -> Array:
        while True:
            self._block, self._surplus, self._marked, self._texts = (values, first), {}, None, {}
            of_block: dict[int, str] = {}
            try:
                column = super()._objects(values, first, of_block)
            except _LearnedError:
                self._prepare(self._structs())
                continue
            break
        reasons.update(of_block)
        self._count()
        return column

    def _count(self) -> None:
        """Count the records of a block, and keep the texts of their surpluses."""
        of_rows = [(row, path) for row, surplus in self._surplus.items() for path in paths_of(surplus)]
        names = [path for _, path in sorted([*self._learned, *of_rows], key=itemgetter(0))]
        marked = 0 if self._marked is None else int(np.count_nonzero(self._marked))
        self._counter.add(marked + len(self._surplus), names)
        self._learned = []
        if self._on_unknown == "rescue":
            self.rescued.update(self._texts)
            self.rescued.update((row, joined(surplus)) for row, surplus in self._surplus.items())

    @override
    def _convert_row(self, text: bytes, row: int, reasons: dict[int, str]) -> Any:
        try:
            value, surplus = self._split(document(text), Part(text))
            if surplus is None:
                return value
            if self._learn(row, surplus):
                raise _LearnedError
            self._surplus[row] = surplus
            if self._on_unknown == "fail":
                raise _not_in_schema(surplus)
        except InvalidJsonError as e:
            reasons[row] = str(e)
            return None
        return value

    def _learn(self, row: int, surplus: Surplus) -> bool:
        """Learn the names of unknown fields of a document and of those behind it; False: there are none to learn."""
        if self._on_unknown == "fail" or self._looks_into_each or not self._refuses_unknown:
            return False
        if not self._new_names([(row, surplus)]):
            return False
        assert self._block is not None, "a block is decoded"
        values, first = self._block
        behind = enumerate(values.slice(row - first + 1, _LOOKED_AT).to_pylist(), start=row + 1)
        more = [(at, surplus) for at, text in behind if text is not None for surplus in self._surplus_of(text)]
        new = self._new_names([(row, surplus), *more])
        room = (_MOST_RESCUED if self._on_unknown == "rescue" else _MOST_COUNTED) - sum(map(len, self._extras.values()))
        if len(new) > room:
            if self._on_unknown == "rescue":
                return False
            self._refuses_unknown = False
        for record, name, place in new[:room]:
            self._extras.setdefault(record, []).append(name)
            self._learned.append(place)
        return True

    def _surplus_of(self, text: bytes) -> Iterator[Surplus]:
        """The surplus of a document, if it is valid and has one."""
        try:
            _, surplus = self._split(document(text), Part(text))
        except InvalidJsonError:
            return
        if surplus is not None:
            yield surplus

    def _new_names(self, surpluses: Sequence[tuple[int, Surplus]]) -> list[tuple[int, str, tuple[int, str]]]:
        """The unknown fields that can be learned: record, name, and the row and the path where it appears first."""
        names: dict[tuple[int, str], tuple[int, str]] = {}
        for row, surplus in surpluses:
            for record, name, path in _unknown(self._node, surplus, ""):
                names.setdefault((record, name), (row, path))
        return [
            (record, name, place)
            for (record, name), place in names.items()
            if is_plain_name(name) and name not in self._extras.get(record, ())
        ]

    @override
    def _inspect(self, objects: list[Any], first: int) -> None:
        if self._watched is None:
            return
        self._marked = np.zeros(len(objects), np.bool_)
        _mark(self._watched, objects, np.arange(len(objects)), self._marked)
        if self._on_unknown == "rescue":
            for row in np.flatnonzero(self._marked).tolist():
                self._texts[first + row] = _text_of(self._watched, objects[row])


def _refuse(text: bytes) -> NoReturn:
    raise msgspec.ValidationError(f"a document of {len(text)} bytes is looked into")


def _not_in_schema(surplus: Surplus) -> InvalidJsonError:
    error = InvalidJsonError("is not in the schema")
    error.path.append(f".{printable(min(paths_of(surplus)), shown=_SHOWN)}")
    return error


def _hides_records(node: Node) -> bool:
    """Whether there are records in unions of several types: msgspec does not look into these."""
    match node:
        case ArrayOf(items=part) | MapOf(values=part):
            return _hides_records(part)
        case Record(fields=fields):
            return any(_hides_records(field.type) for field in fields)
        case Union(branches=branches):
            if only_branch(node) is None:
                return any(_has_records(branch) for branch in branches)
            return any(_hides_records(branch) for branch in branches)
    return False


def _has_records(node: Node) -> bool:
    match node:
        case Record():
            return True
        case ArrayOf(items=part) | MapOf(values=part):
            return _has_records(part)
        case Union(branches=branches):
            return any(map(_has_records, branches))
    return False


def _unknown(node: Node, surplus: Surplus, path: str) -> Iterator[tuple[int, str, str]]:
    """The records, names and paths of the unknown fields in a surplus, but for those in unions of several types."""
    match node, surplus:
        case Union(), _:
            if (single := only_branch(node)) is not None:
                yield from _unknown(single, surplus, path)
        case Record(fields=fields), dict():
            types = {field.name: field.type for field in fields}
            for name, part in surplus.items():
                inner = f"{path}.{name}" if path else name
                if name in types:
                    yield from _unknown(types[name], part, inner)
                else:
                    yield id(node), name, inner
        case MapOf(values=values), Entries():
            for part in surplus.values():
                yield from _unknown(values, part, f"{path}[*]")
        case ArrayOf(items=items), list():
            for item in surplus:
                if item is not None:
                    yield from _unknown(items, item, f"{path}[]")


@dataclass(frozen=True)
class _Watched:
    """A record that has learned names, or has records with some inside it.

    Attributes:
        names: that were learned.
        extras: gets their texts from an object: a tuple, or the only one.
        fields: with records that are watched: the name, what gets the field, the arrays and maps around the records,
            and these.
    """

    names: Sequence[str]
    extras: Callable[[Any], Any]
    fields: Sequence[tuple[str, Callable[[Any], Any], Sequence[_Container], _Watched]]

    def texts(self, value: Any) -> Sequence[msgspec.Raw | None]:
        """The texts of the learned names."""
        return (self.extras(value),) if len(self.names) == 1 else self.extras(value) if self.names else ()


def _watched(node: Node, extras: dict[int, list[str]]) -> _Watched | None:
    """What to look at in objects; None: nothing."""
    inner, _ = _inside(node)
    if not isinstance(inner, Record):
        return None
    fields = []
    for number, field in enumerate(inner.fields):
        record, containers = _inside(field.type)
        if (watched := _watched(record, extras)) is not None:
            fields.append((field.name, attrgetter(f"f{number}"), containers, watched))
    names = extras.get(id(inner), [])
    if not names and not fields:
        return None
    return _Watched(names, attrgetter(*(f"x{number}" for number in range(max(len(names), 1)))), fields)


def _inside(node: Node) -> tuple[Node, Sequence[_Container]]:
    """What is inside arrays, maps and null, and the arrays and maps."""
    match node:
        case ArrayOf(items=part):
            inner, containers = _inside(part)
            return inner, ("array", *containers)
        case MapOf(values=part):
            inner, containers = _inside(part)
            return inner, ("map", *containers)
        case Union() if (single := only_branch(node)) is not None:
            return _inside(single)
    return node, ()


def _mark(watched: _Watched, values: Sequence[Any], rows: Int64Array, marked: Bools) -> None:
    """Mark the rows with objects that have one of the learned names."""
    if None in values:
        there = [number for number, value in enumerate(values) if value is not None]
        values, rows = [values[number] for number in there], rows[there]
    if not values:
        return
    if count := len(watched.names):
        texts = map(watched.extras, values)
        flags = [t is not None for t in texts] if count == 1 else [t.count(None) != count for t in texts]
        marked[rows[np.array(flags, np.bool_)]] = True
    for _, get, containers, inner in watched.fields:
        parts, of_rows = [*map(get, values)], rows
        for container in containers:
            filled = [part or () for part in parts]
            of_rows = np.repeat(of_rows, np.fromiter(map(len, filled), np.int64, len(filled)))
            parts = [*chain.from_iterable(p.values() if container == "map" and p else p for p in filled)]
        _mark(inner, parts, of_rows, marked)


def _text_of(watched: _Watched, value: Any) -> bytes:
    """The text of the surplus of an object; empty if it has none."""
    members = {n: bytes(text) for n, text in zip(watched.names, watched.texts(value), strict=True) if text is not None}
    for name, get, containers, inner in watched.fields:
        if text := _text_inside(inner, containers, get(value)):
            members[name] = text
    return object_text(members) if members else b""


def _text_inside(watched: _Watched, containers: Sequence[_Container], value: Any) -> bytes:
    """The text of the surpluses in a field; empty if there are none."""
    if value is None:
        return b""
    if not containers:
        return _text_of(watched, value)
    if containers[0] == "array":
        texts = [_text_inside(watched, containers[1:], item) or None for item in value]
        return array_text(texts) if texts.count(None) != len(texts) else b""
    entries = {key: text for key, item in value.items() if (text := _text_inside(watched, containers[1:], item))}
    return object_text(entries) if entries else b""
