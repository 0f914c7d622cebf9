"""Safe parts of paths."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from typing import Final

__all__ = ["safe_name"]

_EMPTY: Final = "__EMPTY__"
_DIGEST_BYTES: Final = 65


def safe_name(text: str, *, max_bytes: int = 100) -> str:
    """Percent-encode any text as a part of a folder's name; different texts have different results.

    Letters and digits of ASCII, ``_``, ``-`` and ``.`` are not encoded, except at the beginning of names that have
    another meaning. The empty text is ``__EMPTY__``, since readers accept no folder ``name=``.

    Args:
        text: of any characters.
        max_bytes: a longer result is cut, and the SHA-256 of the text appended.
    """
    if text == "":
        return _EMPTY
    octets = text.encode("utf-8", "surrogatepass")
    encoded = urllib.parse.quote(octets, safe="").replace("~", "%7E")
    if not encoded.strip(".") or encoded == _EMPTY or encoded.startswith(("_kafka_s3", "_dead_letters")):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > max_bytes:
        cut = re.sub(r"%.?\Z", "", encoded[: max_bytes - _DIGEST_BYTES])
        return f"{cut}~{hashlib.sha256(octets).hexdigest()}"
    return encoded
