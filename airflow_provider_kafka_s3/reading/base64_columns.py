"""Columns of bytes and decimals that JSON and CSV have as texts in base64.

Arrow's readers of JSON and CSV take the letters of such a text for the bytes, and its digits for those of a decimal.
"""

from __future__ import annotations

import binascii
import decimal
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.config import Csv, Envelope, JsonConverter, JsonLines, Layout, StringConverter

__all__ = ["IsText", "are_base64", "decoded_table", "with_texts"]

IsText: TypeAlias = Callable[[pa.DataType], bool]
"""Whether the values of a type are texts in base64."""

_DIGITS: Final = decimal.Context(prec=100)
"""More than those of any decimal of Arrow."""


def are_base64(layout: Layout) -> IsText:
    """Which types of columns are texts in base64 in the objects of a layout.

    Documents of JSON without a schema are those of the producer: what their texts are is not known.
    """
    converter, lines = layout.value_converter, layout.record_format
    is_document = isinstance(converter, JsonConverter) and converter.schema is None and not converter.schemas_enable
    if (
        not isinstance(lines, JsonLines | Csv)
        or isinstance(layout.content, Envelope)
        or isinstance(converter, StringConverter | None)
        or is_document
    ):
        return lambda _: False
    if isinstance(lines, JsonLines) and lines.decimal_format == "BASE64":
        return lambda kind: _is_bytes(kind) or pa.types.is_decimal(kind)
    return _is_bytes


def with_texts(schema: pa.Schema, is_text: IsText) -> pa.Schema:
    """The schema with texts where objects have them."""
    return pa.schema([_text_field(one, is_text) for one in schema])


def decoded_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of :func:`with_texts` with the types of the schema.

    Raises:
        pyarrow.ArrowInvalid: a text is not base64, or not that of a value of its type.
    """
    columns = [
        column if column.type == field.type else _decoded_column(column, field)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _text_field(one: pa.Field[Any], is_text: IsText) -> pa.Field[Any]:
    return one.with_type(_text_type(one.type, is_text))


def _text_type(kind: Any, is_text: IsText) -> pa.DataType:
    if is_text(kind):
        return pa.string()
    if isinstance(kind, pa.StructType):
        return pa.struct([_text_field(one, is_text) for one in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(_text_field(kind.value_field, is_text))
    return cast("pa.DataType", kind)


def _decoded_column(column: pa.ChunkedArray[Any], field: pa.Field[Any]) -> pa.ChunkedArray[Any]:
    try:
        return pa.chunked_array([_decoded(chunk, field.type) for chunk in column.chunks], field.type)
    except pa.ArrowInvalid as e:
        raise pa.ArrowInvalid(
            f"the column {field.name!r} has {e}. Bytes, and decimals of JSON, are texts in base64; declare another "
            f"text as string"
        ) from e


def _decoded(array: Any, kind: Any) -> Array:
    if array.type == kind:
        return cast("Array", array)
    if isinstance(kind, pa.StructType):
        parts = [_decoded(part, one.type) for part, one in zip(array.flatten(), kind, strict=True)]
        return cast("Array", pa.StructArray.from_arrays(parts, fields=[*kind], mask=array.is_null()))
    if isinstance(kind, pa.ListType):
        items = _decoded(array.values, kind.value_type)
        buffers = array.buffers()[:2]
        return cast("Array", pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=[items]))
    read = _decimal_of(kind) if pa.types.is_decimal(kind) else _bytes
    values = [None if text is None else read(text) for text in array.to_pylist()]
    return cast("Array", pa.array(values, kind))


def _bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        raise pa.ArrowInvalid("a text that is no base64") from None


def _decimal_of(kind: Any) -> Callable[[str], decimal.Decimal]:
    def read(text: str) -> decimal.Decimal:
        return decimal.Decimal(int.from_bytes(_bytes(text), signed=True)).scaleb(-kind.scale, _DIGITS)

    return read
