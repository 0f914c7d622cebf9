"""The ``json`` format: one JSON document per line.

Every value has to be one JSON document (RFC 8259). It is written byte for byte, unless it contains newlines: then the
white space between its tokens is left out, so that it is one line.

A batch of records is checked at once. Only if that fails, its records are checked one by one, to find the invalid one
or to rewrite those with newlines; both ways accept the same values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NoReturn

import msgspec
import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import ARE_LINES, Array, binary_array, join
from airflow_provider_kafka_s3.config import KIB
from airflow_provider_kafka_s3.converters.field_values import DocumentFields
from airflow_provider_kafka_s3.converters.json_grammar import GRAMMAR, are_lines
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.formats.frames import FrameWriter, without_nulls
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Prepared
from airflow_provider_kafka_s3.schemas.nodes import Primitive

__all__ = ["JSON_DOCUMENT", "JsonDocumentConverter", "JsonLinesFormat"]

JSON_DOCUMENT: Final = Primitive("bytes", "json")
"""The schema of JSON documents, which no other format has."""

_NEWLINE: Final = b"\n"
_SET_ASIDE: Final = (
    "use errors='dead_letter' to set such records aside, or land the topic with format='bytes'; correcting its "
    "producer helps later records only"
)
_AS_BYTES: Final = "use the converter 'bytes', or errors='dead_letter' to set such records aside"
_LOOKED_INTO: Final = 64 * KIB
"""Bytes of a document in which names are looked up."""
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"\s]+')


class JsonLinesFormat:
    """Valid JSON, one document per line, UTF-8.

    Args:
        settings: of the format.
        part: of the records that is written.
        fields: names of the fields of values that partitioners need.
    """

    def __init__(
        self, settings: config.JsonLines, part: Literal["key", "value"] = "value", *, fields: Sequence[str] = ()
    ) -> None:
        self._field_names = fields
        self._fields = DocumentFields([name.split(".") for name in fields])
        self._part: Literal["key", "value"] = part
        self._on_null = settings.on_null
        self._compression = make_compression(settings.compression, settings.compression_level)

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Check every value, and make its frame; a value that is not one JSON document in UTF-8 is rejected."""
        kept = without_nulls(batch, self._on_null, self._part)
        values = kept.records.column(self._part)
        lines = join(values, _NEWLINE)
        # To read the fields checks the documents, too: they are parsed once.
        fields = self._fields.read_lines(values, lines) if self._field_names else None
        if fields is not None or ARE_LINES in (batch.schema.metadata or ()) or are_lines(values, lines):
            prepared = kept.prepared(lines)
        else:
            documents, bad = _documents(values)
            why = f"the {self._part} is not a JSON document"
            invalid = [(row, f"{why} ({reason})", _SET_ASIDE) for row, reason in bad]
            prepared = kept.prepared(join(documents, _NEWLINE), invalid)
        prepared = replace(prepared, field_paths=_names_in_first(prepared.records.column(self._part)))
        if not self._field_names:
            return prepared
        if fields is None:
            fields = self._fields.read(prepared.records.column(self._part))
        return replace(prepared, fields=dict(zip(self._field_names, fields, strict=True)))

    def open(self, key: str, schema: int | None) -> ObjectWriter:  # noqa: ARG002 - the interface has them
        """Begin an object."""
        return FrameWriter(self._compression)


def _names_in_first(documents: Array) -> Sequence[str]:
    """The names of the fields of the first document, unless it is large."""
    if not len(documents) or len(document := documents[0].as_buffer()) > _LOOKED_INTO:
        return ()
    try:
        decoded = msgspec.json.decode(document)
    except msgspec.DecodeError:  # half a surrogate pair
        return ()
    return [*decoded] if isinstance(decoded, dict) else ()


class JsonDocumentConverter:
    """Keys or values that are one JSON document each, as fields of JSON lines."""

    schemas = (ValueSchema("JSON", JSON_DOCUMENT, ""),)

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - a document is not decoded
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        rows, invalid, documents = np.arange(len(values)), [], values
        if not are_lines(values, join(values, _NEWLINE)):
            documents, bad = _documents(values)
            invalid = [Invalid(row, f"the value is not a JSON document ({reason})", _AS_BYTES) for row, reason in bad]
            rows = np.delete(rows, [row for row, _ in bad])
        groups = [TypedGroup(0, rows, documents.cast(pa.binary()), lambda: documents)] if len(rows) else []
        return TypedValues(groups, invalid)


def _documents(values: Array) -> tuple[Array, list[tuple[int, str]]]:
    """The values that are one JSON document in UTF-8, each on one line; and the row of each other one, and why.

    Args:
        values: binary or large_binary, without nulls.
    """
    valid, invalid = [], []
    for row, value in enumerate(values.to_pylist()):
        try:
            valid.append(_line(value))
        except ValueError as e:
            invalid.append((row, str(e)))
    return binary_array(valid, large=pa.types.is_large_binary(values.type)), invalid


def _line(value: bytes | None) -> bytes:
    """The value as one line; ValueError, without any content, if it is not one JSON document in UTF-8."""
    if not value:  # there are no nulls any more
        raise ValueError("it is empty")
    try:
        text = value.decode()
    except UnicodeDecodeError as e:
        raise ValueError(f"invalid UTF-8 at byte {e.start}") from None
    try:
        GRAMMAR.decode(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.DecodeError as e:
        if b"\\u" not in value:
            raise ValueError(str(e)) from None
        _check_with_lone_surrogates(text)
    if b"\n" not in value and b"\r" not in value:
        return value
    try:
        return msgspec.json.format(value, indent=-1)
    except msgspec.DecodeError:
        return b"".join(_TOKENS.findall(value))


def _check_with_lone_surrogates(text: str) -> None:
    """Check the grammar with the standard library.

    RFC 8259 allows escapes of half a surrogate pair, as in a string that was truncated within an emoji; msgspec's
    decoder refuses them.
    """
    try:
        json.loads(text, parse_int=_ignore, parse_float=_ignore, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"{e.msg} at character {e.pos}") from None


def _ignore(_number: str) -> Any:
    return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
