"""Reads envelopes in JSON, as they are written: ``{"key":…,"value":…,"headers":…,…}`` in each line.

Most lines have one form: a key that is a text or null, and as many digits in their numbers as other lines. Their fields
are found by comparing columns of bytes, for all lines of a megabyte at once. The other lines are parsed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from airflow_provider_kafka_s3.arrays import Bools, Int64Array
from airflow_provider_kafka_s3.reading.envelopes import EnvelopeColumns, headers_of, matches, slices, windows
from airflow_provider_kafka_s3.reading.lines import LineBlock
from airflow_provider_kafka_s3.reading.record import Headers
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["Fields", "ReadLines", "parse_lines", "read_lines"]

Fields = tuple[bytes, bytes, Headers, int, int, int | None]
"""Key and value byte for byte, headers, partition, offset and timestamp of an envelope."""

_SPACE: Final = b" \t\r"
_IS_SPACE: Final = np.isin(np.arange(256), [*_SPACE])
_KEY: Final = b'{"key":'
_TEXT_KEY: Final = b'{"key":"'
_NULL_KEY: Final = b'{"key":null,"value":'
_VALUE: Final = b',"value":'
_HEADERS: Final = b',"headers":'
_FIRST_HEADER: Final = _HEADERS + b"["
_TAIL_BEGIN: Final = b'],"topic":"'
_TAIL: Final = re.compile(
    _TAIL_BEGIN + rb'[\w.-]+","partition":(0|[1-9]\d{0,8}),"offset":(0|[1-9]\d{0,17}),'
    rb'"timestamp":(?:null|(-?)(0|[1-9]\d{0,17}))\}'
)
"""What follows the headers. The numbers have 64 bits."""
_NUMBERS: Final = 1, 2, 4
_SIGN, _TIME = 3, 4
_LONG_KEY: Final = 64
"""Bytes of keys that are looked at in all lines at once."""
_FORMS: Final = 8
"""Tails of different widths that are looked for in one block."""


@dataclass(frozen=True)
class ReadLines:
    """The envelopes of a block of lines.

    Attributes:
        columns: of the lines that have the form of most lines; keys and values as in JSON.
        has_form: whether each line has it.
        others: the lines that have another one.
    """

    columns: EnvelopeColumns
    has_form: Bools
    others: list[bytes]


@dataclass(frozen=True)
class _Tails:
    """What follows the headers of lines, as far as it has the form.

    Attributes:
        found: whether a line has one.
        begins: where it begins.
        numbers: partition, offset and timestamp.
        has_time: whether there is a timestamp.
    """

    found: Bools
    begins: Int64Array
    numbers: tuple[Int64Array, Int64Array, Int64Array]
    has_time: Bools


@dataclass(frozen=True)
class _Lines:
    """Where the lines of data begin, and where their newlines are."""

    data: bytes
    begins: Int64Array
    ends: Int64Array


def read_lines(block: LineBlock) -> ReadLines:
    """The fields of the lines of a block. Keys and values are found by what is around them, and are not checked."""
    data, ends = block.data, block.ends
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    tails = _tails(_Lines(data, begins, ends))
    key_begins, key_ends = begins + len(_KEY), _key_ends(data, begins, tails.found)
    value_begins, value_ends = key_ends + len(_VALUE), _value_ends(data, begins, tails)
    array = np.frombuffer(data, np.uint8)
    has_form = tails.found & (key_ends > 0) & (value_begins < value_ends)
    # White space around a document is a part of it.
    has_form &= ~_IS_SPACE[array.take(value_begins, mode="clip")] & ~_IS_SPACE[array.take(value_ends - 1, mode="clip")]
    every = bool(has_form.all())
    rows = slice(None) if every else np.flatnonzero(has_form)
    partitions, offsets, times = (numbers[rows] for numbers in tails.numbers)
    timestamps: list[int | None] = times.tolist()
    for row in np.flatnonzero(~tails.has_time[rows]).tolist():
        timestamps[row] = None
    columns = EnvelopeColumns(
        slices(data, key_begins[rows], key_ends[rows]),
        slices(data, value_begins[rows], value_ends[rows]),
        partitions,
        offsets,
        timestamps,
        _headers(data, value_ends[rows] + len(_FIRST_HEADER), tails.begins[rows]),
    )
    others = [] if every else slices(data, begins[~has_form], ends[~has_form])
    return ReadLines(columns, has_form, others)


def _key_ends(data: bytes, begins: Int64Array, wanted: Bools) -> Int64Array:
    """Where the keys end that a value follows; 0 for others."""
    ends = np.zeros(len(begins), np.int64)
    is_text = np.flatnonzero(matches(data, begins, _TEXT_KEY) & wanted)
    if is_text.size:
        ends[is_text] = _quotes(data, begins[is_text] + len(_TEXT_KEY)) + 1
        # A quote behind a backslash ends no text, but then no value follows it in a line that is JSON.
        ends[~matches(data, ends, _VALUE)] = 0
    is_null = matches(data, begins, _NULL_KEY) & wanted
    ends[is_null] = begins[is_null] + len(_NULL_KEY) - len(_VALUE)
    return ends


def _value_ends(data: bytes, begins: Int64Array, tails: _Tails) -> Int64Array:
    """Where the headers begin; -1 if nowhere.

    No header has the text that they begin with: a quote in its name is behind a backslash, and its value is base64. So
    it is the last one of the line, whatever the value of the record is.
    """
    ends = np.where(tails.found, tails.begins - len(_FIRST_HEADER), -1)
    rows = np.flatnonzero(tails.found & ~matches(data, np.maximum(ends, 0), _FIRST_HEADER))
    places = zip(begins[rows].tolist(), tails.begins[rows].tolist(), strict=True)
    ends[rows] = [data.rfind(_FIRST_HEADER, begin, end) for begin, end in places]
    return ends


def _headers(data: bytes, begins: Int64Array, ends: Int64Array) -> list[Headers] | None:
    """Headers of what is between the brackets in JSON; None: no line has some.

    A line ends between two lists: a text that is more than one list makes their number another one.

    Raises:
        ValueError: a text is no headers.
    """
    if (begins == ends).all():
        return None
    texts = slices(data, begins, ends)
    lists = decode_struct(b"[[%b]]" % b"]\n,[".join(texts), list[list[_Header]])
    if len(lists) != len(texts):
        raise ValueError("the headers are more than one list")
    return headers_of(_pairs(itertools.chain.from_iterable(lists)), np.fromiter(map(len, lists), np.int64, len(lists)))


def _quotes(data: bytes, begins: Int64Array) -> Int64Array:
    """The first quote from each place on; -1 for none."""
    is_quote = windows(data, begins, min(_LONG_KEY, len(data) - int(begins[-1]))) == ord('"')
    first = is_quote.argmax(axis=1)
    quotes: Int64Array = begins + first
    for row in np.flatnonzero(~is_quote[np.arange(len(begins)), first]).tolist():
        quotes[row] = data.find(b'"', int(begins[row]))
    return quotes


def _tails(lines: _Lines) -> _Tails:
    count = len(lines.ends)
    tails = _Tails(
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        (np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)),
        np.zeros(count, np.bool_),
    )
    unread = np.arange(count)
    for number in range(_FORMS):
        if not unread.size:
            break
        row = unread[number * len(unread) // _FORMS]
        begin, end = int(lines.begins[row]), int(lines.ends[row])
        form = _TAIL.fullmatch(lines.data, max(lines.data.rfind(_TAIL_BEGIN, begin, end), begin), end)
        if form is not None:
            _fill(tails, form, lines, unread)
            unread = unread[~tails.found[unread]]
    return tails


def _fill(tails: _Tails, form: re.Match[bytes], lines: _Lines, rest: Int64Array) -> None:
    """Find the tails that differ from a form in digits only."""
    width = form.end() - form.start()
    rows = rest[lines.ends[rest] - lines.begins[rest] > width]
    places = lines.ends[rows] - width
    text = windows(lines.data, places, width)
    digits = text - np.uint8(ord("0"))
    spans = [
        None if form[group] is None else slice(form.start(group) - form.start(), form.end(group) - form.start())
        for group in _NUMBERS
    ]
    is_fixed, good = np.ones(width, np.bool_), np.ones(len(rows), np.bool_)
    for span in spans:
        if span is not None:
            is_fixed[span] = False
            good &= (digits[:, span] <= 9).all(axis=1)
            if span.stop - span.start > 1:
                good &= digits[:, span.start] != 0
    good &= (text[:, is_fixed] == np.frombuffer(form[0], np.uint8)[is_fixed]).all(axis=1)
    rows, digits = rows[good], digits[good]
    tails.found[rows], tails.begins[rows], tails.has_time[rows] = True, places[good], form[_TIME] is not None
    for numbers, span in zip(tails.numbers, spans, strict=True):
        if span is not None:
            numbers[rows] = _decimals(digits[:, span])
    if form[_SIGN]:
        tails.numbers[-1][rows] *= -1


def _decimals(digits: npt.NDArray[np.uint8]) -> Int64Array:
    """Numbers of their digits."""
    numbers = np.zeros(len(digits), np.int64)
    for column in range(digits.shape[1]):
        numbers *= 10
        numbers += digits[:, column]
    return numbers


# -- lines of any form -------------------------------------------------------------------------------------------------


class _Header(msgspec.Struct, frozen=True, gc=False):
    """A header in JSON."""

    key: str
    value: bytes | None


def _pairs(headers: Iterable[_Header]) -> Headers:
    return tuple([(header.key, header.value) for header in headers])


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An envelope in JSON."""

    key: msgspec.Raw
    value: msgspec.Raw
    headers: list[_Header]
    partition: int
    offset: int
    timestamp: int | None


def parse_lines(lines: list[bytes]) -> Iterator[Fields]:
    """The fields of envelopes in JSON, with key and value byte for byte.

    White space around a document is a part of it, so the fields are found by their order.

    Raises:
        ValueError: a line is no envelope.
    """
    parsed_lines = decode_struct(b"[%b]" % b",".join(lines), list[_Line])
    for line, parsed in zip(lines, parsed_lines, strict=True):
        key, value = bytes(parsed.key), bytes(parsed.value)
        end_of_key = len(_KEY) + len(key)
        end_of_value = end_of_key + len(_VALUE) + len(value)
        if not (
            line[len(_KEY)] not in _SPACE
            and line.startswith(_VALUE, end_of_key)
            and line[end_of_key + len(_VALUE)] not in _SPACE
            and line.startswith(_HEADERS, end_of_value)
        ):
            key, position = _verbatim(line, 0, _KEY, key)
            value, position = _verbatim(line, position, _VALUE, value)
            if not line.startswith(_HEADERS, position):
                raise ValueError("an envelope has other fields")
        yield key, value, _pairs(parsed.headers), parsed.partition, parsed.offset, parsed.timestamp


def _verbatim(line: bytes, at: int, name: bytes, raw: bytes) -> tuple[bytes, int]:
    if not line.startswith(name, at):
        raise ValueError("an envelope has other fields")
    start = at + len(name)
    end = start
    while line[end : end + 1] in (b" ", b"\t", b"\r"):
        end += 1
    end += len(raw.strip(_SPACE))
    while line[end : end + 1] in (b" ", b"\t", b"\r"):
        end += 1
    return line[start:end], end
