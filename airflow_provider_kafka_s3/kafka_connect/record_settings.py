"""What of a record is written, and how: formats, converters, keys and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.kafka_connect.settings import CONVERTER
from airflow_provider_kafka_s3.kafka_connect.settings_reader import SettingsReader, own_class

__all__ = ["CONVERTERS", "content", "converter", "record_format"]

_FORMATS: Final = {
    "io.confluent.connect.s3.format.avro.AvroFormat": "avro",
    "io.confluent.connect.s3.format.json.JsonFormat": "json",
    "io.confluent.connect.s3.format.bytearray.ByteArrayFormat": "bytes",
    "io.confluent.connect.s3.format.parquet.ParquetFormat": "parquet",
}
_AVRO: Final = "io.confluent.connect.s3.format.avro.AvroFormat"

CONVERTERS: Final = {
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.json.JsonSchemaConverter": "json_schema",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "org.apache.kafka.connect.storage.StringConverter": "string",
}
"""Kinds of converters, by the classes of Connect."""
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


def record_format(
    reader: SettingsReader, name: str, *, on_null: bool = False, default: str = ""
) -> config.Format | None:
    """The format of objects of values, or of those beside them.

    Args:
        reader: of the settings.
        name: of the setting with its class.
        on_null: whether it is that of values, which may be null.
        default: class that applies without the setting.
    """
    if not default and reader.required(name, f"use one of {', '.join(_FORMATS)}") is None:
        return None
    remedy = "use Avro, JSON, ByteArray or Parquet"
    if on_null:
        remedy += f"; or your own class, in Python: {own_class('format')}"
    kind = reader.one_class(name, _FORMATS, default, remedy)
    # All are read, so that one error has all wrong ones.
    nulls = {"fail": "fail", "ignore": "ignore", "write": "write"}
    decimals = {"BASE64": "BASE64", "NUMERIC": "NUMERIC"}
    codecs = {codec: codec for codec in ("null", "deflate", "snappy", "bzip2")}
    of_nulls = {"on_null": reader.choice("behavior.on.null.values", nulls, "fail")} if on_null else {}
    of_kinds: Mapping[str, dict[str, Any]] = {
        "json": {
            **_compression(reader),
            "decimal_format": reader.choice("json.decimal.format", decimals, "BASE64"),
        },
        "bytes": {
            **_compression(reader),
            "extension": reader.text("format.bytearray.extension", ".bin"),
            "separator": reader.raw("format.bytearray.separator", "\n"),
        },
        "avro": {"codec": reader.choice("avro.codec", codecs, "null")},
        "parquet": {"compression": _parquet_codec(reader)},
    }
    if kind is None:
        return None
    settings = {"kind": kind, **of_nulls, **of_kinds[kind]}
    if on_null:
        _note_other_formats(reader, kind)
    return reader.attempt(name, lambda: config.parse_format(settings))


def _note_other_formats(reader: SettingsReader, kind: str) -> None:
    of_kinds = {
        ("json", "bytes"): ("s3.compression.type", "s3.compression.level"),
        ("json",): ("json.decimal.format",),
        ("bytes",): ("format.bytearray.extension", "format.bytearray.separator"),
        ("avro",): ("avro.codec",),
        ("parquet",): ("parquet.codec",),
    }
    if any(reader.flag(f"store.kafka.{part}", default=False) for part in ("keys", "headers")):
        return  # these may have other formats
    for kinds, names in of_kinds.items():
        if kind not in kinds:
            reader.without_effect(names, "it belongs to another format")


def _compression(reader: SettingsReader) -> dict[str, Any]:
    compression = reader.choice("s3.compression.type", {"none": "none", "gzip": "gzip"}, "none")
    level = reader.number("s3.compression.level", -1)
    if not -1 <= level <= 9:
        reader.refuse("s3.compression.level", f"{level} must be -1 to 9")
    if compression == "none":
        reader.without_effect(["s3.compression.level"], "nothing is compressed")
    elif level >= 0:
        return {"compression": "gzip", "compression_level": level}
    return {"compression": compression}


def _parquet_codec(reader: SettingsReader) -> str:
    codecs = {codec: codec for codec in ("none", "snappy", "gzip", "brotli", "zstd")}
    codec = reader.text("parquet.codec", "snappy").lower()
    if codec in ("lzo", "lz4"):
        reader.refuse("parquet.codec", f"{codec!r} is refused: many readers lack it. Use 'zstd' or 'snappy'")
        return "snappy"
    return reader.choice("parquet.codec", {**codecs, "uncompressed": "none", "lz4_raw": "lz4"}, "snappy")


def converter(reader: SettingsReader, part: str) -> config.Converter | None:
    """The converter of ``key`` or ``value``."""
    name = f"{part}.converter"
    missing = (
        f"the one of the worker applies, which is not in this file. Add {name} and its settings, or name the file "
        f"of the worker"
    )
    if reader.required(name, missing) is None:
        return None
    remedy = f"use one of {', '.join(CONVERTERS)}"
    kind = reader.one_class(name, CONVERTERS, _BYTES, remedy)
    if kind is None:
        return None
    settings: dict[str, Any] = {"kind": kind}
    if kind == "json":
        settings["schemas_enable"] = reader.flag(f"{name}.schemas.enable", default=True)
    else:
        reader.without_effect([f"{name}.schemas.enable"], "it belongs to the JsonConverter")
    if reader.text(f"{name}.encoding", "UTF-8").upper().replace("-", "") != "UTF8":
        reader.refuse(f"{name}.encoding", "texts are UTF-8; use the ByteArrayConverter for others")
    if not reader.flag(f"{name}.replace.null.with.default", default=True):
        reader.refuse(
            f"{name}.replace.null.with.default", "a null value of a field with a default is the default. Remove it"
        )
    for setting in CONVERTER:
        if setting.here.startswith("refused unless") and setting.name != "encoding":
            option = f"{name}.{setting.name}"
            if reader.flag(option, default=False):
                reader.refuse(option, "values keep the schema of the registry. Remove it")
    return reader.attempt(name, lambda: config.parse_converter(settings, f"{part}_converter"))


def content(reader: SettingsReader) -> config.Content | None:
    """Keys and headers beside the values, if they are stored."""
    stored: dict[str, Any] = {}
    for part in ("keys", "headers"):
        if reader.flag(f"store.kafka.{part}", default=False):
            stored[part] = record_format(reader, f"{part}.format.class", default=_AVRO)
        else:
            reader.without_effect([f"{part}.format.class"], f"no {part} are stored")
    folder = reader.text("tombstone.encoded.partition", "tombstone")
    if reader.text("behavior.on.null.values", "fail") == "write" and folder != "tombstone":
        reader.refuse(
            "tombstone.encoded.partition",
            f"{folder!r} is refused: the folder of null values is 'tombstone'. Remove it",
        )
    if not stored or None in stored.values():
        return None
    content = {"kind": "siblings", "keys": None, **stored}
    return reader.attempt(next(f"store.kafka.{part}" for part in stored), lambda: config.parse_content(content))
