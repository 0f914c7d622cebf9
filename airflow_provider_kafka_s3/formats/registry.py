"""From the settings of a format to what does the work."""

from __future__ import annotations

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.formats.jsonlines import JsonLinesFormat
from airflow_provider_kafka_s3.formats.port import RecordFormat
from airflow_provider_kafka_s3.formats.raw import RawFormat

__all__ = ["make_format"]


def make_format(settings: config.Format) -> RecordFormat:
    """The format of a layout; ConfigurationError if the settings cannot work."""
    match settings:
        case config.JsonLines():
            return JsonLinesFormat(settings)
        case config.RawBytes():
            return RawFormat(settings)
