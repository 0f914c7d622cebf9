"""Columns of the texts of one field, which Arrow converts at once."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import (
    Array,
    Bools,
    binary_array,
    bounds,
    contents,
    join,
    number_values,
    true_rows,
    validity_buffer,
)
from airflow_provider_kafka_s3.converters.json_columns import Structs
from airflow_provider_kafka_s3.converters.json_grammar import are_lines, begin_and_end, members
from airflow_provider_kafka_s3.converters.json_scalar import INTEGER_LOGICAL, LARGEST_FLOAT, integer_bounds
from airflow_provider_kafka_s3.converters.json_spans import Spans, rows_of
from airflow_provider_kafka_s3.schemas.nodes import Decimal, Enum, Field, Fixed, Node, Primitive, Union, only_branch

__all__ = ["Ignored", "Reader", "make_reader"]

_QUOTE: Final = ord('"')
_JSON_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Reader(ABC):
    """Makes the column of a field."""

    @abstractmethod
    def read(self, spans: Spans) -> tuple[Array | None, Bools] | None:
        """Make it.

        Returns:
            The column, None if the field has none, and whether each text is a value of it; None if the texts have to be
            converted by other means.
        """


class Ignored(Reader):
    """A field that the schema does not have. That its text is one value shows that the next field is where it seems."""

    def read(self, spans: Spans) -> tuple[Array | None, Bools] | None:
        """See :class:`Reader`."""
        strings = spans.are_strings()
        if strings.all():
            return None, strings
        texts = spans.take(pa.binary(), ~strings)
        texts = texts.filter(texts.is_valid())
        return (None, np.ones(len(strings), np.bool_)) if are_lines(texts, join(texts, b"\n")) else None


class _Objects(Reader):
    """Any type, by way of the objects of msgspec."""

    def __init__(self, structs: Structs, part: Field, kind: pa.DataType, *, nullable: bool) -> None:
        self._decode = msgspec.json.Decoder(structs.type_of_field(part)).decode_lines
        self._column = structs.column_of_field(part, kind, nullable=nullable)

    def read(self, spans: Spans) -> tuple[Array | None, Bools] | None:
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


class _Scalar(Reader):
    """A type whose values are texts, with null or without."""

    def __init__(self, kind: pa.DataType, *, nullable: bool) -> None:
        self._type = kind
        self._nullable = nullable

    def read(self, spans: Spans) -> tuple[Array | None, Bools] | None:
        valid = self._candidates(spans)
        try:
            column, good = self._convert(spans, valid)
        except pa.ArrowInvalid:
            return None
        if self._nullable and not good.all():
            good |= spans.are(b"null")
        return column, good

    @abstractmethod
    def _candidates(self, spans: Spans) -> Bools:
        """Which texts may be values."""

    @abstractmethod
    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
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

    def _candidates(self, spans: Spans) -> Bools:
        return spans.are_strings()

    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        column = spans.take(self._type, valid, quoted=True)
        if self._symbols is not None:
            valid = true_rows(pc.is_in(column, value_set=self._symbols)) & valid
        if self._nullable or column.buffers()[0] is None:
            return column, valid
        # A column that may not be null has no bits; rows that are not good are left out.
        return cast("Array", pa.Array.from_buffers(self._type, len(column), [None, *column.buffers()[1:]])), valid


class _Booleans(_Scalar):
    def _candidates(self, spans: Spans) -> Bools:
        return spans.are(b"true") | spans.are(b"false")

    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        return self._made(np.packbits(spans.first == ord("t"), bitorder="little"), valid), valid


class _Number(_Scalar):
    """Numbers as JSON has them; Arrow reads others, too."""

    _usual = members(b"0123456789-.")

    def _candidates(self, spans: Spans) -> Bools:
        return spans.are_numbers()

    def _texts(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        """The texts, and which of the candidates they are: those that are numbers of JSON."""
        texts = spans.take(pa.string(), valid)
        usual = self._usual[np.frombuffer(contents(texts), np.uint8)]
        if usual.all():
            return texts, valid
        others = np.unique(rows_of(np.flatnonzero(~usual), bounds(texts))).tolist()
        valid = valid.copy()
        valid[[row for row in others if not self._is_number(texts.slice(row, 1))]] = False
        return spans.take(pa.string(), valid), valid

    def _is_number(self, text: Array) -> bool:
        return _JSON_NUMBER.fullmatch(contents(text)) is not None


class _Integers(_Number):
    """Integers of 32 or 64 bits, with the logical types of them; not those with a fraction or an exponent."""

    _usual = members(b"0123456789-")

    def __init__(self, kind: pa.DataType, node: Primitive, *, nullable: bool) -> None:
        super().__init__(kind, nullable=nullable)
        self._width = np.int32 if node.name == "int" else np.int64
        self._bounds = integer_bounds(node)

    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        texts, valid = self._texts(spans, valid)
        numbers = _numbers(texts.cast(pa.int64()), np.int64, valid)
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

    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        texts, valid = self._texts(spans, valid)
        numbers = _numbers(texts.cast(pa.float64()), np.float64, valid)
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

    def _candidates(self, spans: Spans) -> Bools:
        good = spans.are_strings() & np.isin(spans.lengths, self._lengths)
        if self._zone:
            good &= spans.block.data[spans.ends - 2] == ord("Z")
        return good

    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        texts = spans.take(pa.string(), valid, quoted=True)
        micros = _numbers(texts.cast(self._read), np.int64, valid)
        times = micros // self._micros if self._micros > 1 else micros
        valid = valid & (micros >= _YEAR_ONE_US) & (times * self._micros == micros)
        return self._made(times.astype(np.int32) if self._is_date else times, valid), valid


_DAY_US: Final = 86_400_000_000
_YEAR_ONE_US: Final = -62_135_596_800_000_000
"""The first microsecond that is a time here, since the epoch."""


class _Decimals(_Number):
    """Decimals of 128 bits that are numbers."""

    def _convert(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        texts, valid = self._texts(spans, valid)
        bits, data = texts.cast(self._type).buffers()
        buffers = [bits if self._nullable else None, data]
        return cast("Array", pa.Array.from_buffers(self._type, len(texts), buffers)), valid


class _DecimalTexts(_Decimals):
    """Decimals of 128 bits that are the texts of numbers."""

    def _candidates(self, spans: Spans) -> Bools:
        long_enough = spans.are_strings() & (spans.lengths > len('""'))
        inner = Spans(spans.block, spans.starts + long_enough, spans.ends - long_enough, spans.closes)
        return long_enough & inner.are_numbers()

    def _texts(self, spans: Spans, valid: Bools) -> tuple[Array, Bools]:
        inner = Spans(spans.block, spans.starts + valid, spans.ends - valid, spans.closes)
        return super()._texts(inner, valid)


class _Either(Reader):
    """Numbers or texts, as the first value that is not null."""

    def __init__(self, numbers: Reader, texts: Reader) -> None:
        self._numbers = numbers
        self._texts = texts

    def read(self, spans: Spans) -> tuple[Array | None, Bools] | None:
        first = spans.first
        present = np.flatnonzero(first != ord("n"))
        is_text = len(present) and first[present[0]] == _QUOTE
        return (self._texts if is_text else self._numbers).read(spans)


def _numbers(column: Array, kind: type[np.int64] | type[np.float64], valid: Bools) -> npt.NDArray[Any]:
    """The numbers of a column; 0 where they are not valid."""
    if not valid.any():
        return np.zeros(len(column), kind)
    numbers = number_values(column, kind)
    return numbers if valid.all() else np.where(valid, numbers, kind(0))


def make_reader(structs: Structs, part: Field, column: Any, *, quoted_decimals: bool) -> Reader:
    """The reader of a field; ``column`` is its field of Arrow, ``quoted_decimals``: texts are digits, not base64."""
    node: Node | None = part.type
    if isinstance(node, Union):
        node = only_branch(node)
    kind, nullable = column.type, column.nullable
    objects = _Objects(structs, part, kind, nullable=nullable)
    if not structs.fills_nulls(part):
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
                texts = _DecimalTexts(kind, nullable=nullable) if quoted_decimals else objects
                return _Either(numbers, texts)
    return objects
