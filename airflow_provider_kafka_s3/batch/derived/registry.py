"""All that follows the log of a topic, and the calls by which the protocol keeps it up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from airflow_provider_kafka_s3.batch.derived.chunk_markers import ChunkMarkers
from airflow_provider_kafka_s3.batch.derived.log_indexes import LogIndexes
from airflow_provider_kafka_s3.batch.derived.port import DerivedDocuments, Rewritten
from airflow_provider_kafka_s3.batch.derived.topic_summaries import TopicSummaries
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, message_of
from airflow_provider_kafka_s3.parallel import Parallel

__all__ = ["DERIVED", "follow_amend", "follow_batch", "follow_run", "repair_derived"]

log = logging.getLogger(__name__)

DERIVED: Final[tuple[DerivedDocuments, ...]] = (LogIndexes(), ChunkMarkers(), TopicSummaries())
"""Of each kind one, in the order in which they are written."""


def follow_batch(topic_log: TopicLog, marker: Marker, plan: Plan, parallel: Parallel) -> None:
    """Write what follows a batch that was resolved just now; errors are warnings."""
    _write_each(topic_log, lambda documents: documents.after_batch(topic_log, marker, plan, parallel))


def follow_run(
    topic_log: TopicLog, marker: Marker, layout: Layout | None, parallel: Parallel, *, every_batch: bool = False
) -> bool:
    """Write what processes that have ended have not written; whether that was anything. Errors are warnings."""

    def write(documents: DerivedDocuments) -> int:
        return documents.after_run(topic_log, marker, layout, parallel, every_batch=every_batch)

    return _write_each(topic_log, write) > 0


def follow_amend(topic_log: TopicLog, batch: int) -> None:
    """Write what follows an amend of a batch; see :meth:`.DerivedDocuments.after_amend`.

    Raises:
        KafkaS3Error: a document could not be read or written.
    """
    for documents in DERIVED:
        documents.after_amend(topic_log, batch)


def repair_derived(
    topic_log: TopicLog, marker: Marker, parallel: Parallel, *, every_document: bool, dry_run: bool
) -> Mapping[str, Rewritten]:
    """Write what is missing or wrong, by the name of its kind; see :meth:`.DerivedDocuments.repair`.

    Raises:
        KafkaS3Error: a document could not be read or written.
    """
    return {
        documents.name: documents.repair(topic_log, marker, parallel, every_document=every_document, dry_run=dry_run)
        for documents in DERIVED
    }


def _write_each(topic_log: TopicLog, write: Callable[[DerivedDocuments], int | None]) -> int:
    """Write those of each kind; returns how many, as far as that is known."""
    written = 0
    for documents in DERIVED:
        try:
            written += write(documents) or 0
        except KafkaS3Error as e:
            log.warning(
                "topic %s: the %s may be behind the log, which is harmless: %s. The next run writes them, and so does "
                "%s. The cause: %s",
                topic_log.topic,
                documents.name,
                documents.harm,
                topic_log.remedies.repair(),
                message_of(e),
            )
    return written
