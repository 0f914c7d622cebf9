"""What a topic has landed since its first batch, by the log alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.parallel import Parallel, in_threads

__all__ = ["SMALL_OBJECT", "Activity", "topic_activity"]

SMALL_OBJECT: Final = 16 * 1024 * 1024
"""Bytes below which the objects of a batch are small, by their mean."""


@dataclass(frozen=True)
class Activity:
    """Sums over the committed batches of a topic. Objects that were accepted as lost later are counted.

    Attributes:
        batches: number of committed batches.
        objects: number of objects, those of keys, headers and dead letters included.
        records: number of records in the data objects.
        tombstones: number of these whose value is null and that have no object of values.
        ignored: number of null values that were left out.
        dead_letters: number of records in the objects of dead letters.
        size: bytes of all objects.
        small_objects: number of objects of batches whose objects have less than :data:`SMALL_OBJECT` bytes on average.
        newest: timestamp of the newest record in milliseconds since the epoch; None: it is unknown.
    """

    batches: int = 0
    objects: int = 0
    records: int = 0
    tombstones: int = 0
    ignored: int = 0
    dead_letters: int = 0
    size: int = 0
    small_objects: int = 0
    newest: int | None = None

    @classmethod
    def of(cls, batches: Iterable[IndexedBatch]) -> Activity:
        """The sums over some batches, of which few are in memory together."""
        sums = dict.fromkeys(("batches", "objects", "records", "tombstones", "ignored", "dead_letters", "size"), 0)
        small_objects, newest = 0, -1
        for batch in batches:
            if batch.status != "commit":
                continue
            sums["batches"] += 1
            for name in sums.keys() - {"batches"}:
                sums[name] += getattr(batch, name)
            if batch.size < batch.objects * SMALL_OBJECT:
                small_objects += batch.objects
            newest = max(newest, batch.max_timestamp)
        return cls(**sums, small_objects=small_objects, newest=None if newest < 0 else newest)


def topic_activity(topic_log: TopicLog, marker: Marker, *, parallel: Parallel = in_threads) -> Activity:
    """What a topic has landed. Two requests read a thousand batches, as far as the log has indexes.

    Args:
        topic_log: the control documents of the topic.
        marker: decides which batches are resolved.
        parallel: runs requests at once.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    return Activity.of(indexed_batches(topic_log, marker, parallel=parallel))
