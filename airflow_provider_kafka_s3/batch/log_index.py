"""The index of a log, which is read in place of plans and manifests.

An index says where to look. It is never the authority: what it does not have, or has wrong, is found in plans and
manifests, and nothing is decided by it. A missing or damaged index costs requests, and nothing else.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.documents.log_index import MAX_HULL, IndexedBatch, LogIndex, indexed_batch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets, coalesce
from airflow_provider_kafka_s3.exceptions import (
    ControlError,
    UnsupportedFormatError,
    message_of,
)
from airflow_provider_kafka_s3.parallel import Parallel, in_threads

__all__ = [
    "Part",
    "checked_summaries",
    "disjoint",
    "indexed_batches",
    "parts",
    "read_documents",
    "read_or_warn",
    "summaries",
    "together",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

_INDEXES: Final = 8
"""Indexes read at the same time at most."""

_TOGETHER: Final = 8_000_000
"""Bytes of indexes read at the same time, unless one alone has more; they are decoded with fifteen times as much."""

_PLANS: Final = 64
"""Plans read at the same time at most."""

_LARGE_PLANS: Final = 16
"""Plans of more than a thousand ranges read at the same time."""

_DECISIONS: Final = 8
"""Manifests read at the same time at most."""

_LOOSE: Final = 1_000
"""Ranges of offsets of a partition that may lie beside each other before they are joined."""

_ENTRIES: Final = 20_000
"""Slices of plans, or objects in manifests, that are in memory together, as far as the documents before show."""


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
    topic_log: TopicLog,
    marker: Marker,
    first: int = 1,
    last: int | None = None,
    *,
    parallel: Parallel = in_threads,
    by_index: bool = True,
) -> Iterator[IndexedBatch]:
    """Every resolved batch from ``first`` to ``last``, in the order of their numbers, with few requests.

    One LIST request finds the indexes. Two GET requests read a thousand batches, or a hundred: the index, and the plan
    of its last batch, which shows that the index is of this log. A batch without an index costs two: its plan and its
    manifest. These are the batches behind the last full hundred, those of a hundred that is not resolved as a whole,
    and those whose index is missing or damaged (a warning names the remedy). Where nothing of the range can be indexed,
    there is no LIST request. Indexes are read as the iterator advances, eight at a time or as many as have 8 MB
    together, and are not cached; the documents of a batch are dropped when it has been yielded.

    The claim of a batch is always set: those with too many ranges for the index are read from their plans, several at a
    time. Losses that were accepted later are not in an index: see :meth:`TopicLog.amended_keys`. Batches that the
    marker does not have as resolved are left out, so with one marker the result is always the same. ``same_layout_as``
    has no meaning outside of an index document.

    Args:
        topic_log: the control documents of the topic.
        marker: decides which batches are resolved; an older one gives the state at that time.
        first: lowest number.
        last: highest number; None: the marker's last one.
        parallel: runs requests at once.
        by_index: False: read plans and manifests only.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    for part in parts(topic_log, marker, first, last, parallel=parallel, by_index=by_index):
        if part.batches is None:
            yield from read_documents(topic_log, part.numbers, parallel)
        else:
            yield from _with_claims(topic_log, part.batches, parallel)


def checked_summaries(
    use: Callable[[Iterable[IndexedBatch]], T],
    topic_log: TopicLog,
    marker: Marker,
    first: int = 1,
    last: int | None = None,
    *,
    parallel: Parallel = in_threads,
) -> T:
    """The result of a function of the batches of :func:`summaries`, which are compared with the marker.

    All resolved batches together have landed, or lost, exactly the offsets that the marker has as such; some of them,
    no others. If those of the index have not, one of the two is wrong: a warning names the remedy, and the result is
    that of plans and manifests instead. Claims of many ranges are replaced by their hull, so that ten thousand batches
    fit into memory.

    Args:
        use: iterates over the batches, of which few are in memory together; called again if index and marker do not
            agree. ``tuple`` keeps all of them.
        topic_log: the control documents of the topic.
        marker: of the topic, as it is stored.
        first: lowest number.
        last: highest number; None: the marker's last one.
        parallel: runs requests at once.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        TransientError: try again.
    """
    covered, lost = _Claims(), _Claims()

    def by_index() -> Iterator[IndexedBatch]:
        for batch in summaries(topic_log, marker, first, last, parallel=parallel):
            if batch.covers:
                covered.add(batch.generation, batch.claimed)
                lost.add(batch.generation, batch.skipped if batch.status == "commit" else batch.claimed)
            yield batch.within(MAX_HULL)

    batches = by_index()
    result = use(batches)
    # All of them are compared, also those that the function left.
    deque(batches, maxlen=0)
    is_whole = first <= 1 and (last is None or last >= marker.last_resolved)
    wrong = covered.other_than(marker.covered_in, marker, is_whole) | lost.other_than(marker.lost_in, marker, is_whole)
    if not wrong:
        return result
    log.warning(
        "topic %s: index of the log and marker do not agree about offsets %s: one of the two is wrong. Plans and "
        "manifests are read instead. Compare both with these, and write what is wrong again: %s",
        topic_log.topic,
        printable(str(wrong)),
        topic_log.remedies.repair("--every-document"),
    )
    by_documents = summaries(topic_log, marker, first, last, parallel=parallel, by_index=False)
    return use(batch.within(MAX_HULL) for batch in by_documents)


class _Claims:
    """Offsets of batches, by generation."""

    def __init__(self) -> None:
        self._ranges: dict[int, dict[int, list[tuple[int, int]]]] = {}
        # Ranges at which they are joined, by generation and Kafka partition.
        self._most: dict[tuple[int, int], int] = {}

    def add(self, generation: int, claim: Offsets) -> None:
        """Add those of a batch; ranges that continue the ones before take no memory."""
        of_generation = self._ranges.setdefault(generation, {})
        for partition, ranges in claim.items():
            before = of_generation.setdefault(partition, [])
            for start, end in ranges:
                if before and before[-1][1] == start:
                    before[-1] = (before[-1][0], end)
                else:
                    before.append((start, end))
            if len(before) > self._most.get((generation, partition), _LOOSE):
                # Windows that were landed in another order than that of their offsets.
                before[:] = coalesce(before)
                self._most[generation, partition] = max(2 * len(before), _LOOSE)

    def other_than(self, stored: Callable[[int], Offsets], marker: Marker, is_whole: bool) -> Offsets:
        """Those that the marker does not have; and, if these are all batches, what it has besides."""
        wrong = NO_OFFSETS
        for generation in sorted({*range(marker.generation + 1), *self._ranges}):
            mine = Offsets(self._ranges.get(generation))
            its = stored(generation) if generation <= marker.generation else NO_OFFSETS
            wrong |= mine - its
            if is_whole:
                wrong |= its - mine
        return wrong


def parts(
    topic_log: TopicLog,
    marker: Marker,
    first: int = 1,
    last: int | None = None,
    *,
    parallel: Parallel = in_threads,
    by_index: bool = True,
) -> Iterator[Part]:
    """The resolved batches from ``first`` to ``last`` in the order of their numbers, with the index where there is one.

    See :func:`summaries` for the arguments and the requests.
    """
    high = marker.last_resolved if last is None else min(last, marker.last_resolved)
    wanted = [range(max(a, first), min(b, high + 1)) for a, b in marker.resolved]
    wanted = [numbers for numbers in wanted if numbers]
    sizes: dict[range, int] = {}
    if by_index and any(_has_whole(marker, numbers, topic_log.index_sizes[0]) for numbers in wanted):
        # Large ones first: they take the fewest requests.
        sizes = disjoint(topic_log, marker, topic_log.indexes(first, high), largest_first=True)
    pieces = _cut(wanted, [*sizes])
    for group in together(pieces, lambda piece: 0 if piece[1] is None else sizes[piece[1]], most=_INDEXES):
        yield from _parts_of(topic_log, group, parallel)


def indexed_batches(
    topic_log: TopicLog, marker: Marker, first: int = 1, *, parallel: Parallel = in_threads
) -> Iterator[IndexedBatch]:
    """Every resolved batch from ``first`` on as the index has it; those without an index by their documents.

    As :func:`summaries`, but a claim with too many ranges for the index stays None, so no plan is read for it, and
    ``same_layout_as`` is the first batch with the layout in the index document, or of those that are in none.
    """
    layouts: dict[Layout, int] = {}
    for part in parts(topic_log, marker, first, parallel=parallel):
        yield from read_documents(topic_log, part.numbers, parallel, layouts) if part.batches is None else part.batches


def disjoint(
    topic_log: TopicLog, marker: Marker, found: Mapping[range, int], *, largest_first: bool
) -> dict[range, int]:
    """The indexes of resolved batches, ascending, each batch in one of them at most; with their bytes.

    Args:
        topic_log: the control documents of the topic.
        marker: has the resolved batches.
        found: the indexes that exist, with their bytes.
        largest_first: whether an index of a thousand is taken before those of a hundred, or these before it.
    """
    taken: set[int] = set()
    chosen: dict[range, int] = {}
    smallest = topic_log.index_sizes[0]
    for numbers in sorted(found, key=lambda r: (len(r), r.start), reverse=largest_first):
        cells = {(n - 1) // smallest for n in numbers[::smallest]}
        if marker.has_resolved(numbers) and not cells & taken:
            taken |= cells
            chosen[numbers] = found[numbers]
    return dict(sorted(chosen.items(), key=lambda item: item[0].start))


def together(items: Iterable[T], size: Callable[[T], int], *, most: int) -> Iterator[list[T]]:
    """Cut items into lists that are read at the same time: few, and not too large together.

    Args:
        items: in their order.
        size: bytes of the index of an item.
        most: items of a list at most.
    """
    group: list[T] = []
    left = _TOGETHER
    for item in items:
        needed = size(item)
        if group and (len(group) == most or needed > left):
            yield group
            group, left = [], _TOGETHER
        group.append(item)
        left -= needed
    if group:
        yield group


def read_or_warn(topic_log: TopicLog, numbers: range) -> LogIndex | None:
    """The index of these batches; None, with a warning, if it is gone or cannot be used."""
    try:
        return topic_log.read_index(numbers)
    except UnsupportedFormatError as e:
        _warn_of_unused(topic_log, numbers, f"{message_of(e)}. Nothing else depends on it")
    except ControlError as e:
        _warn_of_wrong(topic_log, numbers, message_of(e))
    return None


def _of_this_log(topic_log: TopicLog, numbers: range) -> LogIndex | None:
    """An index whose last batch has the plan of the log; None, with a warning, if it is of another log.

    Copies of a bucket may have indexes beside plans that are not theirs. Those that a version writes have a plan with a
    unique checksum for each batch.
    """
    index = read_or_warn(topic_log, numbers)
    if index is None:
        return None
    last = index.batches[-1]
    try:
        _, plan_sha256 = topic_log.require_plan(last.batch)
    except ControlError:
        # An error of those who need the plan.
        return index
    topic_log.forget(last.batch)
    if plan_sha256 == last.plan_sha256:
        return index
    where = topic_log.plan_url(last.batch)
    _warn_of_wrong(topic_log, numbers, f"it is of another log, whose plan of batch {last.batch} is not {where}")
    return None


def _warn_of_wrong(topic_log: TopicLog, numbers: range, why: str) -> None:
    remedy = topic_log.remedies.repair("--every-document")
    _warn_of_unused(topic_log, numbers, f"{why}. Nothing else depends on it. Write it again: {remedy}")


def _warn_of_unused(topic_log: TopicLog, numbers: range, why: str) -> None:
    log.warning(
        "topic %s: the index of batches %d to %d is not used, their plans and manifests are read instead: %s",
        topic_log.topic,
        numbers[0],
        numbers[-1],
        why,
    )


def read_documents(
    topic_log: TopicLog, numbers: Sequence[int], parallel: Parallel, layouts: dict[Layout, int] | None = None
) -> Iterator[IndexedBatch]:
    """Batches from their plans and manifests, whose memory is released.

    A run writes an index beside its own work, so the memory for large documents is bounded.

    Args:
        topic_log: the control documents of the topic.
        numbers: of the batches.
        parallel: runs requests at once.
        layouts: first batch with each layout, which is added to; None: layouts are not compared.
    """
    start, plans_at_once, decisions_at_once = 0, _DECISIONS, 1
    while start < len(numbers):
        plans = parallel(topic_log.require_plan, numbers[start : start + plans_at_once], threads=_PLANS)
        start += len(plans)
        plans_at_once = _at_once(_PLANS, [len(plan.slices) for plan, _ in plans])
        while plans:
            block, plans = plans[:decisions_at_once], plans[decisions_at_once:]
            decisions = parallel(lambda one: topic_log.require_decision(one[0].batch), block, threads=_DECISIONS)
            for (plan, plan_sha256), (decision, manifest_sha256) in zip(block, decisions, strict=True):
                like = None
                if plan.layout is not None:
                    like = plan.batch if layouts is None else layouts.setdefault(plan.layout.at(0), plan.batch)
                yield indexed_batch(plan, plan_sha256, decision, manifest_sha256, same_layout_as=like)
                topic_log.forget(plan.batch)
            decisions_at_once = _at_once(_DECISIONS, [len(decision.objects) for decision, _ in decisions])


def _at_once(most: int, entries: Sequence[int]) -> int:
    """Documents to read next at the same time, if they have as many entries as those before."""
    return max(1, min(most, _ENTRIES // max(1, *entries)))


def _with_claims(topic_log: TopicLog, batches: Sequence[IndexedBatch], parallel: Parallel) -> Iterator[IndexedBatch]:
    """Batches of an index, with the claims that are in their plans only."""
    for start in range(0, len(batches), _LARGE_PLANS):
        block = batches[start : start + _LARGE_PLANS]
        without = [batch.batch for batch in block if batch.claim is None]
        plans = dict(zip(without, parallel(topic_log.require_plan, without, threads=_LARGE_PLANS), strict=True))
        for batch in block:
            if batch.claim is not None:
                yield batch
                continue
            plan, _ = plans.pop(batch.batch)
            topic_log.forget(batch.batch)
            yield msgspec.structs.replace(batch, claim=plan.claim, skipped=plan.skipped, hull=())


def _has_whole(marker: Marker, numbers: range, size: int) -> bool:
    """Whether an index of this size may have some of these consecutive resolved numbers."""
    first = (numbers[0] - 1) // size * size + 1
    return any(
        marker.has_resolved(range(start, start + size)) for start in (first, first + size) if start <= numbers[-1]
    )


def _cut(wanted: Iterable[range], indexes: Sequence[range]) -> Iterator[tuple[range, range | None]]:
    """Consecutive pieces of the wanted numbers, each with the index that has it, if there is one."""
    position = 0
    for numbers in wanted:
        n = numbers[0]
        while n <= numbers[-1]:
            while position < len(indexes) and indexes[position][-1] < n:
                position += 1
            index = indexes[position] if position < len(indexes) and indexes[position][0] <= n else None
            last = numbers[-1]
            if index is not None:
                last = min(last, index[-1])
            elif position < len(indexes):
                last = min(last, indexes[position][0] - 1)
            yield range(n, last + 1), index
            n = last + 1


def _parts_of(topic_log: TopicLog, group: Sequence[tuple[range, range | None]], parallel: Parallel) -> Iterator[Part]:
    indexes = [index for _, index in group if index is not None]
    documents = dict(zip(indexes, parallel(lambda index: _of_this_log(topic_log, index), indexes), strict=True))
    for numbers, index in group:
        document = None if index is None else documents[index]
        if document is None:
            yield Part(numbers)
        else:
            yield Part(numbers, document.batches[numbers[0] - document.first : numbers[-1] + 1 - document.first])
