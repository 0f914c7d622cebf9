"""Records which objects of a topic are no longer needed, so that no reader expects them from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.expiry import change_expiry, expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry, WaitingExpiry
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.maintenance.expiry_batches import ExpiryBatches, ObjectSum, blocks
from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired, ExpiryRule
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.progress import progress

__all__ = ["ExpiryRecorder"]

log = logging.getLogger(__name__)

_RECORDED_AT_ONCE: Final = 1_000
"""Batches behind which a record is written, so that an interrupted call does not begin anew."""


@dataclass(frozen=True)
class _Candidate:
    """Objects of a batch that are no longer needed.

    Attributes:
        plan: of the batch.
        decision: its manifest.
        before: the objects are those all of whose records are older than this, in milliseconds; None: they are all.
        new: the objects, but for those that were recorded before.
    """

    plan: Plan
    decision: Manifest
    before: int | None
    new: Sequence[ObjectEntry]

    @property
    def objects(self) -> ExpiredObjects:
        """The objects."""
        batch = self.plan.batch
        if self.before is None:
            return ExpiredObjects(batches=((batch, batch + 1),))
        return ExpiredObjects(before=((batch, self.before),))


class ExpiryRecorder:
    """Records what is no longer needed, in one call.

    Args:
        committer: of the topic.
        rule: which objects are no longer needed.
        batches: of the topic.
        now: seconds since the epoch.
        result: what the call has done.
    """

    def __init__(
        self, committer: Committer, rule: ExpiryRule, batches: ExpiryBatches, now: float, result: Expired
    ) -> None:
        self._committer = committer
        self._log = committer.log
        self._rule = rule
        self._batches = batches
        self._now = now
        self._given_away = GivenAway(committer.log)
        self._result = result

    def record(self, *, dry_run: bool) -> None:
        """Record what is no longer needed, a thousand batches at a time."""
        marker, _ = self._log.require_marker()
        known = expired_objects(self._log)
        guards, new = self._batches.guards_of(self._rule.landed_in), ObjectSum()
        with progress(f"topic {self._log.topic}: record", total=marker.last_resolved, unit="batch") as advance:
            candidates = self._candidates(marker, known, advance)
            for block in blocks(candidates, lambda candidate: len(candidate.decision.objects)):
                committed = [(candidate.plan, candidate.decision) for candidate in block]
                kept = self._batches.kept(committed, guards, self._given_away, final=False)
                for candidate in block:
                    if candidate.plan.batch not in kept:
                        new.add(candidate.objects, 1, candidate.new)
                if new.batches >= _RECORDED_AT_ONCE:
                    self._record(new, dry_run=dry_run)
                    new = ObjectSum()
        self._record(new, dry_run=dry_run)

    def _record(self, new: ObjectSum, *, dry_run: bool) -> None:
        self._result.batches += new.batches
        self._result.recorded += new.number
        self._result.recorded_size += new.size
        rule = self._rule

        def recorded(before: Expiry) -> Expiry:
            if not (objects := new.objects.without(before.objects)):
                return before
            waiting = WaitingExpiry(
                objects=objects,
                number=new.number,
                size=new.size,
                delete_from=int((self._now + rule.grace) * 1000),
                reason=rule.reason,
                operator=rule.operator,
                landed_in=rule.landed_in,
            )
            return msgspec.structs.replace(
                before, number=before.number + new.number, waiting=(*before.waiting, waiting)
            )

        if new.objects and not dry_run:
            before, after = change_expiry(self._log, recorded, may_create=True)
            if after != before:
                log.info("topic %s: %s recorded as no longer needed", self._log.topic, count(new.number, "object"))

    def _candidates(
        self, marker: Marker, known: ExpiredObjects, advance: Callable[[int], object]
    ) -> Iterator[_Candidate]:
        """The batches with objects that the rule has and that are not known, ascending."""
        rule, now = self._rule, self._now
        before = None if rule.older_than is None else int((now - rule.older_than) * 1000)
        landed_before = int((now - rule.least_age) * 1000)
        first, are_younger = 1, False
        while known.has_all(first):
            first = next(end for start, end in known.batches if start <= first < end)
        advance(first - 1)

        def may_be_older(indexed: IndexedBatch) -> bool:
            advance(1)
            if indexed.status != "commit" or known.has_all(indexed.batch) or not indexed.objects:
                return False
            # Batches are landed about in the order of their numbers: behind the first younger one, times of records
            # show which may have older objects.
            if are_younger and before is not None and indexed.has_times and indexed.min_timestamp >= before:
                return False
            # The engines of the table delete them.
            return self._given_away.table_of_batch(indexed.batch) is None

        batches = filter(may_be_older, indexed_batches(self._log, marker, first, parallel=self._committer.parallel))
        for plan, decision, decided in self._batches.documents(indexed.batch for indexed in batches):
            if decided is None:
                self._result.keep("it is unknown when they were landed", plan.batch)
                continue
            are_younger = before is not None and decided >= min(before, landed_before)
            if decided >= landed_before:
                continue
            if (candidate := _chosen(plan, decision, before, decided, known)) is not None:
                yield candidate


def _chosen(
    plan: Plan, decision: Manifest, before: int | None, decided: int, known: ExpiredObjects
) -> _Candidate | None:
    """The objects of a batch that are older and not known; None: there is none.

    A time of the future would keep a record for ever, so no record counts as younger than its batch.

    Args:
        plan: of the batch.
        decision: its manifest.
        before: in milliseconds; None: all are.
        decided: when it was decided, in milliseconds.
        known: objects that were recorded before.
    """
    if before is None or decided < before:
        older: Sequence[ObjectEntry] = decision.objects
    else:
        older = [entry for entry in decision.objects if entry.has_times and entry.max_timestamp < before]
    new = [entry for entry in older if not known.has(plan.batch, entry)]
    if not new:
        return None
    bound = None if len(older) == len(decision.objects) else before
    return _Candidate(plan, decision, bound, new)
