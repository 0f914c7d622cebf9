"""What a table over the dead letters of a topic has: lines of JSON with fixed fields, in one folder."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from airflow_provider_kafka_s3.config import JsonLines, Layout, Naming
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.tables.ddl.columns import HEADERS, json_columns
from airflow_provider_kafka_s3.tables.ddl.model import LandedTable

__all__ = ["dead_letters_table"]

_KINDS: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "stage": pa.string(),
    "reason": pa.string(),
}
"""Of a line, see :mod:`airflow_provider_kafka_s3.batch.dead_letters`."""


def dead_letters_table(snapshot: Snapshot) -> LandedTable:
    """The dead letters of a topic as a table.

    Args:
        snapshot: with the batches that are looked at.

    Raises:
        ConfigurationError: they have no dead letters.
    """
    log = snapshot.log
    if not snapshot.dead_letters:
        raise ConfigurationError(
            f"topic {log.topic!r} of pipeline {log.pipeline!r} has no dead letters up to batch {snapshot.batch}, so "
            f"there is no folder of them. Land the topic with errors='dead_letter', or look at more batches (--last)"
        )
    letters = count(snapshot.dead_letters, "dead letter")
    layout = log.last_layout(snapshot.batch + 1)
    naming = layout.naming if isinstance(layout.naming, Naming) else Naming()
    return LandedTable(
        topic=log.topic,
        ending="_dead_letters",
        pipeline=log.pipeline,
        batch=snapshot.batch,
        bucket=log.bucket,
        prefix=keys.dead_letters_prefix(layout, log.topic),
        layout=Layout(topics_dir=layout.topics_dir, format=JsonLines(), naming=naming),
        shape="columns",
        columns=json_columns(pa.schema(_KINDS)),
        parts=(),
        folders=(),
        extensions=(".json",),
        schemas=1,
        remarks=(
            f"Topic {log.topic} of pipeline {log.pipeline}: {letters} by the log.",
            "The table lists the bucket: it also shows objects of a batch that is not committed yet.",
        ),
    )
