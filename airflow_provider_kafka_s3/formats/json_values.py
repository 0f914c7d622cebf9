"""JSON texts of Arrow values, as Kafka Connect's JsonConverter writes them without a schema.

The text of a row is a sequence of parts: literals, which are the same in every row, and columns of texts. Structs add
the parts of their fields to those of the value around them, so a record without null structs is joined once, whatever
its depth.

Nothing here loops over rows, and all offsets have 64 bits. ``pyarrow.scalar`` is not used: it imports pandas, see
:mod:`airflow_provider_kafka_s3.arrays`.
"""

from __future__ import annotations

import binascii
from collections.abc import Collection, Iterable
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import Array, Int64Array, binary_array, bounds, contents
from airflow_provider_kafka_s3.config import DecimalFormat

__all__ = ["encode_json"]


_Parts: TypeAlias = "list[bytes | Array]"

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_SPACE: Final = 0x20
_BASE64_PADDING: Final = ord("=")
_NOT_FINITE: Final = {b"nan": b'"NaN"', b"inf": b'"Infinity"', b"-inf": b'"-Infinity"'}


def _escapes() -> dict[int, bytes]:
    short = {"\b": b"\\b", "\t": b"\\t", "\n": b"\\n", "\f": b"\\f", "\r": b"\\r"}
    # The backslash is first: replacing one character after another must not escape the backslashes of escapes.
    return (
        {_BACKSLASH: b"\\\\", _QUOTE: b'\\"'}
        | {code: b"\\u%04X" % code for code in range(_SPACE)}
        | {ord(character): escape for character, escape in short.items()}
    )


_ESCAPES: Final = _escapes()
_GROWTH: Final = np.zeros(256, np.int64)
_GROWTH[list(_ESCAPES)] = [len(escape) - 1 for escape in _ESCAPES.values()]


def encode_json(values: Array, *, decimal_format: DecimalFormat = "BASE64", documents: Collection[str] = ()) -> Array:
    """Encode every row as one JSON document (RFC 8259), in UTF-8 and without white space.

    The documents are those of Kafka Connect's JsonConverter with ``schemas.enable=false``:

    - struct: an object with all fields in their order; a null field is ``null``
    - map: an object with the entries in their order, all of them: also those whose key is there already. With keys
      that are no strings: an array of arrays of key and value
    - list: an array
    - string: a string; control characters, quotes and backslashes are escaped, all else is written as it is
    - binary, of any or of fixed length: base64 as a string
    - decimal: base64 of the unscaled value, as big-endian two's complement in as few bytes as possible, or a number
    - date, time and timestamp: the integer of their unit
    - floating point: the shortest number that is read as the same value, with ``.`` or ``e``; ``"NaN"``,
      ``"Infinity"`` and ``"-Infinity"`` are strings
    - null, in any place: ``null``

    Args:
        values: rows of null, boolean, integer, float32, float64, string, binary, decimal128, decimal256, date32, time,
            timestamp, struct, list or map type, and of types nested in those.
        decimal_format: ``BASE64``, or ``NUMERIC`` for numbers with all digits of their scale and no exponent, as
            ``1.50``.
        documents: binary fields of the outermost struct that are JSON documents already.

    Returns:
        The documents as large_binary array without nulls, parallel to the values.

    Raises:
        TypeError: the type, or one nested in it, is not one of these.
    """
    if documents:
        return _join(_struct_parts(values, decimal_format, documents), len(values))
    return _join(_parts(values, decimal_format), len(values))


def _parts(values: Array, decimal_format: DecimalFormat) -> _Parts:
    """The parts of the texts of rows; a null in a column of parts stands for ``null``."""
    parts = _parts_of_values(values, decimal_format)
    nulls = values.null_count
    if nulls == 0 or pa.types.is_null(values.type):
        return parts
    if len(parts) == 1 and isinstance(parts[0], pa.Array) and parts[0].null_count == nulls:
        return parts
    return [_with_nulls_of(values, _join(parts, len(values)))]


def _parts_of_values(values: Array, decimal_format: DecimalFormat) -> _Parts:
    """The parts of the texts of rows; those of null rows may be anything."""
    kind: Any = values.type
    types = pa.types
    if types.is_struct(kind):
        return _struct_parts(values, decimal_format)
    if types.is_list(kind):
        items = cast("pa.ListArray[Any]", values).values
        return _collection_parts(values, b"[", b"]", _parts(_used(values, items), decimal_format))
    if types.is_map(kind):
        entries = cast("pa.MapArray[Any, Any]", values)
        keys = _parts(_used(values, entries.keys), decimal_format)
        mapped = _parts(_used(values, entries.items), decimal_format)
        if types.is_string(kind.key_type) or types.is_large_string(kind.key_type):
            return _collection_parts(values, b"{", b"}", [*keys, b":", *mapped])
        return _collection_parts(values, b"[", b"]", [b"[", *keys, b",", *mapped, b"]"])
    if types.is_string(kind) or types.is_large_string(kind):
        return [b'"', _escape(values.cast(pa.large_binary())), b'"']
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [b'"', _base64(values.cast(pa.large_binary())), b'"']
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return [b'"', _base64(_minimal_bytes(values)), b'"'] if decimal_format == "BASE64" else [_plain(values)]
    if types.is_float32(kind) or types.is_float64(kind):
        return [_float_texts(values)]
    if types.is_boolean(kind) or types.is_integer(kind):
        return [_texts(values)]
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_date32(kind):
        return [_texts(values.view(pa.int64() if kind.bit_width == 64 else pa.int32()))]
    if types.is_null(kind):
        return [b"null"]
    raise TypeError(f"values of Arrow type {kind} cannot be encoded as JSON")


def _struct_parts(values: Array, decimal_format: DecimalFormat, documents: Collection[str] = ()) -> _Parts:
    parts: _Parts = []
    for index, field in enumerate(values.type):
        name = _escape_text(field.name.encode(), _ESCAPES)
        parts.append(b'%c"%b":' % (b"," if index else b"{", name))
        column = cast("pa.StructArray", values).field(index)
        if field.name in documents:
            parts.append(column.cast(pa.large_binary()))
        else:
            parts += _parts(column, decimal_format)
    return [*parts, b"}"] if parts else [b"{}"]


def _collection_parts(values: Array, begin: bytes, end: bytes, item: _Parts) -> _Parts:
    """Parts of lists or maps, from the parts of their items.

    Every item is written with a comma. Then the items of a row are next to each other already, and its last comma is
    the place of the end. Only rows without items need an end of their own.
    """
    offsets = bounds(values)
    items = _join([*item, b","], int(offsets[-1] - offsets[0]))
    ends = bounds(items)[offsets - offsets[0]]
    data = np.frombuffer(contents(items), np.uint8).copy()
    ends -= ends[0]
    empty = np.diff(ends) == 0
    data[ends[1:][~empty] - 1] = ord(end)
    parts: _Parts = [begin, _text_array(ends, data)]
    if empty.any():
        count = _running_total(empty)
        parts.append(_text_array(count, end * int(count[-1])))
    return parts


def _used(values: Array, items: Array) -> Array:
    """Those items of lists or maps that are between their first and their last bound."""
    offsets = bounds(values)
    return items.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _join(parts: _Parts, rows: int) -> Array:
    """Join the parts of each row; nulls become ``null``."""
    columns: _Parts = []
    for part in parts:
        if isinstance(part, bytes) and columns and isinstance(columns[-1], bytes):
            columns[-1] += part
        else:
            columns.append(part)
    if len(columns) == 1 and isinstance(columns[0], bytes):
        return _text_array(np.arange(rows + 1, dtype=np.int64) * len(columns[0]), columns[0] * rows)
    joined = pc.binary_join_element_wise(
        *(_literal(column) if isinstance(column, bytes) else column for column in columns),
        _literal(b""),
        null_handling="replace",
        null_replacement="null",
    )
    return cast("Array", joined)


def _with_nulls_of(values: Array, texts: Array) -> Array:
    """The texts, null where the values are."""
    bitmap = values.buffers()[0]
    if bitmap is None:
        return texts
    offset, rows = values.offset, len(values)
    used = np.frombuffer(memoryview(bitmap), np.uint8)[offset // 8 : (offset + rows + 7) // 8]
    valid = np.unpackbits(used, bitorder="little")[offset % 8 : offset % 8 + rows]
    return _text_array(bounds(texts), texts.buffers()[2], np.packbits(valid, bitorder="little"))


def _text_array(at: Int64Array, data: Any, valid: npt.NDArray[np.uint8] | None = None) -> Array:
    """An array whose texts are between these bounds in the data; ``valid`` is its bitmap."""
    buffers = [None if valid is None else pa.py_buffer(valid.data), pa.py_buffer(at.data), _buffer(data)]
    return cast("Array", pa.Array.from_buffers(pa.large_binary(), len(at) - 1, buffers))


def _buffer(data: Any) -> pa.Buffer:
    return data if isinstance(data, pa.Buffer) else pa.py_buffer(data)


def _literal(text: bytes) -> Any:
    return binary_array([text], large=True)[0]


def _texts(values: Array) -> Array:
    """Arrow's texts of the values, null where they are."""
    return values.cast(pa.large_string()).cast(pa.large_binary())


def _escape(values: Array) -> Array:
    """The strings with escapes; the content of null rows counts too."""
    data = np.frombuffer(contents(values), np.uint8)
    special = (data < _SPACE) | (data == _QUOTE) | (data == _BACKSLASH)
    if not special.any():
        return values
    places = np.flatnonzero(special)
    codes = data[places]
    growth = _running_total(_GROWTH[codes])
    offsets = bounds(values) - bounds(values)[0]
    offsets += growth[np.searchsorted(places, offsets)]
    present = set(np.unique(codes).tolist())
    return _text_array(offsets, _escape_text(data.tobytes(), (code for code in _ESCAPES if code in present)))


def _escape_text(text: bytes, codes: Iterable[int]) -> bytes:
    for code in codes:
        text = text.replace(bytes([code]), _ESCAPES[code])
    return text


def _base64(values: Array) -> Array:
    """Base64 of each value: of all values at once, each filled up with zeros to a multiple of three bytes."""
    sizes = np.diff(bounds(values))
    missing = -sizes % 3
    if missing.any():
        offsets = _running_total(missing)
        zeros = _text_array(offsets, bytes(int(offsets[-1])))
        values = cast("Array", pc.binary_join_element_wise(values, zeros, _literal(b"")))
    text = np.frombuffer(binascii.b2a_base64(contents(values), newline=False), np.uint8)
    ends = (bounds(values) - bounds(values)[0]) // 3 * 4
    if missing.any():
        text = text.copy()
        # A null row has no text that could end in padding.
        missing[np.diff(ends) == 0] = 0
        text[ends[1:][missing > 0] - 1] = _BASE64_PADDING
        text[ends[1:][missing > 1] - 2] = _BASE64_PADDING
    return _text_array(ends, text)


def _minimal_bytes(values: Array) -> Array:
    """The unscaled values of decimals as big-endian two's complement, each in as few bytes as possible."""
    width, rows = values.type.byte_width, len(values)
    words = _fixed_width(values, np.dtype("<i8")).reshape(rows, width // 8)
    low = words[:, 0]
    if (words[:, 1:] == (low >> 63)[:, None]).all():  # 64 bits are enough
        words, width = low[:, None], 8
    little_endian = np.ascontiguousarray(words).view(np.uint8).reshape(rows, width)
    # Leading bytes that repeat the sign become zero. A number needs the bytes after those, and one more if its first
    # bit would be read as the other sign.
    size = np.ones(rows, np.int64)
    sign = (little_endian[:, -1] >> 7) * np.uint8(0xFF)
    for index in range(width):
        byte = little_endian[:, index] ^ sign
        np.copyto(size, index + 1, where=byte > 0)
        np.copyto(size, index + 2, where=byte > 0x7F)
    kept = np.arange(width) >= width - size[:, None]
    offsets = _running_total(size)
    return _text_array(offsets, np.ascontiguousarray(little_endian[:, ::-1][kept]))


def _fixed_width(values: Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The used part of the data of an array whose values have a fixed width."""
    width = values.type.byte_width
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(0, dtype)
    data = memoryview(buffer)[values.offset * width : (values.offset + len(values)) * width]
    return np.frombuffer(data, dtype)


def _plain(values: Array) -> Array:
    """The texts of decimals: all digits of the scale, no exponent; null where they are."""
    scale = values.type.scale
    if scale <= 6:  # Arrow writes exponents below 1e-6, and for negative scales, which Avro does not have
        return _texts(values)
    whole_type = pa.decimal128(38, 0) if values.type.byte_width == 16 else pa.decimal256(76, 0)
    whole = pa.Array.from_buffers(whole_type, len(values), values.buffers(), offset=values.offset)
    signed = whole.cast(pa.large_string())
    digits = pc.ascii_lpad(pc.ascii_ltrim(signed, characters="-"), width=scale + 1, padding="0")
    sign = pc.if_else(pc.starts_with(signed, pattern="-"), _literal(b"-"), _literal(b""))
    texts = pc.binary_replace_slice(digits, start=-scale, stop=-scale, replacement=".").cast(pa.large_binary())
    return cast("Array", pc.binary_join_element_wise(sign, texts, _literal(b"")))


def _float_texts(values: Array) -> Array:
    """The texts of floating point numbers; null where they are."""
    texts = _texts(values)
    numbers = _fixed_width(values, np.dtype(f"<f{values.type.byte_width}"))
    finite = np.isfinite(numbers)
    with np.errstate(invalid="ignore"):  # signalling NaN
        whole = finite & (np.trunc(numbers) == numbers)
    if whole.any():  # Arrow writes small ones as integers, large ones with an exponent
        data = np.frombuffer(contents(texts), np.uint8)
        marks = _running_total((data == ord(".")) | (data == ord("e")))
        whole &= np.diff(marks[bounds(texts) - bounds(texts)[0]]) == 0
        count = _running_total(whole)
        fractions = _text_array(count * 2, b".0" * int(count[-1]))
        texts = cast("Array", pc.binary_join_element_wise(texts, fractions, _literal(b"")))
    if not finite.all():
        for text, name in _NOT_FINITE.items():
            texts = cast("Array", pc.if_else(pc.equal(texts, _literal(text)), _literal(name), texts))
    return texts


def _running_total(counts: npt.NDArray[Any]) -> Int64Array:
    """Zero, and the total up to each of the counts: one more than counts."""
    total = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=total[1:])
    return total
