"""Objects of documents of JSON, one in a line."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json

from airflow_provider_kafka_s3.config import BytesConverter, CompressionName, Converter, JsonConverter, JsonLines
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.formats.lines import BLOCK_BYTES, LineReader
from airflow_provider_kafka_s3.reading.formats.port import SparkSource
from airflow_provider_kafka_s3.reading.part_bytes import bytes_of_base64, bytes_of_text
from airflow_provider_kafka_s3.reading.retyped import selected_columns
from airflow_provider_kafka_s3.reading.rows import Row
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.reading.text_columns import (
    ReaderOf,
    ReadText,
    are_base64,
    decimals_of_base64,
    decoded_table,
    text_readers,
    with_texts,
)

__all__ = ["BadDocument", "JsonReader"]

_ROW: Final = re.compile(r"\.? in row \d+")
"""The row in an error of Arrow, which is that of a block."""

_BEFORE_NULL: Final = np.frombuffer(b"n \t\r\xef", np.uint8)
"""First bytes of a line that may be the document ``null``."""


class BadDocument(ValueError):
    """A JSON document that does not go with the schema.

    Attributes:
        row: its number in the object, from 0 on.
    """

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


class JsonReader(LineReader):
    """Rows are documents."""

    spark_source = SparkSource("json")

    def __init__(self, settings: JsonLines, compression: CompressionName) -> None:
        super().__init__(settings, compression)
        self._has_base64_decimals = settings.decimal_format == "BASE64"

    @override
    def row(self, line: bytes) -> Row:
        return Row(line, msgspec.Raw(line))

    def table_of_fields(self, snapshot_object: SnapshotObject, text: bytes, schema: pa.Schema) -> pa.Table:
        """See :class:`LineReader`.

        Raises:
            BadDocument: a document cannot be parsed.
        """
        has_base64 = self._has_base64_decimals and are_base64(snapshot_object.layout)

        def text_reader(kind: Any) -> ReadText | None:
            return decimals_of_base64(kind) if has_base64 and pa.types.is_decimal(kind) else None

        reader_of = text_readers(snapshot_object.layout, text_reader)
        text = _without_nulls(text)
        try:
            return _documents(text, schema, reader_of)
        except pa.ArrowException as e:
            raise _bad_document(text, schema, reader_of, e) from e

    @override
    def why_changed(self, converter: Converter, part: Literal["key", "value"]) -> str | None:
        if isinstance(converter, JsonConverter) and not converter.has_schema:
            return None
        return super().why_changed(converter, part)

    @override
    def rewrites_documents(self, converter: Converter) -> bool:
        return isinstance(converter, JsonConverter)

    @override
    def part_bytes(self, converter: Converter) -> Callable[[Any], bytes] | None:
        if isinstance(converter, JsonConverter):
            return None
        return bytes_of_base64 if isinstance(converter, BytesConverter) else bytes_of_text


def _without_nulls(body: bytes) -> bytes:
    """JSON lines with an empty object in place of each document ``null``: the row has the same nulls.

    Arrow's parser reads memory that is not its own if a block of lines begins with ``null``, so that the process ends
    (apache/arrow#47409). No text that begins so is given to it.

    Raises:
        BadDocument: a line begins with ``null`` and goes on.
    """
    data = np.frombuffer(body, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(data == ord("\n")) + 1])
    starts = starts[starts < len(data)]
    pieces, position = [], 0
    for row in np.flatnonzero(np.isin(data[starts], _BEFORE_NULL)):
        start = int(starts[row])
        end = body.find(b"\n", start) % (len(body) + 1)
        text = body[start:end].strip(b" \t\r\xef\xbb\xbf")
        if text == b"null":
            pieces += [body[position:start], b"{}"]
            position = end
        elif text.startswith(b"null"):
            raise BadDocument(int(row), "it is no JSON document")
    return b"".join([*pieces, body[position:]]) if pieces else body


def _documents(body: bytes, schema: pa.Schema, reader_of: ReaderOf) -> pa.Table:
    """JSON lines."""
    texts = with_texts(schema, reader_of)
    table = pyarrow.json.read_json(
        io.BytesIO(body),
        read_options=pyarrow.json.ReadOptions(block_size=max(BLOCK_BYTES, _longest(body)), use_threads=False),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=texts, unexpected_field_behavior="ignore"),
    )
    return decoded_table(selected_columns(table, texts), schema, reader_of)


def _bad_document(body: bytes, schema: pa.Schema, reader_of: ReaderOf, error: pa.ArrowException) -> BadDocument:
    """The first document that cannot be parsed, found by bisection: Arrow counts rows from the start of a block."""
    lines = [line + b"\n" for line in body.split(b"\n")[:-1]]
    good, bad = 0, len(lines)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _documents(b"".join(lines[good:middle]), schema, reader_of)
        except pa.ArrowException as e:
            bad, error = middle, e
        else:
            good = middle
    return BadDocument(good, _ROW.sub("", str(error)))


def _longest(body: bytes) -> int:
    """Bytes of the longest line, with its end."""
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n"))
    return int(np.diff(ends, prepend=-1).max(initial=0)) + 1
