"""Writes the table of ``docs/reference/kafka-connect.md`` from the code: ``python -m dev.docs.connect_options``.

Names and what they become are those of the converter of configurations. Defaults of ours are read from the signatures
and types of the package; those of Confluent's sink are listed here, since its code is not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3 import KafkaToS3Operator, config
from airflow_provider_kafka_s3.kafka_connect.settings import SINK, Setting
from airflow_provider_kafka_s3.retry import RetryPolicy

__all__ = ["CONNECT_DEFAULTS", "OPTIONS_PAGE", "default_here", "with_options"]

OPTIONS_PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "kafka-connect.md"

_NONE: Final = "not set"
CONNECT_DEFAULTS: Final[Mapping[str, str]] = {
    "format.class": "required",
    "flush.size": "required",
    "rotate.interval.ms": "-1",
    "rotate.schedule.interval.ms": "-1",
    "rotate.file.on.partition.change": "true",
    "schemas.cache.config": "1000",
    "enhanced.avro.schema.support": "true",
    "connect.meta.data": "true",
    "retry.backoff.ms": "5000",
    "shutdown.timeout.ms": "3000",
    "filename.offset.zero.pad.width": "10",
    "avro.codec": "null",
    "allow.optional.map.keys": "false",
    "parquet.codec": "snappy",
    "schema.compatibility": "NONE",
    "s3.bucket.name": "required",
    "s3.object.tagging": "false",
    "s3.object.tagging.key.value.pairs": _NONE,
    "s3.object.behavior.on.tagging.error": "ignore",
    "s3.region": "us-west-2",
    "s3.part.size": "26214400",
    "s3.credentials.provider.class": "DefaultCredentialsProvider",
    "aws.access.key.id": _NONE,
    "aws.secret.access.key": _NONE,
    "s3.ssea.name": _NONE,
    "s3.sse.customer.key": _NONE,
    "s3.sse.kms.key.id": _NONE,
    "s3.acl.canned": _NONE,
    "s3.wan.mode": "false",
    "s3.compression.type": "none",
    "s3.compression.level": "-1",
    "json.decimal.format": "BASE64",
    "s3.part.retries": "3",
    "s3.retry.backoff.ms": "200",
    "format.bytearray.extension": ".bin",
    "format.bytearray.separator": "the line end of the worker",
    "s3.proxy.url": _NONE,
    "s3.proxy.user": _NONE,
    "s3.proxy.password": _NONE,
    "s3.http.send.expect.continue": "true",
    "behavior.on.null.values": "fail",
    "report.null.values.to.dlq": "true",
    "max.write.duration.ms": "9223372036854775807",
    "tombstone.encoded.partition": "tombstone",
    "s3.schema.partition.affix.type": "NONE",
    "s3.send.digest": "false",
    "enable.conditional.writes": "true",
    "max.files.scan.limit": "100",
    "store.kafka.keys": "false",
    "store.kafka.headers": "false",
    "keys.format.class": "AvroFormat",
    "headers.format.class": "AvroFormat",
    "s3.path.style.access.enabled": "true",
    "s3.elastic.buffer.enable": "false",
    "s3.elastic.buffer.init.capacity": "131072",
    "partitioner.max.open.files": "-1",
    "storage.class": "required",
    "topics.dir": "topics",
    "store.url": _NONE,
    "directory.delim": "/",
    "file.delim": "+",
    "partitioner.class": "DefaultPartitioner",
    "partition.field.name": _NONE,
    "partition.duration.ms": "-1",
    "path.format": _NONE,
    "locale": _NONE,
    "timezone": _NONE,
    "timestamp.extractor": "Wallclock",
    "timestamp.field": "timestamp",
}
"""Of every setting that Confluent's sink has today; ``not set``: empty, or null."""

_GROUPS: Final[Mapping[str, type[Any]]] = {
    "rotation": config.Rotation,
    "naming": config.Naming,
    "upload": config.Upload,
    "limits": config.Limits,
    "request_retry": RetryPolicy,
    "partitioner": config.Hourly,
    "format": config.JsonLines,
}
_FIELDS: Final[Mapping[str, tuple[type[Any], str]]] = {
    "s3.sse.kms.key.id": (config.SseKms, "key_id"),
    "s3.compression.level": (config.JsonLines, "compression_level"),
}
"""Fields that the words of a setting do not begin with."""
_NOT_PYTHON: Final = "—"


def default_here(setting: Setting) -> str:
    """The default of what a setting becomes, as Python; ``required`` if there is none."""
    if setting.use != "parameter":
        return _NOT_PYTHON
    if setting.name in _FIELDS:
        return _default_of_field(*_FIELDS[setting.name])
    found = re.match(r"`(\w+)`(?:.*? of (?:the )?`?(\w+))?", setting.here)
    if found is None:
        return _NOT_PYTHON
    name, owner = found.groups()
    kind = _GROUPS.get(owner or "") or getattr(config, owner or "", None)
    if kind is not None and name in kind.__struct_fields__:
        return _default_of_field(kind, name)
    parameters = inspect.signature(KafkaToS3Operator).parameters
    if name not in parameters:
        return _NOT_PYTHON
    default = parameters[name].default
    if name == "partitioner":  # that of the naming that connectors are converted to
        default = config.default_partitioner(config.Naming()).__struct_config__.tag
    return "required" if default is inspect.Parameter.empty else f"`{default!r}`"


def _default_of_field(kind: type[Any], name: str) -> str:
    field = next(field for field in msgspec.structs.fields(kind) if field.name == name)
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(default, msgspec.Struct):  # values with defaults are named by their kind
        default = default.__struct_config__.tag
    return "required" if default is msgspec.NODEFAULT else f"`{default!r}`"


def with_options(page: str) -> str:
    """The page with the table of the code between its markers."""
    return re.sub(
        r"(<!-- table options -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{_table()}{m[2]}", page, flags=re.DOTALL
    )


def _table() -> str:
    lines = ["| Kafka Connect | default there | here | default here |", "|---|---|---|---|"]
    for setting in SINK:
        if (default := CONNECT_DEFAULTS.get(setting.name)) is None:
            continue
        there = default if default in ("required", _NONE) or " " in default else f"`{default}`"
        here = setting.here.removeprefix("secret: ")
        here = f"no meaning: {here}" if setting.use == "none" else here
        lines.append(f"| `{setting.name}` | {there} | {here} | {default_here(setting)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    OPTIONS_PAGE.write_text(with_options(OPTIONS_PAGE.read_text()))
