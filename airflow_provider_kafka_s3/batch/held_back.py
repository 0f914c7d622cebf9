"""Offsets behind an open transaction, which a reader of committed records does not get.

A transaction that its producer neither commits nor aborts, and that the brokers do not end, holds back all records of
the partition behind its first one, for ever. Everything before it is landed, so nothing fails and no lag is seen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.messages import count

__all__ = ["held_back", "log_held_back"]

log = logging.getLogger(__name__)


def held_back(source: Source, topic: str, ends: Mapping[int, int], isolation: Isolation) -> Offsets:
    """The offsets from the first one of an open transaction to the end of the log, per partition.

    Args:
        source: Kafka.
        topic: its name.
        ends: per partition one past the last offset that a reader of this isolation level may read.
        isolation: the isolation level; at ``read_uncommitted`` nothing is held back.
    """
    if isolation == "read_uncommitted":
        return NO_OFFSETS
    written = source.ends(topic, tuple(ends), "read_uncommitted")
    return Offsets({p: [(end, written[p])] for p, end in ends.items() if written.get(p, 0) > end})


def log_held_back(topic: str, held: Offsets, landed: Offsets) -> None:
    """Log what is held back; as a warning where nothing became readable since the partition was landed last.

    Args:
        topic: its name.
        held: of :func:`held_back`.
        landed: the offsets that are landed.
    """
    for partition, ranges in held.items():
        first, end = ranges[0][0], ranges[-1][1]
        if landed.end(partition) == first:
            log.warning(
                "topic %s: an open transaction holds back %s of partition %d, from offset %d on, and nothing "
                "has become readable since the last run. These are landed when it has ended. If its producer is gone, "
                "find it with `kafka-transactions.sh find-hanging --topic %s --partition %d`, and end it with "
                "`kafka-transactions.sh abort --topic %s --partition %d --start-offset %d`; or land its records, too, "
                "with isolation='read_uncommitted'",
                topic,
                count(end - first, "offset"),
                partition,
                first,
                topic,
                partition,
                topic,
                partition,
                first,
            )
        else:
            log.info(
                "topic %s: an open transaction holds back %s of partition %d, from offset %d on; a later run "
                "lands them",
                topic,
                count(end - first, "offset"),
                partition,
                first,
            )
