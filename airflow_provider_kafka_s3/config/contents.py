"""Contents: what of a record is written, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, get_args

from airflow_provider_kafka_s3.config.formats import (
    AvroContainer,
    BlockGzip,
    CustomFormat,
    Format,
    JsonLines,
    RawBytes,
    parse_format,
)
from airflow_provider_kafka_s3.config.values import TAG, Value, make_value, require

__all__ = ["Content", "Envelope", "SiblingObjects", "ValuesOnly", "parse_content"]


class ValuesOnly(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="values"):
    """Objects hold the values of records."""


class Envelope(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="envelope"):
    """Objects hold whole records: key, value, headers, topic, partition, offset and timestamp.

    With ``on_null="write"`` a null value is a row like any other.
    """


class SiblingObjects(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="siblings"):
    """Objects hold the values of records; objects beside them hold the keys, and the headers, of the same records.

    The names are those of Kafka Connect: beside ``orders+0+0000000000.json`` there are
    ``orders+0+0000000000.keys.json`` and ``orders+0+0000000000.headers.json``. With ``on_null="write"`` the key of a
    null value goes to an object below the folder ``tombstone``, which has no object of values.

    Attributes:
        keys: format of the objects of keys; None: there are none. A null key is invalid.
        headers: format of the objects of headers: JSON lines or Avro; None: there are none. A header is written as
            text, so one whose value is null or not UTF-8 is invalid.
    """

    keys: Format | None = JsonLines()
    headers: Format | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.keys is not None or self.headers is not None,
            "content='siblings' needs keys or headers; use content='values' for values alone",
        )
        require(
            self.headers is None or isinstance(self.headers, JsonLines | AvroContainer),
            f"headers={self.headers!r} must be 'json' or 'avro'",
        )
        require(
            not isinstance(self.keys, CustomFormat),
            f"keys={self.keys!r}: a format of your own is for values only; it may write keys beside values",
        )
        require(
            not isinstance(self.keys, BlockGzip),
            f"keys={self.keys!r}: blocks with an index are for values only; use keys='json' or 'bytes'",
        )
        for name, part in (("keys", "key"), ("headers", "headers")):
            settings: Format | None = getattr(self, name)
            require(
                settings is None or settings.on_null == "fail",
                f"{name}={settings!r}: on_null has no effect here, as each record has its {part}; give it to format",
            )

    @property
    def siblings(self) -> Mapping[str, Format]:
        """Formats of the objects beside those of values, by what their names have before the extension."""
        both = {".keys": self.keys, ".headers": self.headers}
        return {name: settings for name, settings in both.items() if settings is not None}

    def ambiguous(self, values: Format) -> str | None:
        """An extension of values that is also one of another object; None if there is none."""
        extension = values.object_extension
        others = {name + settings.object_extension for name, settings in self.siblings.items()}
        return extension if isinstance(values, RawBytes | BlockGzip | CustomFormat) and extension in others else None


Content: TypeAlias = ValuesOnly | Envelope | SiblingObjects
"""All contents."""

_CONTENTS: Final[tuple[type[Content], ...]] = get_args(Content)


def parse_content(given: Content | Mapping[str, Any] | str) -> Content:
    """A content, a mapping of its ``kind`` and its fields, or the ``kind`` alone.

    Raises:
        ConfigurationError: it is anything else.
    """
    settings: object = given
    if isinstance(given, Mapping):
        formats = {name: given[name] for name in ("keys", "headers") if given.get(name) is not None}
        settings = {**given, **{name: parse_format(value, f"content: {name}") for name, value in formats.items()}}
    return make_value("content", _CONTENTS, settings)
