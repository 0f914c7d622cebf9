"""Reads values of structs and other types; in any number of threads, as ``msgspec`` alone does not.

``msgspec`` describes a type when the type is used for the first time. A thread that uses the type meanwhile finds a
description with gaps, and the process ends by SIGSEGV (seen with msgspec 0.22). So the first use is that of one thread.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

__all__ = ["convert_to_struct", "decode_struct", "describing_types", "is_plain_name"]

T = TypeVar("T")

describing_types: Final = threading.RLock()
"""Held while ``msgspec`` may use a type for the first time."""

_DESCRIBED: Final[set[type]] = set()
_REFUSED_NAME: Final = re.compile(r'[\x00-\x1f"\\\ud800-\udfff]')


def decode_struct(body: bytes | bytearray | memoryview | msgspec.Raw, kind: type[T]) -> T:
    """A struct from JSON.

    Raises:
        msgspec.DecodeError: it is no JSON, or JSON of another type.
        UnicodeDecodeError: a text is not UTF-8.
        RecursionError: it is too deep.
    """
    _describe(kind)
    return msgspec.json.decode(body, type=kind)


def convert_to_struct(
    value: object,
    kind: type[T],
    *,
    str_keys: bool = False,
    dec_hook: Callable[[type[Any], Any], Any] | None = None,
) -> T:
    """A struct from a mapping; nothing is coerced.

    Args:
        value: the mapping.
        kind: of the struct.
        str_keys: whether keys of mappings inside it are text, as in JSON.
        dec_hook: converts values of types that ``msgspec`` does not support.

    Raises:
        msgspec.ValidationError: it has another type.
    """
    _describe(kind)
    return msgspec.convert(value, kind, strict=True, str_keys=str_keys, dec_hook=dec_hook)


def is_plain_name(name: str) -> bool:
    """Whether msgspec accepts a name of JSON as that of a field."""
    return _REFUSED_NAME.search(name) is None


def _describe(kind: type[Any]) -> None:
    if kind not in _DESCRIBED:
        with describing_types:
            msgspec.msgpack.Decoder(kind)
            _DESCRIBED.add(kind)
