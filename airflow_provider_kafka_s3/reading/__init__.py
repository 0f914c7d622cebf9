"""Reads landed objects: only what is committed, by the log of their topic.

The public names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.reading.arrow import arrow_batches
    from airflow_provider_kafka_s3.reading.parquet_dataset import arrow_dataset
    from airflow_provider_kafka_s3.reading.snapshot import Snapshot
    from airflow_provider_kafka_s3.reading.snapshot_objects import ObjectRange, SnapshotObject
    from airflow_provider_kafka_s3.reading.snapshots import snapshots
    from airflow_provider_kafka_s3.reading.spark_frames import spark_frame

__all__ = ["ObjectRange", "Snapshot", "SnapshotObject", "arrow_batches", "arrow_dataset", "snapshots", "spark_frame"]

_MODULES: Final = {
    "ObjectRange": "snapshot_objects",
    "Snapshot": "snapshot",
    "SnapshotObject": "snapshot_objects",
    "arrow_batches": "arrow",
    "arrow_dataset": "parquet_dataset",
    "snapshots": "snapshots",
    "spark_frame": "spark_frames",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
