"""What DeviantArt's S3 sink writes, as parameters of the operator: lines of text in one folder per day, by gzip."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.kafka_connect.settings_reader import SettingsReader

__all__ = ["OBJECTS", "aws_connection"]

_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_DAY_MS: Final = 86_400_000


def _value_converter(reader: SettingsReader) -> config.Converter | None:
    name = "value.converter"
    why = (
        "the sink writes the texts of values, and a connector without its own converter has that of its worker. Add it"
    )
    given = reader.required(name, why)
    if given is not None and given not in (_STRING, "StringConverter"):
        reader.refuse(
            name,
            f"{given!r} is refused: the sink writes what Java prints for its values, which is no format. Use {_STRING}",
        )
    if reader.text(f"{name}.encoding", "UTF-8").upper().replace("-", "") != "UTF8":
        reader.refuse(f"{name}.encoding", "texts are UTF-8")
    # Bytes of a text in UTF-8 are those of the text.
    return config.BytesConverter()


def _topics_dir(reader: SettingsReader) -> str:
    return re.sub(r"^/+|/+$", "", reader.text("s3.prefix"))


def _partitioner(_: SettingsReader) -> config.Partitioner:
    # The sink has the day of the upload, in the time zone of its JVM.
    return config.TimePattern(
        path_format="yyyy-MM-dd", duration_ms=_DAY_MS, timezone="UTC", timestamp_from=config.ClockTime()
    )


OBJECTS: Final[Mapping[str, Callable[[SettingsReader], Any]]] = {
    "format": lambda _: config.RawBytes(separator="\n", extension="", compression="gzip"),
    "value_converter": _value_converter,
    "topics_dir": _topics_dir,
    "partitioner": _partitioner,
    "naming": lambda _: config.Naming(file_delim="-", offset_pad_width=12),
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
    if reader.number("compressed_block_size", 67_108_864) < 0:
        reader.refuse("compressed_block_size", "must not be negative")
    return {"conn_type": "aws", "extra": extra}
