"""Columns whose values JSON and CSV have as texts that Arrow's readers do not read, or read as something else.

They take the letters of base64 for bytes, and its digits for a decimal.
"""

from __future__ import annotations

import binascii
import decimal
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.config import Envelope, JsonConverter, Layout, StringConverter
from airflow_provider_kafka_s3.reading.retyped import retyped_column

__all__ = [
    "ReadText",
    "ReaderOf",
    "are_base64",
    "decimals_of_base64",
    "decoded_table",
    "number_of_text",
    "text_readers",
    "with_texts",
]

ReadText: TypeAlias = Callable[[str], Any]
ReaderOf: TypeAlias = Callable[[Any], ReadText | None]
"""Gives the reader of texts of a type of columns; None if Arrow reads it."""

_DIGITS: Final = decimal.Context(prec=100)
"""More than those of any decimal of Arrow."""


def are_base64(layout: Layout) -> bool:
    """Whether objects of a layout have the bytes of values as texts in base64.

    Documents of JSON without a schema are those of the producer: what their texts are is not known.
    """
    converter = layout.value_converter
    is_document = isinstance(converter, JsonConverter) and converter.schema is None and not converter.schemas_enable
    return not (isinstance(layout.content, Envelope) or isinstance(converter, StringConverter | None) or is_document)


def text_readers(layout: Layout, of_format: ReaderOf) -> ReaderOf:
    """How columns of the objects of a layout are read.

    Args:
        layout: of the objects.
        of_format: gives the reader of a type whose texts differ by format.
    """
    has_base64 = are_base64(layout)

    def reader(kind: Any) -> ReadText | None:
        if pa.types.is_null(kind):  # of lists of them Arrow's reader of JSON makes invalid arrays
            return _nothing
        if has_base64 and _is_bytes(kind):
            return _bytes
        return of_format(kind)

    return reader


def with_texts(schema: pa.Schema, reader_of: ReaderOf) -> pa.Schema:
    """The schema with texts where they are read; what is inside of structs and lists may be null, as these may."""
    return pa.schema([one.with_type(_text_type(one.type, reader_of)) for one in schema])


def decoded_table(table: pa.Table, schema: pa.Schema, reader_of: ReaderOf) -> pa.Table:
    """A table of :func:`with_texts` with the types of the schema.

    Raises:
        pyarrow.ArrowInvalid: a text is not that of a value of its type.
    """

    def leaf(texts: Any, kind: Any) -> Array:
        read = reader_of(kind)
        assert read is not None, "others have their type"
        return cast("Array", pa.array([None if text is None else read(text) for text in texts.to_pylist()], kind))

    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        try:
            columns.append(retyped_column(column, field.type, leaf))
        except pa.ArrowInvalid as e:
            raise pa.ArrowInvalid(
                f"the column {field.name!r} has {e}. Bytes, and decimals of JSON, are texts in base64; declare another "
                f"text as string"
            ) from e
    return pa.table(columns, schema=schema)


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _text_type(kind: Any, reader_of: ReaderOf) -> pa.DataType:
    if reader_of(kind) is not None:
        return pa.string()
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(one.name, _text_type(one.type, reader_of)) for one in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(pa.field(kind.value_field.name, _text_type(kind.value_type, reader_of)))
    return cast("pa.DataType", kind)


def _bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        raise pa.ArrowInvalid("a text that is no base64") from None


def _nothing(text: str) -> None:
    del text
    raise pa.ArrowInvalid("a value that is not null")


def number_of_text(text: str) -> decimal.Decimal:
    """A decimal from its digits.

    Raises:
        pyarrow.ArrowInvalid: the text is no number.
    """
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise pa.ArrowInvalid("a text that is no number") from None


def decimals_of_base64(kind: Any) -> ReadText:
    """Reads the unscaled numbers of a decimal type, which are bytes in base64."""

    def read(text: str) -> decimal.Decimal:
        return decimal.Decimal(int.from_bytes(_bytes(text), signed=True)).scaleb(-kind.scale, _DIGITS)

    return read
