"""The rows of an object, as it holds them: their bytes, and what they are in JSON.

This is for people who look at a few records: rows before and behind these are not decoded where the format allows it.
"""

from __future__ import annotations

import base64
import bz2
import datetime as dt
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    CompressionName,
    Csv,
    CustomFormat,
    Format,
    JsonLines,
    Parquet,
    RawBytes,
)
from airflow_provider_kafka_s3.reading.avro_file import datums
from airflow_provider_kafka_s3.reading.retyped import retyped_column

__all__ = ["AMBIGUOUS", "Json", "Row", "Unreadable", "as_text", "parquet_table", "rows_of", "uncompressed"]

Json: TypeAlias = "msgspec.Raw | dict[str, Any] | list[Any] | str | int | float | bool | None"
"""A JSON value; a document that is written as it was is raw."""

AMBIGUOUS: Final = (
    "values hold the separator, so its records cannot be told apart. Land the topic with a separator of RawBytes that "
    "no value has, or in another format"
)
"""Why an object of raw bytes may have more rows than records, and what to do."""

_CSV_LINE: Final = re.compile(rb'(?:[^"\n]|"(?:[^"]|"")*")*\n')


class Unreadable(ValueError):
    """The bytes are not those of the format, or their records cannot be told apart."""


@dataclass(frozen=True)
class Row:
    """A row of an object.

    Attributes:
        raw: its bytes in the object, without what separates rows; of a file of columns, its JSON.
        json: what it is.
    """

    raw: bytes
    json: Json


def rows_of(settings: Format, body: bytes, count: int, wanted: slice) -> list[Row]:
    """Some rows of an object.

    Args:
        settings: of its format.
        body: its bytes, decompressed.
        count: number of its rows.
        wanted: which of them, with start and stop.

    Raises:
        Unreadable: it does not have so many rows.
    """
    match settings:
        case BlockGzip(lines=lines):
            return rows_of(lines, body, count, wanted)
        case JsonLines():
            return [Row(line, msgspec.Raw(line)) for line in _split(body, b"\n", count)[wanted]]
        case RawBytes(separator=separator):
            return [Row(value, as_text(value)) for value in _split(body, separator.encode(), count)[wanted]]
        case Csv():
            return _csv(settings, body, count)[wanted]
        case Parquet():
            table = _table(body)
            _check(table.num_rows, count)
            found = _values(table.slice(wanted.start, wanted.stop - wanted.start))
        case AvroContainer():
            found = list(itertools.islice(_datums(body), count + 1))
            _check(len(found), count)
            found = found[wanted]
        case CustomFormat():
            raise Unreadable(f"the format is a class of another package, {settings.import_path!r}, which only writes")
        case _:
            raise Unreadable(f"the format {settings!r} has no rows")
    return [_row(value) for value in found]


def uncompressed(settings: Format, body: bytes) -> bytes:
    """The bytes of an object before its compression, if it is compressed as a whole.

    Raises:
        Unreadable: they are damaged.
    """
    name: CompressionName = "none"
    if isinstance(settings, BlockGzip):
        name = "gzip"
    elif isinstance(settings, JsonLines | RawBytes | Csv | CustomFormat):
        name = settings.compression
    try:
        match name:
            case "gzip":
                return gzip.decompress(body)
            case "bzip2":
                return bz2.decompress(body)
            case "zstd":
                with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
                    return stream.read()
            case _:
                return body
    except (OSError, EOFError, ValueError, zlib.error) as e:
        raise Unreadable(f"its compression {name!r} is damaged ({e})") from e


def as_text(value: bytes | None) -> Json:
    """Bytes as text; those that are no text in UTF-8 as an object with their base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _split(body: bytes, separator: bytes, count: int) -> list[bytes]:
    if not separator:
        if count == 1:
            return [body]
        raise Unreadable(f"nothing separates its {count:,} records (separator='')")
    values = body.split(separator)
    if values.pop():
        raise Unreadable("it does not end with its separator")
    if len(values) != count:
        raise Unreadable(f"it has {len(values):,} parts for {count:,} records: {AMBIGUOUS}")
    return values


def _csv(settings: Csv, body: bytes, count: int) -> list[Row]:
    lines = _CSV_LINE.findall(body)
    if sum(map(len, lines)) != len(body):
        raise Unreadable("it is no CSV")
    separator = re.escape(settings.separator)
    fields = re.compile(rf'(?:^|{separator})(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^{separator}"]*))')

    def parsed(line: bytes) -> list[str | None]:
        found = fields.finditer(line.decode().removesuffix("\n"))
        return [_field(m["quoted"], m["plain"], settings.null) for m in found]

    names = parsed(lines.pop(0)) if settings.header and lines else None
    _check(len(lines), count)
    rows = []
    for line in lines:
        values = parsed(line)
        row = values if names is None else dict(zip(map(str, names), values, strict=True))
        rows.append(Row(line.removesuffix(b"\n"), row))
    return rows


def _field(quoted: str | None, plain: str | None, null: str) -> str | None:
    if quoted is not None:
        return quoted.replace('""', '"')
    return None if plain == null else plain


def parquet_table(body: bytes) -> pa.Table:
    """The rows of a Parquet file.

    No thread of Arrow reads it: one that gives bytes back while the interpreter ends would end the process by SIGABRT.

    Raises:
        pyarrow.ArrowException: it is none; or OSError.
    """
    return pq.read_table(pa.BufferReader(body), use_threads=False, pre_buffer=False)


def _table(body: bytes) -> pa.Table:
    try:
        return parquet_table(body)
    except (pa.ArrowException, OSError) as e:
        raise Unreadable(f"it is no Parquet file ({e})") from e


def _values(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; of a row with a time that Python does not have, all times are numbers."""
    try:
        return table.to_pylist(maps_as_pydicts=None)
    except (OverflowError, ValueError):
        if table.num_rows > 1:
            return [row for n in range(table.num_rows) for row in _values(table.slice(n, 1))]
        kinds = [_without_times(one.type) for one in table.schema]
        columns = [retyped_column(column, kind) for column, kind in zip(table.columns, kinds, strict=True)]
        return pa.table(columns, names=table.column_names).to_pylist(maps_as_pydicts=None)


def _without_times(kind: Any) -> pa.DataType:
    """The type with numbers in place of times."""
    if isinstance(kind, pa.StructType):
        return pa.struct([one.with_type(_without_times(one.type)) for one in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    if isinstance(kind, pa.MapType):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else cast("pa.DataType", kind)


def _datums(body: bytes) -> Iterator[Any]:
    try:
        yield from itertools.chain.from_iterable(datums(body))
    except (ValueError, LookupError, OSError, EOFError) as e:
        raise Unreadable(f"it is no Avro file ({e})") from e


def _check(found: int, count: int) -> None:
    if found != count:
        raise Unreadable(f"it has {found:,} rows instead of {count:,}")


def _row(value: Any) -> Row:
    # NaN and infinite numbers are texts, as in JSON lines: JSON has none.
    found = json.loads(json.dumps(value, default=_plain), parse_constant=str)
    return Row(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode(), found)


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return value.total_seconds()
    raise TypeError(f"{type(value).__name__} is not of a row")
