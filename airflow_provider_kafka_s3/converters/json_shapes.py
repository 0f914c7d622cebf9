"""JSON documents of the same shape to Arrow arrays, without a Python object for each value.

The shape of a document is its text without the values of its fields, such as ``{"id":…,"place":{"city":…}}``; a
producer writes documents of few shapes. One pass over a block of documents finds all strings. Those with a colon behind
them are keys, and the text between two values, which the shape fixes, leads from a key to the bounds of the values. So
each field is a column of texts, which Arrow converts at once.

Documents that need more than that are left to
:class:`~airflow_provider_kafka_s3.converters.json_decode.JsonDecoder`, which gives the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents, int64_array
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.json_columns import Structs, is_plain
from airflow_provider_kafka_s3.converters.json_grammar import GRAMMAR, are_utf8, deep_rows
from airflow_provider_kafka_s3.converters.json_readers import Ignored, Reader, make_reader
from airflow_provider_kafka_s3.converters.json_spans import Block, FixedTexts, Spans, rows_of
from airflow_provider_kafka_s3.schemas.nodes import Field, Node, Record, Union, only_branch

__all__ = ["ShapeDecoder"]

_MOST_SHAPES: Final = 4
"""Shapes of a batch that are looked for."""
_LONGEST_PAUSE: Final = 64
"""Batches that are not looked at after many that were of other shapes."""

_SPACE: Final = 0x20
_BACKSLASH: Final = ord("\\")
_TOKENS: Final = re.compile(rb'"[^"]*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')


class ShapeDecoder:
    """Decodes documents of one schema, those of the first shapes only.

    Attributes:
        fewest: documents that are worth it: each field takes some twenty calls.
    """

    fewest = 256

    def __init__(self, node: Record, kind: pa.DataType, structs: Structs, decimal_format: DecimalFormat) -> None:
        self._node = node
        self._type = kind
        self._shapes = _Shapes(structs, decimal_format)
        self._pause = self._wait = 0

    def decode(self, values: Array) -> tuple[Int64Array, Array] | None:
        """Decode some rows.

        Args:
            values: binary or large_binary.

        Returns:
            The rows that are decoded, in order, and their values; None if there are none.
        """
        if len(values) < self.fewest:
            return None
        if self._wait:
            self._wait -= 1
            return None
        decoded = self._decode(values)
        # Where most documents have to be decoded by other means, not every batch is worth a try.
        if decoded is None or 2 * len(decoded[0]) < len(values):
            self._wait = self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        else:
            self._pause = 0
        return decoded

    def _decode(self, values: Array) -> tuple[Int64Array, Array] | None:
        rows = _possible_rows(values)
        if len(rows) < self.fewest:
            return None
        chosen = values if len(rows) == len(values) else values.take(int64_array(rows))
        if not are_utf8(chosen):
            return None
        block = Block(chosen)
        if block.broken.any():  # what is behind an odd quote looks like the inside of a string
            rows = rows[~block.broken]
            if len(rows) < self.fewest:
                return None
            chosen = values.take(int64_array(rows))
            block = Block(chosen)
        parts: list[tuple[Int64Array, Array]] = []
        left = np.arange(len(chosen))
        for _ in range(_MOST_SHAPES):
            if len(left) < self.fewest:
                break
            shape = self._shapes.of(block.text(int(left[0])), self._node, self._type)
            part = None if shape is None else shape.decode(block, left)
            if part is None or len(part[0]) == 0:
                left = left[1:]
            else:
                parts.append(part)
                left = np.setdiff1d(left, part[0], assume_unique=True)
        if not parts:
            return None
        if len(parts) == 1:
            return rows[parts[0][0]], parts[0][1]
        decoded_rows = np.concatenate([part_rows for part_rows, _ in parts])
        order = np.argsort(decoded_rows)
        column = pa.concat_arrays([part for _, part in parts]).take(int64_array(order))
        return rows[decoded_rows[order]], column


def _possible_rows(values: Array) -> Int64Array:
    """Rows that begin and end as an object, without escapes and control characters, and not too deep."""
    offsets = bounds(values) - bounds(values)[0]
    data = np.frombuffer(contents(values), np.uint8)
    possible = np.diff(offsets) >= len("{}")  # null values have no bytes
    if not possible.any():
        return np.zeros(0, np.int64)
    possible &= (data[np.minimum(offsets[:-1], len(data) - 1)] == ord("{")) & (data[offsets[1:] - 1] == ord("}"))
    if data.min() < _SPACE:
        possible[rows_of(np.flatnonzero(data < _SPACE), offsets)] = False
    possible[rows_of(np.flatnonzero(data == _BACKSLASH), offsets)] = False
    possible[list(deep_rows(values))] = False
    return np.flatnonzero(possible)


class _Value(NamedTuple):
    """A value in a text.

    Attributes:
        start: of its text.
        end: of its text.
        members: of an object; None: it is none.
    """

    start: int
    end: int
    members: list[_Member] | None


class _Member(NamedTuple):
    """A member of an object.

    Attributes:
        name: of it.
        number: of its key, among all keys of the document.
        close: position of the last quote of its key.
        value: of it.
    """

    name: str
    number: int
    close: int
    value: _Value


class _Scan:
    """Finds the members of one document, which is valid and has no escapes.

    Attributes:
        keys: that were found so far.
    """

    def __init__(self, text: bytes) -> None:
        self._tokens: Iterator[re.Match[bytes]] = _TOKENS.finditer(text)
        self.keys = 0

    def value(self) -> _Value:
        """The next value."""
        return self._value(next(self._tokens))

    def _value(self, token: re.Match[bytes]) -> _Value:
        if token[0] == b"{":
            return self._object(token.start())
        if token[0] == b"[":
            return self._array(token.start())
        return _Value(token.start(), token.end(), None)

    def _object(self, start: int) -> _Value:
        members: list[_Member] = []
        for token in self._tokens:
            if token[0] == b"}":
                return _Value(start, token.end(), members)
            if token[0] != b",":
                number, self.keys = self.keys, self.keys + 1
                next(self._tokens)  # the colon
                members.append(_Member(token[0][1:-1].decode(), number, token.end() - 1, self.value()))
        raise AssertionError("the document is valid")

    def _array(self, start: int) -> _Value:
        for token in self._tokens:
            if token[0] == b"]":
                return _Value(start, token.end(), None)
            if token[0] != b",":
                self._value(token)
        raise AssertionError("the document is valid")


@dataclass(frozen=True)
class _Absent:
    """A field that the documents do not have."""

    column: Any
    value: Any


@dataclass(frozen=True)
class _Fields:
    """The fields of a record: numbers of leaves, records, and absent ones."""

    kind: pa.DataType
    parts: list[int | _Fields | _Absent]

    def array(self, columns: list[Array | None], count: int) -> Array:
        """The records, from the columns of the leaves."""
        children: list[Array] = []
        for part in self.parts:
            if isinstance(part, _Fields):
                children.append(part.array(columns, count))
            elif isinstance(part, _Absent):
                children.append(part.column.array([part.value] * count, np.arange(count), set()))
            else:
                children.append(cast("Array", columns[part]))
        return cast("Array", pa.Array.from_buffers(self.kind, count, [None], children=children))


@dataclass(frozen=True)
class _Shape:
    """A shape. Its leaves are the fields that are one column each, in the order of the text.

    Attributes:
        keys: number of the keys of a document.
        numbers: of the keys of the leaves.
        behind: bytes from the last quote of such a key to its value.
        texts: before the values of the leaves, and behind the last one.
        readers: of the leaves.
        fields: of the record.
    """

    keys: int
    numbers: Int64Array
    behind: Int64Array
    texts: FixedTexts
    readers: list[Reader]
    fields: _Fields

    def decode(self, block: Block, rows: Int64Array) -> tuple[Int64Array, Array] | None:
        """Decode those of the rows that have the shape; None if their texts have to be converted by other means."""
        rows = rows[block.key_counts[rows] == self.keys]
        keys = block.first_keys[rows][:, None] + self.numbers
        starts = block.key_closes[keys] + self.behind
        before = np.column_stack([starts - self.texts.lengths[:-1], block.ends[rows] - self.texts.lengths[-1]])
        ends = before[:, 1:]
        good = block.has(self.texts, before) & (before[:, 0] == block.starts[rows]) & (starts < ends).all(axis=1)
        chosen = slice(None) if good.all() else good
        rows = rows[chosen]
        if len(rows) == 0:
            return None
        # By fields, not by rows, from here on.
        starts, ends, closes = (np.ascontiguousarray(m[chosen].T) for m in (starts, ends, block.next_closes[keys]))
        columns: list[Array | None] = []
        good = np.ones(len(rows), np.bool_)
        for reader, *where in zip(self.readers, starts, ends, closes, strict=True):
            read = reader.read(Spans(block, *where))
            if read is None:
                return None
            columns.append(read[0])
            good &= read[1]
        column = self.fields.array(columns, len(rows))
        if good.all():
            return rows, column
        return rows[good], column.take(int64_array(np.flatnonzero(good)))


class _Shapes:
    """Shapes of documents of a schema."""

    def __init__(self, structs: Structs, decimal_format: DecimalFormat) -> None:
        self._structs = structs
        self._quoted_decimals = decimal_format == "NUMERIC"
        self._readers: dict[int, Reader] = {}

    def of(self, text: bytes, node: Record, kind: pa.DataType) -> _Shape | None:
        """The shape of a document; None if such documents have to be converted by other means."""
        try:
            GRAMMAR.decode(text)
        except msgspec.MsgspecError:
            return None
        scan = _Scan(text)
        document = scan.value()
        leaves: list[tuple[_Member, Reader]] = []
        fields = self._fields(document, node, kind, leaves)
        if fields is None or not leaves:
            return None
        texts, end = [], 0
        for member, _ in leaves:
            texts.append(text[end : member.value.start])
            end = member.value.end
        texts.append(text[end:])
        return _Shape(
            keys=scan.keys,
            numbers=np.asarray([member.number for member, _ in leaves]),
            behind=np.asarray([member.value.start - member.close for member, _ in leaves]),
            texts=FixedTexts(texts),
            readers=[reader for _, reader in leaves],
            fields=fields,
        )

    def _fields(
        self, value: _Value, node: Record, kind: pa.DataType, leaves: list[tuple[_Member, Reader]]
    ) -> _Fields | None:
        members = value.members or []
        if not is_plain(node) or len({m.name for m in members}) < len(members):
            return None
        numbers: Mapping[str, int] = {part.name: number for number, part in enumerate(node.fields)}
        sources: dict[int, int | _Fields | _Absent] = {}
        for member in members:
            number = numbers.get(member.name)
            if number is None:
                leaves.append((member, Ignored()))
                continue
            part, column = node.fields[number], kind.field(number)
            inner = _record(part.type)
            if inner is not None and is_plain(inner) and member.value.members:
                fields = self._fields(member.value, inner, column.type, leaves)
                if fields is None:
                    return None
                sources[number] = fields
            else:
                sources[number] = len(leaves)
                leaves.append((member, self._reader(part, column)))
        for number, part in enumerate(node.fields):
            if number not in sources:
                column = kind.field(number)
                if not part.has_default and not column.nullable:
                    return None
                default = self._structs.converters.default(part) if part.has_default else None
                absent = self._structs.column_of_field(part, column.type, nullable=column.nullable)
                sources[number] = _Absent(absent, default)
        return _Fields(kind, [sources[number] for number in range(len(node.fields))])

    def _reader(self, part: Field, column: Any) -> Reader:
        if id(part) not in self._readers:
            self._readers[id(part)] = make_reader(self._structs, part, column, quoted_decimals=self._quoted_decimals)
        return self._readers[id(part)]


def _record(node: Node) -> Record | None:
    """The record, if a type is one, or one or null."""
    single = only_branch(node) if isinstance(node, Union) else node
    return single if isinstance(single, Record) else None
