"""The ``bytes`` format: values as they are, each followed by the separator."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.formats.frames import FrameWriter, handle_nulls, join, prepared
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Prepared

__all__ = ["RawFormat"]


class RawFormat:
    """Any value, byte for byte; nothing is checked or escaped.

    Raises:
        ConfigurationError: the separator cannot be encoded as UTF-8.
    """

    def __init__(self, settings: config.RawBytes) -> None:
        self._on_null = settings.on_null
        self._compression = make_compression(settings.compression, settings.compression_level)
        try:
            self._separator = settings.separator.encode()
        except UnicodeEncodeError as e:
            raise ConfigurationError(
                f"separator={settings.separator!r} cannot be encoded as UTF-8; use text without lone surrogates"
            ) from e

    def prepare(self, batch: pa.RecordBatch, *, topic: str, partition: int) -> Prepared:
        """Make the frame of every value; RecordError for a null value unless nulls are ignored."""
        records, ignored = handle_nulls(batch, self._on_null, topic=topic, partition=partition)
        return prepared(records, join(records.column("value"), self._separator), ignored)

    def open(self) -> ObjectWriter:
        """Begin an object."""
        return FrameWriter(self._compression)
