"""Formats: what the bytes of an object are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from airflow_provider_kafka_s3.config.values import TAG, Value, make_value, reject_control_characters, require

__all__ = ["CompressionName", "Format", "JsonLines", "OnNull", "RawBytes", "parse_format"]

CompressionName = Literal["none", "gzip"]
OnNull = Literal["fail", "ignore"]
CompressionLevel = Annotated[int, Meta(ge=0, le=3, extra={"why": "a level of ISA-L, 0 is fastest and 3 smallest"})]


class _Framed(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A format whose objects hold one record after another and are compressed as a whole."""

    compression: CompressionName = "none"
    compression_level: CompressionLevel = 1
    on_null: OnNull = "fail"

    def _compressed(self, extension: str) -> str:
        return extension + (".gz" if self.compression == "gzip" else "")


class JsonLines(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json"):
    """JSON lines: every value has to be valid JSON, and is one line.

    Attributes:
        compression: ``none`` or ``gzip``; gzip adds ``.gz`` to the extension.
        compression_level: ISA-L level 0 (fastest) to 3 (smallest).
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it.
    """

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.json.gz``."""
        return self._compressed(".json")


class RawBytes(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="bytes"):
    """Values as they are.

    Attributes:
        separator: what follows every record, the last included; may be empty.
        extension: of object keys, with its dot; may be empty.
        compression: ``none`` or ``gzip``; gzip adds ``.gz`` to the extension.
        compression_level: ISA-L level 0 (fastest) to 3 (smallest).
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it.
    """

    separator: str = "\n"
    extension: str = ".bin"

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_control_characters("extension", self.extension)
        require(
            "/" not in self.extension and (self.extension == "" or self.extension.startswith(".")),
            f"extension={self.extension!r} must start with a dot and hold no '/'",
        )

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.bin.gz``."""
        return self._compressed(self.extension)


Format: TypeAlias = JsonLines | RawBytes
"""All formats; :func:`airflow_provider_kafka_s3.formats.registry.make_format` encodes them."""

_FORMATS: Final[tuple[type[Format], ...]] = get_args(Format)


def parse_format(given: Format | Mapping[str, Any] | str) -> Format:
    """A format, a mapping of its ``kind`` and its fields, or the ``kind`` alone.

    Raises:
        ConfigurationError: it is anything else.
    """
    return make_value("format", _FORMATS, given)
