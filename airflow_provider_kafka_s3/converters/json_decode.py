"""JSON documents to Arrow arrays.

msgspec decodes a document into a struct made for the schema, and columns are built from the structs of many documents.
What msgspec does not accept, or means something else than here, is converted by
:mod:`airflow_provider_kafka_s3.converters.json_scalar`, which defines the values and which documents are bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.avro_decode import Decoded
from airflow_provider_kafka_s3.converters.json_columns import Structs
from airflow_provider_kafka_s3.converters.json_grammar import are_utf8, deep_rows
from airflow_provider_kafka_s3.converters.json_scalar import InvalidJsonError, document
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.nodes import Node

__all__ = ["DecodedJson", "JsonDecoder"]

_BLOCK: Final = 8192
"""Rows that are decoded before their columns are built: the objects of more rows would need much memory."""

_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(frozen=True)
class DecodedJson(Decoded):
    """A column of decoded values.

    Attributes:
        values: of the Arrow type of the schema; null where the row is null or bad.
        bad: per row, whether it is not a document of the schema.
        reasons: of each bad row, why. They name fields and types, and contain nothing of the document but the position
            of an error.
    """

    reasons: Mapping[int, str] = field(default_factory=dict)


class JsonDecoder:
    """Decodes documents of one schema.

    A row is bad if it is not one JSON document in UTF-8, has more than 200 objects and arrays inside each other, or
    does not have a value of the schema:

    - record: an object. A field that is missing has its default, or else is null; it makes the row bad if it may not be
      null. Fields that the schema does not have are ignored. Of a field that is there twice, the last one is used.
    - map: an object; with keys that are no strings: an array of arrays or objects of ``key`` and ``value``
    - array: an array
    - int and long: a number without a fraction, as ``1``, ``1.0`` or ``1e3``, in the range of the type
    - float and double: a number in the range of the type, rounded to it; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
    - boolean; string, without halves of surrogate pairs; enum: a symbol
    - bytes and fixed: base64, with padding
    - decimal: a number; or a string in the form of ``decimal_format``. It is never rounded
    - date: days since the epoch, or a string as ``2026-01-31``
    - time: an integer of its unit, or a string as ``23:59:01.25``
    - timestamp: an integer of its unit since the epoch, or a string as ``2026-01-31T23:59:01.25Z``: with ``Z`` or an
      offset; of a local timestamp, without. Fractions of the unit make the row bad
    - union: null, or the first branch that fits; of records, first the one that has most of the object's fields
    """

    def __init__(self, node: Node, *, decimal_format: DecimalFormat = "BASE64", null_is_default: bool = False) -> None:
        """Prepare the decoder.

        Args:
            node: the schema.
            decimal_format: what strings are where the schema has a decimal.
            null_is_default: whether null in a field that has a default is the default.

        Raises:
            ConfigurationError: the schema is recursive, or has a default that does not fit its type.
        """
        self._node = node
        self._type = arrow_type(node)
        self._prepare(Structs(decimal_format, null_is_default=null_is_default))

    def _prepare(self, structs: Structs) -> None:
        self._convert = structs.converters.make(self._node)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(structs.type_of(self._node)).decode
        self._column = structs.column(self._node, self._type, nullable=True)

    def decode(self, values: Array) -> DecodedJson:
        """Decode a batch.

        Args:
            values: binary or large_binary; null rows are null in the result, and not bad.
        """
        reasons: dict[int, str] = {}
        blocks = [
            self._objects(values.slice(first, _BLOCK), first, reasons)
            for first in range(0, max(len(values), 1), _BLOCK)
        ]
        column = blocks[0] if len(blocks) == 1 else pa.concat_arrays(blocks)
        bad = np.zeros(len(values), np.bool_)
        bad[list(reasons)] = True
        return DecodedJson(column, bad, dict(sorted(reasons.items())))

    def _objects(self, values: Array, first: int, reasons: dict[int, str]) -> Array:
        """Decode values by way of objects; ``first`` is the row of the first one in the batch, for ``reasons``."""
        decode = self._decode if are_utf8(values) else self._decode_text
        texts: list[bytes | None] = values.to_pylist()
        objects: list[Any] = []
        append = objects.append
        deep = deep_rows(values)
        for row, text in enumerate(texts):
            if text is None:
                append(None)
            elif row in deep:  # here, before a parser stops at another depth
                append(self._convert_row(text, first + row, reasons))
            else:
                try:
                    append(decode(text))
                except _REFUSED:
                    append(self._convert_row(text, first + row, reasons))
        wrong: set[int] = set()
        column = self._column.array(objects, np.arange(len(texts), dtype=np.int64), wrong)
        if wrong:
            for row in sorted(wrong):
                objects[row] = self._convert_row(cast("bytes", texts[row]), first + row, reasons)
            column = self._column.array(objects, np.arange(len(texts), dtype=np.int64), set())
        self._inspect(objects, first)
        return column

    def _inspect(self, objects: list[Any], first: int) -> None:
        """Look at the objects of which a column was made; for subclasses."""

    def _decode_text(self, text: bytes) -> Any:
        text.decode()  # msgspec does not check the strings that it skips
        return self._decode(text)

    def _convert_row(self, text: bytes, row: int, reasons: dict[int, str]) -> Any:
        """The value of a row; None if it is bad."""
        try:
            return self._convert(document(text))
        except InvalidJsonError as e:
            reasons[row] = str(e)
            return None
