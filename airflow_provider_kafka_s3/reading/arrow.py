"""The records of committed objects as Arrow batches, read through the package's own client of the store."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
from isal import isal_zlib

from airflow_provider_kafka_s3.arrays import Array, binary_array, int64_array
from airflow_provider_kafka_s3.batch.object_metadata import has_crc32
from airflow_provider_kafka_s3.batch.remedies import RESTORE_RUN
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    BytesConverter,
    Csv,
    CustomFormat,
    JsonConverter,
    JsonLines,
    Parquet,
    RawBytes,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    ForeignObjectError,
    KafkaS3Error,
    MissingObjectError,
)
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.avro_columns import avro_tables
from airflow_provider_kafka_s3.reading.object_schemas import LINE_SCHEMA
from airflow_provider_kafka_s3.reading.retyped import retyped_column
from airflow_provider_kafka_s3.reading.rows import Unreadable, parquet_table, uncompressed
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.reading.text_columns import ReaderOf, decoded_table, text_readers, with_texts
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["KAFKA_COLUMNS", "VALUE_SCHEMA", "arrow_batches"]

_KAFKA_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("_kafka_topic", pa.string()),
    pa.field("_kafka_partition", pa.int32()),
    pa.field("_kafka_offset", pa.int64()),
    pa.field("_kafka_batch", pa.int64()),
    pa.field("_kafka_object", pa.string()),
]
KAFKA_COLUMNS: Final = pa.schema(_KAFKA_FIELDS)
"""Columns that every schema may have besides those of the value. An offset is null if the offsets of its object have
gaps, since formats do not keep them."""

VALUE_SCHEMA: Final = pa.schema([*LINE_SCHEMA, *_KAFKA_FIELDS])
"""The bytes of lines as they are, and :data:`KAFKA_COLUMNS`."""

_ROW: Final = re.compile(r"\.? in row \d+")
"""The row in an error of Arrow, which is that of a block."""

_BLOCK: Final = 16 * 1024 * 1024
"""Bytes of JSON or CSV that are parsed at once; a record has to fit."""

_BEFORE_NULL: Final = np.frombuffer(b"n \t\r\xef", np.uint8)
"""First bytes of a line that may be the document ``null``."""

_MOST: Final = 2**31 - 1
"""Bytes of texts or binary values that an array has at most: its offsets have 32 bits."""


def arrow_batches(
    store: DurableStore, objects: Iterable[SnapshotObject], schema: pa.Schema = VALUE_SCHEMA
) -> Iterator[pa.RecordBatch]:
    """The records of objects, one object after another; an object is in memory as a whole.

    Args:
        store: their bucket.
        objects: of one snapshot.
        schema: columns, by name: those of :data:`KAFKA_COLUMNS`, and the fields of values. Fields that a value does not
            have are null, and others are left out. ``value`` as binary, without other fields, is the line as it is, of
            JSON lines and bytes. Other columns of a binary type are the bytes of values, which JSON lines of values
            with a schema, and CSV, have as base64; so are decimals of JSON lines with ``decimal_format="BASE64"``.

    Raises:
        ConfigurationError: the format has no such columns; or the names of an object's columns are not known: it is CSV
            without a header, and its values have schemas of a registry, or of their own.
        MissingObjectError: an object is gone.
        ForeignObjectError: an object is not the one that its manifest lists, or cannot be parsed; of JSON lines, the
            error has the first record that cannot, such as one with the number 1.0 for int64, or with a field twice.
    """
    fields = [f for f in schema if f.name not in KAFKA_COLUMNS.names]
    for one in objects:
        try:
            values = _values(store, one, pa.schema(fields))
        except KafkaS3Error:
            raise
        except _BadDocument as e:
            raise ForeignObjectError(
                f"{_place(one, e.row)} in object {one.url}, topic {one.topic!r}, batch {one.batch}, cannot be read as "
                f"{type(one.layout.format).__name__} with the columns {[f.name for f in fields]}: {e}. Give its field "
                f"a type that all values have, such as double for 1.0, or leave the field out of the schema, or read "
                f"whole lines as the column 'value' of binary type, without other fields"
            ) from e
        except (Unreadable, pa.ArrowException, ValueError, LookupError, EOFError) as e:
            raise ForeignObjectError(
                f"object {one.url} of topic {one.topic!r}, batch {one.batch}, cannot be read as "
                f"{type(one.layout.format).__name__} with the columns {[f.name for f in fields]}: {e}. Correct the "
                f"schema, or check the object with action='verify'"
            ) from e
        if values.num_rows != one.records:
            raise ForeignObjectError(
                f"object {one.url} of topic {one.topic!r}, batch {one.batch}, has {count(values.num_rows, 'record')} "
                f"instead of {one.records:,}: check it with action='verify'"
            )
        columns = {name: values.column(name) for name in values.column_names}
        columns |= _kafka_columns(one, schema)
        yield from pa.table({name: columns[name] for name in schema.names}, schema=schema).to_batches()


def _values(store: DurableStore, one: SnapshotObject, schema: pa.Schema) -> pa.Table:
    """The fields of values, in their types."""
    settings = one.layout.format
    body = _body(store, one)
    if isinstance(settings, CustomFormat):
        raise ConfigurationError(
            f"{one.url} has a format of another package, {settings.import_path!r}, which only writes"
        )
    if not schema.names:
        return pa.table({"n": pa.nulls(one.records)}).select([])
    if isinstance(settings, Parquet):
        return _selected(parquet_table(body), schema)
    if isinstance(settings, AvroContainer):
        return pa.concat_tables([_selected(table, schema) for table in avro_tables(one.url, body, schema)])
    if isinstance(settings, BlockGzip):
        body = uncompressed(JsonLines(compression="gzip"), body)
    else:
        body = uncompressed(settings, body)
    lines = one.layout.record_format
    if schema.names == ["value"] and pa.types.is_binary(schema.field("value").type) and not isinstance(lines, Csv):
        return pa.table([_in_chunks(_lines(one, body))], schema=schema)
    reader_of = text_readers(one.layout)
    if isinstance(lines, RawBytes):
        raise ConfigurationError(f"the records of {one.url} are bytes: read them as the column 'value', of binary type")
    if isinstance(lines, Csv):
        names = None if lines.header else _csv_names(one)
        found = pyarrow.csv.read_csv(
            io.BytesIO(body),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=_BLOCK, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=lines.separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=with_texts(schema, reader_of),
                include_columns=schema.names,
                include_missing_columns=True,
                null_values=[lines.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return decoded_table(found, schema, reader_of)
    body = _without_nulls(body)
    try:
        return _documents(body, schema, reader_of)
    except pa.ArrowException as e:
        raise _bad_document(body, schema, reader_of, e) from e


def _lines(one: SnapshotObject, body: bytes) -> list[bytes]:
    """The lines of an object, one for each record."""
    lines = one.layout.record_format
    separator = lines.separator.encode() if isinstance(lines, RawBytes) else b"\n"
    if not separator:
        raise ConfigurationError(f"nothing separates the records of {one.url}: its format has separator=''")
    found = body.split(separator)
    if found.pop():
        raise Unreadable("it does not end with its separator")
    if len(found) > one.records and isinstance(lines, RawBytes):
        raise ForeignObjectError(
            f"object {one.url} of topic {one.topic!r}, batch {one.batch}, has {len(found):,} parts for "
            f"{count(one.records, 'record')}: values hold the separator {lines.separator!r}, so its records cannot be "
            f"told apart. The object "
            f"is as it was written, and action='verify' accepts it. Land the topic with a separator of RawBytes that "
            f"no value has, or as Parquet or Avro with value_converter='bytes'. To read the others, select batches "
            f"without it, by batches="
        )
    if (longest := max(map(len, found), default=0)) > _MOST:
        raise ConfigurationError(
            f"a record of {one.url} has {count(longest, 'byte')}, and an Arrow array has {_MOST:,} at most: read the "
            f"object by airflow_provider_kafka_s3.reading.records.read_records"
        )
    return found


def _in_chunks(values: Sequence[bytes]) -> pa.ChunkedArray[Any]:
    """Values in as many arrays as they need."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    found, start = [], 0
    while start < len(values):
        stop = int(np.searchsorted(ends, ends[start] + _MOST, side="right")) - 1
        found.append(binary_array(values[start:stop], large=False))
        start = stop
    return pa.chunked_array(found, pa.binary())


def _csv_names(one: SnapshotObject) -> list[str]:
    """The names of the columns of an object without a header."""
    match one.layout.value_converter:
        case JsonConverter(schema=str() as text):
            return arrow_schema(parse_schema(text)).names
        case BytesConverter() | StringConverter() | None:
            return ["value"]
    raise ConfigurationError(
        f"the names of the columns of {one.url} are not known: its format has header=False, and which schema its "
        f"values have is in no document. Land the topic with header=True; or read the object by a reader of CSV that "
        f"takes columns by their position, such as spark_frame with a schema"
    )


class _BadDocument(ValueError):
    """A JSON document that does not go with the schema.

    Attributes:
        row: its number in the object, from 0 on.
    """

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def _without_nulls(body: bytes) -> bytes:
    """JSON lines with an empty object in place of each document ``null``: the row has the same nulls.

    Arrow's parser reads memory that is not its own if a block of lines begins with ``null``, so that the process ends
    (apache/arrow#47409). No text that begins so is given to it.

    Raises:
        _BadDocument: a line begins with ``null`` and goes on.
    """
    data = np.frombuffer(body, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(data == ord("\n")) + 1])
    starts = starts[starts < len(data)]
    pieces, at = [], 0
    for row in np.flatnonzero(np.isin(data[starts], _BEFORE_NULL)):
        start = int(starts[row])
        end = body.find(b"\n", start) % (len(body) + 1)
        text = body[start:end].strip(b" \t\r\xef\xbb\xbf")
        if text == b"null":
            pieces += [body[at:start], b"{}"]
            at = end
        elif text.startswith(b"null"):
            raise _BadDocument(int(row), "it is no JSON document")
    return b"".join([*pieces, body[at:]]) if pieces else body


def _documents(body: bytes, schema: pa.Schema, reader_of: ReaderOf) -> pa.Table:
    """JSON lines."""
    texts = with_texts(schema, reader_of)
    found = pyarrow.json.read_json(
        io.BytesIO(body),
        read_options=pyarrow.json.ReadOptions(block_size=max(_BLOCK, _longest(body)), use_threads=False),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=texts, unexpected_field_behavior="ignore"),
    )
    return decoded_table(_selected(found, texts), schema, reader_of)


def _bad_document(body: bytes, schema: pa.Schema, reader_of: ReaderOf, error: pa.ArrowException) -> _BadDocument:
    """The first document that cannot be parsed, found by bisection: Arrow counts rows from the start of a block."""
    lines = [line + b"\n" for line in body.split(b"\n")[:-1]]
    good, bad = 0, len(lines)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _documents(b"".join(lines[good:middle]), schema, reader_of)
        except pa.ArrowException as e:
            bad, error = middle, e
        else:
            good = middle
    return _BadDocument(good, _ROW.sub("", str(error)))


def _place(one: SnapshotObject, row: int) -> str:
    """A record of an object: its Kafka partition, and its offset or those between which it is."""
    for part in one.ranges:
        if row < part.records:
            break
        row -= part.records
    if part.has_gaps:
        return (
            f"record {row + 1:,} of partition {part.partition}, which has offsets from {part.min_offset} to "
            f"{part.max_offset} with gaps,"
        )
    return f"the record of partition {part.partition}, offset {part.min_offset + row},"


def _body(store: DurableStore, one: SnapshotObject) -> bytes:
    stored = store.get(one.key)
    if stored is None:
        raise MissingObjectError(
            f"object {one.url} of topic {one.topic!r}, batch {one.batch}, is gone. Write it again from Kafka by "
            f"{RESTORE_RUN}, or accept that it is gone, by the command that a run with action='verify' prints"
        )
    crc32 = isal_zlib.crc32(stored.body)
    if not has_crc32(crc32, one.entry, lambda: store.head(one.key)):
        raise Unreadable(f"its CRC-32 is {crc32:08x} instead of {one.entry.crc32}")
    return stored.body


def _selected(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Some columns in their types; those that are not there are null."""
    columns = [
        retyped_column(table.column(f.name), f.type)
        if f.name in table.column_names
        else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    if not columns:
        return table.select([])
    return pa.table(columns, schema=schema)


def _longest(body: bytes) -> int:
    """Bytes of the longest line, with its end."""
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n"))
    return int(np.diff(ends, prepend=-1).max(initial=0)) + 1


def _kafka_columns(one: SnapshotObject, schema: pa.Schema) -> dict[str, pa.ChunkedArray[Any]]:
    counts = [part.records for part in one.ranges]
    found: dict[str, pa.ChunkedArray[Any]] = {}
    for name in schema.names:
        match name:
            case "_kafka_topic":
                found[name] = _repeated(one.topic, one.records)
            case "_kafka_object":
                found[name] = _repeated(one.key, one.records)
            case "_kafka_batch":
                found[name] = pa.chunked_array([int64_array(np.full(one.records, one.batch))])
            case "_kafka_partition":
                numbers = np.repeat(np.array([part.partition for part in one.ranges], np.int64), counts)
                found[name] = pa.chunked_array([int64_array(numbers).cast(pa.int32())])
            case "_kafka_offset":
                found[name] = pa.chunked_array([_offsets(part) for part in one.ranges], pa.int64())
    return found


def _offsets(part: Any) -> Array:
    if part.has_gaps:
        return pa.nulls(part.records, pa.int64())
    return int64_array(np.arange(part.min_offset, part.max_offset + 1))


def _repeated(text: str, count: int) -> pa.ChunkedArray[Any]:
    """A text for each record, in as many arrays as they need."""
    most = max(min(_MOST // len(text.encode()), count), 1)
    indices = int64_array(np.zeros(most, np.int64)).cast(pa.int32())
    whole = pa.DictionaryArray.from_arrays(indices, _texts([text])).cast(pa.string())
    return pa.chunked_array([whole.slice(0, min(most, count - at)) for at in range(0, count, most)], pa.string())


def _texts(texts: Sequence[str]) -> Array:
    return binary_array([text.encode() for text in texts], large=False).cast(pa.string())
