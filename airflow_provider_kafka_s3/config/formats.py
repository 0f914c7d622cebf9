"""Formats: what the bytes of an object are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta, structs

from airflow_provider_kafka_s3.config.values import (
    TAG,
    Value,
    make_value,
    reject_control_characters,
    require,
    require_type,
)

__all__ = ["CompressionName", "Format", "JsonLines", "OnNull", "RawBytes", "default_level", "parse_format"]

CompressionName = Literal["none", "gzip", "zstd", "bzip2"]
OnNull = Literal["fail", "ignore"]

_EXTENSIONS: Final[Mapping[CompressionName, str]] = {"none": "", "gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2"}
_ISAL: Final = Annotated[int, Meta(ge=0, le=3, extra={"why": "a level of ISA-L, 0 is fastest and 3 smallest"})]
_ZSTD: Final = Annotated[int, Meta(ge=1, le=19, extra={"why": "a level of Zstandard, 1 is fastest and 19 smallest"})]
_BZIP2: Final = Annotated[int, Meta(ge=1, le=9, extra={"why": "a block of bzip2 has this many times 100 kB"})]
# Without compression a level has no effect. It is checked and stored as one of gzip, as in plans of earlier versions.
_LEVELS: Final[Mapping[CompressionName, tuple[Any, int]]] = {
    "none": (_ISAL, 1),
    "gzip": (_ISAL, 1),
    "zstd": (_ZSTD, 3),
    "bzip2": (_BZIP2, 9),
}


def default_level(compression: CompressionName) -> int:
    """The level of a compression if none is given."""
    return _LEVELS[compression][1]


class _Framed(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A format whose objects hold one record after another and are compressed as a whole."""

    compression: CompressionName = "none"
    compression_level: int | None = None
    on_null: OnNull = "fail"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds, default = _LEVELS[self.compression]
        if self.compression_level is None:
            # A plan holds the level itself, so that its bytes do not depend on the default of another version.
            structs.force_setattr(self, "compression_level", default)
        else:
            require_type("compression_level", self.compression_level, bounds)

    def _compressed(self, extension: str) -> str:
        return extension + _EXTENSIONS[self.compression]


class JsonLines(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json"):
    """JSON lines: every value has to be valid JSON, and is one line.

    Attributes:
        compression: ``none``, ``gzip``, ``zstd`` or ``bzip2``; adds ``.gz``, ``.zst`` or ``.bz2`` to the extension.
        compression_level: of gzip 0 (fastest) to 3 (smallest), a level of ISA-L; of zstd 1 to 19; of bzip2 1 to 9, the
            size of its blocks in 100 kB; None: 1 for gzip, 3 for zstd, 9 for bzip2.
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
        compression: ``none``, ``gzip``, ``zstd`` or ``bzip2``; adds ``.gz``, ``.zst`` or ``.bz2`` to the extension.
        compression_level: of gzip 0 (fastest) to 3 (smallest), a level of ISA-L; of zstd 1 to 19; of bzip2 1 to 9, the
            size of its blocks in 100 kB; None: 1 for gzip, 3 for zstd, 9 for bzip2.
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
