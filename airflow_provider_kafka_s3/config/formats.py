"""Formats: what the bytes of an object are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta, field, structs

from airflow_provider_kafka_s3.config.extensions import (
    ImportPath,
    Options,
    Pinned,
    check_import_path,
    checked_options,
    hash_of_class,
)
from airflow_provider_kafka_s3.config.sizes import MIB
from airflow_provider_kafka_s3.config.values import (
    TAG,
    Value,
    make_value,
    reject_control_characters,
    require,
    require_type,
)

__all__ = [
    "PARQUET_LEVELS",
    "AvroCodec",
    "AvroContainer",
    "BlockGzip",
    "CompressionName",
    "Csv",
    "CsvSeparator",
    "CustomFormat",
    "DecimalFormat",
    "Format",
    "GzipEncoder",
    "IntegerEncoding",
    "JsonLines",
    "OnNull",
    "Parquet",
    "ParquetCompression",
    "RawBytes",
    "default_level",
    "parse_format",
    "record_format",
]

CompressionName = Literal["none", "gzip", "zstd", "bzip2"]
CsvSeparator = Literal[",", ";", "|", "\t", "\x01"]
GzipEncoder = Literal["isal", "zlib"]
OnNull = Literal["fail", "ignore", "write"]
DecimalFormat = Literal["BASE64", "NUMERIC"]
"""How JSON has decimals: the unscaled value in base64, or a number."""

_EXTENSIONS: Final[Mapping[CompressionName, str]] = {"none": "", "gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2"}
_ISAL: Final = Annotated[int, Meta(ge=0, le=3, extra={"why": "a level of ISA-L, 0 is fastest and 3 smallest"})]
_GZIP: Final = Annotated[
    int, Meta(ge=0, le=9, extra={"why": "0 to 3 are levels of ISA-L, 4 to 9 of libdeflate; 0 is fastest, 9 smallest"})
]
_ZSTD: Final = Annotated[int, Meta(ge=1, le=19, extra={"why": "a level of Zstandard, 1 is fastest and 19 smallest"})]
_BZIP2: Final = Annotated[int, Meta(ge=1, le=9, extra={"why": "a block of bzip2 has this many times 100 kB"})]
# Without compression a level has no effect. It is checked and stored as one of gzip, as in plans of earlier versions.
_LEVELS: Final[Mapping[CompressionName, tuple[Any, int]]] = {
    "none": (_GZIP, 1),
    "gzip": (_GZIP, 2),
    "zstd": (_ZSTD, 3),
    "bzip2": (_BZIP2, 9),
}
_ZLIB: Final = Annotated[int, Meta(ge=1, le=9, extra={"why": "a level of zlib, 1 is fastest and 9 smallest"})]
_GZIP_LEVELS: Final[Mapping[GzipEncoder, tuple[Any, int]]] = {"isal": (_ISAL, 2), "zlib": (_ZLIB, 6)}

PARQUET_LEVELS: Final[Mapping[str, tuple[int, int, int]]] = {
    "gzip": (1, 9, 6),
    "brotli": (0, 11, 5),
    "zstd": (1, 19, 1),
}
"""Least and greatest level, and the one that is used if none is given.

The defaults of pyarrow may change, and its default for gzip is the slowest."""


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


def _check_extension(extension: str) -> None:
    reject_control_characters("extension", extension)
    require(
        "/" not in extension and (extension == "" or re.match(r"[.A-Za-z]", extension) is not None),
        f"extension={extension!r} must start with a dot or a letter and hold no '/'",
    )


class JsonLines(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="json"):
    """JSON lines: every value has to be valid JSON, and is one line.

    Attributes:
        compression: ``none``, ``gzip``, ``zstd`` or ``bzip2``; adds ``.gz``, ``.zst`` or ``.bz2`` to the extension.
        compression_level: of gzip 0 (fastest) to 9 (smallest): 0 to 3 are those of ISA-L, 4 to 9 of libdeflate; of zstd
            1 to 19; of bzip2 1 to 9, the size of its blocks in 100 kB; None: 2 for gzip, 3 for zstd, 9 for bzip2.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it,
            ``write`` writes its key (see :class:`~airflow_provider_kafka_s3.config.Envelope` and
            :class:`~airflow_provider_kafka_s3.config.SiblingObjects`).
        decimal_format: decimals of values with a schema: ``BASE64`` as Kafka Connect, or ``NUMERIC``. JSON values
            without a schema are written as they are.
    """

    decimal_format: DecimalFormat = "BASE64"

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.json.gz``."""
        return self._compressed(".json")


class RawBytes(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="bytes"):
    """Values as they are.

    Attributes:
        separator: what follows every record, the last included; may be empty.
        extension: of object keys, with its dot, if it has one; may be empty.
        compression: ``none``, ``gzip``, ``zstd`` or ``bzip2``; adds ``.gz``, ``.zst`` or ``.bz2`` to the extension.
        compression_level: of gzip 0 (fastest) to 9 (smallest): 0 to 3 are those of ISA-L, 4 to 9 of libdeflate; of zstd
            1 to 19; of bzip2 1 to 9, the size of its blocks in 100 kB; None: 2 for gzip, 3 for zstd, 9 for bzip2.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it,
            ``write`` writes its key (see :class:`~airflow_provider_kafka_s3.config.Envelope` and
            :class:`~airflow_provider_kafka_s3.config.SiblingObjects`).
    """

    separator: str = "\n"
    extension: str = ".bin"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_extension(self.extension)

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.bin.gz``."""
        return self._compressed(self.extension)


class BlockGzip(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="block_gzip"):
    """JSON lines or raw bytes in blocks of gzip that can be read one by one, with an index beside each object.

    An object is a series of gzip members, which any reader of gzip reads as one file. Each ends at the end of a record.
    The index, ``orders+0+0000000000.index.json`` beside ``orders+0+0000000000.json.gz``, has the place and the offsets
    of each block.

    Attributes:
        lines: how a record is written: :class:`JsonLines` or :class:`RawBytes`, without compression of their own.
        block_size: bytes of a block before compression, at most; a record that is larger is a block of its own.
        encoder: ``isal``, which is several times faster, or ``zlib``, whose bytes at level 6 are those of Java and of
            DeviantArt's connector.
        compression_level: of isal 0 (fastest) to 3 (smallest), of zlib 1 to 9; None: 2 for isal, 6 for zlib.
    """

    lines: JsonLines | RawBytes = JsonLines()
    block_size: Annotated[int, Meta(ge=1, description="bytes")] = 64 * MIB
    encoder: GzipEncoder = "isal"
    compression_level: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds, default = _GZIP_LEVELS[self.encoder]
        if self.compression_level is None:
            structs.force_setattr(self, "compression_level", default)
        else:
            require_type("compression_level", self.compression_level, bounds)
        require(
            self.lines.compression == "none",
            f"lines={self.lines!r} must have compression='none': the blocks of lines are compressed, with encoder and "
            f"compression_level of block_gzip",
        )

    @property
    def on_null(self) -> OnNull:
        """What a null value does, as ``lines`` has it."""
        return self.lines.on_null

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.json.gz``."""
        return f"{self.lines.object_extension}.gz"


AvroCodec = Literal["null", "deflate", "snappy", "bzip2", "xz", "zstandard"]
IntegerEncoding = Literal["delta", "plain"]
FieldIds = Literal["path", "schema"]
ParquetCompression = Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"]


class AvroContainer(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="avro"):
    """Avro object container files, one schema in each.

    Attributes:
        codec: compression of blocks.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it,
            ``write`` writes its key (see :class:`~airflow_provider_kafka_s3.config.Envelope` and
            :class:`~airflow_provider_kafka_s3.config.SiblingObjects`).
    """

    codec: AvroCodec = "null"
    on_null: OnNull = "fail"

    @property
    def object_extension(self) -> str:
        """What object keys end in."""
        return ".avro"


class Parquet(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="parquet"):
    """Parquet files, one schema in each.

    An open object needs memory for one row group, and for about three times as much while it is encoded. The row groups
    of all objects that a slice has open take 256 MiB at most: with the default ``row_group_bytes``, 16 are open.

    Attributes:
        compression: of pages; its name is part of the extension: ``.zstd.parquet``.
        compression_level: of gzip 1 to 9, of brotli 0 to 11, of zstd 1 to 19; None: 6, 5 and 1.
        row_group_records: rows of a row group at most.
        row_group_bytes: bytes of a row group at which it ends, as Arrow holds them.
        page_bytes: bytes of a data page before compression, about.
        integer_encoding: of columns of integers, dates and times that have no dictionary: ``delta``
            (DELTA_BINARY_PACKED), or ``plain`` for readers that know only version 1 of the format.
        field_ids: of columns, by which tables know them: ``path``, made from the names of a column and of those around
            it, or ``schema``: the attribute ``field-id`` of Avro, and Protobuf's numbers, which are unique only inside
            a message.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it,
            ``write`` writes its key (see :class:`~airflow_provider_kafka_s3.config.Envelope` and
            :class:`~airflow_provider_kafka_s3.config.SiblingObjects`).
    """

    compression: ParquetCompression = "zstd"
    compression_level: int | None = None
    row_group_records: Annotated[int, Meta(ge=1, le=1_048_576, description="rows")] = 1_048_576
    row_group_bytes: Annotated[int, Meta(ge=1, le=1024 * MIB, description="bytes")] = 16 * MIB
    page_bytes: Annotated[int, Meta(ge=1, le=1024 * MIB, description="bytes")] = MIB
    integer_encoding: IntegerEncoding = "delta"
    field_ids: FieldIds = "path"
    on_null: OnNull = "fail"

    def __post_init__(self) -> None:
        super().__post_init__()
        least, most, default = PARQUET_LEVELS.get(self.compression, (0, 0, None))
        if self.compression_level is None:
            structs.force_setattr(self, "compression_level", default)
        require(
            default is None or least <= (self.compression_level or 0) <= most,
            f"compression_level={self.compression_level} of {self.compression!r} must be a whole number from {least} "
            f"to {most}",
        )
        require(
            default is not None or self.compression_level is None,
            f"compression_level={self.compression_level} does not apply to compression={self.compression!r}; remove it",
        )

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.snappy.parquet``, as Kafka Connect names them."""
        names = {"none": "", "gzip": ".gz", "brotli": ".br", "lz4": ".lz4raw"}
        return f"{names.get(self.compression, f'.{self.compression}')}.parquet"


class Csv(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="csv"):
    r"""CSV (RFC 4180), one schema in each object: one line for each record, which ends in a newline.

    A field is quoted if it holds the separator, a quote or a line break, if it is an empty text, and if it has the text
    of nulls but is not null. So a field without quotes that has the text of nulls is null.

    Attributes:
        separator: between fields: a comma, a semicolon, a bar, a tabulator or ``\x01``.
        header: begin every object with a line of the names of its fields.
        null: text of nulls, without the separator, quotes, and control characters such as line breaks.
        compression: ``none``, ``gzip``, ``zstd`` or ``bzip2``; adds ``.gz``, ``.zst`` or ``.bz2`` to the extension.
        compression_level: of gzip 0 (fastest) to 9 (smallest): 0 to 3 are those of ISA-L, 4 to 9 of libdeflate; of zstd
            1 to 19; of bzip2 1 to 9, the size of its blocks in 100 kB; None: 2 for gzip, 3 for zstd, 9 for bzip2.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it.
    """

    separator: CsvSeparator = ","
    header: bool = True
    null: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_control_characters("null", self.null, "field")
        require(
            self.separator not in self.null and '"' not in self.null,
            f"null={self.null!r} must not hold the separator or quotes: it is written without quotes, since a quoted "
            f"field is a text. Use a text such as 'NULL'",
        )

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.csv.gz``."""
        return self._compressed(".csv")


class CustomFormat(_Framed, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="custom"):
    """A class of your own package, which derives from ``airflow_provider_kafka_s3.extensions.Format``.

    Attributes:
        import_path: of the class, such as ``mycompany_layouts.msgpack:MessagePack``. Airflow's workers and Spark's
            executors have to be able to import it.
        options: keyword arguments of the class: texts, whole numbers, booleans, None, and lists and mappings of these.
        extension: of object keys, with its dot, if it has one; may be empty.
        compression: ``none``, ``gzip``, ``zstd`` or ``bzip2``; adds ``.gz``, ``.zst`` or ``.bz2`` to the extension.
        compression_level: of gzip 0 (fastest) to 9 (smallest): 0 to 3 are those of ISA-L, 4 to 9 of libdeflate; of zstd
            1 to 19; of bzip2 1 to 9, the size of its blocks in 100 kB; None: 2 for gzip, 3 for zstd, 9 for bzip2.
        on_null: what a null value (a tombstone) does: ``fail`` names the record, ``ignore`` writes nothing for it,
            ``write`` gives it to the class.
        pinned: what the class declares, which the plan of a batch has. Not set in a DAG.
    """

    import_path: ImportPath
    options: Options = field(default_factory=dict)
    extension: str = ".bin"
    pinned: Pinned | None = None

    def __hash__(self) -> int:
        return hash_of_class(self.import_path, self.options)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_import_path(self.import_path)
        structs.force_setattr(self, "options", checked_options(self.options))
        _check_extension(self.extension)
        require(
            self.pinned is None or not self.pinned.fields,
            "pinned: a format looks at no fields of values",
        )

    @property
    def object_extension(self) -> str:
        """What object keys end in, such as ``.bin.gz``."""
        return self._compressed(self.extension)


Format: TypeAlias = JsonLines | RawBytes | AvroContainer | Parquet | Csv | BlockGzip | CustomFormat
"""All formats; :func:`airflow_provider_kafka_s3.formats.registry.make_format` encodes them."""

_FORMATS: Final[tuple[type[Format], ...]] = get_args(Format)
_BLOCK_GZIP: Final = BlockGzip.__struct_config__.tag


def parse_format(given: Format | Mapping[str, Any] | str, name: str = "format") -> Format:
    """A format, a mapping of its ``kind`` and its fields, or the ``kind`` alone; ``name`` is that of the parameter.

    Raises:
        ConfigurationError: it is anything else.
    """
    settings: object = given
    if isinstance(given, Mapping) and given.get(TAG) == _BLOCK_GZIP and given.get("lines") is not None:
        settings = {**given, "lines": make_value(f"{name}: lines", (JsonLines, RawBytes), given["lines"])}
    return make_value(name, _FORMATS, settings)


def record_format(settings: Format) -> Format:
    """How a record is written: the format, or that of the lines in blocks."""
    return settings.lines if isinstance(settings, BlockGzip) else settings
