"""Documents of a batch as bytes, with the positions of their strings and keys, and the texts of one field in them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, bounds, contents, int64_array, validity_buffer
from airflow_provider_kafka_s3.converters.json_grammar import members

__all__ = ["Block", "Bytes", "FixedTexts", "Spans", "rows_of"]

_QUOTE, _COLON, _MINUS, _ZERO = b'":-0'
_WORD: Final = 16
"""Bytes that are compared at once."""
_NEAR: Final = 512
"""Documents that are compared at once."""

Bytes: TypeAlias = npt.NDArray[np.uint8]


_DIGITS: Final = members(b"0123456789")
_AFTER_LONG_ZERO: Final = members(b"0123456789xX")


def rows_of(positions: Int64Array, at: Int64Array) -> Int64Array:
    """The rows of positions; ``at`` are the bounds of rows."""
    return np.searchsorted(at, positions, side="right") - 1


class FixedTexts:
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


class Block:
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
        offsets = bounds(values) - bounds(values)[0]
        size = int(offsets[-1])
        self.data: Bytes = np.zeros(size + _WORD, np.uint8)
        self.data[:size] = np.frombuffer(contents(values), np.uint8)
        self._buffer = pa.py_buffer(self.data.data)
        # A word begins at each byte.
        self._words = np.ndarray((size + 1,), np.dtype((np.void, _WORD)), self.data, strides=(1,))
        self.starts, self.ends = offsets[:-1], offsets[1:]
        quotes = np.flatnonzero(self.data == _QUOTE)
        self.broken = cast("Bools", np.diff(np.searchsorted(quotes, offsets)) % 2 == 1)
        closes = quotes[1::2]
        keys = np.flatnonzero(self.data[closes + 1] == _COLON)
        self.key_closes = closes[keys]
        self.next_closes = closes[np.minimum(keys + 1, len(closes) - 1)]
        numbers = np.searchsorted(self.key_closes, offsets)
        self.first_keys, self.key_counts = numbers[:-1], np.diff(numbers)

    def text(self, row: int) -> bytes:
        """A document."""
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def has(self, texts: FixedTexts, at: Int64Array) -> Bools:
        """Whether all texts are at their positions.

        Args:
            texts: some texts.
            at: a row of positions per document, one per text; some may be outside of the block.
        """
        positions = np.clip(at, 0, len(self.data) - _WORD - texts.lengths)
        matches = np.empty(len(positions), np.bool_)
        # Positions of few documents at a time are near each other in memory.
        for start in range(0, len(positions), _NEAR):
            near = np.take(positions[start : start + _NEAR], texts.numbers, axis=1) + texts.offsets
            halves = self._words[near].view(np.uint64)
            halves ^= texts.halves
            halves &= texts.masks
            matches[start : start + _NEAR] = np.bitwise_or.reduce(halves, axis=1) == 0
        return matches

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
class Spans:
    """The texts of one field.

    Attributes:
        block: in which they are.
        starts: of the texts.
        ends: of the texts.
        closes: last quotes of the strings that begin there, if they do.
    """

    block: Block
    starts: Int64Array
    ends: Int64Array
    closes: Int64Array

    @functools.cached_property
    def first(self) -> Bytes:
        """First bytes."""
        return self.block.data[self.starts]

    @functools.cached_property
    def lengths(self) -> Int64Array:
        """Lengths in bytes."""
        return self.ends - self.starts

    def are_strings(self) -> Bools:
        """Whether each text is one string."""
        return cast("Bools", (self.first == _QUOTE) & (self.closes == self.ends - 1))

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
        digit_starts = self.starts + (self.first == _MINUS)
        first = data[digit_starts]
        long_zero = (first == _ZERO) & _AFTER_LONG_ZERO[data[digit_starts + 1]]
        return cast("Bools", _DIGITS[first] & _DIGITS[data[self.ends - 1]] & ~long_zero)

    def take(self, kind: pa.DataType, valid: Bools, *, quoted: bool = False) -> Array:
        """The texts, without their quotes if they are quoted; null where ``valid`` is False."""
        shorter = 1 if quoted else 0
        starts = self.starts + shorter
        return self.block.take(kind, starts, self.ends - shorter, None if valid.all() else valid)
