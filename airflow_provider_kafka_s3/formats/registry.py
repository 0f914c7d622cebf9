"""Makes the format of given settings."""

from __future__ import annotations

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.formats.jsonlines import JsonLinesFormat
from airflow_provider_kafka_s3.formats.port import RecordFormat
from airflow_provider_kafka_s3.formats.raw import RawFormat

__all__ = ["make_format"]


def make_format(settings: config.Format) -> RecordFormat:
    """The format of given settings; ConfigurationError if it refuses them."""
    match settings:
        case config.JsonLines():
            return JsonLinesFormat(settings)
        case config.RawBytes():
            return RawFormat(settings)
