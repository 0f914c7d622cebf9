"""The batches of a snapshot, by the index of the log; few are in memory, however long the log is."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from airflow_provider_kafka_s3.batch.coverage import covering_downward
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import checked_summaries, summaries
from airflow_provider_kafka_s3.documents.log_index import MAX_HULL, IndexedBatch, indexed_batch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets, intersect
from airflow_provider_kafka_s3.exceptions import ControlError
from airflow_provider_kafka_s3.reading.record_times import overlap

__all__ = ["BatchSelection", "SummarizedBatches", "checksums_of"]

T = TypeVar("T")

_KEPT: Final = 10_000
"""Batches that are kept at most, some 15 MB; with more, only what blocks of them have together."""

_SEARCHED: Final = 200
"""Batches that a search by offsets finds at most; for more, the index is read."""

_NAMED: Final = 32
"""Named batches whose documents are read, which nothing can hide; of more, the index is."""

_BLOCK: Final = 1_000
"""Batches of a block: those of a large index."""


@dataclass(frozen=True, kw_only=True)
class BatchSelection:
    """Which committed batches may have certain records.

    Attributes:
        low: lowest timestamp, in milliseconds.
        high: end of the timestamps.
        wanted: offsets.
        of_partitions: Kafka partitions.
        generation: of the topic; None: all.
    """

    low: int | None = None
    high: int | None = None
    wanted: Offsets | None = None
    of_partitions: frozenset[int] | None = None
    generation: int | None = None

    def has(self, batch: IndexedBatch) -> bool:
        """Whether a batch may have such records."""
        return (
            batch.status == "commit"
            and (self.generation is None or batch.generation == self.generation)
            and (self.wanted is None or batch.may_claim(self.wanted))
            and (self.of_partitions is None or batch.may_claim_of(self.of_partitions))
            and (not batch.has_times or overlap((batch.min_timestamp, batch.max_timestamp), self.low, self.high))
        )


@dataclass
class _Block:
    """What consecutive committed batches have together; what has no bounds may be anything.

    Attributes:
        first: lowest number of a batch.
        last: highest number of a batch.
        records: of all batches.
        dead_letters: of all batches.
        tombstones: of all batches: null values that have no object of values.
        generations: of all batches.
    """

    first: int
    last: int
    records: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    generations: set[int] = field(default_factory=set)
    _times: tuple[int, int] | None = (2**63, -1)
    # The lowest and the highest offset, by generation, first and last Kafka partition.
    _offsets: dict[tuple[int, int, int], tuple[int, int]] | None = field(default_factory=dict)

    def add(self, batch: IndexedBatch) -> None:
        """Add the next batch."""
        self.last = batch.batch
        if batch.status != "commit":
            return
        self.records += batch.records
        self.dead_letters += batch.dead_letters
        self.tombstones += batch.tombstones
        self.generations.add(batch.generation)
        if not batch.has_times:
            self._times = None
        if self._times is not None:
            self._times = min(self._times[0], batch.min_timestamp), max(self._times[1], batch.max_timestamp)
        offsets = self._offsets
        if offsets is None:
            return
        for first, last, low, end in batch.boxes:
            known = offsets.get((batch.generation, first, last), (low, end))
            offsets[batch.generation, first, last] = min(low, known[0]), max(end, known[1])
        if len(offsets) > MAX_HULL:
            self._offsets = None

    def may_have(self, selection: BatchSelection) -> bool:
        """Whether one of its batches may be selected."""
        if not self.generations or (selection.generation is not None and selection.generation not in self.generations):
            return False
        if self._times is not None and not overlap(self._times, selection.low, selection.high):
            return False
        if self._offsets is None:
            return True
        boxes = [
            (first, last, bounds)
            for (generation, first, last), bounds in self._offsets.items()
            if selection.generation in (None, generation)
        ]
        partitions, wanted = selection.of_partitions, selection.wanted
        return (partitions is None or any(first <= p <= last for p in partitions for first, last, _ in boxes)) and (
            wanted is None
            or any(
                first <= p <= last and intersect(ranges, (bounds,))
                for p, ranges in wanted.items()
                for first, last, bounds in boxes
            )
        )


def _with_blocks(
    batches: Iterable[IndexedBatch], use: Callable[[Iterable[IndexedBatch]], T]
) -> tuple[Sequence[_Block], T]:
    """The blocks of batches, and the result of a function that iterates over all of them."""
    blocks: list[_Block] = []

    def observed() -> Iterator[IndexedBatch]:
        for batch in batches:
            if not blocks or (batch.batch - 1) // _BLOCK != (blocks[-1].first - 1) // _BLOCK:
                blocks.append(_Block(batch.batch, batch.batch))
            blocks[-1].add(batch)
            yield batch

    result = use(observed())
    return blocks, result


def _joined(blocks: Iterable[_Block]) -> Iterator[tuple[int, int]]:
    """First and last batch of blocks, those that follow each other together."""
    first = last = 0
    for block in blocks:
        if block.first != last + 1:
            if last:
                yield first, last
            first = block.first
        last = block.last
    if last:
        yield first, last


def checksums_of(batch: IndexedBatch) -> bytes:
    """The checksums of plan and manifest, in few bytes."""
    return bytes.fromhex(batch.plan_sha256 + batch.manifest_sha256)


class Totals(NamedTuple):
    """Sums of some batches.

    Attributes:
        records: of all batches.
        dead_letters: of all batches.
        tombstones: of all batches: null values that have no object of values.
        generations: that committed batches have records of.
    """

    records: int
    dead_letters: int
    tombstones: int
    generations: frozenset[int]


class SummarizedBatches:
    """Consecutive resolved batches of a log.

    Up to ten thousand are kept. With more, the index is read again for each answer, and only what each thousand of them
    has together is kept: later selections read no others than those that may have a batch. Few offsets are searched
    for, as by a run over an old window.
    """

    def __init__(self, log: TopicLog, marker: Marker, first: int, last: int) -> None:
        """Nothing is read yet.

        Args:
            log: the control documents of the topic.
            marker: has all of them as resolved.
            first: lowest number.
            last: highest number.
        """
        self._log = log
        self._marker = marker
        self._first = first
        self._last = last
        self._batches: Sequence[IndexedBatch] | None = None
        self._blocks: Sequence[_Block] | None = None
        self._index_is_wrong = False

    def read(self, use: Callable[[Iterable[IndexedBatch]], T]) -> T:
        """The result of a function of all batches; see :func:`~.batch.log_index.checked_summaries`."""
        return use(self._kept) if self._are_few else self._read(use)

    def _read(self, use: Callable[[Iterable[IndexedBatch]], T]) -> T:
        calls = 0

        def counted(batches: Iterable[IndexedBatch]) -> T:
            nonlocal calls
            calls += 1
            return use(batches)

        result = checked_summaries(counted, self._log, self._marker, self._first, self._last)
        self._index_is_wrong = calls > 1
        return result

    def select(self, selection: BatchSelection) -> dict[int, bytes]:
        """The numbers of selected batches, ascending, with the checksums of their documents."""

        def choose(batches: Iterable[IndexedBatch]) -> dict[int, bytes]:
            return {batch.batch: checksums_of(batch) for batch in batches if selection.has(batch)}

        if self._are_few:
            return choose(self._kept)
        if self._blocks is None:
            searched = self._search(selection)
            if searched is not None:
                return searched
            self._blocks, selected = self.read(lambda batches: _with_blocks(batches, choose))
            return selected
        selected = {}
        for first, last in _joined(block for block in self._blocks if block.may_have(selection)):
            selected |= self._read_some(choose, first, last)
        return selected

    def _read_some(self, use: Callable[[Iterable[IndexedBatch]], T], first: int, last: int) -> T:
        if not self._index_is_wrong:
            return checked_summaries(use, self._log, self._marker, first, last)
        # That some batches agree with the marker would not show that none is hidden.
        by_documents = summaries(self._log, self._marker, first, last, by_index=False)
        return use(batch.within(MAX_HULL) for batch in by_documents)

    def _search(self, selection: BatchSelection) -> dict[int, bytes] | None:
        """The result for few offsets, found by the plans and manifests that account for them; None for others.

        No two committed batches of a generation have the same offset, so there are no others. If the marker lacks an
        offset below others that it has, or a document is gone, all batches are compared with the marker instead.
        """
        wanted, generation = selection.wanted, selection.generation
        if wanted is None or generation is None or not 0 <= generation <= self._marker.generation:
            return None
        covered = self._marker.covered_in(generation)
        for partition, ranges in (wanted - covered).items():
            if (end := covered.end(partition)) is None or ranges[0][0] < end:
                return None
        covering = covering_downward(self._log, wanted & covered, generation=generation, marker=self._marker)
        selected = {}
        try:
            for count, candidate in enumerate(covering, start=1):
                if count > _SEARCHED:
                    return None
                batch = self._by_documents(candidate.plan.batch)
                self._log.forget(batch.batch)
                if self._first <= batch.batch <= self._last and selection.has(batch):
                    selected[batch.batch] = checksums_of(batch)
        except ControlError:
            return None
        return dict(sorted(selected.items()))

    def _by_documents(self, number: int) -> IndexedBatch:
        plan, plan_sha256 = self._log.require_plan(number)
        decision, manifest_sha256 = self._log.require_decision(number)
        return indexed_batch(plan, plan_sha256, decision, manifest_sha256, same_layout_as=number)

    def named(self, numbers: Sequence[int]) -> Sequence[IndexedBatch]:
        """Some complete batches, which may be others, in the order of their numbers."""
        by_number = {batch.batch: batch for batch in self._batches or () if batch.batch in {*numbers}}
        missing = {*numbers} - by_number.keys()
        if 0 < len(missing) <= _NAMED:
            by_number |= {number: self._by_documents(number) for number in missing}
        elif missing:
            by_number |= self._read_some(
                lambda batches: {batch.batch: batch for batch in batches if batch.batch in missing},
                min(missing),
                max(missing),
            )
        return [by_number[number] for number in sorted(by_number)]

    @functools.cached_property
    def last(self) -> IndexedBatch | None:
        """The last one; None if there are none."""
        if self._are_few:
            return self._kept[-1] if self._kept else None
        # Only all batches together show that an index is right.
        return self._by_documents(self._last)

    @functools.cached_property
    def totals(self) -> Totals:
        """Sums of all batches."""
        if self._blocks is None:
            self._blocks, _ = self.read(lambda batches: _with_blocks(batches, lambda some: deque(some, maxlen=0)))
        return Totals(
            sum(block.records for block in self._blocks),
            sum(block.dead_letters for block in self._blocks),
            sum(block.tombstones for block in self._blocks),
            frozenset(generation for block in self._blocks for generation in block.generations),
        )

    @property
    def _are_few(self) -> bool:
        return self._last - self._first < _KEPT

    @property
    def _kept(self) -> Sequence[IndexedBatch]:
        if self._batches is None:
            self._batches = self._read(tuple)
        return self._batches
