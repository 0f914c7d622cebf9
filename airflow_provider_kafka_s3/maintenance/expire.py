"""Delete objects of a topic that are no longer needed, behind a record in its log that they are gone on purpose.

The record comes first, and objects are deleted some time behind it, so that readers which began before can end. From
then on no reader expects them, and no run writes them again. Each call goes on where an earlier one has ended, so it
may be interrupted anywhere. What is deleted is compared with its manifest before: another object at a key stays.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.expiry import read_expiry, swap_expiry
from airflow_provider_kafka_s3.batch.given_away import GivenAway, owning_tables
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry, WaitingExpiry
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, UnknownOutcomeError, message_of
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.messages import few, printable
from airflow_provider_kafka_s3.progress import progress

__all__ = ["DEFAULT_GRACE", "DEFAULT_LEAST_AGE", "CommittedBatch", "Expired", "ExpiryGuard", "ExpiryRule", "expire"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

DEFAULT_GRACE: Final = 86_400.0
"""Seconds between the record and the deletion: longer than readers and runs take that began before."""

DEFAULT_LEAST_AGE: Final = 86_400.0
"""Seconds since a batch was landed, at least, whatever the times of its records are."""

_SWAPS: Final = 10
"""Writes of the document; one that is lost to another process is followed by an answer."""

_BATCHES: Final = 64
"""Batches whose documents are in memory together."""

_DELETED_AT_ONCE: Final = 1_000
"""Objects of one DeleteObjects request at most (API reference of S3)."""

CommittedBatch = tuple[Plan, Manifest]
"""A committed batch, by its documents."""


class ExpiryGuard(Protocol):
    """Keeps what something else still needs."""

    def kept(self, batches: Sequence[CommittedBatch], *, final: bool) -> Mapping[int, str]:
        """Why batches are kept, by their numbers; all others may be deleted.

        Args:
            batches: some that would be deleted, ascending.
            final: whether they are deleted next, and not just recorded.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ExpiryRule:
    """Which objects are no longer needed.

    Attributes:
        older_than: seconds: objects whose records are all older, and those of batches that were landed earlier; None:
            of any age, if they are landed elsewhere.
        landed_in: the pipeline that has to have their records; None: none has to.
        least_age: seconds since a batch was landed, at least.
        grace: seconds between the record and the deletion.
        tables: names of tables of the topic that guards look at, or that are gone. While the topic has another one,
            nothing is deleted.
        reason: why, for the record.
        operator: person who decides, for the record.
    """

    older_than: float | None = None
    landed_in: Landed | None = None
    least_age: float = DEFAULT_LEAST_AGE
    grace: float = DEFAULT_GRACE
    tables: frozenset[str] = frozenset()
    reason: str = "none given"
    operator: str

    def __post_init__(self) -> None:
        if self.older_than is None and self.landed_in is None:
            raise ConfigurationError(
                "it is not said which objects are no longer needed. Nothing was changed. Give their age (older_than), "
                "or the pipeline that has their records (landed_in), or both"
            )
        if min(self.older_than or 0.0, self.least_age, self.grace) < 0:
            raise ConfigurationError("older_than, least_age and grace cannot be negative. Nothing was changed")


@dataclass
class Expired:
    """What a call has done, or would do.

    Attributes:
        batches: number of batches with objects that were recorded as expired.
        recorded: number of these objects.
        recorded_size: bytes of these objects.
        deleted: number of objects that were deleted.
        deleted_size: their bytes.
        absent: number of objects to delete that were gone already.
        due: number of objects that were recorded long enough ago.
        kept: batches that are kept, by the reason.
        refused: keys of objects that were not deleted, with the reason.
        waiting: number of objects that are recorded and not deleted yet.
        waiting_size: their bytes.
        delete_from: when the first of these may be deleted, in seconds since the epoch; None: none waits.
    """

    batches: int = 0
    recorded: int = 0
    recorded_size: int = 0
    deleted: int = 0
    deleted_size: int = 0
    absent: int = 0
    due: int = 0
    kept: dict[str, list[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    waiting: int = 0
    waiting_size: int = 0
    delete_from: float | None = None


def expire(
    committer: Committer,
    rule: ExpiryRule,
    *,
    landed_in: Callable[[Landed], ExpiryGuard],
    guards: Sequence[ExpiryGuard] = (),
    now: float,
    dry_run: bool = False,
) -> Expired:
    """Record which objects of a topic are no longer needed, and delete those that were recorded long enough ago.

    Args:
        committer: of the topic.
        rule: which objects are no longer needed.
        landed_in: gives the guard that keeps what another pipeline does not have.
        guards: keep what something else needs.
        now: seconds since the epoch. S3 refuses requests of machines whose clock is wrong by more than minutes.
        dry_run: change nothing; the result is what would be done.

    Raises:
        MarkerMissingError: there is no marker, although batches exist.
        ControlError: a document cannot be trusted. Nothing was deleted since.
        AccessDeniedError: the right to delete objects is missing. What was recorded stays so; a later call goes on.
    """
    expiry = _Expiry(committer, rule, landed_in, guards, now)
    stored = expiry.record(dry_run=dry_run)
    expiry.delete(stored, dry_run=dry_run)
    return expiry.result


@dataclass(frozen=True)
class _Candidate:
    """Objects of a batch that are no longer needed.

    Attributes:
        plan: of the batch.
        decision: its manifest.
        entries: the objects.
        before: they are those all of whose records are older than this, in milliseconds; None: they are all.
    """

    plan: Plan
    decision: Manifest
    entries: tuple[ObjectEntry, ...]
    before: int | None

    @property
    def batch(self) -> int:
        return self.plan.batch

    @property
    def objects(self) -> ExpiredObjects:
        if self.before is None:
            return ExpiredObjects(batches=((self.batch, self.batch + 1),))
        return ExpiredObjects(before=((self.batch, self.before),))


class _Expiry:
    """One call."""

    def __init__(
        self,
        committer: Committer,
        rule: ExpiryRule,
        landed_in: Callable[[Landed], ExpiryGuard],
        guards: Sequence[ExpiryGuard],
        now: float,
    ) -> None:
        self._committer = committer
        self._log = committer.log
        self._rule = rule
        self._landed_in = landed_in
        self._guards = tuple(guards)
        self._now = now
        self.result = Expired()
        # Those that own objects delete them.
        self._tables = {owner.table for owner in owning_tables(committer.log) if not owner.last}

    # -- the record ---------------------------------------------------------------------------------------------------

    def record(self, *, dry_run: bool) -> tuple[Expiry, str | None]:
        """Record what is no longer needed; the document as it is stored then."""
        for _ in range(_SWAPS):
            stored = read_expiry(self._log)
            before, etag = stored or (Expiry(topic=self._log.topic), None)
            waiting = self._find(before.objects)
            if waiting is None or dry_run:
                return before, etag
            number = before.number + waiting.number
            after = msgspec.structs.replace(before, number=number, waiting=(*before.waiting, waiting))
            if swap_expiry(self._log, after, etag):
                log.info(
                    "topic %s: %d objects of %d batches are recorded as no longer needed",
                    self._log.topic,
                    waiting.number,
                    self.result.batches,
                )
            # Read again also if it is stored: its ETag is needed, and another process may have been faster.
            stored = read_expiry(self._log)
            if stored is not None and waiting in stored[0].waiting:
                return stored
        raise UnknownOutcomeError(
            f"topic {self._log.topic!r}: the document of deleted objects could not be replaced: others changed it, or "
            f"the store gave no usable answer, {_SWAPS} times. Nothing was deleted; try again"
        )

    def _find(self, known: ExpiredObjects) -> WaitingExpiry | None:
        """What is no longer needed and not recorded as such; None: nothing."""
        result, rule = self.result, self._rule
        result.batches = result.recorded = result.recorded_size = 0
        result.kept = {}
        marker, _ = self._log.require_marker()
        objects = ExpiredObjects()
        guards = self._guards_of(rule.landed_in)
        for block in _blocks(self._candidates(marker, known)):
            kept = self._kept([(one.plan, one.decision) for one in block], guards, final=False)
            for candidate in block:
                if candidate.batch in kept:
                    continue
                objects |= candidate.objects
                result.batches += 1
                result.recorded += len(candidate.entries)
                result.recorded_size += sum(entry.size for entry in candidate.entries)
        if not objects:
            return None
        return WaitingExpiry(
            objects=objects,
            number=result.recorded,
            size=result.recorded_size,
            delete_from=int((self._now + rule.grace) * 1000),
            reason=rule.reason,
            operator=rule.operator,
            landed_in=rule.landed_in,
        )

    def _candidates(self, marker: Marker, known: ExpiredObjects) -> Iterator[_Candidate]:
        """The batches with objects that the rule has and that are not known, ascending."""
        rule, now = self._rule, self._now
        before = None if rule.older_than is None else int((now - rule.older_than) * 1000)
        landed_before = int((now - rule.least_age) * 1000)
        given_away = GivenAway(self._log)
        first = 1
        while known.has_all(first):
            first = next(end for start, end in known.batches if start <= first < end)
        are_younger = False
        for indexed in indexed_batches(self._log, marker, first, parallel=self._committer.parallel):
            if indexed.status != "commit" or known.has_all(indexed.batch) or not indexed.objects:
                continue
            # Batches are landed about in the order of their numbers.
            if are_younger and indexed.has_times and (before is None or indexed.min_timestamp >= before):
                continue
            if (table := given_away.table_of_batch(indexed.batch)) is not None:
                self._keep(_given_to(table), indexed)
                continue
            plan, _ = self._log.require_plan(indexed.batch)
            decision, _ = self._log.require_decision(indexed.batch)
            _, decided = self._log.times(indexed.batch)
            self._log.forget(indexed.batch)
            if decided is None:
                self._keep("it is unknown when they were landed", indexed)
                continue
            milliseconds = int(decided.timestamp() * 1000)
            are_younger = milliseconds >= (landed_before if before is None else min(before, landed_before))
            if milliseconds >= landed_before:
                continue
            candidate = _chosen(plan, decision, before, milliseconds)
            if candidate is None or not (left := [e for e in candidate.entries if not known.has(plan.batch, e)]):
                continue
            if _has_newest_chunk(plan, decision, marker):
                self._keep("they have the newest object of a Kafka partition, which its marker file names", indexed)
            else:
                yield _Candidate(plan, decision, tuple(left), candidate.before)

    def _guards_of(self, landed_in: Landed | None) -> Sequence[ExpiryGuard]:
        return self._guards if landed_in is None else (self._landed_in(landed_in), *self._guards)

    def _kept(
        self, batches: Sequence[CommittedBatch], guards: Sequence[ExpiryGuard], *, final: bool
    ) -> Mapping[int, str]:
        kept: dict[int, str] = {}
        for guard in guards:
            left = [one for one in batches if one[0].batch not in kept]
            kept |= guard.kept(left, final=final) if left else {}
        for plan, _ in batches:
            if (why := kept.get(plan.batch)) is not None:
                self._keep(why, plan)
        return kept

    def _keep(self, why: str, one: Plan | IndexedBatch) -> None:
        numbers = self.result.kept.setdefault(why, [])
        if one.batch not in numbers[-1:]:
            numbers.append(one.batch)

    # -- deletion -----------------------------------------------------------------------------------------------------

    def delete(self, stored: tuple[Expiry, str | None], *, dry_run: bool) -> None:
        """Delete what was recorded long enough ago."""
        expiry, etag = stored
        due = [one for one in expiry.waiting if one.delete_from <= self._now * 1000]
        self.result.due = sum(one.number for one in due)
        done = [one for one in due if not dry_run and self._delete(one)]
        for _ in range(_SWAPS):
            left = tuple(one for one in expiry.waiting if one not in done)
            deleted = expiry.deleted
            for record in done:
                deleted |= record.objects
            after = msgspec.structs.replace(expiry, deleted=deleted, waiting=left)
            if after == expiry or swap_expiry(self._log, after, etag):
                break
            expiry, etag = read_expiry(self._log) or (expiry, etag)
        else:
            # They are deleted, and a later call finds them gone.
            log.warning("topic %s: the document of deleted objects could not be replaced", self._log.topic)
        self.result.waiting = sum(one.number for one in left)
        self.result.waiting_size = sum(one.size for one in left)
        self.result.delete_from = min((one.delete_from / 1000 for one in left), default=None)

    def _delete(self, waiting: WaitingExpiry) -> bool:
        """Delete the objects of a record; whether all of them are gone."""
        is_whole = True
        given_away, guards = GivenAway(self._log), self._guards_of(waiting.landed_in)
        unknown = ""
        if tables := [printable(table) for table in sorted(self._tables - self._rule.tables)]:
            unknown = f"table {few(tables)} may have them: name it, with its catalog, or that it is gone"
        with progress(f"topic {self._log.topic}: expire", total=waiting.number, unit="object") as advance:
            numbers = itertools.chain.from_iterable(itertools.starmap(range, waiting.objects.numbers()))
            for block in _blocks(self._committed(numbers)):
                kept = self._kept(block, guards, final=True) if not unknown else {}
                for plan, decision in block:
                    table = given_away.table_of_batch(plan.batch)
                    if why := unknown or (table is not None and _given_to(table)):
                        self._keep(why, plan)
                    if why or plan.batch in kept:
                        is_whole = False
                        continue
                    entries = [entry for entry in decision.objects if waiting.objects.has(plan.batch, entry)]
                    is_whole &= self._delete_objects(plan, entries)
                    advance(len(entries))
        return is_whole

    def _committed(self, numbers: Iterable[int]) -> Iterator[CommittedBatch]:
        for number in numbers:
            plan, _ = self._log.require_plan(number)
            decision, _ = self._log.require_decision(number)
            self._log.forget(number)
            if decision.objects:
                yield plan, decision

    def _delete_objects(self, plan: Plan, entries: Sequence[ObjectEntry]) -> bool:
        """Delete objects of a batch; whether none of them is left."""
        result, store = self.result, self._committer.store
        refused = len(result.refused)

        def is_there(entry: ObjectEntry) -> bool | str:
            try:
                return self._committer.objects.is_intact(plan, entry)
            except ForeignObjectError as e:
                return message_of(e)

        for start in range(0, len(entries), _DELETED_AT_ONCE):
            block = entries[start : start + _DELETED_AT_ONCE]
            looks = self._committer.parallel(is_there, block)
            result.refused |= {
                entry.key: look for entry, look in zip(block, looks, strict=True) if isinstance(look, str)
            }
            there = {entry.key: entry.size for entry, look in zip(block, looks, strict=True) if look is True}
            result.absent += sum(look is False for look in looks)
            kept = store.delete_objects([*there]) if there else {}
            result.refused |= kept
            result.deleted += len(there.keys() - kept.keys())
            result.deleted_size += sum(size for key, size in there.items() if key not in kept)
        return len(result.refused) == refused


def _given_to(table: str) -> str:
    return f"their objects were given to table {printable(table)}, whose engines delete them"


def _chosen(plan: Plan, decision: Manifest, before: int | None, decided: int) -> _Candidate | None:
    """The objects of a batch that are older; None: none is.

    A time of the future would keep a record for ever, so no record counts as younger than its batch.

    Args:
        plan: of the batch.
        decision: its manifest.
        before: in milliseconds; None: all are.
        decided: when it was decided, in milliseconds.
    """
    if before is None or decided < before:
        return _Candidate(plan, decision, decision.objects, None)
    older = tuple(entry for entry in decision.objects if entry.has_times and entry.max_timestamp < before)
    if not older:
        return None
    return _Candidate(plan, decision, older, None if len(older) == len(decision.objects) else before)


def _has_newest_chunk(plan: Plan, decision: Manifest, marker: Marker) -> bool:
    """Whether a batch has an object that a marker file of DeviantArt's names."""
    if plan.layout is None or not keys.shares_folder(plan.layout) or plan.generation != marker.generation:
        return False
    ends = {s.id: marker.covered.end(s.partition) for s in plan.slices}
    return any(ends[part.id] == part.max_offset + 1 for entry in decision.objects for part in entry.by_slice)


def _blocks(items: Iterable[_T]) -> Iterator[list[_T]]:
    left = iter(items)
    while block := [*itertools.islice(left, _BATCHES)]:
        yield block
