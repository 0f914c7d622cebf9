"""For partitioners and formats of other packages: all that they import is here.

A class derives from :class:`Partitioner` or :class:`Format`, which get whole Arrow batches, or from
:class:`PerRecordPartitioner` or :class:`PerRecordFormat`, which get one record at a time and are slower. A DAG names it
by :class:`~airflow_provider_kafka_s3.config.CustomPartitioner` or
:class:`~airflow_provider_kafka_s3.config.CustomFormat`.
"""

from airflow_provider_kafka_s3.converters.field_values import Day, FieldValue, FieldValues, Fraction, Moment, Unusable
from airflow_provider_kafka_s3.extensions.formats import Format, Frames, ObjectEncoder, PerRecordFormat
from airflow_provider_kafka_s3.extensions.partitioners import (
    REFUSED,
    Codes,
    Encoded,
    Partitioner,
    PerRecordPartitioner,
)
from airflow_provider_kafka_s3.extensions.records import Batch, Record, Refused, records_of
from airflow_provider_kafka_s3.extensions.safe_names import safe_name

__all__ = [
    "REFUSED",
    "Batch",
    "Codes",
    "Day",
    "Encoded",
    "FieldValue",
    "FieldValues",
    "Format",
    "Fraction",
    "Frames",
    "Moment",
    "ObjectEncoder",
    "Partitioner",
    "PerRecordFormat",
    "PerRecordPartitioner",
    "Record",
    "Refused",
    "Unusable",
    "records_of",
    "safe_name",
]
