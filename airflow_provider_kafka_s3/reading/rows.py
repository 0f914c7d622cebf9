"""Rows of objects for people who look at a few records: their bytes, and what they are in JSON."""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["AMBIGUOUS", "Json", "Row", "Unreadable", "as_text", "row_of"]

Json: TypeAlias = "msgspec.Raw | dict[str, Any] | list[Any] | str | int | float | bool | None"
"""A JSON value; a document that is written as it was is raw."""

AMBIGUOUS: Final = (
    "values hold the separator, so its records cannot be told apart. Land the topic with a separator of RawBytes that "
    "no value has, or in another format"
)
"""Why an object of raw bytes may have more rows than records, and what to do."""


class Unreadable(ValueError):
    """The bytes are not those of the format, or their records cannot be told apart."""


@dataclass(frozen=True)
class Row:
    """A row of an object.

    Attributes:
        raw: its bytes in the object, without what separates rows; of a file of columns, its JSON.
        json: what it is.
    """

    raw: bytes
    json: Json


def as_text(value: bytes | None) -> Json:
    """Bytes as text; those that are no text in UTF-8 as an object with their base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def row_of(value: Any) -> Row:
    """The row of a value of a file of columns or datums."""
    # NaN and infinite numbers are texts, as in JSON lines: JSON has none.
    document = json.loads(json.dumps(value, default=_plain), parse_constant=str)
    return Row(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), document)


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return value.total_seconds()
    raise TypeError(f"{type(value).__name__} is not of a row")
