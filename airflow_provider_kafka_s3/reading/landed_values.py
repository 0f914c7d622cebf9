"""The values of objects of a format with a schema, as Avro datums with their schema."""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.config import AvroContainer, Layout, Parquet, ValuesOnly
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.landed import as_datums, datum_schema
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.avro_columns import datum_arrays
from airflow_provider_kafka_s3.reading.avro_file import AvroFile
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.remote_file import REQUEST, RemoteFile
from airflow_provider_kafka_s3.schemas.avro import parse_schema

__all__ = ["landed_values", "why_no_schema"]

_IN_MEMORY: Final = 64 * 1024 * 1024
"""Bytes of a file of Parquet that are in memory; a larger one is in a temporary file."""
_ROWS: Final = 10_000
"""Rows of Parquet that are read at once at most."""


def why_no_schema(layout: Layout) -> str | None:
    """Why objects of a layout have no schema of values that another pipeline can read; None: they have one."""
    if not isinstance(layout.content, ValuesOnly):
        return f"content={layout.content.__struct_config__.tag!r} of that pipeline has more than values"
    if not isinstance(layout.format, AvroContainer | Parquet):
        return f"format={layout.format.__struct_config__.tag!r} of that pipeline has no schema"
    return None


def landed_values(objects: CommittedObjects, entry: ObjectEntry) -> Iterator[tuple[Array, dict[bytes, bytes]]]:
    """The values of an object, some at a time, and the metadata that has their schema.

    Args:
        objects: of the batch.
        entry: an object of values, of a layout whose objects have a schema.

    Raises:
        DataLossError: the object was accepted as lost.
        MissingObjectError: the object is gone.
        ForeignObjectError: it is not the one that the manifest lists, or cannot be read.
    """
    read = _of_avro if isinstance(objects.layout.format, AvroContainer) else _of_parquet
    number = 0
    try:
        for values, metadata in read(objects, entry):
            number += len(values)
            yield values, metadata
    except (ConfigurationError, ValueError, LookupError, OSError, EOFError, pa.ArrowException) as e:
        raise objects.unreadable(entry, str(e)) from e
    if number != entry.records:
        raise objects.unreadable(entry, f"it has {number:,} rows for {count(entry.records, 'record')}")


def _of_avro(objects: CommittedObjects, entry: ObjectEntry) -> Iterator[tuple[Array, dict[bytes, bytes]]]:
    file = RemoteFile(functools.partial(objects.get, entry), entry.size)
    avro = AvroFile(cast("Any", io.BufferedReader(file, file.request)))
    text = msgspec.json.encode(avro.schema).decode()
    metadata = datum_schema(avro=text)
    for values in datum_arrays(avro, AvroDecoder(parse_schema(text))):
        yield values, metadata
    objects.require_crc32(entry, file.crc32)


def _of_parquet(objects: CommittedObjects, entry: ObjectEntry) -> Iterator[tuple[Array, dict[bytes, bytes]]]:
    with _local(objects, entry) as body, pq.ParquetFile(cast("Any", body)) as parquet_file:
        metadata = datum_schema(columns=parquet_file.schema_arrow)
        for rows in parquet_file.iter_batches(batch_size=_ROWS, use_threads=False):
            yield as_datums(rows, metadata), metadata


@contextlib.contextmanager
def _local(objects: CommittedObjects, entry: ObjectEntry) -> Iterator[BinaryIO]:
    """An object as a file of this machine, after its bytes are compared with the manifest."""
    remote = RemoteFile(functools.partial(objects.get, entry), entry.size)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
        while piece := remote.read(REQUEST):
            body.write(piece)
        objects.require_crc32(entry, remote.crc32)
        body.seek(0)
        yield cast("BinaryIO", body)
