"""The bytes in Kafka of keys and values, from the fields of envelopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.config import Converter
from airflow_provider_kafka_s3.reading.formats.port import FormatReader
from airflow_provider_kafka_s3.reading.part_bytes import bytes_of_base64, bytes_of_datum, bytes_of_text
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["EnvelopedBytes", "IgnoredBytes"]

_SPACE: Final = b" \t\r"
_NULL: Final = b"null"


class EnvelopedBytes:
    """Gives the bytes in Kafka of the keys, or the values, of envelopes.

    Args:
        reader: of the format.
        converter: that the records were written with.
        null_is_document: whether ``null`` in JSON is a document.
    """

    def __init__(self, reader: FormatReader, converter: Converter, *, null_is_document: bool = False) -> None:
        self._decode = reader.part_bytes(converter)
        self._is_json = reader.has_json_fields
        self._null_is_document = null_is_document

    def of_rows(self, found: Sequence[Any]) -> Sequence[bytes | None]:
        """From Python values, or from the texts of JSON, which may have white space around them.

        Raises:
            ValueError: a text is none of this converter.
        """
        decode = self._decode
        if not self._is_json:
            return [one if one is None or type(one) is bytes else bytes_of_datum(one) for one in found]
        if self._null_is_document:
            return found
        if decode is None:
            return [None if text.strip(_SPACE) == _NULL else text for text in found]
        return [None if text == _NULL else decode(text) for text in found]

    def of_bytes(self, found: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """From these bytes."""
        return found

    def of_texts(self, texts: list[bytes]) -> Sequence[bytes | None]:
        """From texts of JSON without white space around them, all at once.

        Raises:
            ValueError: a text is none of this converter, or not exactly one document.
        """
        if self._decode is bytes_of_base64:
            return _decoded(texts, list[bytes | None])
        _require_documents(texts)
        if self._decode is bytes_of_text:
            return [None if text is None else text.encode() for text in _decoded(texts, list[str | None])]
        if self._null_is_document or _NULL not in texts:
            return texts
        return [None if text == _NULL else text for text in texts]


class IgnoredBytes(EnvelopedBytes):
    """Gives nulls for keys that are not kept."""

    def of_rows(self, found: Sequence[Any]) -> Sequence[None]:
        """Nulls."""
        return [None] * len(found)

    def of_bytes(self, found: Sequence[bytes | None]) -> Sequence[None]:
        """Nulls."""
        return [None] * len(found)

    def of_texts(self, texts: list[bytes]) -> Sequence[None]:
        """Nulls.

        Raises:
            ValueError: a text is not exactly one document.
        """
        _require_documents(texts)
        return [None] * len(texts)


def _decoded(texts: list[bytes], kind: type[list[Any]]) -> list[Any]:
    """The values of texts.

    A text that is more than one value, or less, makes their number another one: no base64 has a quote or a comma.
    """
    values = decode_struct(b"[%b]" % b",".join(texts), kind)
    if len(values) != len(texts):
        raise ValueError("a field is more than one document")
    return values


def _require_documents(texts: list[bytes]) -> None:
    """Raise ValueError unless each text is one document."""
    documents = _decoded(texts, list[msgspec.Raw])
    if [*map(len, documents)] != [*map(len, texts)]:
        raise ValueError("a field is more than one document")
