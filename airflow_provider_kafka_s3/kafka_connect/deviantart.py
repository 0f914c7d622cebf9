"""What DeviantArt's S3 sink writes, as parameters of the operator: blocks of gzip, an index, one folder per day."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.kafka_connect.settings_reader import SettingsReader

__all__ = ["OBJECTS", "aws_connection"]

_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_BLOCK_SIZE: Final = 67_108_864


def _value_converter(reader: SettingsReader) -> config.Converter | None:
    name = "value.converter"
    why = (
        "the sink writes the texts of values, and a connector without its own converter has that of its worker. Add it"
    )
    text = reader.required(name, why)
    if text is not None and text not in (_STRING, "StringConverter"):
        reader.refuse(
            name,
            f"{text!r} is refused: the sink writes what Java prints for its values, which is no format. Use {_STRING}",
        )
    if reader.text(f"{name}.encoding", "UTF-8").upper().replace("-", "") != "UTF8":
        reader.refuse(f"{name}.encoding", "texts are UTF-8")
    # Bytes of a text in UTF-8 are those of the text.
    return config.BytesConverter()


def _topics_dir(reader: SettingsReader) -> str:
    return re.sub(r"^/+|/+$", "", reader.text("s3.prefix"))


def _format(reader: SettingsReader) -> config.Format | None:
    size = reader.number("compressed_block_size", _BLOCK_SIZE)
    if size < 0:
        reader.refuse("compressed_block_size", "must not be negative")
        return None
    # With 0 the sink begins a block for each record.
    return config.BlockGzip(lines=config.RawBytes(extension=""), encoder="zlib", block_size=max(size, 1))


_NAMING: Final = config.DeviantArtNaming()

OBJECTS: Final[Mapping[str, Callable[[SettingsReader], Any]]] = {
    "format": _format,
    "value_converter": _value_converter,
    "topics_dir": _topics_dir,
    "partitioner": lambda _: config.default_partitioner(_NAMING),
    "naming": lambda _: _NAMING,
}
"""Makes each parameter about objects."""


def aws_connection(reader: SettingsReader) -> dict[str, Any]:
    """What is known of the AWS connection."""
    extra: dict[str, Any] = {}
    if endpoint := reader.text("s3.endpoint"):
        url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        # Without user and password.
        extra["endpoint_url"] = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
    if reader.flag("s3.path_style", default=False):
        extra["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return {"conn_type": "aws", "extra": extra}
