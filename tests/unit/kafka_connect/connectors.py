"""Configurations of connectors for tests."""

from __future__ import annotations

from typing import Final

__all__ = ["CUSTOMER", "DEVIANTART", "MINIMAL", "SECRET"]

SECRET: Final = "canary-7d1f-secret"

_STORAGE: Final = "io.confluent.connect.storage.partitioner"
_FORMAT: Final = "io.confluent.connect.s3.format"

MINIMAL: Final = {
    "name": "orders-to-s3",
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "topics": "orders",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "s3.bucket.name": "lake",
    "format.class": f"{_FORMAT}.json.JsonFormat",
    "flush.size": "1000",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
"""The settings that a sink cannot do without."""

CUSTOMER: Final = {
    "name": "events-to-s3",
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "tasks.max": "1500",
    "topics": "events",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "s3.bucket.name": "lake",
    "s3.region": "us-east-1",
    "s3.part.size": "104857600",
    "s3.part.retries": "14",
    "s3.retry.backoff.ms": "1000",
    "s3.elastic.buffer.enable": "true",
    "s3.elastic.buffer.init.capacity": "26214400",
    "format.class": f"{_FORMAT}.parquet.ParquetFormat",
    "parquet.codec": "zstd",
    "value.converter": "io.confluent.connect.protobuf.ProtobufConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
    "schema.compatibility": "BACKWARD",
    "partitioner.class": f"{_STORAGE}.TimeBasedPartitioner",
    "path.format": "'dt'=YYYY'-'MM'-'dd/'hr'=HH'/us-east-1'",
    "partition.duration.ms": "3600000",
    "locale": "en-US",
    "timezone": "UTC",
    "timestamp.extractor": "Record",
    "flush.size": "2000000",
    "rotate.schedule.interval.ms": "120000",
    "filename.offset.zero.pad.width": "20",
    "errors.tolerance": "all",
    "errors.retry.timeout": "600000",
    "errors.retry.delay.max.ms": "60000",
    "consumer.override.fetch.max.bytes": "104857600",
    "consumer.override.max.poll.records": "15000",
}
"""The shape of a sink in production, of 1,500 tasks."""

DEVIANTART: Final = {
    "name": "orders-backup",
    "connector.class": "com.deviantart.kafka_connect_s3.S3SinkConnector",
    "tasks.max": "4",
    "topics": "orders,refunds",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "local.buffer.dir": "/var/buffer",
    "s3.bucket": "lake",
    "s3.prefix": "/raw/backup/",
    "s3.endpoint": "http://minio:9000",
    "s3.path_style": "true",
    "compressed_block_size": "1048576",
}
"""DeviantArt's sink, with all of its settings."""
