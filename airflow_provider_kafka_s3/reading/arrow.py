"""The records of committed objects as Arrow batches, read through the package's own client of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
from isal import isal_zlib

from airflow_provider_kafka_s3.arrays import Array, binary_array, int64_array
from airflow_provider_kafka_s3.batch.object_metadata import has_crc32
from airflow_provider_kafka_s3.config import (
    CustomFormat,
)
from airflow_provider_kafka_s3.exceptions import (
    ForeignObjectError,
    KafkaS3Error,
)
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.formats.json_lines import BadDocument
from airflow_provider_kafka_s3.reading.formats.lines import LINE_SCHEMA, MOST_BYTES
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.missing import missing_object
from airflow_provider_kafka_s3.reading.rows import Unreadable
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
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
    for source in objects:
        try:
            values = _values(store, source, pa.schema(fields))
        except KafkaS3Error:
            raise
        except BadDocument as e:
            raise ForeignObjectError(
                f"{_place(source, e.row)} in object {source.url}, topic {source.topic!r}, batch {source.batch}, cannot "
                f"be read as {type(source.layout.format).__name__} with the columns {[f.name for f in fields]}: {e}. "
                f"Give its field a type that all values have, such as double for 1.0, or leave the field out of the "
                f"schema, or read whole lines as the column 'value' of binary type, without other fields"
            ) from e
        except (Unreadable, pa.ArrowException, ValueError, LookupError, EOFError) as e:
            raise ForeignObjectError(
                f"object {source.url} of topic {source.topic!r}, batch {source.batch}, cannot be read as "
                f"{type(source.layout.format).__name__} with the columns {[f.name for f in fields]}: {e}. Correct the "
                f"schema, or check the object with action='verify'"
            ) from e
        if values.num_rows != source.records:
            raise ForeignObjectError(
                f"object {source.url} of topic {source.topic!r}, batch {source.batch}, has "
                f"{count(values.num_rows, 'record')} instead of {source.records:,}: check it with action='verify'"
            )
        columns = {name: values.column(name) for name in values.column_names}
        columns |= _kafka_columns(source, schema)
        yield from pa.table({name: columns[name] for name in schema.names}, schema=schema).to_batches()


def _values(store: DurableStore, one: SnapshotObject, schema: pa.Schema) -> pa.Table:
    """The fields of values, in their types."""
    body = _body(store, one)
    if not schema.names and not isinstance(one.layout.format, CustomFormat):
        return pa.table({"n": pa.nulls(one.records)}).select([])
    return format_reader(one.layout.format).table(one, body, schema)


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
        raise missing_object(store, one)
    crc32 = isal_zlib.crc32(stored.body)
    if not has_crc32(crc32, one.entry, lambda: store.head(one.key)):
        raise Unreadable(f"its CRC-32 is {crc32:08x} instead of {one.entry.crc32}")
    return stored.body


def _kafka_columns(one: SnapshotObject, schema: pa.Schema) -> dict[str, pa.ChunkedArray[Any]]:
    counts = [part.records for part in one.ranges]
    columns: dict[str, pa.ChunkedArray[Any]] = {}
    for name in schema.names:
        match name:
            case "_kafka_topic":
                columns[name] = _repeated(one.topic, one.records)
            case "_kafka_object":
                columns[name] = _repeated(one.key, one.records)
            case "_kafka_batch":
                columns[name] = pa.chunked_array([int64_array(np.full(one.records, one.batch))])
            case "_kafka_partition":
                numbers = np.repeat(np.array([part.partition for part in one.ranges], np.int64), counts)
                columns[name] = pa.chunked_array([int64_array(numbers).cast(pa.int32())])
            case "_kafka_offset":
                columns[name] = pa.chunked_array([_offsets(part) for part in one.ranges], pa.int64())
    return columns


def _offsets(part: Any) -> Array:
    if part.has_gaps:
        return pa.nulls(part.records, pa.int64())
    return int64_array(np.arange(part.min_offset, part.max_offset + 1))


def _repeated(text: str, count: int) -> pa.ChunkedArray[Any]:
    """A text for each record, in as many arrays as they need."""
    most = max(min(MOST_BYTES // len(text.encode()), count), 1)
    indices = int64_array(np.zeros(most, np.int64)).cast(pa.int32())
    whole = pa.DictionaryArray.from_arrays(indices, _texts([text])).cast(pa.string())
    return pa.chunked_array([whole.slice(0, min(most, count - at)) for at in range(0, count, most)], pa.string())


def _texts(texts: Sequence[str]) -> Array:
    return binary_array([text.encode() for text in texts], large=False).cast(pa.string())
