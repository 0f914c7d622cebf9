"""The rows of landed objects, as readers of each format return them, and in a form that all formats share."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.testing.decompress import decompress

__all__ = ["MICROSECOND", "MILLISECOND", "normal", "plain", "rows"]

MICROSECOND: Final = dt.timedelta(microseconds=1)
MILLISECOND: Final = dt.timedelta(milliseconds=1)

_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)


def rows(key: str, body: bytes) -> list[Any]:
    """The rows of an object, as the reader of its format returns them; the key's extension is that of the format."""
    if key.endswith(".avro"):
        return list(fastavro.reader(io.BytesIO(body)))
    if key.endswith(".parquet"):
        return pq.read_table(io.BytesIO(body)).to_pylist(maps_as_pydicts="strict")
    return [json.loads(line) for line in decompress(key, body).splitlines()]


def plain(value: Any, unit: dt.timedelta = MICROSECOND) -> Any:
    """A value with numbers in the place of times (in this unit) and decimals (unscaled), and base64 of bytes."""
    match value:
        case dict():
            return {name: plain(field, unit) for name, field in value.items()}
        case list():
            return [plain(item, unit) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            return round((value - _EPOCH) / unit)
        case dt.date():
            return (value - _EPOCH.date()).days
        case Decimal():
            return int(value.scaleb(-int(value.as_tuple().exponent)))
    return value


def normal(row: Any, unit: dt.timedelta = MICROSECOND) -> bytes:
    """A plain row as JSON, with the fields in the order of their names."""
    return json.dumps(plain(row, unit), sort_keys=True).encode()
