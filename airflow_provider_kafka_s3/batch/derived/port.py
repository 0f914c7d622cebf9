"""What the protocol needs of documents that follow the log of a topic.

They are made from plans, manifests and the marker, and no step depends on them. One that is missing, old or damaged is
written again by the next batch, run or repair, whoever was to write it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.parallel import Parallel

__all__ = ["DerivedDocuments", "Rewritten"]


@dataclass(frozen=True)
class Rewritten:
    """What a repair has done.

    Attributes:
        written: number of documents that were written, or would be.
        skipped: those that could not be, each with the reason.
    """

    written: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)


class DerivedDocuments(ABC):
    """Documents of one kind.

    Each method is harmless when repeated, and any number of processes may call it at once. The marker is one that is
    stored: nothing is derived from a batch before it is resolved.
    """

    name: ClassVar[str]
    """Names them in messages, in the plural."""

    harm: ClassVar[str]
    """What users see while they are behind the log: the end of a sentence."""

    @abstractmethod
    def after_batch(self, topic_log: TopicLog, marker: Marker, plan: Plan, parallel: Parallel) -> None:
        """Follow a batch that was resolved just now.

        Raises:
            KafkaS3Error: it is logged, and the run goes on.
        """

    def after_run(
        self, topic_log: TopicLog, marker: Marker, layout: Layout | None, parallel: Parallel, *, every_batch: bool
    ) -> int:
        """Write what a process has not written that ended behind a batch; returns the number of documents.

        Args:
            topic_log: the log that they follow.
            marker: read just now.
            layout: that the run lands with.
            parallel: runs requests at once.
            every_batch: look at all batches, after a restore or a recovery; False: at the last ones.

        Raises:
            KafkaS3Error: it is logged, and the run goes on.
        """
        del topic_log, marker, layout, parallel, every_batch
        return 0

    def after_amend(self, topic_log: TopicLog, batch: int) -> None:
        """Follow an amend of a batch: a person has accepted objects as lost.

        Raises:
            KafkaS3Error: the command fails, and another call of it writes the documents.
        """
        del topic_log, batch

    @abstractmethod
    def repair(
        self, topic_log: TopicLog, marker: Marker, parallel: Parallel, *, every_document: bool, dry_run: bool
    ) -> Rewritten:
        """Write those that are missing or wrong.

        Args:
            topic_log: the log that they follow.
            marker: that is right.
            parallel: runs requests at once.
            every_document: compare all of them with plans and manifests.
            dry_run: write nothing.

        Raises:
            KafkaS3Error: a document could not be read or written.
        """
