"""Frozen settings: how records become objects, and how a run works. Each checks itself."""

from airflow_provider_kafka_s3.config.formats import (
    CompressionName,
    Format,
    JsonLines,
    OnNull,
    RawBytes,
    default_level,
    parse_format,
)
from airflow_provider_kafka_s3.config.layout import Layout, Naming, PartSize, Rotation
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
    "ByPartition",
    "ByTime",
    "CompressionName",
    "Daily",
    "Format",
    "Hourly",
    "JsonLines",
    "Layout",
    "Limits",
    "Naming",
    "OnNull",
    "PartSize",
    "Partitioner",
    "RawBytes",
    "Rotation",
    "TimePattern",
    "Upload",
    "Window",
    "default_level",
    "parse_format",
    "parse_partitioner",
]
