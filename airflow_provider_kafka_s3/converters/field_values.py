"""Fields of values: what partitioners put into paths.

A field of a batch is the distinct values that it has, and of each record the index of its value: a path is made once
for each value, not for each record.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, int64_array, number_values, valid_rows
from airflow_provider_kafka_s3.converters.json_grammar import Decoder, line_documents
from airflow_provider_kafka_s3.schemas.nodes import MapOf, Node, Primitive, Record, Union
from airflow_provider_kafka_s3.structs import describing_types, is_plain_name

__all__ = [
    "Counted",
    "Day",
    "DocumentFields",
    "FieldValue",
    "FieldValues",
    "Fraction",
    "Moment",
    "Unusable",
    "key_values",
    "typed_field",
]


class Moment(NamedTuple):
    """A timestamp of a schema: a number of units (``s``, ``ms``, ``us``, ``ns``) since 1970."""

    value: int
    unit: str


class Day(NamedTuple):
    """A date of a schema: days since 1970."""

    days: int


class Counted(int):
    """A whole number whose type has a name that gives its unit, as those of Debezium.

    Attributes:
        unit: what it counts from 1970: ``ms``, ``us``, ``ns`` or ``days``; ``years``: it is the year itself; or the
            name of a type that is no point in time.
    """

    def __new__(cls, value: int, unit: str) -> Counted:
        """Make it."""
        made = super().__new__(cls, value)
        made.unit = unit
        return made

    unit: str


class Fraction(NamedTuple):
    """The text of a JSON number with a fraction or an exponent."""

    text: str


class Unusable(NamedTuple):
    """No value that a path can have.

    Attributes:
        reason: why, behind the name of the field, without any content of the record.
        missing: whether there is no such field.
    """

    reason: str
    missing: bool = False


FieldValue: TypeAlias = str | int | bool | Decimal | Moment | Day | Fraction | Unusable | None

_TIME_UNITS: Final = {
    "io.debezium.time.Date": "days",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "io.debezium.time.Year": "years",
}
_MISSING: Final = Unusable("is not there", missing=True)
_NOT_SCALAR: Final = Unusable("is a record, a map or a list")
_NO_RECORD: Final = Unusable("is inside a value that is no record")
# Errors of msgspec are no ValueError before its version 0.20.
_UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)


@dataclass(frozen=True)
class FieldValues:
    """The values of one field of some records.

    Attributes:
        codes: of each record the index of its value.
        values: the distinct values.
    """

    codes: Int64Array
    values: Sequence[FieldValue]

    def take(self, rows: Int64Array) -> FieldValues:
        """Those of some records."""
        return FieldValues(self.codes[rows], self.values)

    @classmethod
    def same(cls, value: FieldValue, count: int) -> FieldValues:
        """One value for all records."""
        return cls(np.zeros(count, np.int64), [value])

    @classmethod
    def merged(cls, count: int, parts: Sequence[tuple[Int64Array, FieldValues]], others: FieldValue) -> FieldValues:
        """The values of parts of the records by their rows, and one value for all others."""
        codes, values = np.zeros(count, np.int64), [others]
        for rows, part in parts:
            codes[rows] = part.codes + len(values)
            values += part.values
        return cls(codes, values)


def typed_field(values: Array, node: Node, path: Sequence[str]) -> FieldValues:
    """A field of decoded values.

    Args:
        values: of the Arrow type of the schema.
        node: the schema.
        path: name of the field, and of the fields that it is nested in, outermost first.
    """
    match node:
        case Union(branches=branches):
            return _of_union(values, branches, path)
        case Record(fields=fields) if path:
            index = next((i for i, field in enumerate(fields) if field.name == path[0]), None)
            if index is None:
                return _if_valid(values, FieldValues.same(_MISSING, len(values)))
            inner = cast("pa.StructArray", values).field(index)
            return _if_valid(values, typed_field(inner, fields[index].type, path[1:]))
        case MapOf(values=part) if path:
            return _if_valid(values, _of_map(cast("pa.MapArray[Any, Any]", values), part, path))
    if path:
        return _if_valid(values, FieldValues.same(_NO_RECORD, len(values)))
    if isinstance(node, Primitive) and node.time_name is not None and pa.types.is_integer(values.type):
        codes, distinct = _distinct(values)
        unit = _TIME_UNITS.get(node.time_name, node.time_name)
        return _if_valid(values, FieldValues(codes, [v if v is None else Counted(v, unit) for v in distinct]))
    return _if_valid(values, _scalars(values))


def key_values(keys: Array) -> FieldValues:
    """Keys as texts; bytes that are not UTF-8 are lone surrogates, as in names of files."""
    codes, distinct = _distinct(keys)
    return _if_valid(keys, FieldValues(codes, [bytes(key).decode("utf-8", "surrogateescape") for key in distinct]))


def _of_union(values: Array, branches: Sequence[Node], path: Sequence[str]) -> FieldValues:
    others = [branch for branch in branches if getattr(branch, "name", "") != "null"]
    if not others:
        return FieldValues.same(None, len(values))
    if len(others) == 1:
        return typed_field(values, others[0], path)
    parts = []
    for i, branch in enumerate(others):
        inner = cast("pa.StructArray", values).field(i)
        rows = np.flatnonzero(valid_rows(inner) & valid_rows(values))
        if len(rows):
            parts.append((rows, typed_field(inner, branch, path).take(rows)))
    return FieldValues.merged(len(values), parts, None)


def _of_map(values: pa.MapArray[Any, Any], part: Node, path: Sequence[str]) -> FieldValues:
    """The entry of each map; of several with one key the last."""
    if not pa.types.is_string(values.keys.type):
        return FieldValues.same(_MISSING, len(values))
    codes, distinct = _distinct(values.keys)
    if path[0] not in distinct:
        return FieldValues.same(_MISSING, len(values))
    buffer = values.buffers()[1]
    assert buffer is not None, "there are keys"
    ends = np.frombuffer(memoryview(buffer), np.int32)[values.offset : values.offset + len(values) + 1]
    entries = np.flatnonzero(codes == list(distinct).index(path[0]))
    entries = entries[(entries >= ends[0]) & (entries < ends[-1])]
    entry = np.full(len(values), -1, np.int64)
    entry[np.searchsorted(ends, entries, side="right") - 1] = entries
    rows = np.flatnonzero(entry >= 0)
    entry_values = typed_field(values.items.take(int64_array(entry[rows])), part, path[1:])
    return FieldValues.merged(len(values), [(rows, entry_values)], _MISSING)


def _if_valid(values: Array, field: FieldValues) -> FieldValues:
    """The field, and null where the values are."""
    valid = np.zeros(len(values), np.bool_) if pa.types.is_null(values.type) else valid_rows(values)
    if valid.all():
        return field
    return FieldValues(np.where(valid, field.codes, len(field.values)), [*field.values, None])


def _scalars(values: Array) -> FieldValues:
    """Values that are no records."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        codes, distinct = _distinct(values.view(pa.int64()))
        return FieldValues(codes, [Moment(value, kind.unit) for value in distinct])
    if pa.types.is_date32(kind):
        codes, distinct = _distinct(values.view(pa.int32()))
        return FieldValues(codes, [Day(value) for value in distinct])
    if pa.types.is_floating(kind):
        return FieldValues.same(Unusable("is a floating-point number"), len(values))
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        return FieldValues.same(_NOT_SCALAR, len(values))
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return FieldValues(*_distinct(values))
    if pa.types.is_null(kind):
        return FieldValues.same(None, len(values))
    return FieldValues.same(Unusable(f"is of the type {kind}"), len(values))


def _distinct(values: Array) -> tuple[Int64Array, Sequence[Any]]:
    """Of each value the index of an equal one, and these; the index of a null is any."""
    encoded = values.dictionary_encode()
    indices, distinct = encoded.indices, encoded.dictionary.to_pylist()
    if not distinct:
        return np.zeros(len(values), np.int64), [None]
    codes = number_values(indices, np.int32)
    return np.where(valid_rows(indices), codes, 0).astype(np.int64), distinct


class DocumentFields:
    """Fields of JSON documents without a schema.

    Only these fields are decoded. The rest of a document is skipped by the parser, and nothing is made of it.

    Args:
        paths: name of each field, and of the fields that it is nested in, outermost first.
    """

    def __init__(self, paths: Sequence[Sequence[str]]) -> None:
        self._paths = paths
        self._names = list(dict.fromkeys(path[0] for path in paths))
        self._decoder = _decoder(tuple(self._names))
        self._texts = _texts_decoder(tuple(tuple(path) for path in paths))

    def read(self, values: Array) -> list[FieldValues]:
        """The fields, in the order of their names.

        Args:
            values: binary or large_binary; each is one JSON document, or null.
        """
        valid = valid_rows(values)
        rows = None if valid.all() else np.flatnonzero(valid)
        documents = values if rows is None else values.take(int64_array(rows))
        fields = self._fields(self._columns(documents))
        if rows is None:
            return fields
        return [FieldValues.merged(len(values), [(rows, field)], None) for field in fields]

    def read_lines(self, values: Array, frames: Array) -> list[FieldValues] | None:
        """The fields, if every value certainly is one JSON object on one line, which this checks at the same time.

        Args:
            values: binary or large_binary, without nulls.
            frames: the values with a newline behind each.

        Returns:
            The fields; None: the values may be no such documents. They have to be checked, and :meth:`read`.
        """
        # Fields are mostly texts; what is read as texts at once costs less than the token of each value.
        if self._texts is not None and (documents := line_documents(values, frames, self._texts)) is not None:
            return [_of_texts(map(attrgetter(_attribute(path)), documents), len(documents)) for path in self._paths]
        documents = line_documents(values, frames, self._decoder)
        if documents is None:
            return None
        self._texts = None  # some are no texts, as those of further records will be
        return self._fields([_members(documents, i) for i in range(len(self._names))])

    def _fields(self, columns: Sequence[Sequence[bytes | None]]) -> list[FieldValues]:
        return [_of_tokens(columns[self._names.index(path[0])], path[1:]) for path in self._paths]

    def _columns(self, documents: Array) -> list[list[bytes | None]]:
        """The text of each field in each document; empty: it is not there; None: the document is no object."""
        texts = cast("list[bytes]", documents.to_pylist())
        try:
            # A newline inside a document is white space, as between documents.
            decoded = self._decoder.decode_lines(b"\n".join(texts))
        except _UNREADABLE:  # one of them is no object: they are decoded one by one
            return [list(column) for column in zip(*map(self._tokens, texts), strict=True)]
        assert len(decoded) == len(documents), "each value is one document"
        return [_members(decoded, i) for i in range(len(self._names))]

    def _tokens(self, text: bytes) -> list[bytes | None]:
        """The text of each field in one document."""
        try:
            document = self._decoder.decode(text)
            return [bytes(getattr(document, f"f{i}")) for i in range(len(self._names))]
        except _UNREADABLE:
            pass
        try:
            # It may have half a character, in any field, which only the standard library accepts.
            members = json.loads(text)
        except _UNREADABLE:
            members = None
        if not isinstance(members, dict):
            return [None] * len(self._names)
        return [json.dumps(members[name]).encode() if name in members else b"" for name in self._names]


@functools.lru_cache(maxsize=64)
def _texts_decoder(paths: tuple[tuple[str, ...], ...]) -> msgspec.json.Decoder[Any] | None:
    """Reads fields that are texts, null or not there, see :func:`_attribute`; None: no struct can have all of them."""
    if not all(is_plain_name(name) for path in paths for name in path):
        return None
    tree: dict[str, Any] = {}
    for path in paths:  # one may be part of another
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if inner is None:
                return None
        if inner.setdefault(path[-1], None) is not None:
            return None
    with describing_types:
        return msgspec.json.Decoder(_texts_struct(tree))


def _texts_struct(tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields = []
    for name, inner in tree.items():
        kind: Any = str | None if inner is None else _texts_struct(inner)
        default = {"default": _MISSING} if inner is None else {"default_factory": kind}
        fields.append((_attribute([name]), kind, msgspec.field(name=name, **default)))
    return msgspec.defstruct("Texts", fields, gc=False)


def _attribute(path: Sequence[str]) -> str:
    """Where a struct has a field; names of JSON may be no names of Python."""
    return ".".join(f"f{name.encode().hex()}" for name in path)


def _of_texts(texts: Iterable[FieldValue], count: int) -> FieldValues:
    codes = _Codes()
    of_text = np.fromiter(map(codes.__getitem__, texts), np.int64, count)
    return FieldValues(of_text, list(codes))


class _Codes(dict[Any, int]):
    """Numbers of keys, from 0, in the order in which they are first looked up."""

    def __missing__(self, key: object) -> int:
        self[key] = number = len(self)
        return number


def _members(documents: Sequence[Any], number: int) -> list[bytes | None]:
    """The text of the member ``f<number>`` of each document."""
    return list(map(bytes, map(attrgetter(f"f{number}"), documents)))


@functools.lru_cache(maxsize=64)
def _decoder(names: tuple[str, ...]) -> Decoder[Any]:
    """Reads the members with these names, as ``f0``, ``f1`` and so on."""
    if not all(map(is_plain_name, names)):
        return _AnyNames(names)
    absent = msgspec.Raw(b"")
    fields = [(f"f{i}", msgspec.Raw, msgspec.field(name=name, default=absent)) for i, name in enumerate(names)]
    with describing_types:
        return msgspec.json.Decoder(msgspec.defstruct("Document", fields, gc=False))


class _AnyNames:
    """Reads members whose names no struct can have."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def decode(self, document: bytes | memoryview, /) -> SimpleNamespace:
        return self._named(self._decoder.decode(document))

    def decode_lines(self, documents: bytes | memoryview, /) -> list[SimpleNamespace]:
        return list(map(self._named, self._decoder.decode_lines(documents)))

    def _named(self, members: Mapping[str, msgspec.Raw]) -> SimpleNamespace:
        return SimpleNamespace(**{f"f{i}": members.get(name, b"") for i, name in enumerate(self._names)})


def _of_tokens(tokens: Sequence[bytes | None], path: Sequence[str]) -> FieldValues:
    """A field, or a field nested in it, of the texts of the field."""
    codes = _Codes()
    of_token = np.fromiter(map(codes.__getitem__, tokens), np.int64, len(tokens))
    distinct: list[bytes | None] = list(codes)
    if not path:
        return FieldValues(of_token, [_value(token) for token in distinct])
    decoder = _decoder((path[0],))
    inner = [_member(decoder, token) for token in distinct]
    nested = _of_tokens([token for token in inner if isinstance(token, bytes)], path[1:])
    rows = np.flatnonzero([isinstance(token, bytes) for token in inner])
    values: list[FieldValue] = [None if isinstance(token, bytes) else token for token in inner]
    of_distinct = np.arange(len(distinct))
    of_distinct[rows] = nested.codes + len(values)
    return FieldValues(of_distinct[of_token], [*values, *nested.values])


def _member(decoder: Decoder[Any], token: bytes | None) -> bytes | Unusable | None:
    """The text of a member of an object."""
    if token is None:
        return _NO_RECORD
    if token == b"":
        return _MISSING
    if token == b"null":
        return None
    try:
        return bytes(decoder.decode(token).f0)
    except _UNREADABLE:
        return _NO_RECORD


_SCALARS: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_INTEGER: Final = frozenset(b"-0123456789")


def _value(token: bytes | None) -> FieldValue:
    if token is None:
        return _NO_RECORD
    if token == b"":
        return _MISSING
    if token[:1] in (b"{", b"["):
        return _NOT_SCALAR
    if token[0] in _INTEGER and not _INTEGER.issuperset(token):
        return Fraction(token.decode())
    try:
        value: FieldValue = _SCALARS.decode(token)
    except _UNREADABLE:
        return Unusable("is a text with a character that does not exist, or a number out of range")
    return value
