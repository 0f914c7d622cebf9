"""The grammar of JSON, checked for a batch of documents at a time."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Bools, bounds, contents, valid_rows
from airflow_provider_kafka_s3.converters.json_scalar import DEEPEST

__all__ = [
    "GRAMMAR",
    "Decoder",
    "are_empty",
    "are_lines",
    "are_utf8",
    "begin_and_end",
    "deep_rows",
    "line_documents",
    "members",
]

T = TypeVar("T")


class Decoder(Protocol[T]):
    """Decodes documents, as ``msgspec.json.Decoder``."""

    def decode(self, document: bytes | memoryview, /) -> T:
        """One."""

    def decode_lines(self, documents: bytes | memoryview, /) -> list[T]:
        """Each line."""


_SPACE: Final = 0x20
GRAMMAR: Final = msgspec.json.Decoder(msgspec.Raw)
"""Checks the grammar without making objects: Raw does not decode the document."""


def members(characters: bytes) -> Bools:
    """Per byte, whether it is one of these."""
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_FIRST: Final = members(b'{["-0123456789tfn')
_LAST: Final = members(b'}]"0123456789el')


def are_empty(values: Array) -> Bools:
    """Whether each value has no bytes: no document, and to Kafka Connect a null value.

    Args:
        values: binary or large_binary; null rows are not empty.
    """
    offsets = bounds(values)
    empty: Bools = offsets[1:] == offsets[:-1]
    return empty & valid_rows(values)


def are_lines(values: Array, frames: Array) -> bool:
    """Whether every value certainly is one JSON document on one line; if False, they have to be checked one by one.

    Args:
        values: binary or large_binary, without nulls.
        frames: the values with a newline behind each.
    """
    return line_documents(values, frames, GRAMMAR) is not None


def line_documents(values: Array, frames: Array, decoder: Decoder[T]) -> list[T] | None:
    """The documents if every value certainly is one on one line, as :func:`are_lines`; None if it is not certain.

    Args:
        values: binary or large_binary, without nulls.
        frames: the values with a newline behind each.
        decoder: of each document; it checks the grammar of what it skips, too.
    """
    if len(values) == 0:
        return []
    offsets = bounds(values) - bounds(values)[0]
    if not np.diff(offsets).all():  # an empty value is no document
        return None
    data = np.frombuffer(contents(values), np.uint8)
    # As signed numbers, bytes beyond ASCII are negative: one comparison finds them and control characters.
    if data.view(np.int8).min() < _SPACE:
        if data.min() < _SPACE and ((data == ord("\n")) | (data == ord("\r"))).any():
            return None
        if not are_utf8(values):
            return None
    if not begin_and_end(values):
        return None
    try:
        documents = decoder.decode_lines(contents(frames))
    except (msgspec.DecodeError, RecursionError):
        return None
    return documents if len(documents) == len(values) else None


def begin_and_end(values: Array) -> bool:
    """Whether every value begins with a character that may begin a document, and ends with one that may end it.

    For a decoder of lines, a newline is white space: ``{"a":`` and ``1}`` on two lines are one document, and ``1 2`` on
    one line are two. If this is so, there is at least one document in each line, since no document continues with a
    beginning after an end. So as many documents as lines means one document in each line.

    Args:
        values: none is empty.
    """
    offsets = bounds(values) - bounds(values)[0]
    data = np.frombuffer(contents(values), np.uint8)
    return bool(_FIRST[data[offsets[:-1]]].all() and _LAST[data[offsets[1:] - 1]].all())


def are_utf8(values: Array) -> bool:
    """Whether all values of a binary or large_binary are UTF-8."""
    try:
        values.cast(pa.large_string() if pa.types.is_large_binary(values.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def deep_rows(values: Array) -> frozenset[int]:
    """Rows of binary or large_binary that may have too many objects and arrays inside each other."""
    offsets = bounds(values)
    if len(values) == 0 or np.diff(offsets).max() <= 2 * DEEPEST:  # each that begins has to end
        return frozenset()
    data = np.frombuffer(contents(values), np.uint8)
    positions = np.flatnonzero((data | np.uint8(0x20)) == ord("{"))  # the code of [ has one bit less
    counts = np.diff(np.searchsorted(positions, offsets - offsets[0]))
    return frozenset(np.flatnonzero(counts > DEEPEST).tolist())
