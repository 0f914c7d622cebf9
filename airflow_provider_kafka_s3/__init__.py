"""Land Kafka topics in S3 from Airflow, in micro-batches, exactly once.

DAG authors import all public names from here. Each name is loaded when it is first used, so that importing the package,
or a value such as ``Daily``, does not import Airflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.version import __version__

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.config import (
        AvroContainer,
        AvroConverter,
        BlockGzip,
        ByField,
        ByKey,
        ByPartition,
        BytesConverter,
        Chain,
        ClockTime,
        Csv,
        CustomFormat,
        CustomPartitioner,
        Daily,
        DeviantArtNaming,
        Envelope,
        FieldTime,
        GlueTable,
        HiveTable,
        Hourly,
        JsonConverter,
        JsonLines,
        JsonSchemaConverter,
        Landed,
        LandedConverter,
        Limits,
        Naming,
        Parquet,
        ProtobufConverter,
        RawBytes,
        RecordTime,
        Rotation,
        SiblingObjects,
        SseCustomer,
        SseKms,
        SseS3,
        StringConverter,
        TimePattern,
        Upload,
        ValuesOnly,
        Window,
    )
    from airflow_provider_kafka_s3.operators.kafka_s3_expire import KafkaS3ExpireOperator
    from airflow_provider_kafka_s3.operators.kafka_s3_to_iceberg import KafkaS3ToIcebergOperator
    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
    from airflow_provider_kafka_s3.operators.s3_to_kafka import S3ToKafkaOperator
    from airflow_provider_kafka_s3.retry import RetryPolicy
    from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor
    from airflow_provider_kafka_s3.sensors.window_closed import KafkaWindowClosedSensor

__all__ = [
    "AvroContainer",
    "AvroConverter",
    "BlockGzip",
    "ByField",
    "ByKey",
    "ByPartition",
    "BytesConverter",
    "Chain",
    "ClockTime",
    "Csv",
    "CustomFormat",
    "CustomPartitioner",
    "Daily",
    "DeviantArtNaming",
    "Envelope",
    "FieldTime",
    "GlueTable",
    "HiveTable",
    "Hourly",
    "JsonConverter",
    "JsonLines",
    "JsonSchemaConverter",
    "KafkaLagSensor",
    "KafkaS3ExpireOperator",
    "KafkaS3ToIcebergOperator",
    "KafkaToS3Operator",
    "KafkaWindowClosedSensor",
    "Landed",
    "LandedConverter",
    "Limits",
    "Naming",
    "Parquet",
    "ProtobufConverter",
    "RawBytes",
    "RecordTime",
    "RetryPolicy",
    "Rotation",
    "S3ToKafkaOperator",
    "SiblingObjects",
    "SseCustomer",
    "SseKms",
    "SseS3",
    "StringConverter",
    "TimePattern",
    "Upload",
    "ValuesOnly",
    "Window",
    "__version__",
]

_ELSEWHERE: Final = {
    "KafkaLagSensor": "sensors.kafka_lag",
    "KafkaToS3Operator": "operators.kafka_to_s3",
    "KafkaS3ExpireOperator": "operators.kafka_s3_expire",
    "KafkaS3ToIcebergOperator": "operators.kafka_s3_to_iceberg",
    "S3ToKafkaOperator": "operators.s3_to_kafka",
    "KafkaWindowClosedSensor": "sensors.window_closed",
    "RetryPolicy": "retry",
}
"""Modules of the names that are not in ``config``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'config')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
