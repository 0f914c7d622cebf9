"""The reader of each format."""

from __future__ import annotations

from typing import assert_never

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
from airflow_provider_kafka_s3.reading.formats.avro import AvroReader
from airflow_provider_kafka_s3.reading.formats.csv import CsvReader
from airflow_provider_kafka_s3.reading.formats.custom import CustomReader
from airflow_provider_kafka_s3.reading.formats.json_lines import JsonReader
from airflow_provider_kafka_s3.reading.formats.parquet import ParquetReader
from airflow_provider_kafka_s3.reading.formats.port import FormatReader
from airflow_provider_kafka_s3.reading.formats.raw_bytes import RawBytesReader

__all__ = ["format_reader"]


def format_reader(settings: Format) -> FormatReader:
    """The reader of objects with these settings."""
    match settings:
        case Parquet():
            return ParquetReader(settings)
        case AvroContainer():
            return AvroReader(settings)
        case JsonLines() | RawBytes():
            return _line_reader(settings, settings.compression)
        case BlockGzip(lines=lines):
            # All blocks together are one object of gzip; the index is read by those who need one block.
            return _line_reader(lines, "gzip")
        case Csv():
            return CsvReader(settings)
        case CustomFormat():
            return CustomReader(settings)
        case _:
            assert_never(settings)


def _line_reader(settings: JsonLines | RawBytes, compression: CompressionName) -> FormatReader:
    if isinstance(settings, RawBytes):
        return RawBytesReader(settings, compression)
    return JsonReader(settings, compression)
