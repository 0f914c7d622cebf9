"""Writes CSV (RFC 4180) from columns: a header, then one line for each row; lines end in a newline.

| type | text |
|---|---|
| boolean | `true`, `false` |
| numbers | the shortest text that gives the same number, such as `1e+20`; `nan`, `inf`, `-inf` |
| decimals | with all digits of their scale; with an exponent, as `1E-10`, below a millionth |
| text | as it is |
| bytes | Base64 |
| date, time | `2026-01-02`, `03:04:05.000` with the digits of the unit |
| timestamp | `2026-01-02 03:04:05.000`; with `Z` if it has a zone, then in UTC |

Times outside the years 1 to 9999 have no such text: :meth:`CsvEncoder.invalid` finds them.

A field is quoted if it holds the separator, a quote, a newline or a carriage return, if it is empty, and if it has the
text of nulls but is not null. So a field without quotes that has the text of nulls is null, and no line is empty.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import (
    Array,
    Int64Array,
    binary_array,
    bounds,
    contents,
    int64_values,
    valid_rows,
)
from airflow_provider_kafka_s3.config import KIB, Csv
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.compression import Compression, Compressor
from airflow_provider_kafka_s3.formats.port import Buffer, Payload

__all__ = ["CsvEncoder", "CsvWriter"]

_BASE64_BYTES: Final = 1024 * KIB
_BASE64: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


class CsvEncoder:
    """Makes the lines of whole batches.

    Args:
        schema: of the batches; every column has scalar values.
        settings: separator, header and text of nulls.

    Raises:
        ConfigurationError: a column cannot be a field of CSV; the error names it.
    """

    def __init__(self, schema: pa.Schema, settings: Csv) -> None:
        for field in schema:
            if not _is_scalar(field.type):
                raise ConfigurationError(
                    f"field {field.name!r} of type {field.type} cannot be a field of CSV, which has no nested values; "
                    f"leave the field out or flatten it, or land the topic as JSON, Avro or Parquet"
                )
        if not schema.names:
            raise ConfigurationError("a record without fields cannot be a line of CSV; land the topic as JSON or Avro")
        if len(schema.names) == 1 and schema.field(0).nullable and settings.null == "":
            raise ConfigurationError(
                f"field {schema.names[0]!r} is the only one, and its null would be an empty line, which readers of CSV "
                f"leave out; set null to a text, such as 'NULL'"
            )
        self._null = settings.null
        self._special = f'^$|[{re.escape(settings.separator)}"\r\n]'
        self._null_text = _scalar(settings.null)
        self._separator = _scalar(settings.separator)
        names = binary_array([name.encode() for name in schema.names], large=True).cast(pa.large_string())
        quoted = self._quoted(names)
        self._header = (
            bytes(contents(self._lines([quoted.slice(i, 1) for i in range(len(quoted))]))) if settings.header else b""
        )

    @property
    def header(self) -> bytes:
        """The first line of an object; empty without header."""
        return self._header

    def invalid(self, batch: pa.RecordBatch) -> dict[int, str]:
        """The rows of a batch that no line can hold, ascending, with the name of the first such field of each."""
        names_by_row: dict[int, str] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for row in _without_text(column):
                names_by_row.setdefault(int(row), name)
        return dict(sorted(names_by_row.items()))

    def encode(self, batch: pa.RecordBatch) -> Array:
        """The lines of a batch as large binary array, parallel to its rows."""
        return self._lines([self._field(column) for column in batch.columns])

    def _field(self, column: Array) -> Array:
        texts = _text(column)
        # Texts of numbers and times hold no separators; but they may be equal to the text of nulls.
        return texts if pa.types.is_primitive(column.type) and not self._null else self._quoted(texts)

    def _quoted(self, texts: Array) -> Array:
        # Null rows stay null here.
        special = pc.match_substring_regex(texts, self._special)
        if self._null:
            special = pc.or_(special, pc.equal(texts, self._null_text))
        if not pc.any(special).as_py():
            return texts
        doubled = pc.replace_substring(texts, '"', '""')
        return cast("Array", pc.if_else(special, pc.binary_join_element_wise(_QUOTE, doubled, _QUOTE, _EMPTY), texts))

    def _lines(self, fields: list[Array]) -> Array:
        *others, last = fields
        ended = self._join(last, _NEWLINE, _EMPTY)
        return cast("Array", self._join(*others, ended, self._separator).cast(pa.large_binary()))

    def _join(self, *texts: Any) -> Array:
        return cast("Array", pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=self._null))


class CsvWriter:
    """Writes the lines of one object, after its header, with compression.

    Args:
        header: see :attr:`CsvEncoder.header`.
        compression: see :func:`~airflow_provider_kafka_s3.formats.compression.make_compression`.
    """

    def __init__(self, header: bytes, compression: Compression) -> None:
        self._header = header
        self._compressor: Compressor = compression()

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Write lines; the payload is a part of an array of :meth:`CsvEncoder.encode`."""
        yield from self._begin()
        yield from self._compressor.write(contents(cast("Array", payload)))

    def close(self) -> Iterable[Buffer]:
        """End the object; one without rows has its header."""
        yield from self._begin()
        yield from self._compressor.close()

    def _begin(self) -> Iterator[Buffer]:
        header, self._header = self._header, b""
        if header:
            yield from self._compressor.write(memoryview(header))


def _scalar(text: str) -> Any:
    return binary_array([text.encode()], large=True).cast(pa.large_string())[0]


_QUOTE, _NEWLINE, _EMPTY = _scalar('"'), _scalar("\n"), _scalar("")


def _is_scalar(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


# Arrow has no text, or a wrong one, for times far outside of these years; and many readers have no such times.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def _without_text(column: Array) -> Int64Array:
    """The rows of times outside the years 1 to 9999."""
    kind: Any = column.type
    if pa.types.is_date32(kind):
        numbers, per_day = int64_values(column.view(pa.int32()).cast(pa.int64())), 1
    elif pa.types.is_timestamp(kind):
        numbers, per_day = int64_values(column.view(pa.int64())), _PER_DAY[kind.unit]
    else:
        return np.zeros(0, np.int64)
    outside = (numbers < _FIRST_DAY * per_day) | (numbers >= (_LAST_DAY + 1) * per_day)
    # What a null has in the buffer is undefined.
    return np.flatnonzero(outside & valid_rows(column)) if outside.any() else np.zeros(0, np.int64)


def _text(column: Array) -> Array:
    """The values as text with offsets of 64 bits, without quotes; nulls stay null."""
    kind: Any = column.type
    if pa.types.is_fixed_size_binary(kind):
        return _base64(column.cast(pa.binary()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _base64(column)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # The same time, so that its text needs no database of time zones.
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    return column.cast(pa.large_string())


def _base64(values: Array) -> Array:
    offsets = bounds(values)
    data = np.frombuffer(contents(values), np.uint8)
    offsets = offsets - offsets[0]
    pieces: list[bytes] = []
    start = 0
    # Positions of bytes take eight times as much as the bytes, so they are made for a part at a time.
    while start < len(values):
        end = max(start + 1, int(np.searchsorted(offsets, offsets[start] + _BASE64_BYTES, side="right")) - 1)
        part = data[offsets[start] : offsets[end]]
        if end == start + 1:
            pieces.append(binascii.b2a_base64(part.data, newline=False))
        else:
            pieces.append(_base64_of(part, np.diff(offsets[start : end + 1])))
        start = end
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(-(-np.diff(offsets) // 3) * 4, out=ends[1:])
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(pieces))]
    texts = pa.Array.from_buffers(pa.large_string(), len(values), buffers)
    if values.null_count:
        return cast("Array", pc.if_else(values.is_valid(), texts, pa.nulls(1, pa.large_string())[0]))
    return cast("Array", texts)


def _base64_of(data: npt.NDArray[np.uint8], sizes: Int64Array) -> bytes:
    """The Base64 of values that follow one another, each padded by itself."""
    groups = -(-sizes // 3)
    ends = np.cumsum(groups)
    padding = groups * 3 - sizes
    before = np.cumsum(padding) - padding
    padded = np.zeros(int(ends[-1]) * 3, np.uint8)
    padded[np.arange(len(data)) + np.repeat(before, sizes)] = data
    a, b, c = padded.reshape(-1, 3).T
    text = _BASE64[np.stack([a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63], axis=1)].reshape(-1)
    for missing in (1, 2):
        text[ends[padding >= missing] * 4 - missing] = ord("=")
    return text.tobytes()
