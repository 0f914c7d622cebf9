"""Search of the log for the committed batches that cover a target."""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import disjoint, read_or_warn, together
from airflow_provider_kafka_s3.batch.request import BatchSummary
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.documents.log_index import LogIndex
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets, Ranges, coalesce
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import LogTamperedError
from airflow_provider_kafka_s3.parallel import Parallel, growing_blocks, in_threads

__all__ = ["Covering", "covering_downward", "covering_upward"]

log = logging.getLogger(__name__)

_NEAR: Final = 8
"""Batches that are looked at before the index: most searches are for the latest ones, or those of one run."""

_INDEXES: Final = 16
"""Indexes read at the same time at most."""

_AROUND: Final = 32
"""Indexes around the place where a batch was expected, which are read before all others."""

_AHEAD: Final = 64
"""Plans read at the same time at most, during a search of the log."""

_DECISIONS: Final = 8
"""Manifests read at the same time; each may list many objects."""

_GONE: Final = 64
"""Plans that are gone, at which a search ends: the numbers in a marker are untrusted, so they may have no end."""


@dataclass(frozen=True)
class Covering:
    """A batch that covers some of a target."""

    plan: Plan
    decision: Manifest

    def objects(self, target: Offsets) -> list[ObjectEntry]:
        """The objects that may hold offsets of the target."""
        if self.plan.claim <= target:
            return list(self.decision.objects)
        partitions = {s.id: s.partition for s in self.plan.slices}
        return [
            entry
            for entry in self.decision.objects
            if any(Offsets({partitions[p.id]: [(p.min_offset, p.max_offset + 1)]}) & target for p in entry.by_slice)
        ]

    def summary(self, topic_log: TopicLog, run: str) -> BatchSummary:
        """The summary of the batch in the result of a run."""
        return BatchSummary(
            batch=self.plan.batch,
            manifest=topic_log.manifest_url(self.plan.batch),
            mine=self.plan.run == run,
            landed=self.decision.run == run,
            objects=len(self.decision.objects),
            records=self.decision.records,
            tombstones=self.decision.tombstones,
            ignored=self.decision.ignored,
            dead_letters=self.decision.dead_letters,
            size=self.decision.size,
            offsets=self.plan.claim,
            unknown_fields=self.decision.unknown_fields,
        )


def covering_upward(
    topic_log: TopicLog,
    target: Offsets,
    *,
    generation: int,
    low: int,
    marker: Marker,
    parallel: Parallel = in_threads,
) -> Iterator[Covering]:
    """The batches that cover a target of resolved offsets, searched from ``low`` upward.

    The nearest plans are read first, several at a time: at most twice as many as needed, plus one. Then the index of
    the log tells which plans to read, and only behind that all others are read. What an index has is never the result:
    each batch is compared with the target by its own plan and manifest, and the search ends only when these account for
    all of it. The documents of a batch that covers nothing of the target are dropped from memory.

    Args:
        topic_log: the control documents of the topic.
        target: offsets that the marker has as covered.
        generation: of the target.
        low: number of the first batch.
        marker: has the resolved batches.
        parallel: runs requests at once.

    Raises:
        LogTamperedError: the log does not account for the target, or a plan that the search needs is gone.
    """
    return _Search(topic_log, target, generation, marker, parallel).run(low, upward=True)


def covering_downward(
    topic_log: TopicLog, target: Offsets, *, generation: int, marker: Marker, parallel: Parallel = in_threads
) -> Iterator[Covering]:
    """The batches that cover a target, searched from the last resolved one downward; see :func:`covering_upward`.

    Raises:
        LogTamperedError: see there.
    """
    return _Search(topic_log, target, generation, marker, parallel).run(1, upward=False)


class _Search:
    """One search of the log.

    Attributes:
        left: offsets of the target that no batch has accounted for yet.
    """

    def __init__(
        self, topic_log: TopicLog, target: Offsets, generation: int, marker: Marker, parallel: Parallel
    ) -> None:
        self.left = target
        self._log = topic_log
        self._parallel = parallel
        self._generation = generation
        self._marker = marker
        self._examined: set[int] = set()
        # Batches without a plan, in the order of the search.
        self._gone: dict[int, None] = {}
        # Indexes that were read: the ranges of batches that need no other look unless something is left.
        self._indexed: list[range] = []
        # Bytes of each index.
        self._sizes: dict[range, int] = {}

    def run(self, low: int, *, upward: bool) -> Iterator[Covering]:
        """Find the batches from ``low`` on, or from the last resolved one down to it."""
        last = self._marker.last_resolved
        numbers = iter(range(low, last + 1) if upward else range(last, low - 1, -1))
        near = min(_NEAR, self._log.index_sizes[0])
        yield from self._examine_all(itertools.islice(numbers, near))
        if self.left and low + near <= last:
            yield from self._by_index(low)
            # Batches without an index.
            indexed = coalesce((batches[0], batches[-1] + 1) for batches in self._indexed)
            yield from self._examine_all(n for n in numbers if not _is_in(indexed, n))
            if self.left and self._indexed:
                self._warn_of_index()
                again = itertools.chain.from_iterable(range(*bounds) for bounds in indexed)
                yield from self._examine_all(n for n in again if n not in self._examined)
        if self.left and self._gone:
            # One of them may be the batch of these offsets.
            self._log.require_plan(next(iter(self._gone)))
        if self.left:
            raise LogTamperedError(
                f"topic {self._log.topic!r}: documents of the log are gone: its marker has offsets "
                f"{printable(str(self.left))} as landed, and no batch of the log covers them. Nothing was changed. "
                f"Restore the objects below this prefix (bucket versioning): {self._log.store.url(self._log.prefix)}"
            )

    def _examine_all(self, numbers: Iterator[int]) -> Iterator[Covering]:
        blocks = growing_blocks(numbers, most=_AHEAD)
        while self.left and len(self._gone) < _GONE and (block := next(blocks, None)):
            plans = self._parallel(self._log.read_plan, block, threads=_AHEAD)
            self._gone |= dict.fromkeys(n for n, plan in zip(block, plans, strict=True) if plan is None)
            yield from self._examine([plan for plan in plans if plan is not None])

    def _examine(self, plans: Sequence[Plan]) -> Iterator[Covering]:
        """Compare batches with the target, by their plans and manifests."""
        self._examined.update(plan.batch for plan in plans)
        overlapping = [plan for plan in plans if plan.generation == self._generation and plan.claim & self.left]
        for start in range(0, len(overlapping), _DECISIONS):
            needed = [plan for plan in overlapping[start : start + _DECISIONS] if plan.claim & self.left]
            decisions = self._parallel(lambda plan: self._log.read_manifest(plan.batch, expected=True), needed)
            for plan, decision in zip(needed, decisions, strict=True):
                if decision is None or decision.is_released:
                    continue
                if not plan.claim & self.left:
                    continue
                self.left -= plan.claim
                if decision.status == "commit":
                    yield Covering(plan, decision)
        for batch in {plan.batch for plan in plans} - {plan.batch for plan in overlapping}:
            self._log.forget(batch)

    # -- the index ----------------------------------------------------------------------------------------------------

    def _by_index(self, low: int) -> Iterator[Covering]:
        """Find batches by the indexes of the log, as few of them as possible."""
        if not any(end - max(start, low) >= self._log.index_sizes[0] for start, end in self._marker.resolved):
            return
        # Small ones first: a search reads few of them.
        listed = self._log.indexes(low)
        self._sizes = disjoint(self._log, self._marker, listed, largest_first=False)
        indexes = [*self._sizes]
        spans: dict[range, _Span] = {}
        position, ahead, near = len(indexes), 1, 0
        while self.left and len(spans) < len(indexes):
            key = _first(self.left)
            # Batches usually land offsets in order, so the next ones are likely in the next index.
            following = [batches for batches in indexes[position : position + ahead] if batches not in spans]
            if following:
                yield from self._read_indexes(following, spans)
                position, ahead = position + ahead, min(2 * ahead, _INDEXES)
                if not self.left or _first(self.left) != key:
                    continue
            ahead = 1
            position, near = yield from self._bisect(indexes, spans, *key, backward=False)
            if self.left and _first(self.left) == key:
                # As after a backfill that began with the end.
                position, _ = yield from self._bisect(indexes, spans, *key, backward=True)
            if self.left and _first(self.left) == key:
                break
        # Batches that landed their offsets out of order: likely near by, or else anywhere, where large indexes take the
        # fewest requests.
        unread = [n for n, batches in enumerate(indexes) if batches not in spans]
        around = sorted(unread, key=lambda n: abs(n - near))[:_AROUND]
        yield from self._read_rest([indexes[n] for n in around])
        if not self.left or len(around) == len(unread):
            return
        large = disjoint(self._log, self._marker, listed, largest_first=True)
        self._sizes |= large
        yield from self._read_rest([batches for batches in large if batches not in spans])

    def _read_rest(self, numbers: Sequence[range]) -> Iterator[Covering]:
        """Read indexes until nothing is left; nothing is kept of them."""
        for n in range(0, len(numbers), _INDEXES):
            if not self.left:
                return
            yield from self._read_indexes(numbers[n : n + _INDEXES], {})

    def _bisect(
        self, found: Sequence[range], spans: dict[range, _Span], partition: int, offset: int, *, backward: bool
    ) -> Generator[Covering, None, tuple[int, int]]:
        """Read indexes on the way to the batch of an offset, as if offsets were landed in order, or backward.

        Returns:
            The index behind the one that has the batch, or the end; and where it looked last.
        """
        low, high = 0, len(found)
        middle = 0
        while low < high:
            middle = (low + high) // 2
            batches = found[middle]
            if batches not in spans:
                yield from self._read_indexes([batches], spans)
                if not self.left or _first(self.left) != (partition, offset):
                    return middle + 1, middle
            side = spans[batches].side(self._generation, partition, offset, backward=backward)
            if side == 0:
                break
            low, high = (low, middle) if side < 0 else (middle + 1, high)
        return len(found), middle

    def _read_indexes(self, numbers: Sequence[range], spans: dict[range, _Span]) -> Iterator[Covering]:
        """Read indexes, then the documents of the batches that may cover what is left."""
        for group in together(numbers, self._sizes.__getitem__, most=_INDEXES):
            documents = self._parallel(lambda batches: read_or_warn(self._log, batches), group)
            for batches, index in zip(group, documents, strict=True):
                spans[batches] = _Span(index, self._generation)
                if index is not None:
                    self._indexed.append(batches)
                    yield from self._examine_likely(index)

    def _examine_likely(self, index: LogIndex) -> Iterator[Covering]:
        """Examine the batches of an index that may cover what is left."""
        likely = [
            batch.batch
            for batch in index.batches
            if batch.generation == self._generation
            and batch.covers
            and batch.batch not in self._examined
            and batch.may_claim(self.left)
        ]
        for start in range(0, len(likely), _AHEAD):
            # What is not found elsewhere is in one of these, so none of their plans may be gone.
            plans = self._parallel(self._log.require_plan, likely[start : start + _AHEAD], threads=_AHEAD)
            yield from self._examine([plan for plan, _ in plans])

    def _warn_of_index(self) -> None:
        log.warning(
            "topic %s: the index of the log has no batch that covers offsets %s, which the marker has as landed: the "
            "index is wrong. Plans and manifests are read instead. Write it again: %s",
            self._log.topic,
            printable(str(self.left)),
            self._log.remedies.repair("--every-document"),
        )


class _Span:
    """The lowest and the highest offset of Kafka partitions in an index, for the batches of one generation."""

    def __init__(self, index: LogIndex | None, generation: int) -> None:
        # By the first and the last one of the partitions.
        self._bounds: dict[tuple[int, int], tuple[int, int]] = {}
        self._generations: set[int] = set()
        for batch in () if index is None else index.batches:
            self._generations.add(batch.generation)
            for first, last, low, high in batch.boxes if batch.generation == generation else ():
                known = self._bounds.get((first, last), (low, high))
                self._bounds[first, last] = min(low, known[0]), max(high, known[1])

    def side(self, generation: int, partition: int, offset: int, *, backward: bool) -> int:
        """Where an offset likely is: -1 in an earlier index, 1 in a later one; 0 if that is unknown.

        Args:
            generation: of the offset. Those of batches ascend, in whichever order offsets are landed.
            partition: of the offset.
            offset: the offset.
            backward: whether earlier batches have the higher offsets.
        """
        if self._generations and generation not in self._generations:
            return -1 if generation < min(self._generations) else 1
        bounds = [bounds for (first, last), bounds in self._bounds.items() if first <= partition <= last]
        if not bounds:
            return 0
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        side = -1 if offset < low else 1 if offset >= high else 0
        return -side if backward else side


def _is_in(ranges: Ranges, number: int) -> bool:
    index = bisect.bisect_right(ranges, number, key=lambda one: one[0]) - 1
    return index >= 0 and number < ranges[index][1]


def _first(offsets: Offsets) -> tuple[int, int]:
    """The lowest offset of the first Kafka partition."""
    partition = next(iter(offsets))
    return partition, offsets[partition][0][0]
