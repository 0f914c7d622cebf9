"""Writes the summary of a topic behind each run, so that the state of all topics is read with few requests."""

from __future__ import annotations

from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.derived.port import DerivedDocuments, Rewritten
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.topic_summary import decode_summary, is_later, is_up_to, new_summary
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode, write_stamp
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import coalesce
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.topic_summary import TopicSummary
from airflow_provider_kafka_s3.exceptions import (
    ControlError,
    CorruptControlError,
    UnknownOutcomeError,
    UnsupportedFormatError,
    message_of,
)
from airflow_provider_kafka_s3.parallel import Parallel

__all__ = ["TopicSummaries"]

_FIRST_BATCHES: Final = 10_000
"""Batches that a run reads at most for the first summary of a topic; of more, a repair writes it."""

_SWAPS: Final = 4
"""Compare-and-swaps of a summary: one that is lost to another process is followed by another look."""


class TopicSummaries(DerivedDocuments):
    """The summary of each topic."""

    name = "summaries of topics"
    harm = "lists of topics and metrics show it as it was"

    def after_batch(self, topic_log: TopicLog, marker: Marker, plan: Plan, parallel: Parallel) -> None:
        """See :class:`DerivedDocuments`. Of what a run commits, the run writes the summary once, at its end."""
        landed = plan.claim - plan.skipped
        if not landed or landed - marker.covered or landed & marker.lost:
            # It was abandoned, or is a reset: no run may follow.
            self._follow(topic_log, marker, parallel)

    def after_run(
        self, topic_log: TopicLog, marker: Marker, layout: Layout | None, parallel: Parallel, *, every_batch: bool
    ) -> int:
        """See :class:`DerivedDocuments`; a run that has resolved nothing sends one GET request."""
        del layout, every_batch
        return self._follow(topic_log, marker, parallel)

    def repair(
        self, topic_log: TopicLog, marker: Marker, parallel: Parallel, *, every_document: bool, dry_run: bool
    ) -> Rewritten:
        """Write the summary if it is not that of the marker; with ``every_document``, if its sums are others.

        A summary of a later marker stays: somebody has restored an older version of the marker. So does one of a newer
        version of this package.
        """
        for _ in range(_SWAPS):
            try:
                stored, etag = _read(topic_log)
            except UnsupportedFormatError as e:
                return Rewritten(skipped={_url(topic_log): message_of(e)})
            is_current = stored is not None and is_up_to(topic_log, stored, marker)
            if is_current and not every_document:
                return Rewritten()
            # A run beside the repair may have folded more batches.
            of_marker = stored.marker if stored is not None and is_current else marker
            summary = new_summary(topic_log, of_marker, None, parallel=parallel)
            if summary == stored:
                return Rewritten()
            if dry_run or _write(topic_log, summary, etag):
                return Rewritten(1)
        raise _not_replaced(topic_log)

    def after_amend(self, topic_log: TopicLog, batch: int) -> None:
        """See :class:`DerivedDocuments`.

        A first summary is written, too: another process that writes it may have listed the amends before. Behind a log
        whose marker is gone or damaged, a repair writes both.
        """
        for _ in range(_SWAPS):
            stored, etag = _read(topic_log)
            summary = stored or _first_summary(topic_log)
            if summary is None:
                return
            amended = coalesce([*summary.amended, (batch, batch + 1)])
            summary = msgspec.structs.replace(summary, amended=amended)
            if summary == stored or _write(topic_log, summary, etag):
                return
        raise _not_replaced(topic_log)

    def _follow(self, topic_log: TopicLog, marker: Marker, parallel: Parallel) -> int:
        for _ in range(_SWAPS):
            stored, etag = _read(topic_log)
            if stored is not None and is_up_to(topic_log, stored, marker):
                return 0
            if _is_long(marker) and (stored is None or not is_later(marker, stored.marker)):
                return 0
            if _write(topic_log, new_summary(topic_log, marker, stored, parallel=parallel), etag):
                return 1
        raise _not_replaced(topic_log)


def _first_summary(topic_log: TopicLog) -> TopicSummary | None:
    try:
        saved = topic_log.read_marker()
    except ControlError:
        return None
    return None if saved is None else new_summary(topic_log, saved[0], None)


def _is_long(marker: Marker) -> bool:
    return sum(end - first for first, end in marker.resolved) > _FIRST_BATCHES


def _read(topic_log: TopicLog) -> tuple[TopicSummary | None, str | None]:
    """The summary and its ETag; a damaged one has an ETag only."""
    key = addresses.summary_key(topic_log.address)
    stored = topic_log.store.get(key)
    if stored is None:
        return None, None
    try:
        return decode_summary(stored.body, topic_log.address, topic_log.store.url(key)), stored.etag
    except CorruptControlError:
        return None, stored.etag


def _write(topic_log: TopicLog, summary: TopicSummary, etag: str | None) -> bool:
    """Write a summary in place of the one with an ETag; False if that may be another one by now."""
    key = addresses.summary_key(topic_log.address)
    body = encode(summary, write_stamp(), _url(topic_log))
    if etag is None:
        return topic_log.store.create(key, body) == body
    return topic_log.store.replace(key, body, etag)


def _url(topic_log: TopicLog) -> str:
    return topic_log.store.url(addresses.summary_key(topic_log.address))


def _not_replaced(topic_log: TopicLog) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"the summary of topic {topic_log.topic!r} changed {_SWAPS} times while it was written; try again: "
        f"{_url(topic_log)}"
    )
