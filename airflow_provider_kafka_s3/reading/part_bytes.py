"""The bytes in Kafka of a key or a value, from its form in a row."""

from __future__ import annotations

import binascii
from typing import Any, Final

import msgspec

__all__ = ["bytes_of_base64", "bytes_of_datum", "bytes_of_text"]

_QUOTE: Final = ord('"')


def bytes_of_datum(found: Any) -> bytes:
    """Those of a text or of bytes."""
    return found.encode() if isinstance(found, str) else bytes(found)


def bytes_of_base64(found: bytes) -> bytes:
    """Those of a text of JSON that is base64.

    Raises:
        ValueError: it is none.
    """
    if not found[0] == found[-1] == _QUOTE:
        raise ValueError("a field is no text")
    return binascii.a2b_base64(found[1:-1], strict_mode=True)


def bytes_of_text(found: bytes) -> bytes:
    """Those of a text of JSON; msgspec.DecodeError, a ValueError, if it is none."""
    return msgspec.json.decode(found, type=str).encode()
