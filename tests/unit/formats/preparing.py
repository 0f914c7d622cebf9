"""Prepares batches as the engine does that lands no dead letters."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_kafka_s3.formats.port import Prepared, RecordFormat, record_error

__all__ = ["prepare"]


def prepare(
    record_format: RecordFormat, batch: pa.RecordBatch, *, topic: str = "flights", partition: int = 3
) -> Prepared:
    """Prepare a batch; RecordError for its first record that cannot be written."""
    prepared = record_format.prepare(batch)
    if prepared.rejected:
        raise record_error(batch, prepared.rejected[0], topic=topic, partition=partition)
    return prepared
