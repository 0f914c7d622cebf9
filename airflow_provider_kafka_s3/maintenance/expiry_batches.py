"""The batches that a call of expiry looks at: their documents, and why their objects are kept."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.derived.chunk_markers import newest_indexes
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance.expiry_rule import CommittedBatch, Expired, ExpiryGuard, ExpiryRule
from airflow_provider_kafka_s3.messages import few, printable

__all__ = ["ExpiryBatches", "ObjectSum", "blocks"]

_T = TypeVar("_T")

_BATCHES: Final = 64
"""Batches whose documents are in memory together, at most."""

_ENTRIES: Final = 100_000
"""Objects of batches whose documents are in memory together; one batch may have more."""

_READERS: Final = 16
"""Documents that are read at the same time."""


@dataclass
class ObjectSum:
    """Objects of several batches.

    Attributes:
        objects: they.
        batches: number of their batches.
        number: how many.
        size: their bytes.
    """

    objects: ExpiredObjects = field(default_factory=ExpiredObjects)
    batches: int = 0
    number: int = 0
    size: int = 0

    def add(self, objects: ExpiredObjects, batches: int, entries: Sequence[ObjectEntry]) -> None:
        """Add objects of further batches, which are counted by their entries."""
        self.objects |= objects
        self.batches += batches
        self.number += len(entries)
        self.size += sum(entry.size for entry in entries)


class ExpiryBatches:
    """The batches of a topic, for one call.

    Args:
        committer: of the topic.
        rule: which objects are no longer needed.
        landed_in: gives the guard that keeps what another pipeline does not have.
        guards: keep what something else needs.
        result: has why batches are kept.
    """

    def __init__(
        self,
        committer: Committer,
        rule: ExpiryRule,
        landed_in: Callable[[Landed], ExpiryGuard],
        guards: Sequence[ExpiryGuard],
        result: Expired,
    ) -> None:
        self._committer = committer
        self._log = committer.log
        self._rule = rule
        self._landed_in = landed_in
        self._guards = tuple(guards)
        self._result = result

    def documents(self, numbers: Iterable[int]) -> Iterator[tuple[Plan, Manifest, int | None]]:
        """Plans and manifests, and when the batches were decided, in milliseconds; None: that is unknown."""
        left = iter(numbers)
        while block := [*itertools.islice(left, _READERS)]:
            plans = self._committer.parallel(self._log.require_plan, block, threads=_READERS)
            decisions = self._committer.parallel(self._log.require_decision, block, threads=_READERS)
            for (plan, _), (decision, _) in zip(plans, decisions, strict=True):
                decided = self._log.times(plan.batch)[1]
                self._log.forget(plan.batch)
                yield plan, decision, None if decided is None else int(decided.timestamp() * 1000)

    def guards_of(self, landed_in: Landed | None) -> Sequence[ExpiryGuard]:
        """The guards of a rule or of a record."""
        return self._guards if landed_in is None else (self._landed_in(landed_in), *self._guards)

    def kept(
        self, batches: Sequence[CommittedBatch], guards: Sequence[ExpiryGuard], given_away: GivenAway, *, final: bool
    ) -> Mapping[int, str]:
        """Why batches are kept; the result has it, too.

        Args:
            batches: some that would be deleted, ascending.
            guards: keep what something else needs.
            given_away: the tables of the topic.
            final: whether they are deleted next, and not just recorded.
        """
        tables = {owner.table for owner in given_away.owners} - self._rule.tables
        kept: dict[int, str] = {}
        for plan, decision in batches:
            if (table := given_away.table_of_batch(plan.batch)) is not None:
                kept[plan.batch] = f"they were given to table {printable(table)} since, whose engines delete them"
            elif not self._newest_chunks.isdisjoint(entry.key for entry in decision.objects):
                kept[plan.batch] = "a marker file names an object of theirs"
            elif tables:
                unknown = few([printable(name) for name in sorted(tables)])
                kept[plan.batch] = f"table {unknown} may have them: name it, with its catalog, or that it is gone"
        for guard in guards:
            left = [(plan, decision) for plan, decision in batches if plan.batch not in kept]
            kept |= guard.kept(left, final=final) if left else {}
        for plan, _ in batches:
            if (reason := kept.get(plan.batch)) is not None:
                self._result.keep(reason, plan.batch)
        return kept

    @functools.cached_property
    def _newest_chunks(self) -> frozenset[str]:
        """Keys of the indexes that marker files of DeviantArt's names have."""
        marker, _ = self._log.require_marker()
        layout = self._log.last_layout(marker.last_resolved + 1) if marker.resolved else None
        if layout is None or not keys.shares_folder(layout):
            return frozenset()
        return frozenset(newest_indexes(self._log, marker, parallel=self._committer.parallel).values())


def blocks(items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Cut items into lists that are not too large together."""
    block: list[_T] = []
    left = _ENTRIES
    for item in items:
        if block and (len(block) == _BATCHES or size(item) > left):
            yield block
            block, left = [], _ENTRIES
        block.append(item)
        left -= size(item)
    if block:
        yield block
