"""JSON documents of the same shape to Arrow arrays, without a Python object for each value.

The shape of a document is its text without the values of its fields, such as ``{"id":…,"place":{"city":…}}``; a
producer writes documents of few shapes. One pass over a block of documents finds all strings. Those with a colon behind
them are keys, and the text between two values, which the shape fixes, leads from a key to the bounds of the values. So
each field is a column of texts, which Arrow converts at once.

Documents that need more than that are left to
:class:`~airflow_provider_kafka_s3.converters.json_decode.JsonDecoder`, which gives the same values.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import (
    Array,
    Bools,
    Int64Array,
    binary_array,
    bounds,
    contents,
    int64_array,
    join,
    validity_buffer,
)
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.json_columns import Structs, is_plain
from airflow_provider_kafka_s3.converters.json_grammar import are_lines, are_utf8, begin_and_end, deep_rows
from airflow_provider_kafka_s3.converters.json_scalar import INTEGER_LOGICAL, LARGEST_FLOAT, integer_bounds
from airflow_provider_kafka_s3.schemas.avro import (
    Decimal,
    Enum,
    Field,
    Fixed,
    Node,
    Primitive,
    Record,
    Union,
    nullable_branch,
)

__all__ = ["ShapeDecoder"]

_MOST_SHAPES: Final = 4
"""Shapes of a batch that are looked for."""
_LONGEST_PAUSE: Final = 64
"""Batches that are not looked at after many that were of other shapes."""

_SPACE: Final = 0x20
_QUOTE, _COLON, _BACKSLASH = b'":\\'
_TOKENS: Final = re.compile(rb'"[^"]*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')
_WORD: Final = 16
"""Bytes that are compared at once."""
_GRAMMAR: Final = msgspec.json.Decoder(msgspec.Raw)
_NEAR: Final = 512
"""Documents that are compared at once."""

_Bytes: TypeAlias = npt.NDArray[np.uint8]


def _members(characters: bytes) -> Bools:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_DIGIT: Final = _members(b"0123456789")
_AFTER_LONG_ZERO: Final = _members(b"0123456789xX")
_JSON_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MINUS, _ZERO = b"-0"


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
        found = self._decode(values)
        # Where most documents have to be decoded by other means, not every batch is worth a try.
        if found is None or 2 * len(found[0]) < len(values):
            self._wait = self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        else:
            self._pause = 0
        return found

    def _decode(self, values: Array) -> tuple[Int64Array, Array] | None:
        rows = _possible_rows(values)
        if len(rows) < self.fewest:
            return None
        chosen = values if len(rows) == len(values) else values.take(int64_array(rows))
        if not are_utf8(chosen):
            return None
        block = _Block(chosen)
        if block.broken.any():  # what is behind an odd quote looks like the inside of a string
            rows = rows[~block.broken]
            if len(rows) < self.fewest:
                return None
            chosen = values.take(int64_array(rows))
            block = _Block(chosen)
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
        found = np.concatenate([some for some, _ in parts])
        order = np.argsort(found)
        column = pa.concat_arrays([part for _, part in parts]).take(int64_array(order))
        return rows[found[order]], column


def _possible_rows(values: Array) -> Int64Array:
    """Rows that begin and end as an object, without escapes and control characters, and not too deep."""
    at = bounds(values) - bounds(values)[0]
    data = np.frombuffer(contents(values), np.uint8)
    possible = np.diff(at) >= len("{}")  # null values have no bytes
    if not possible.any():
        return np.zeros(0, np.int64)
    possible &= (data[np.minimum(at[:-1], len(data) - 1)] == ord("{")) & (data[at[1:] - 1] == ord("}"))
    if data.min() < _SPACE:
        possible[_rows_of(np.flatnonzero(data < _SPACE), at)] = False
    possible[_rows_of(np.flatnonzero(data == _BACKSLASH), at)] = False
    possible[list(deep_rows(values))] = False
    return np.flatnonzero(possible)


def _rows_of(positions: Int64Array, at: Int64Array) -> Int64Array:
    return np.searchsorted(at, positions, side="right") - 1


class _FixedTexts:
    """Texts as words of sixteen bytes, of which the last one of a long text overlaps the one before.

    Attributes:
        lengths: of the texts.
        numbers: number of the text that each word is of.
        offsets: of each word in its text.
        halves: of the words.
        masks: what of each half counts: texts may be shorter.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.lengths = np.asarray([len(text) for text in texts])
        parts = [(n, at, text[at : at + _WORD]) for n, text in enumerate(texts) for at in _word_offsets(len(text))]
        self.numbers = np.asarray([number for number, _, _ in parts])
        self.offsets = np.asarray([at for _, at, _ in parts])
        self.halves = _halves([part for _, _, part in parts])
        self.masks = _halves([b"\xff" * len(part) for _, _, part in parts])


def _halves(parts: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    return np.frombuffer(b"".join(part.ljust(_WORD, b"\0") for part in parts), np.uint64)


def _word_offsets(size: int) -> Sequence[int]:
    return (*range(0, size - _WORD, _WORD), size - _WORD) if size > _WORD else (0,)


class _Block:
    """The documents of a block, with the positions of their strings and keys.

    Attributes:
        starts: of the documents.
        ends: of the documents.
        broken: whether each document has an odd number of quotes.
        key_closes: last quotes of all keys.
        next_closes: last quotes of the strings behind all keys, which may be their values.
        first_keys: number, among the keys, of the first key of each document.
        key_counts: keys of each document, with those inside its values.
    """

    def __init__(self, values: Array) -> None:
        at = bounds(values) - bounds(values)[0]
        size = int(at[-1])
        self.data: _Bytes = np.zeros(size + _WORD, np.uint8)
        self.data[:size] = np.frombuffer(contents(values), np.uint8)
        self._buffer = pa.py_buffer(self.data.data)
        # A word begins at each byte.
        self._words = np.ndarray((size + 1,), np.dtype((np.void, _WORD)), self.data, strides=(1,))
        self.starts, self.ends = at[:-1], at[1:]
        quotes = np.flatnonzero(self.data == _QUOTE)
        self.broken = cast("Bools", np.diff(np.searchsorted(quotes, at)) % 2 == 1)
        closes = quotes[1::2]
        keys = np.flatnonzero(self.data[closes + 1] == _COLON)
        self.key_closes = closes[keys]
        self.next_closes = closes[np.minimum(keys + 1, len(closes) - 1)]
        numbers = np.searchsorted(self.key_closes, at)
        self.first_keys, self.key_counts = numbers[:-1], np.diff(numbers)

    def text(self, row: int) -> bytes:
        """A document."""
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def has(self, texts: _FixedTexts, at: Int64Array) -> Bools:
        """Whether all texts are at their positions.

        Args:
            texts: some texts.
            at: a row of positions per document, one per text; some may be outside of the block.
        """
        at = np.clip(at, 0, len(self.data) - _WORD - texts.lengths)
        found = np.empty(len(at), np.bool_)
        # Positions of few documents at a time are near each other in memory.
        for start in range(0, len(at), _NEAR):
            near = np.take(at[start : start + _NEAR], texts.numbers, axis=1) + texts.offsets
            halves = self._words[near].view(np.uint64)
            halves ^= texts.halves
            halves &= texts.masks
            found[start : start + _NEAR] = np.bitwise_or.reduce(halves, axis=1) == 0
        return found

    def take(self, kind: pa.DataType, starts: Int64Array, ends: Int64Array, valid: Bools | None) -> Array:
        """The texts between positions as binary or string; null where ``valid`` is False."""
        count = len(starts)
        if valid is not None:
            ends = np.where(valid, ends, starts)
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
        # An array of the texts and what is between them shares the data; one selection copies the texts.
        every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets.data), self._buffer])
        texts = every.take(int64_array(np.arange(0, 2 * count, 2)))
        bits = None if valid is None else validity_buffer(valid)
        return cast("Array", pa.Array.from_buffers(kind, count, [bits, *texts.buffers()[1:]]))


@dataclass(frozen=True)
class _Spans:
    """The texts of one field.

    Attributes:
        block: in which they are.
        starts: of the texts.
        ends: of the texts.
        closes: last quotes of the strings that begin there, if they do.
    """

    block: _Block
    starts: Int64Array
    ends: Int64Array
    closes: Int64Array

    @functools.cached_property
    def first(self) -> _Bytes:
        """First bytes."""
        return self.block.data[self.starts]

    @functools.cached_property
    def lengths(self) -> Int64Array:
        """Lengths in bytes."""
        return self.ends - self.starts

    def are_strings(self) -> Bools:
        """Whether each text is one string."""
        return cast("Bools", (self.first == _QUOTE) & (self.closes == self.ends - 1))

    def are_null(self) -> Bools:
        """Whether each text is null."""
        return self.are(b"null")

    def are(self, literal: bytes) -> Bools:
        """Whether each text is the literal."""
        equal = cast("Bools", (self.first == literal[0]) & (self.lengths == len(literal)))
        rows = np.flatnonzero(equal)
        letters = self.block.data[self.starts[rows][:, None] + np.arange(len(literal))]
        equal[rows] = (letters == np.frombuffer(literal, np.uint8)).all(axis=1)
        return equal

    def are_numbers(self) -> Bools:
        """Whether each text is a number, if it has no exponent and a parser of numbers accepts it."""
        data = self.block.data
        at = self.starts + (self.first == _MINUS)
        first = data[at]
        long_zero = (first == _ZERO) & _AFTER_LONG_ZERO[data[at + 1]]
        return cast("Bools", _DIGIT[first] & _DIGIT[data[self.ends - 1]] & ~long_zero)

    def take(self, kind: pa.DataType, valid: Bools, *, quoted: bool = False) -> Array:
        """The texts, without their quotes if they are quoted; null where ``valid`` is False."""
        shorter = 1 if quoted else 0
        starts = self.starts + shorter
        return self.block.take(kind, starts, self.ends - shorter, None if valid.all() else valid)


class _Reader(ABC):
    """Makes the column of a field."""

    @abstractmethod
    def read(self, spans: _Spans) -> tuple[Array | None, Bools] | None:
        """Make it.

        Returns:
            The column, None if the field has none, and whether each text is a value of it; None if the texts have to be
            converted by other means.
        """


class _Ignored(_Reader):
    """A field that the schema does not have. That its text is one value shows that the next field is where it seems."""

    def read(self, spans: _Spans) -> tuple[Array | None, Bools] | None:
        strings = spans.are_strings()
        if strings.all():
            return None, strings
        texts = spans.take(pa.binary(), ~strings)
        texts = texts.filter(texts.is_valid())
        return (None, np.ones(len(strings), np.bool_)) if are_lines(texts, join(texts, b"\n")) else None


class _Objects(_Reader):
    """Any type, by way of the objects of msgspec."""

    def __init__(self, structs: Structs, part: Field, kind: pa.DataType, *, nullable: bool) -> None:
        self._decode = msgspec.json.Decoder(structs.type_of_field(part)).decode_lines
        self._column = structs.column_of_field(part, kind, nullable=nullable)

    def read(self, spans: _Spans) -> tuple[Array | None, Bools] | None:
        count = len(spans.starts)
        texts = spans.block.take(pa.binary(), spans.starts, spans.ends, None)
        if not begin_and_end(texts):
            return None
        try:
            objects = self._decode(contents(join(texts, b"\n")))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if len(objects) != count:
            return None
        wrong: set[int] = set()
        column = self._column.array(objects, np.arange(count), wrong)
        good = np.ones(count, np.bool_)
        good[list(wrong)] = False
        return column, good


class _Scalar(_Reader):
    """A type whose values are texts, with null or without."""

    def __init__(self, kind: pa.DataType, *, nullable: bool) -> None:
        self._type = kind
        self._nullable = nullable

    def read(self, spans: _Spans) -> tuple[Array | None, Bools] | None:
        valid = self._candidates(spans)
        try:
            column, good = self._convert(spans, valid)
        except pa.ArrowInvalid:
            return None
        if self._nullable and not good.all():
            good |= spans.are_null()
        return column, good

    @abstractmethod
    def _candidates(self, spans: _Spans) -> Bools:
        """Which texts may be values."""

    @abstractmethod
    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        """The column, and which of the candidates are values; ArrowInvalid if a candidate cannot be converted."""

    def _made(self, values: npt.NDArray[Any], valid: Bools) -> Array:
        bits = None if valid.all() or not self._nullable else validity_buffer(valid)
        return cast("Array", pa.Array.from_buffers(self._type, len(valid), [bits, pa.py_buffer(values.data)]))


class _Texts(_Scalar):
    """Strings, or symbols of an enum."""

    def __init__(self, kind: pa.DataType, *, nullable: bool, symbols: tuple[str, ...] | None = None) -> None:
        super().__init__(kind, nullable=nullable)
        self._symbols = None
        if symbols is not None:
            self._symbols = binary_array([s.encode() for s in symbols], large=False).cast(pa.string())

    def _candidates(self, spans: _Spans) -> Bools:
        return spans.are_strings()

    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        column = spans.take(self._type, valid, quoted=True)
        if self._symbols is not None:
            valid = _true_rows(pc.is_in(column, value_set=self._symbols)) & valid
        if self._nullable or column.buffers()[0] is None:
            return column, valid
        # A column that may not be null has no bits; rows that are not good are left out.
        return cast("Array", pa.Array.from_buffers(self._type, len(column), [None, *column.buffers()[1:]])), valid


class _Booleans(_Scalar):
    def _candidates(self, spans: _Spans) -> Bools:
        return spans.are(b"true") | spans.are(b"false")

    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        return self._made(np.packbits(spans.first == ord("t"), bitorder="little"), valid), valid


class _Number(_Scalar):
    """Numbers as JSON has them; Arrow reads others, too."""

    _usual = _members(b"0123456789-.")

    def _candidates(self, spans: _Spans) -> Bools:
        return spans.are_numbers()

    def _texts(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        """The texts, and which of the candidates they are: those that are numbers of JSON."""
        texts = spans.take(pa.string(), valid)
        usual = self._usual[np.frombuffer(contents(texts), np.uint8)]
        if usual.all():
            return texts, valid
        others = np.unique(_rows_of(np.flatnonzero(~usual), bounds(texts))).tolist()
        valid = valid.copy()
        valid[[row for row in others if not self._is_number(texts.slice(row, 1))]] = False
        return spans.take(pa.string(), valid), valid

    def _is_number(self, text: Array) -> bool:
        return _JSON_NUMBER.fullmatch(contents(text)) is not None


class _Integers(_Number):
    """Integers of 32 or 64 bits, with the logical types of them; not those with a fraction or an exponent."""

    _usual = _members(b"0123456789-")

    def __init__(self, kind: pa.DataType, node: Primitive, *, nullable: bool) -> None:
        super().__init__(kind, nullable=nullable)
        self._width = np.int32 if node.name == "int" else np.int64
        self._bounds = integer_bounds(node)

    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        texts, valid = self._texts(spans, valid)
        numbers = _numbers(texts.cast(pa.int64()), np.dtype(np.int64), valid)
        least, most = self._bounds
        if numbers.min() < least or numbers.max() > most:
            valid = valid & (numbers >= least) & (numbers <= most)
            numbers = np.where(valid, numbers, 0)
        return self._made(numbers.astype(self._width, copy=False), valid), valid

    def _is_number(self, text: Array) -> bool:  # noqa: ARG002 - none of the others is one
        return False


class _Floats(_Number):
    """Floating-point numbers of 32 or 64 bits."""

    def __init__(self, kind: pa.DataType, node: Primitive, *, nullable: bool) -> None:
        super().__init__(kind, nullable=nullable)
        self._single = node.name == "float"

    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        texts, valid = self._texts(spans, valid)
        numbers = _numbers(texts.cast(pa.float64()), np.dtype(np.float64), valid)
        most = LARGEST_FLOAT if self._single else np.finfo(np.float64).max
        inside = np.abs(numbers) <= most
        if not inside.all():
            valid = valid & inside
            numbers = np.where(valid, numbers, 0.0)
        zeros = numbers == 0
        if zeros.any():  # -0 is an integer, of which there is one zero only; -0.0 is not
            numbers = np.where(zeros & (spans.lengths == len("-0")), 0.0, numbers)
        return self._made(numbers.astype(np.float32) if self._single else numbers, valid), valid


class _Times(_Scalar):
    """Dates and timestamps as texts of the most usual lengths: with no, three or six digits of the fraction."""

    def __init__(self, kind: pa.DataType, logical: str, *, nullable: bool) -> None:
        super().__init__(kind, nullable=nullable)
        self._is_date = logical == "date"
        self._zone = logical.startswith("timestamp")
        lengths = [len("2026-01-31")] if self._is_date else [len("2026-01-31T23:59:59") + more for more in (0, 4, 7)]
        self._lengths = np.asarray(lengths) + len('""') + self._zone
        self._read = pa.timestamp("us", "UTC") if self._zone else pa.timestamp("us")
        self._micros = _DAY_US if self._is_date else {"ms": 1000, "us": 1}[cast("Any", kind).unit]

    def _candidates(self, spans: _Spans) -> Bools:
        good = spans.are_strings() & np.isin(spans.lengths, self._lengths)
        if self._zone:
            good &= spans.block.data[spans.ends - 2] == ord("Z")
        return good

    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        texts = spans.take(pa.string(), valid, quoted=True)
        micros = _numbers(texts.cast(self._read), np.dtype(np.int64), valid)
        times = micros // self._micros if self._micros > 1 else micros
        valid = valid & (micros >= _YEAR_ONE_US) & (times * self._micros == micros)
        return self._made(times.astype(np.int32) if self._is_date else times, valid), valid


_DAY_US: Final = 86_400_000_000
_YEAR_ONE_US: Final = -62_135_596_800_000_000
"""The first microsecond that is a time here, since the epoch."""


class _Decimals(_Number):
    """Decimals of 128 bits that are numbers."""

    def _convert(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        texts, valid = self._texts(spans, valid)
        bits, data = texts.cast(self._type).buffers()
        buffers = [bits if self._nullable else None, data]
        return cast("Array", pa.Array.from_buffers(self._type, len(texts), buffers)), valid


class _DecimalTexts(_Decimals):
    """Decimals of 128 bits that are the texts of numbers."""

    def _candidates(self, spans: _Spans) -> Bools:
        long_enough = spans.are_strings() & (spans.lengths > len('""'))
        inner = _Spans(spans.block, spans.starts + long_enough, spans.ends - long_enough, spans.closes)
        return long_enough & inner.are_numbers()

    def _texts(self, spans: _Spans, valid: Bools) -> tuple[Array, Bools]:
        inner = _Spans(spans.block, spans.starts + valid, spans.ends - valid, spans.closes)
        return super()._texts(inner, valid)


class _Either(_Reader):
    """Numbers or texts, as the first value that is not null."""

    def __init__(self, numbers: _Reader, texts: _Reader) -> None:
        self._numbers = numbers
        self._texts = texts

    def read(self, spans: _Spans) -> tuple[Array | None, Bools] | None:
        first = spans.first
        present = np.flatnonzero(first != ord("n"))
        is_text = len(present) and first[present[0]] == _QUOTE
        return (self._texts if is_text else self._numbers).read(spans)


def _numbers(column: Array, kind: np.dtype[Any], valid: Bools) -> npt.NDArray[Any]:
    """The numbers of a column; 0 where they are not valid."""
    if not valid.any():
        return np.zeros(len(column), kind)
    numbers = np.frombuffer(memoryview(cast("pa.Buffer", column.buffers()[1])), kind)[
        column.offset : column.offset + len(column)
    ]
    return numbers if valid.all() else np.where(valid, numbers, kind.type(0))


def _true_rows(column: Array) -> Bools:
    """Which values of a boolean column without nulls are true."""
    bits = np.frombuffer(memoryview(cast("pa.Buffer", column.buffers()[1])), np.uint8)
    return np.unpackbits(bits, bitorder="little")[column.offset : column.offset + len(column)].astype(np.bool_)


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
    texts: _FixedTexts
    readers: list[_Reader]
    fields: _Fields

    def decode(self, block: _Block, rows: Int64Array) -> tuple[Int64Array, Array] | None:
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
            read = reader.read(_Spans(block, *where))
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
        self._readers: dict[int, _Reader] = {}

    def of(self, text: bytes, node: Record, kind: pa.DataType) -> _Shape | None:
        """The shape of a document; None if such documents have to be converted by other means."""
        try:
            _GRAMMAR.decode(text)
        except msgspec.MsgspecError:
            return None
        scan = _Scan(text)
        document = scan.value()
        leaves: list[tuple[_Member, _Reader]] = []
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
            texts=_FixedTexts(texts),
            readers=[reader for _, reader in leaves],
            fields=fields,
        )

    def _fields(
        self, value: _Value, node: Record, kind: pa.DataType, leaves: list[tuple[_Member, _Reader]]
    ) -> _Fields | None:
        members = value.members or []
        if not is_plain(node) or len({m.name for m in members}) < len(members):
            return None
        numbers: Mapping[str, int] = {part.name: number for number, part in enumerate(node.fields)}
        found: dict[int, int | _Fields | _Absent] = {}
        for member in members:
            number = numbers.get(member.name)
            if number is None:
                leaves.append((member, _Ignored()))
                continue
            part, column = node.fields[number], kind.field(number)
            inner = _record(part.type)
            if inner is not None and is_plain(inner) and member.value.members:
                fields = self._fields(member.value, inner, column.type, leaves)
                if fields is None:
                    return None
                found[number] = fields
            else:
                found[number] = len(leaves)
                leaves.append((member, self._reader(part, column)))
        for number, part in enumerate(node.fields):
            if number not in found:
                column = kind.field(number)
                if not part.has_default and not column.nullable:
                    return None
                default = self._structs.converters.default(part) if part.has_default else None
                absent = self._structs.column_of_field(part, column.type, nullable=column.nullable)
                found[number] = _Absent(absent, default)
        return _Fields(kind, [found[number] for number in range(len(node.fields))])

    def _reader(self, part: Field, column: Any) -> _Reader:
        if id(part) not in self._readers:
            self._readers[id(part)] = self._make_reader(part, column)
        return self._readers[id(part)]

    def _make_reader(self, part: Field, column: Any) -> _Reader:
        node: Node | None = part.type
        if isinstance(node, Union):
            node = nullable_branch(node)
        kind, nullable = column.type, column.nullable
        objects = _Objects(self._structs, part, kind, nullable=nullable)
        if not self._structs.fills_nulls(part):
            match node:
                case Primitive(name="string", logical=None):
                    return _Texts(kind, nullable=nullable)
                case Enum(symbols=symbols):
                    return _Texts(kind, nullable=nullable, symbols=symbols)
                case Primitive(name="boolean"):
                    return _Booleans(kind, nullable=nullable)
                case Primitive(name="int" | "long", logical=logical):
                    integers = _Integers(kind, node, nullable=nullable)
                    if logical not in INTEGER_LOGICAL:
                        return integers
                    assert isinstance(logical, str)
                    if logical.startswith("time-"):
                        return _Either(integers, objects)
                    return _Either(integers, _Times(kind, logical, nullable=nullable))
                case Primitive(name="float" | "double"):
                    return _Floats(kind, node, nullable=nullable)
                case Primitive(logical=Decimal()) | Fixed(logical=Decimal()) if pa.types.is_decimal128(kind):
                    numbers = _Decimals(kind, nullable=nullable)
                    texts = _DecimalTexts(kind, nullable=nullable) if self._quoted_decimals else objects
                    return _Either(numbers, texts)
        return objects


def _record(node: Node) -> Record | None:
    """The record, if a type is one, or one or null."""
    single = nullable_branch(node) if isinstance(node, Union) else node
    return single if isinstance(single, Record) else None
