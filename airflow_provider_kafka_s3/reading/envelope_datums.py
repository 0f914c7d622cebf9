"""Reads envelopes in Avro, as they are written, many datums at once.

The same bytes are in each record: the end of its headers, and the topic. There the datums are told apart. Then all
lengths before and all numbers behind these places are read, and have to lead from the beginning of a datum to that of
the next one. So what is found is what reading one datum after another finds.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import numpy as np

from airflow_provider_kafka_s3.arrays import Int64Array
from airflow_provider_kafka_s3.converters.avro_cursor import Cursor, Rows
from airflow_provider_kafka_s3.reading.avro_file import PIECE, AvroBlock, AvroFile
from airflow_provider_kafka_s3.reading.envelopes import (
    ENVELOPE_FIELDS,
    EnvelopeColumns,
    headers_of,
    matches,
    parsed_headers,
    slices,
    spread,
)
from airflow_provider_kafka_s3.reading.record import Headers

__all__ = ["envelopes_in_avro"]

_PADDING: Final = 16
"""Bytes behind the data that a cursor may read."""
_BYTES: Final = ["null", "bytes"]
_TEXT: Final = ["null", "string"]
_HEADER: Final = {
    "type": "record",
    "name": "kafka_s3.Header",
    "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": _BYTES}],
}
_REST: Final = [
    {"name": "headers", "type": {"type": "array", "items": _HEADER}},
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "timestamp", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
]
"""The fields behind key and value."""
_MOST_HEADERS: Final = 64
"""Of a record. Each takes a pass over all records that have it."""
_NAMES: Final = 8
"""Names of headers that are looked for in all records at once."""


class _OtherFormError(Exception):
    """The datums are not those that were expected, or are damaged."""


def envelopes_in_avro(
    body: io.BufferedReader, topic: str, *, piece: int = PIECE
) -> Iterator[EnvelopeColumns | list[Any]]:
    """The envelopes of a file, some at a time: columns, or tuples if some have another form.

    Args:
        body: the file.
        topic: whose records they are.
        piece: bytes of the blocks that are decoded at once, about.

    Raises:
        ValueError: it is no Avro file.
        LookupError: it has no envelopes.
    """
    file = AvroFile(body, logical=False)
    form, fields = _Form(file.schema, topic), operator.itemgetter(*ENVELOPE_FIELDS)
    for blocks in file.blocks(piece):
        columns = form.columns(blocks)
        if columns is not None:
            yield columns
        else:
            yield [
                (key, value, parsed_headers(headers), *numbers)
                for key, value, headers, *numbers in map(fields, file.decode(blocks))
            ]


class _Form:
    """The form of datums.

    Args:
        schema: of the file, as it is there.
        topic: whose records they are.
    """

    def __init__(self, schema: Any, topic: str) -> None:
        fields = schema.get("fields", []) if isinstance(schema, dict) else []
        self._is_text = [{"name": name, "type": _TEXT} in fields[:2] for name in ("key", "value")]
        expected = [
            {"name": name, "type": _TEXT if is_text else _BYTES}
            for name, is_text in zip(("key", "value"), self._is_text, strict=True)
        ]
        self._is_readable = fields == expected + _REST
        self._end_of_headers = b"\0" + _length(len(topic.encode())) + topic.encode()

    def columns(self, blocks: Sequence[AvroBlock]) -> EnvelopeColumns | None:
        """The fields of the datums of blocks; None: some have another form, or are damaged."""
        if not self._is_readable:
            return None
        data = b"".join([*(block.data for block in blocks), bytes(_PADDING)])
        counts = [block.count for block in blocks]
        tails = _places(data, self._end_of_headers)
        if not tails.size or len(tails) != sum(counts) or min(counts) < 0:
            return None
        try:
            partitions, offsets, timestamps, ends = _read_tails(data, tails + len(self._end_of_headers))
            begins = np.concatenate((np.zeros(1, np.int64), ends))
            bounds = np.cumsum([0, *(len(block.data) for block in blocks)])
            # No datum is in two blocks, and nothing is behind the last one.
            if (begins[np.cumsum([0, *counts])] != bounds).any():
                return None
            heads = _cursor(data, begins[:-1])
            keys, values = (_read_bytes(heads, data, is_text=is_text) for is_text in self._is_text)
            headers = _read_headers(heads, data, tails)
        except (_OtherFormError, UnicodeDecodeError):
            return None
        return EnvelopeColumns(keys, values, partitions, offsets, timestamps, headers)


def _length(number: int) -> bytes:
    """The length of a topic's name, which has 249 bytes at most."""
    return bytes([number << 1]) if number < 0x40 else bytes([number << 1 & 0x7F | 0x80, number >> 6])


def _places(data: bytes, text: bytes) -> Int64Array:
    """Where a text begins."""
    octets = np.frombuffer(data, np.uint8)
    # The first three bytes are in few other places: a zero, and the length and the beginning of a name.
    few = np.flatnonzero((octets[:-2] == text[0]) & (octets[1:-1] == text[1]) & (octets[2:] == text[2]))
    return few[matches(data, few, text)]


def _cursor(data: bytes, places: Int64Array) -> Cursor:
    count = len(places)
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    end = np.full(count, len(data) - _PADDING, np.int64)
    none = np.zeros(count, np.int64)
    return Cursor(np.frombuffer(data, np.uint8), cast("Any", words), places, end, none.astype(np.bool_), none, count)


def _require(cursor: Cursor, as_expected: np.bool_ | bool) -> None:
    if not as_expected or cursor.bad.any():
        raise _OtherFormError


def _read_branch(cursor: Cursor) -> Rows:
    """Move behind the branch of a union with null; the rows that are not null."""
    branch = cursor.longs(None)
    _require(cursor, ((branch == 0) | (branch == 1)).all())
    return None if branch.all() else np.flatnonzero(branch)


def _read_tails(data: bytes, places: Int64Array) -> tuple[Int64Array, Int64Array, list[int | None], Int64Array]:
    """Partitions, offsets, timestamps, and where the datums end."""
    cursor = _cursor(data, places)
    partitions, offsets = cursor.longs(None), cursor.longs(None)
    rows = _read_branch(cursor)
    times: list[int | None] = cursor.longs(rows).tolist()
    _require(cursor, True)
    return partitions, offsets, times if rows is None else spread(times, rows, cursor.count), cursor.pos


def _read_bytes(cursor: Cursor, data: bytes, *, is_text: bool) -> list[bytes | None]:
    """The values of a union of null and bytes or text."""
    rows = _read_branch(cursor)
    values = slices(data, *_skip(cursor, rows))
    if is_text:
        # Each of them is UTF-8: a newline is no part of another character.
        b"\n".join(values).decode()
    return [*values] if rows is None else spread(values, rows, cursor.count)


def _read_headers(cursor: Cursor, data: bytes, tails: Int64Array) -> list[Headers] | None:
    """The headers before the ends of headers; None: no record has some."""
    rows = np.flatnonzero(cursor.pos != tails)
    counts = np.zeros(cursor.count, np.int64)
    if rows.size:
        counts[rows] = cursor.longs(rows)
        _require(cursor, bool(counts[rows].min() > 0 and counts.max() <= _MOST_HEADERS))
    first = counts.cumsum() - counts
    names, values = (np.zeros((2, counts.sum()), np.int64) for _ in range(2))
    is_null = np.zeros(counts.sum(), np.bool_)
    for number in range(counts.max(initial=0)):
        rows = rows[counts[rows] > number]
        indices = first[rows] + number
        names[:, indices] = _skip(cursor, rows)
        branch = cursor.longs(rows)
        _require(cursor, bool(((branch == 0) | (branch == 1)).all()))
        has_value = branch == 1
        is_null[indices] = ~has_value
        values[:, indices[has_value]] = _skip(cursor, rows[has_value])
    _require(cursor, (cursor.pos == tails).all())
    if not is_null.size:
        return None
    header_values: list[bytes | None] = [*slices(data, *values)]
    for row in np.flatnonzero(is_null).tolist():
        header_values[row] = None
    return headers_of(tuple(zip(_texts(data, *names), header_values, strict=True)), counts)


def _texts(data: bytes, begins: Int64Array, ends: Int64Array) -> list[str]:
    """The names of headers, of which few are different."""
    names = np.empty(len(begins), np.object_)
    unread = np.arange(len(begins))
    for _ in range(_NAMES):
        if not unread.size:
            break
        name = data[begins[unread[0]] : ends[unread[0]]]
        is_same = ends[unread] - begins[unread] == len(name)
        if name:
            is_same &= matches(data, begins[unread], name)
        names[unread[is_same]] = name.decode()
        unread = unread[~is_same]
    names[unread] = [name.decode() for name in slices(data, begins[unread], ends[unread])]
    return cast("list[str]", names.tolist())


def _skip(cursor: Cursor, rows: Rows) -> tuple[Int64Array, Int64Array]:
    """Move behind bytes that have their length before them; where they begin and end."""
    lengths = cursor.lengths(rows)
    begins = cursor.at(rows)
    cursor.move(rows, begins + lengths)
    return begins, begins + lengths
