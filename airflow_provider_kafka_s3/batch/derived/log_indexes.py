"""Makes the indexes of a log from plans and manifests, or larger ones from smaller ones, and writes them.

They are read by :mod:`.log_index`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.derived.port import DerivedDocuments, Rewritten
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import Part, disjoint, parts, read_documents
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.log_index import MAX_RANGES, IndexedBatch, LogIndex
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ControlError,
    CorruptControlError,
    KafkaS3Error,
    TransientError,
    message_of,
)
from airflow_provider_kafka_s3.parallel import Parallel, in_threads

__all__ = ["LogIndexes", "build_index", "write_missing"]

log = logging.getLogger(__name__)

_MADE_FROM: Final = 4_000_000
"""Bytes of the smaller indexes that a larger one is made from, at most. With more it would save few requests."""

_WITH_A_BATCH: Final = 4
"""Indexes written at most when a batch is resolved: a process may have ended before it wrote an earlier one."""

_REPLACEMENTS: Final = 4
"""Attempts to replace an index while the store gives no usable answer."""


class LogIndexes(DerivedDocuments):
    """The indexes of whole hundreds and thousands of batches."""

    name = "indexes of the log"
    harm = "plans and manifests are read instead"

    def after_batch(self, topic_log: TopicLog, marker: Marker, plan: Plan, parallel: Parallel) -> None:
        """See :class:`DerivedDocuments`; there is one to write if the batch was the last of its hundred."""
        size = topic_log.index_sizes[0]
        first = (plan.batch - 1) // size * size + 1
        if marker.has_resolved(range(first, first + size)):
            write_missing(topic_log, marker, most=_WITH_A_BATCH, parallel=parallel)

    def repair(
        self, topic_log: TopicLog, marker: Marker, parallel: Parallel, *, every_document: bool, dry_run: bool
    ) -> Rewritten:
        """Write the indexes of resolved batches that are missing or damaged, from plans and manifests.

        An index is a function of plans and manifests, so all who replace it write the same. One that a newer version
        wrote is skipped, and so is one for which a document of the log is gone or cannot be trusted; a warning names
        it. Without ``every_document`` those are read that take the fewest requests, and the others only exist.
        """
        written, skipped = 0, {}
        existing = topic_log.indexes()
        for numbers in _of_interest(topic_log, marker, existing, every_document):
            try:
                stored = _usable(topic_log, numbers)
                if stored is not None and not every_document:
                    continue
                index = build_index(topic_log, marker, numbers, parallel=parallel, from_documents=True)
            except ControlError as e:
                skipped[f"{numbers[0]}-{numbers[-1]}"] = message_of(e)
                log.warning(
                    "topic %s: the index of batches %d to %d is skipped, and no run depends on it: %s",
                    topic_log.topic,
                    numbers[0],
                    numbers[-1],
                    message_of(e),
                )
                continue
            if stored == index:
                continue
            written += 1
            # Larger indexes are made if the smaller ones are few bytes.
            existing[numbers] = len(encode(index, {}))
            if not dry_run:
                _write(topic_log, index)
        return Rewritten(written, skipped)


def _possible_indexes(topic_log: TopicLog, marker: Marker, existing: Mapping[range, int]) -> Iterator[range]:
    """The batches of each index that could exist: small ones first, the latest first.

    A larger one is made from smaller ones. It could exist if all of these do, and have few bytes together.

    Args:
        topic_log: the control documents of the topic.
        marker: only what it has as resolved is indexed.
        existing: the indexes that exist, with their bytes. The caller may add to it what it has written.
    """
    smaller = 0
    for size in topic_log.index_sizes:
        if not smaller:
            # Lazy, since the numbers in a marker are untrusted.
            for a, b in reversed(marker.resolved):
                for end in range((b - 1) // size * size, a + size - 2, -size):
                    yield range(end - size + 1, end + 1)
        else:
            firsts = {(batches.start - 1) // size * size + 1 for batches in existing if len(batches) in (smaller, size)}
            for first in sorted(firsts, reverse=True):
                numbers = range(first, first + size)
                if marker.has_resolved(numbers) and (numbers in existing or _can_be_made(numbers, smaller, existing)):
                    yield numbers
        smaller = size


def _can_be_made(numbers: range, smaller: int, existing: Mapping[range, int]) -> bool:
    made_from = [range(first, first + smaller) for first in numbers[::smaller]]
    return all(one in existing for one in made_from) and sum(existing[one] for one in made_from) <= _MADE_FROM


def write_missing(topic_log: TopicLog, marker: Marker, *, most: int | None, parallel: Parallel = in_threads) -> int:
    """Write indexes of resolved batches that have none; returns how many.

    A document that is gone or cannot be trusted prevents the indexes of its batches, with a warning, and no other one.

    Args:
        topic_log: the control documents of the topic.
        marker: only what it has as resolved is indexed.
        most: indexes to write at most, the latest ones, and of each size indexes that may fail; None: all.
        parallel: runs requests at once.

    Raises:
        KafkaS3Error: the indexes that exist could not be listed.
    """
    existing = topic_log.indexes()
    written, failed = 0, dict.fromkeys(topic_log.index_sizes, 0)
    for numbers in _possible_indexes(topic_log, marker, existing):
        if numbers in existing:
            continue
        if written == most:
            break
        if failed[len(numbers)] == most:
            continue
        try:
            size = topic_log.create_index(build_index(topic_log, marker, numbers, parallel=parallel))
        except KafkaS3Error as e:
            failed[len(numbers)] += 1
            _warn_of_unwritten(topic_log, numbers, message_of(e), topic_log.remedies.repair())
            if not isinstance(e, ControlError):
                # The store, not a document: the next one would fail, too.
                break
            continue
        if size is None:
            failed[len(numbers)] += 1
            remedy = topic_log.remedies.repair("--every-document")
            _warn_of_unwritten(topic_log, numbers, f"another one is at {topic_log.index_url(numbers)}", remedy)
            continue
        existing[numbers] = size
        written += 1
    return written


def _warn_of_unwritten(topic_log: TopicLog, numbers: range, why: str, remedy: str) -> None:
    log.warning(
        "topic %s: the index of batches %d to %d was not written: %s. Nothing else depends on it. Write it: %s",
        topic_log.topic,
        numbers[0],
        numbers[-1],
        why,
        remedy,
    )


def build_index(
    topic_log: TopicLog,
    marker: Marker,
    numbers: range,
    *,
    parallel: Parallel = in_threads,
    from_documents: bool = False,
) -> LogIndex:
    """The index of resolved batches, from the smaller indexes of these batches, or from plans and manifests.

    Args:
        topic_log: the control documents of the topic.
        marker: has all of them as resolved.
        numbers: of the batches.
        parallel: runs requests at once.
        from_documents: read no index.
    """
    layouts: dict[Layout, int] = {}
    batches: list[IndexedBatch] = []
    if from_documents or len(numbers) == topic_log.index_sizes[0]:
        pieces = iter([Part(numbers)])
    else:
        pieces = parts(topic_log, marker, numbers[0], numbers[-1], parallel=parallel)
    for part in pieces:
        if part.batches is not None:
            batches += _with_layouts(topic_log, part.batches, layouts)
        else:
            batches += (
                batch.within(MAX_RANGES) for batch in read_documents(topic_log, part.numbers, parallel, layouts)
            )
    return LogIndex(topic=topic_log.topic, first=numbers[0], batches=tuple(batches))


def _with_layouts(
    topic_log: TopicLog, batches: Sequence[IndexedBatch], layouts: dict[Layout, int]
) -> Iterator[IndexedBatch]:
    """The batches of a smaller index, which refer to the first batches of this one with their layouts."""
    first_like: dict[int, int] = {}
    for batch in batches:
        like = batch.same_layout_as
        if like is None:
            yield batch
            continue
        if like not in first_like:
            layout = topic_log.require_plan(like)[0].layout
            topic_log.forget(like)
            first_like[like] = like if layout is None else layouts.setdefault(layout.at(0), like)
        yield msgspec.structs.replace(batch, same_layout_as=first_like[like])


def _of_interest(
    topic_log: TopicLog, marker: Marker, existing: Mapping[range, int], every_document: bool
) -> Iterator[range]:
    """The indexes to look at, small ones first: whether there is a large one depends on these."""
    before = {*existing}
    read = before if every_document else {*disjoint(topic_log, marker, existing, largest_first=True)}
    for numbers in _possible_indexes(topic_log, marker, existing):
        if numbers in read or numbers not in before:
            yield numbers


def _usable(topic_log: TopicLog, numbers: range) -> LogIndex | None:
    """The stored index; None if it is missing or damaged.

    Raises:
        UnsupportedFormatError: a newer version wrote it.
    """
    try:
        return topic_log.read_index(numbers)
    except CorruptControlError:
        return None


def _write(topic_log: TopicLog, index: LogIndex) -> None:
    for _ in range(_REPLACEMENTS):
        if topic_log.replace_index(index):
            return
    raise TransientError(
        f"an index of topic {topic_log.topic!r} changed {_REPLACEMENTS} times while it was written again; try again: "
        f"{topic_log.index_url(range(index.first, index.first + len(index.batches)))}"
    )
