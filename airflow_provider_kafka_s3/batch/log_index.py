"""The index of a log: read it in place of plans and manifests, and write it.

An index says where to look. It is never the authority: what it does not have, or has wrong, is found in plans and
manifests, and nothing is decided by it. A missing or damaged index costs requests, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch, LogIndex, indexed_batch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.exceptions import ControlError, message_of
from airflow_provider_kafka_s3.parallel import Parallel, in_threads

__all__ = [
    "Part",
    "build_index",
    "disjoint",
    "missing_indexes",
    "parts",
    "possible_indexes",
    "read_or_warn",
    "summaries",
    "write_missing",
]

log = logging.getLogger(__name__)

_INDEXES: Final = 8
"""Indexes read at the same time."""

_PLANS: Final = 64
"""Plans read at the same time."""

_DECISIONS: Final = 8
"""Manifests read at the same time at most."""

_ENTRIES: Final = 20_000
"""Objects in manifests that are in memory together, as far as the size of the manifests before shows."""

_BLOCK: Final = 64
"""Batches without an index whose documents are in memory together."""


@dataclass(frozen=True)
class Part:
    """Consecutive resolved batches.

    Attributes:
        numbers: of the batches.
        batches: what the index has of them; None if there is no index, so that plans and manifests have to be read.
    """

    numbers: range
    batches: tuple[IndexedBatch, ...] | None = None


def summaries(
    topic_log: TopicLog, marker: Marker, first: int = 1, last: int | None = None, *, parallel: Parallel = in_threads
) -> Iterator[IndexedBatch]:
    """Every resolved batch from ``first`` to ``last``, in the order of their numbers, with few requests.

    One LIST request finds the indexes, and one GET request reads a thousand batches, or a hundred. A batch without an
    index costs two: its plan and its manifest. These are the batches behind the last full hundred, those of a hundred
    that is not resolved as a whole, and those whose index is missing or damaged (a warning names the remedy). Where
    nothing of the range can be indexed, there is no LIST request. Indexes are read eight at a time, as the iterator
    advances, and are not cached; the documents of a batch are dropped when it has been yielded.

    The claim of a batch is always set: that of one with too many ranges for the index is read from its plan. Losses
    that were accepted later are not in an index: see :meth:`TopicLog.amended_keys`. Batches that the marker does not
    have as resolved are left out, so with one marker the result is always the same. ``same_layout_as`` has no meaning
    outside of an index document.

    Args:
        topic_log: of the topic.
        marker: decides which batches are resolved; an older one gives the state at that time.
        first: lowest number.
        last: highest number; None: the marker's last one.
        parallel: runs requests at once.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    for part in parts(topic_log, marker, first, last, parallel=parallel):
        if part.batches is not None:
            for batch in part.batches:
                yield batch if batch.claim is not None else _with_claim(topic_log, batch)
            continue
        for at in range(0, len(part.numbers), _BLOCK):
            yield from _read(topic_log, part.numbers[at : at + _BLOCK], parallel)


def parts(
    topic_log: TopicLog, marker: Marker, first: int = 1, last: int | None = None, *, parallel: Parallel = in_threads
) -> Iterator[Part]:
    """The resolved batches from ``first`` to ``last`` in the order of their numbers, with the index where there is one.

    See :func:`summaries` for the arguments and the requests.
    """
    high = marker.last_resolved if last is None else min(last, marker.last_resolved)
    wanted = [range(max(a, first), min(b, high + 1)) for a, b in marker.resolved]
    wanted = [numbers for numbers in wanted if numbers]
    indexes: list[range] = []
    if any(_has_whole(marker, numbers, topic_log.index_sizes[0]) for numbers in wanted):
        # Large ones first: they take the fewest requests.
        indexes = disjoint(topic_log, marker, largest_first=True)
    group: list[tuple[range, range | None]] = []
    for item in _cut(wanted, indexes):
        group.append(item)
        if len(group) == _INDEXES:
            yield from _parts_of(topic_log, group, parallel)
            group = []
    yield from _parts_of(topic_log, group, parallel)


def disjoint(topic_log: TopicLog, marker: Marker, *, largest_first: bool) -> list[range]:
    """The indexes of resolved batches, ascending, each batch in one of them at most."""
    taken: set[int] = set()
    chosen: list[range] = []
    smallest = topic_log.index_sizes[0]
    for numbers in sorted(topic_log.indexes(), key=lambda r: (len(r), r.start), reverse=largest_first):
        cells = {(n - 1) // smallest for n in numbers[::smallest]}
        if marker.has_resolved(numbers) and not cells & taken:
            taken |= cells
            chosen.append(numbers)
    return sorted(chosen, key=lambda r: r.start)


def read_or_warn(topic_log: TopicLog, numbers: range) -> LogIndex | None:
    """The index of these batches; None, with a warning, if it is gone or cannot be used."""
    try:
        return topic_log.read_index(numbers)
    except ControlError as e:
        log.warning(
            "topic %s: the index of batches %d to %d is not used, their plans and manifests are read instead: %s. "
            "Nothing else depends on it. Write it again: %s",
            topic_log.topic,
            numbers[0],
            numbers[-1],
            message_of(e),
            topic_log.remedies.repair("--every-document"),
        )
        return None


def missing_indexes(topic_log: TopicLog, marker: Marker) -> Iterator[range]:
    """The batches of each index that could exist and does not: small ones first, the latest first."""
    existing = topic_log.indexes()
    return (numbers for numbers in possible_indexes(topic_log, marker) if numbers not in existing)


def possible_indexes(topic_log: TopicLog, marker: Marker) -> Iterator[range]:
    """The batches of each index that could exist: small ones first, the latest first."""
    for size in topic_log.index_sizes:
        # Lazy, since the numbers in a marker are untrusted.
        for a, b in reversed(marker.resolved):
            for end in range((b - 1) // size * size, a + size - 2, -size):
                yield range(end - size + 1, end + 1)


def write_missing(topic_log: TopicLog, marker: Marker, *, most: int | None, parallel: Parallel = in_threads) -> int:
    """Write indexes of resolved batches that have none; returns how many.

    Args:
        topic_log: of the topic.
        marker: only what it has as resolved is indexed.
        most: indexes to write at most, the latest ones; None: all.
        parallel: runs requests at once.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    count = 0
    for numbers in missing_indexes(topic_log, marker):
        if count == most:
            break
        topic_log.create_index(build_index(topic_log, marker, numbers, parallel=parallel))
        count += 1
    return count


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
        topic_log: of the topic.
        marker: has all of them as resolved.
        numbers: of the batches.
        parallel: runs requests at once.
        from_documents: read no index.
    """
    layouts: dict[Layout, int] = {}
    batches: list[IndexedBatch] = []
    if from_documents or len(numbers) == topic_log.index_sizes[0]:
        found = iter([Part(numbers)])
    else:
        found = parts(topic_log, marker, numbers[0], numbers[-1], parallel=parallel)
    for part in found:
        if part.batches is not None:
            batches += _with_layouts(topic_log, part.batches, layouts)
            continue
        for at in range(0, len(part.numbers), _BLOCK):
            batches += _read(topic_log, part.numbers[at : at + _BLOCK], parallel, layouts)
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


def _read(
    topic_log: TopicLog, numbers: Sequence[int], parallel: Parallel, layouts: dict[Layout, int] | None = None
) -> Iterator[IndexedBatch]:
    """Batches from their plans and manifests, whose memory is released.

    Args:
        topic_log: of the topic.
        numbers: of the batches.
        parallel: runs requests at once.
        layouts: first batch with each layout, which is added to; None: layouts are not compared.
    """
    plans = parallel(topic_log.require_plan, numbers, threads=_PLANS)
    at, width = 0, 1
    while at < len(plans):
        some = plans[at : at + width]
        at += width
        decisions = parallel(lambda one: topic_log.require_decision(one[0].batch), some, threads=_DECISIONS)
        for (plan, plan_sha256), (decision, manifest_sha256) in zip(some, decisions, strict=True):
            like = None
            if plan.layout is not None:
                like = plan.batch if layouts is None else layouts.setdefault(plan.layout.at(0), plan.batch)
            yield indexed_batch(plan, plan_sha256, decision, manifest_sha256, same_layout_as=like)
            topic_log.forget(plan.batch)
        # A run writes an index beside its own work, so the memory for large manifests is bounded.
        largest = max(len(decision.objects) for decision, _ in decisions)
        width = max(1, min(_DECISIONS, _ENTRIES // max(1, largest)))


def _with_claim(topic_log: TopicLog, batch: IndexedBatch) -> IndexedBatch:
    plan, _ = topic_log.require_plan(batch.batch)
    topic_log.forget(batch.batch)
    return msgspec.structs.replace(batch, claim=plan.claim, skipped=plan.skipped)


def _has_whole(marker: Marker, numbers: range, size: int) -> bool:
    """Whether an index of this size may have some of these consecutive resolved numbers."""
    first = (numbers[0] - 1) // size * size + 1
    return any(
        marker.has_resolved(range(start, start + size)) for start in (first, first + size) if start <= numbers[-1]
    )


def _cut(wanted: Iterable[range], indexes: Sequence[range]) -> Iterator[tuple[range, range | None]]:
    """Consecutive pieces of the wanted numbers, each with the index that has it, if there is one."""
    at = 0
    for numbers in wanted:
        n = numbers[0]
        while n <= numbers[-1]:
            while at < len(indexes) and indexes[at][-1] < n:
                at += 1
            index = indexes[at] if at < len(indexes) and indexes[at][0] <= n else None
            last = numbers[-1]
            if index is not None:
                last = min(last, index[-1])
            elif at < len(indexes):
                last = min(last, indexes[at][0] - 1)
            yield range(n, last + 1), index
            n = last + 1


def _parts_of(topic_log: TopicLog, group: Sequence[tuple[range, range | None]], parallel: Parallel) -> Iterator[Part]:
    indexes = [index for _, index in group if index is not None]
    found = dict(zip(indexes, parallel(lambda one: read_or_warn(topic_log, one), indexes), strict=True))
    for numbers, index in group:
        document = None if index is None else found[index]
        if document is None:
            yield Part(numbers)
        else:
            yield Part(numbers, document.batches[numbers[0] - document.first : numbers[-1] + 1 - document.first])
