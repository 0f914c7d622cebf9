"""Reads and makes the summary of a topic; :mod:`.derived.topic_summaries` writes it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import corrupt, decode
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import coalesce, subtract
from airflow_provider_kafka_s3.documents.topic_summary import Activity, LastBatch, TopicSummary
from airflow_provider_kafka_s3.exceptions import ControlError, KafkaS3Error
from airflow_provider_kafka_s3.parallel import Parallel, in_threads
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = [
    "amended_batches",
    "current_summary",
    "decode_summary",
    "is_later",
    "is_of_log",
    "is_up_to",
    "new_summary",
    "read_summary",
]

_AMEND: Final = re.compile(r"(\d{10})\.amend\.\d+\.json")


def decode_summary(body: bytes, address: TopicAddress, where: str) -> TopicSummary:
    """A stored summary.

    Args:
        body: the document.
        address: of the topic that it should be of.
        where: its URL, for errors.

    Raises:
        ControlError: it cannot be trusted.
    """
    summary, _ = decode(TopicSummary, body, where)
    if (summary.pipeline, summary.topic, summary.marker.topic) != (address.pipeline, address.topic, address.topic):
        raise corrupt(where, f"it is of topic {summary.topic!r} of pipeline {summary.pipeline!r}")
    return summary


def read_summary(store: DurableStore, address: TopicAddress) -> TopicSummary | None:
    """The stored summary of a topic; None: there is none, or it cannot be read, so the log has to be."""
    key = addresses.summary_key(address)
    try:
        stored = store.get(key)
        return None if stored is None else decode_summary(stored.body, address, store.url(key))
    except KafkaS3Error:
        return None


def current_summary(topic_log: TopicLog, marker: Marker, *, parallel: Parallel = in_threads) -> TopicSummary:
    """The summary of a topic now: the stored one, with the batches that were resolved since.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    stored = read_summary(topic_log.store, topic_log.address)
    if stored is not None and stored.marker == marker:
        return stored
    return new_summary(topic_log, marker, stored, parallel=parallel)


def new_summary(
    topic_log: TopicLog, marker: Marker, stored: TopicSummary | None, *, parallel: Parallel = in_threads
) -> TopicSummary:
    """The summary of a topic.

    Args:
        topic_log: the control documents of the topic.
        marker: that it is of.
        stored: an earlier summary, which spares the batches that it has.
        parallel: runs requests at once.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    activity, last = Activity(), None
    batches = indexed_batches(topic_log, marker, parallel=parallel)
    if stored is None or not is_later(marker, stored.marker):
        amended = coalesce((batch, batch + 1) for batch in amended_batches(topic_log, 1, marker.last_resolved))
    else:
        activity, last, amended = stored.activity, stored.last, stored.amended
        batches = _since(topic_log, marker, stored.marker, parallel)
    newest: IndexedBatch | None = None

    def noting_the_newest() -> Iterator[IndexedBatch]:
        nonlocal newest, last
        for batch in batches:
            if batch.status == "commit" and batch.batch > max(newest.batch if newest else 0, last.batch if last else 0):
                newest = batch
                if batch.batch == marker.last_resolved:
                    # While its plan is in the cache of the log.
                    newest, last = None, _last_batch(topic_log, batch)
            yield batch

    activity = activity.plus(noting_the_newest())
    return TopicSummary(
        pipeline=topic_log.pipeline,
        topic=topic_log.topic,
        marker=marker,
        activity=activity,
        last=last if newest is None else _last_batch(topic_log, newest),
        amended=amended,
    )


def is_later(marker: Marker, other: Marker) -> bool:
    """Whether a marker is a later state than another one of the same log.

    One of another log, which was deleted by hand or is in a copy of the bucket, has nearly always other batches or
    offsets; where it does not, a repair of every document finds what is wrong.
    """
    return (
        marker.revision > other.revision
        and marker.resolved != other.resolved
        and not subtract(other.resolved, marker.resolved)
        and (marker.generation, marker.topic_id) >= (other.generation, other.topic_id)
        and (marker.generation > other.generation or not other.covered - marker.covered)
    )


def is_up_to(topic_log: TopicLog, stored: TopicSummary, marker: Marker) -> bool:
    """Whether a summary is of a marker, or of a later one of this log that another process has folded meanwhile."""
    return stored.marker == marker or (is_later(stored.marker, marker) and is_of_log(topic_log, stored))


def is_of_log(topic_log: TopicLog, summary: TopicSummary) -> bool:
    """Whether a summary is of this log, rather than of one that was deleted or is in another bucket."""
    if summary.last is None:
        return True
    try:
        return topic_log.require_plan(summary.last.batch)[1] == summary.last.plan_sha256
    except ControlError:
        return False


def amended_batches(topic_log: TopicLog, first: int, last: int) -> set[int]:
    """The batches with objects that were accepted as lost, by a listing: a request for each 500 batches."""
    prefix = addresses.batches_prefix(topic_log.prefix)
    # The keys of documents have a dot behind the number, which is between nothing and a slash.
    begin, end = f"{prefix}{first:010d}", f"{prefix}{last:010d}/"
    listed = itertools.takewhile(lambda info: info.key < end, topic_log.store.walk(prefix, after=begin))
    names = (_AMEND.fullmatch(info.key.removeprefix(prefix)) for info in listed)
    return {int(name[1]) for name in names if name is not None}


def _since(topic_log: TopicLog, marker: Marker, before: Marker, parallel: Parallel) -> Iterator[IndexedBatch]:
    """The batches that a marker has as resolved, and an earlier one has not."""
    if resolved_since := subtract(marker.resolved, before.resolved):
        for batch in indexed_batches(topic_log, marker, resolved_since[0][0], parallel=parallel):
            if not before.is_resolved(batch.batch):
                yield batch


def _last_batch(topic_log: TopicLog, batch: IndexedBatch) -> LastBatch:
    plan, plan_sha256 = topic_log.require_plan(batch.batch)
    task = topic_log.planner(batch.batch)[1]
    return LastBatch(
        batch=batch.batch,
        plan_sha256=plan_sha256,
        claimed=plan.claim.count,
        objects=batch.objects,
        size=batch.size,
        planned_by=topic_log.planned_by(batch.batch),
        dag_id="" if task is None else task.dag_id,
    )
