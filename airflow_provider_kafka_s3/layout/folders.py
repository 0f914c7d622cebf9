"""Folders of values: ``name=value``, in names that are safe and that readers take for the value.

Different values have different folders. By default the characters that Hive escapes are percent-encoded, so Spark,
Hive, Trino and Athena read the values back. ``kafka_connect_names`` leaves a value as it is, unless its folder would be
unsafe or could be that of another value.
"""

from __future__ import annotations

import hashlib
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Final
from urllib.parse import unquote_to_bytes

from airflow_provider_kafka_s3.config import KeyNaming
from airflow_provider_kafka_s3.converters.field_values import Day, FieldValue, Fraction, Moment, Unusable
from airflow_provider_kafka_s3.layout.keys import BAD_CHARACTER, CONTROL_DIR
from airflow_provider_kafka_s3.times import EPOCH

__all__ = ["NULL_FOLDER", "Folders"]

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of null in folders, for readers of Hive tables."""

_EMPTY_FOLDER: Final = "__EMPTY__"
"""The value of the empty text: readers do not accept a folder ``name=``."""

_CONNECT_NULL: Final = "null"
_HIVE: Final = re.escape("\"#%'*/:=?\\{}[]^~")
_DIGEST: Final = re.compile(r"~[0-9a-f]{64}\Z")
_DIGEST_BYTES: Final = 65
_UNITS_OF_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_DAY: Final = (date(1, 1, 1) - EPOCH.date()).days
_LAST_DAY: Final = (date(9999, 12, 31) - EPOCH.date()).days


class Folders:
    """Makes the folders of the values of one field.

    Args:
        name: of the field.
        naming: with the delimiter of folders, and the kind of names.
        max_bytes: a longer value is cut, and its digest appended.
        alone: whether the encoded partition is this folder only, so that a delimiter in a value has one meaning.
    """

    def __init__(self, name: str, naming: KeyNaming, *, max_bytes: int, alone: bool) -> None:
        self._connect = naming.kafka_connect_names
        self._lower = naming.lowercase_paths
        self._delim = naming.directory_delim
        self._max = max_bytes
        self._alone = alone
        self._escaped = re.compile(f"{BAD_CHARACTER.pattern}|[{_HIVE}{re.escape(self._delim)}]|^ | \\Z")
        name = name.lower() if self._lower else name
        self._name = name if self._connect and self._is_safe(name) else self._encode(name)

    @property
    def longest(self) -> str:
        """The longest folder."""
        return f"{self._name}={'v' * max(self._max, len(NULL_FOLDER))}"

    def of(self, value: FieldValue) -> str | Unusable:
        """The folder of a value, or why it has none."""
        if value is None:
            return f"{self._name}={_CONNECT_NULL if self._connect else NULL_FOLDER}"
        text = _text(value)
        if isinstance(text, Unusable):
            return text
        return f"{self._name}={self._named(text.lower() if self._lower else text)}"

    def _named(self, text: str) -> str:
        if self._is_verbatim(text):
            return text
        if text == "":
            return _EMPTY_FOLDER
        encoded = self._encode(text)
        if text in {s for name in (NULL_FOLDER, _EMPTY_FOLDER) for s in (name, name.lower())}:
            encoded = f"{self._percent('_')}{encoded[1:]}"
        if len(_bytes(encoded)) > self._max:
            digest = hashlib.sha256(_bytes(text)).hexdigest()
            return f"{_cut(encoded, self._max - _DIGEST_BYTES)}~{digest}"
        return encoded

    def _is_verbatim(self, text: str) -> bool:
        """Whether a folder has the value as it is: it is safe, and not the encoded text of a value that is not."""
        if not self._connect or not self._is_safe(f"{self._name}={text}") or len(_bytes(text)) > self._max:
            return False
        if _DIGEST.search(text) or text == _EMPTY_FOLDER:
            return False
        decoded = unquote_to_bytes(_bytes(text)).decode("utf-8", "surrogateescape")
        return decoded == text or self._encode(decoded) != text or self._is_verbatim(decoded)

    def _is_safe(self, folder: str) -> bool:
        if BAD_CHARACTER.search(folder) or (self._delim in folder and not self._alone):
            return False
        parts = folder.replace(self._delim, "/").split("/")
        return not any(part in ("", ".", "..") or part.startswith(CONTROL_DIR) for part in parts)

    def _encode(self, text: str) -> str:
        return self._escaped.sub(lambda found: self._percent(found[0]), text)

    def _percent(self, characters: str) -> str:
        """Percent-encoded; with small hexadecimal digits where values may be as they are, as texts have them rarely."""
        digits = "%{:02x}" if self._connect or self._lower else "%{:02X}"
        return "".join(digits.format(byte) for byte in _bytes(characters))


def _bytes(text: str) -> bytes:
    """UTF-8; lone surrogates are those of bytes that were not UTF-8, or of a JSON text."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _cut(encoded: str, most: int) -> str:
    """The beginning of an encoded text: whole characters, and whole percent-encoded ones."""
    cut = _bytes(encoded)[:most].decode("utf-8", "ignore")
    return re.sub(r"%.?\Z", "", cut)


def _text(value: FieldValue) -> str | Unusable:
    """A value as text; different values of a type have different texts."""
    match value:
        case Unusable():
            return value
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case Day(days=days):
            if not _FIRST_DAY <= days <= _LAST_DAY:
                return Unusable("is a date outside the years 1 to 9999")
            return (EPOCH.date() + timedelta(days=days)).isoformat()
        case Moment(value=units, unit=unit):
            seconds, fraction = divmod(units, _UNITS_OF_SECOND[unit])
            if not _FIRST_DAY <= seconds // 86_400 <= _LAST_DAY:
                return Unusable("is a time outside the years 1 to 9999")
            time = (EPOCH + timedelta(seconds=seconds)).strftime("%H:%M:%S")
            day = (EPOCH + timedelta(seconds=seconds)).date().isoformat()
            digits = len(str(_UNITS_OF_SECOND[unit])) - 1
            return f"{day}T{time}" + (f".{fraction:0{digits}d}" if digits else "")
        case Fraction():
            return Unusable("is a number with a fraction or an exponent")
    return Unusable("is null")
