"""The ``bytes`` format: values as they are, each followed by the separator."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import join
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.formats.frames import FrameWriter, without_nulls
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Prepared

__all__ = ["RawFormat"]


class RawFormat:
    """Any value or key, byte for byte; nothing is checked or escaped.

    Args:
        settings: of the format.
        part: of the records that is written.

    Raises:
        ConfigurationError: the separator cannot be encoded as UTF-8.
    """

    def __init__(self, settings: config.RawBytes, part: Literal["key", "value"] = "value") -> None:
        self._part: Literal["key", "value"] = part
        self._on_null = settings.on_null
        self._compression = make_compression(settings.compression, settings.compression_level)
        try:
            self._separator = settings.separator.encode()
        except UnicodeEncodeError as e:
            raise ConfigurationError(
                f"separator={settings.separator!r} cannot be encoded as UTF-8; use text without lone surrogates"
            ) from e

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Make the frame of every value; a null value is rejected unless nulls are ignored."""
        kept = without_nulls(batch, self._on_null, self._part)
        return kept.prepared(join(kept.records.column(self._part), self._separator))

    def open(self, key: str, schema: int | None) -> ObjectWriter:  # noqa: ARG002 - the interface has them
        """Begin an object."""
        return FrameWriter(self._compression)
