"""The bytes in Kafka of keys and values, from what a format has of them."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.config import (
    BytesConverter,
    Converter,
    Format,
    JsonConverter,
    JsonLines,
    RawBytes,
    record_format,
)
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["EnvelopedBytes", "IgnoredBytes", "bytes_decoder"]

_SPACE: Final = b" \t\r"
_QUOTE: Final = ord('"')
_NULL: Final = b"null"


def bytes_decoder(settings: Format, converter: Converter) -> Callable[[Any], bytes] | None:
    """Gives the bytes in Kafka of a key or a value from its row; None: it is the row.

    Args:
        settings: of the format, which keeps these bytes.
        converter: that the records were written with.
    """
    lines = record_format(settings)
    if isinstance(lines, RawBytes) or (isinstance(lines, JsonLines) and isinstance(converter, JsonConverter)):
        return None
    if not isinstance(lines, JsonLines):
        return _of_datum
    return _of_base64 if isinstance(converter, BytesConverter) else _of_text


class EnvelopedBytes:
    """Gives the bytes in Kafka of the keys, or the values, of envelopes.

    Args:
        settings: of the format.
        converter: that the records were written with.
        null_is_document: whether ``null`` in JSON is a document.
    """

    def __init__(self, settings: Format, converter: Converter, *, null_is_document: bool = False) -> None:
        self._decode = bytes_decoder(settings, converter)
        self._is_json = isinstance(settings, JsonLines)
        self._null_is_document = null_is_document

    def of_rows(self, found: Sequence[Any]) -> Sequence[bytes | None]:
        """From Python values, or from the texts of JSON, which may have white space around them.

        Raises:
            ValueError: a text is none of this converter.
        """
        decode = self._decode
        if not self._is_json:
            return [one if one is None or type(one) is bytes else _of_datum(one) for one in found]
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
        if self._decode is _of_base64:
            return _decoded(texts, list[bytes | None])
        _require_documents(texts)
        if self._decode is _of_text:
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
    found = decode_struct(b"[%b]" % b",".join(texts), kind)
    if len(found) != len(texts):
        raise ValueError("a field is more than one document")
    return found


def _require_documents(texts: list[bytes]) -> None:
    """Raise ValueError unless each text is one document."""
    documents = _decoded(texts, list[msgspec.Raw])
    if [*map(len, documents)] != [*map(len, texts)]:
        raise ValueError("a field is more than one document")


def _of_datum(found: Any) -> bytes:
    return found.encode() if isinstance(found, str) else bytes(found)


def _of_base64(found: bytes) -> bytes:
    if not found[0] == found[-1] == _QUOTE:
        raise ValueError("a field is no text")
    return binascii.a2b_base64(found[1:-1], strict_mode=True)


def _of_text(found: bytes) -> bytes:
    return msgspec.json.decode(found, type=str).encode()
