"""Dead letters: the records that cannot be written, in objects of their batch.

A dead letter is a line of JSON with the whole record, so that it can be read again or sent back to Kafka::

    {"topic": "orders", "partition": 0, "offset": 42, "timestamp": 1767225600000, "key": "NDI=", "value": "ewo=",
     "headers": [{"key": "trace", "value": "MQ=="}], "stage": "value", "reason": "the value is not a JSON document …"}

``key``, ``value`` and the values of headers are base64, or null; ``timestamp`` is null for a record without one.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP
from airflow_provider_kafka_s3.formats.port import Rejected

__all__ = ["dead_letters"]


def dead_letters(batch: pa.RecordBatch, rejected: Sequence[Rejected], *, topic: str, partition: int) -> bytes:
    """The lines of the rejected records of a batch.

    Args:
        batch: of :data:`~airflow_provider_kafka_s3.arrays.WHOLE_RECORD_SCHEMA`.
        rejected: records that cannot be written.
        topic: the Kafka topic.
        partition: the Kafka partition.
    """
    return b"".join(msgspec.json.encode(_letter(batch, r, topic, partition)) + b"\n" for r in rejected)


def _letter(batch: pa.RecordBatch, rejected: Rejected, topic: str, partition: int) -> dict[str, Any]:
    record: dict[str, Any] = batch.slice(rejected.row, 1).to_pylist()[0]
    return {
        "topic": topic,
        "partition": partition,
        "offset": record["offset"],
        "timestamp": None if record["timestamp"] == NO_TIMESTAMP else record["timestamp"],
        "key": _base64(record["key"]),
        "value": _base64(record["value"]),
        "headers": [{"key": h["key"], "value": _base64(h["value"])} for h in record["headers"] or ()],
        "stage": rejected.stage,
        "reason": rejected.reason,
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
