"""A landed record that was found by its offset, as people and programs see it."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.reading.rows import Json, Row, as_text

__all__ = ["SoughtRecord", "of_dead_letter", "of_envelope", "text_headers"]

_CONTROL: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, kw_only=True)
class SoughtRecord:
    """A record as an object holds it.

    Attributes:
        partition: the Kafka partition.
        offset: of the record; None: its object does not keep it, see ``between``.
        between: if the offset is not known, the range ``[first, end)`` that it is in.
        timestamp: in milliseconds, if the object keeps it.
        key: of the record, if the object or one beside it keeps it; None: it is null, or not kept.
        value: what the object has as value: a document, text, a row; bytes that are no text as their base64.
        headers: of the record, if they are kept.
        raw: bytes of the row in the object.
        object: key of the object.
        reason: why the record is a dead letter; None: it is none.
        kept: which of ``timestamp``, ``key`` and ``headers`` are kept.
        lost: which of ``key`` and ``headers`` were in an object beside its own that was accepted as lost.
    """

    partition: int
    offset: int | None
    between: tuple[int, int] | None = None
    timestamp: int | None = None
    key: Json = None
    value: Json = None
    headers: Json = None
    raw: bytes = b""
    object: str = ""
    reason: str | None = None
    kept: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    def fields(self) -> dict[str, Any]:
        """The record for people and programs: what is known of it."""
        fields: dict[str, Any] = {"partition": self.partition, "offset": self.offset}
        if self.between is not None:
            fields["offset_between"] = list(self.between)
        for name in ("timestamp", "key", "headers"):
            if name in self.kept:
                fields[name] = getattr(self, name)
        fields["value"] = self.value
        if self.reason is not None:
            fields["dead_letter"] = self.reason
        return {**fields, "object": self.object}

    def line(self) -> str:
        """:meth:`fields` as a line of JSON; documents are as they were written, but for control characters."""
        text = msgspec.json.encode(self.fields()).decode()
        # JSON allows some of them in texts, where an escape means the same.
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def text_headers(found: Json) -> Json:
    """The headers of a row of an object of headers: of JSON lines, it is a record with one field."""
    parsed = msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found
    return parsed["headers"] if isinstance(parsed, dict) and "headers" in parsed else parsed


def of_envelope(entry: ObjectEntry, row: Row) -> SoughtRecord:
    """The record of a row of an object of whole records."""
    fields, null = msgspec.json.decode(row.raw, type=dict[str, msgspec.Raw]), msgspec.Raw(b"null")
    return SoughtRecord(
        partition=msgspec.json.decode(fields["partition"], type=int),
        offset=msgspec.json.decode(fields["offset"], type=int),
        timestamp=msgspec.json.decode(fields["timestamp"]),
        # Parquet has no column of nulls before the first key, and value, with a schema.
        key=fields.get("key", null),
        value=fields.get("value", null),
        headers=fields["headers"],
        raw=row.raw,
        object=entry.key,
        kept=frozenset({"timestamp", "key", "headers"}),
    )


def of_dead_letter(entry: ObjectEntry, row: Row) -> SoughtRecord:
    """The record of a line of an object of dead letters."""
    document = json.loads(row.raw)

    def data(text: str | None) -> Json:
        return None if text is None else as_text(base64.b64decode(text))

    return SoughtRecord(
        partition=document["partition"],
        offset=document["offset"],
        timestamp=document["timestamp"],
        key=data(document["key"]),
        value=data(document["value"]),
        headers=[{"key": h["key"], "value": data(h["value"])} for h in document["headers"]],
        raw=b"" if document["value"] is None else base64.b64decode(document["value"]),
        object=entry.key,
        reason=document["reason"],
        kept=frozenset({"timestamp", "key", "headers"}),
    )
