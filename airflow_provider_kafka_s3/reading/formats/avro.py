"""Objects of Avro's container format."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.avro_columns import avro_tables
from airflow_provider_kafka_s3.reading.avro_file import datums, file_schema
from airflow_provider_kafka_s3.reading.envelope_datums import envelopes_in_avro
from airflow_provider_kafka_s3.reading.formats.port import FormatReader, SparkSource, require_rows
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile
from airflow_provider_kafka_s3.reading.retyped import selected_columns
from airflow_provider_kafka_s3.reading.rows import Row, Unreadable, row_of
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema

__all__ = ["AvroReader"]

_BEGINNING: Final = 16 * 1024
"""Bytes that are read first, for the schema."""


class AvroReader(FormatReader):
    """Rows are the datums of a file."""

    has_own_columns = True
    spark_source = SparkSource("avro")

    @override
    def rows(self, text: bytes, count: int, wanted: slice) -> list[Row]:
        try:
            values = list(itertools.islice(itertools.chain.from_iterable(datums(text)), count + 1))
        except (ValueError, LookupError, OSError, EOFError) as e:
            raise Unreadable(f"it is no Avro file ({e})") from e
        require_rows(len(values), count)
        return [row_of(datum) for datum in values[wanted]]

    @override
    def table(self, snapshot_object: SnapshotObject, body: bytes, schema: pa.Schema) -> pa.Table:
        blocks = avro_tables(snapshot_object.url, body, schema)
        return pa.concat_tables([selected_columns(block, schema) for block in blocks])

    @override
    def record_rows(self, file: RemoteFile, *, topic: str, piece: int, enveloped: bool) -> Iterator[Any]:
        body: Any = io.BufferedReader(file, file.request)
        if enveloped:
            return envelopes_in_avro(body, topic, piece=piece)
        return datums(body, logical=False, piece=piece)

    @override
    def schema(self, file: Any, url: str) -> pa.Schema:
        del url
        return arrow_schema(file_schema(io.BufferedReader(file, _BEGINNING)))
