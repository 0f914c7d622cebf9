"""Frozen settings: how records become objects, and how a run works. Each checks itself."""

from airflow_provider_kafka_s3.config.converters import (
    AvroConverter,
    BytesConverter,
    Converter,
    JsonConverter,
    parse_converter,
)
from airflow_provider_kafka_s3.config.formats import (
    AvroCodec,
    AvroContainer,
    CompressionName,
    DecimalFormat,
    Format,
    JsonLines,
    OnNull,
    Parquet,
    ParquetCompression,
    RawBytes,
    default_level,
    parse_format,
)
from airflow_provider_kafka_s3.config.layout import Layout, Naming, OnError, PartSize, Rotation
from airflow_provider_kafka_s3.config.partitioners import (
    ByPartition,
    ByTime,
    Daily,
    Hourly,
    Partitioner,
    TimePattern,
    parse_partitioner,
)
from airflow_provider_kafka_s3.config.runs import Limits, Upload, Window
from airflow_provider_kafka_s3.config.sizes import KIB, MAX_PARTS, MIB, MIN_PART_SIZE

__all__ = [
    "KIB",
    "MAX_PARTS",
    "MIB",
    "MIN_PART_SIZE",
    "AvroCodec",
    "AvroContainer",
    "AvroConverter",
    "ByPartition",
    "ByTime",
    "BytesConverter",
    "CompressionName",
    "Converter",
    "Daily",
    "DecimalFormat",
    "Format",
    "Hourly",
    "JsonConverter",
    "JsonLines",
    "Layout",
    "Limits",
    "Naming",
    "OnError",
    "OnNull",
    "Parquet",
    "ParquetCompression",
    "PartSize",
    "Partitioner",
    "RawBytes",
    "Rotation",
    "TimePattern",
    "Upload",
    "Window",
    "default_level",
    "parse_converter",
    "parse_format",
    "parse_partitioner",
]
