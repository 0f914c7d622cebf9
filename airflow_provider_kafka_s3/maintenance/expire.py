"""Delete objects of a topic that are no longer needed, behind a record in its log that they are gone on purpose.

The record comes first, and objects are deleted some time behind it, so that readers which began before can end. From
then on no reader expects them, and no run writes them again. Until the deletion begins, the record can be withdrawn.
Each call goes on where an earlier one has ended, so it may be interrupted anywhere. What is deleted is compared with
its manifest before: another object at a key stays.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.derived.chunk_markers import newest_indexes
from airflow_provider_kafka_s3.batch.expiry import read_expiry, swap_expiry
from airflow_provider_kafka_s3.batch.given_away import GivenAway, owning_tables
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry, WaitingExpiry
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import coalesce
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ForeignObjectError,
    UnknownOutcomeError,
    message_of,
)
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.messages import count, few, printable
from airflow_provider_kafka_s3.progress import progress

__all__ = [
    "DEFAULT_GRACE",
    "DEFAULT_LEAST_AGE",
    "CommittedBatch",
    "Expired",
    "ExpiryGuard",
    "ExpiryRule",
    "expire",
    "withdraw",
]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

DEFAULT_GRACE: Final = 86_400.0
"""Seconds between the record and the deletion: longer than readers and runs take that began before."""

DEFAULT_LEAST_AGE: Final = 86_400.0
"""Seconds since a batch was landed, at least, whatever the times of its records are."""

_SWAPS: Final = 10
"""Writes of the document; one that is lost to another process is followed by an answer."""

_BATCHES: Final = 64
"""Batches whose documents are in memory together, at most."""

_ENTRIES: Final = 100_000
"""Objects of batches whose documents are in memory together; one batch may have more."""

_READERS: Final = 16
"""Documents that are read at the same time."""

_RECORDED_AT_ONCE: Final = 1_000
"""Batches behind which a record is written, so that an interrupted call does not begin anew."""

_DELETED_AT_ONCE: Final = 1_000
"""Objects of one DeleteObjects request at most (API reference of S3)."""

_NAMED: Final = 100
"""Objects that were not deleted and are named, at most."""

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
            nothing is recorded or deleted.
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
        deleted: number of objects that were deleted; of a dry run, that would be.
        deleted_size: their bytes.
        absent: number of objects to delete that were gone already.
        kept: batches that are kept, by the reason.
        refused: number of objects that were not deleted.
        named: keys of the first of these, with the reason.
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
    kept: dict[str, list[int]] = field(default_factory=dict)
    refused: int = 0
    named: dict[str, str] = field(default_factory=dict)
    waiting: int = 0
    waiting_size: int = 0
    delete_from: float | None = None

    def keep(self, why: str, batch: int) -> None:
        """Note why a batch is kept."""
        numbers = self.kept.setdefault(why, [])
        if batch not in numbers[-1:]:
            numbers.append(batch)

    def refuse(self, key: str, why: str) -> None:
        """Note an object that was not deleted."""
        self.refused += 1
        if len(self.named) < _NAMED:
            self.named[key] = why


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
    expiry.record(dry_run=dry_run)
    expiry.delete(dry_run=dry_run)
    return expiry.result


def withdraw(committer: Committer) -> tuple[int, int]:
    """Take back what is recorded as no longer needed, as far as its deletion has not begun.

    Returns:
        Number of objects that are needed again, and of those whose deletion has begun.
    """

    def begun_only(expiry: Expiry) -> Expiry:
        begun = tuple(waiting for waiting in expiry.waiting if waiting.has_begun)
        return msgspec.structs.replace(expiry, waiting=begun)

    taken, left = (sum(waiting.number for waiting in expiry.waiting) for expiry in _change(committer, begun_only))
    return taken - left, left


def _change(committer: Committer, change: Callable[[Expiry], Expiry]) -> tuple[Expiry, Expiry]:
    """Change the document, whatever others do; the document before it and behind it, both empty if there is none."""
    for _ in range(_SWAPS):
        stored = read_expiry(committer.log)
        if stored is None:
            nothing = Expiry(topic=committer.log.topic)
            return nothing, nothing
        before, etag = stored
        after = change(before)
        if after == before or swap_expiry(committer.log, after, etag):
            return before, after
    raise _not_replaced(committer)


def _not_replaced(committer: Committer) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"topic {committer.log.topic!r}: the document of deleted objects could not be replaced: others changed it, or "
        f"the store gave no usable answer, {_SWAPS} times. Nothing was deleted since; try again"
    )


@dataclass(frozen=True)
class _Candidate:
    """Objects of a batch that are no longer needed.

    Attributes:
        plan: of the batch.
        decision: its manifest.
        before: the objects are those all of whose records are older than this, in milliseconds; None: they are all.
        number: of the objects, but for those that were recorded before.
        size: their bytes.
    """

    plan: Plan
    decision: Manifest
    before: int | None
    number: int
    size: int

    @property
    def objects(self) -> ExpiredObjects:
        """The objects."""
        batch = self.plan.batch
        if self.before is None:
            return ExpiredObjects(batches=((batch, batch + 1),))
        return ExpiredObjects(before=((batch, self.before),))


@dataclass
class _New:
    """What is to be recorded.

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

    def add(self, candidate: _Candidate) -> None:
        """Add those of a batch."""
        self.objects |= candidate.objects
        self.batches += 1
        self.number += candidate.number
        self.size += candidate.size


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

    # -- the record ---------------------------------------------------------------------------------------------------

    def record(self, *, dry_run: bool) -> None:
        """Record what is no longer needed, a thousand batches at a time."""
        marker, _ = self._log.require_marker()
        stored = read_expiry(self._log)
        known = ExpiredObjects() if stored is None else stored[0].objects
        guards, new = self._guards_of(self._rule.landed_in), _New()
        with progress(f"topic {self._log.topic}: record", total=marker.last_resolved, unit="batch") as advance:
            candidates = self._candidates(marker, known, advance)
            for block in _blocks(candidates, lambda candidate: len(candidate.decision.objects)):
                kept = self._kept([(candidate.plan, candidate.decision) for candidate in block], guards, final=False)
                for candidate in block:
                    if candidate.plan.batch not in kept:
                        new.add(candidate)
                        self.result.batches += 1
                        self.result.recorded += candidate.number
                        self.result.recorded_size += candidate.size
                if new.batches >= _RECORDED_AT_ONCE and not dry_run:
                    self._record(new)
                    new = _New()
        if not dry_run:
            self._record(new)

    def _record(self, new: _New) -> None:
        rule = self._rule
        for _ in range(_SWAPS):
            stored = read_expiry(self._log)
            before, etag = stored or (Expiry(topic=self._log.topic), None)
            if not (objects := new.objects.without(before.objects)):
                return
            waiting = WaitingExpiry(
                objects=objects,
                number=new.number,
                size=new.size,
                delete_from=int((self._now + rule.grace) * 1000),
                reason=rule.reason,
                operator=rule.operator,
                landed_in=rule.landed_in,
            )
            after = msgspec.structs.replace(
                before, number=before.number + new.number, waiting=(*before.waiting, waiting)
            )
            if swap_expiry(self._log, after, etag):
                log.info("topic %s: %s recorded as no longer needed", self._log.topic, count(new.number, "object"))
                return
        raise _not_replaced(self._committer)

    def _candidates(
        self, marker: Marker, known: ExpiredObjects, advance: Callable[[int], object]
    ) -> Iterator[_Candidate]:
        """The batches with objects that the rule has and that are not known, ascending."""
        rule, now = self._rule, self._now
        before = None if rule.older_than is None else int((now - rule.older_than) * 1000)
        landed_before = int((now - rule.least_age) * 1000)
        given_away = GivenAway(self._log)
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
            return given_away.table_of_batch(indexed.batch) is None

        batches = filter(may_be_older, indexed_batches(self._log, marker, first, parallel=self._committer.parallel))
        names = self._newest_chunks(marker)
        for plan, decision, decided in self._documents(indexed.batch for indexed in batches):
            if decided is None:
                self.result.keep("it is unknown when they were landed", plan.batch)
                continue
            are_younger = before is not None and decided >= min(before, landed_before)
            if decided >= landed_before:
                continue
            candidate = _chosen(plan, decision, before, decided, known)
            if candidate is None:
                continue
            if not names.isdisjoint(entry.key for entry in decision.objects):
                self.result.keep("a marker file names an object of theirs", plan.batch)
                continue
            yield candidate

    def _documents(self, numbers: Iterable[int]) -> Iterator[tuple[Plan, Manifest, int | None]]:
        """Plans and manifests, and when the batches were decided, in milliseconds; None: that is unknown."""
        left = iter(numbers)
        while block := [*itertools.islice(left, _READERS)]:
            plans = self._committer.parallel(self._log.require_plan, block, threads=_READERS)
            decisions = self._committer.parallel(self._log.require_decision, block, threads=_READERS)
            for (plan, _), (decision, _) in zip(plans, decisions, strict=True):
                decided = self._log.times(plan.batch)[1]
                self._log.forget(plan.batch)
                yield plan, decision, None if decided is None else int(decided.timestamp() * 1000)

    def _newest_chunks(self, marker: Marker) -> frozenset[str]:
        """Keys of the indexes that marker files of DeviantArt's names have."""
        layout = self._log.last_layout(marker.last_resolved + 1) if marker.resolved else None
        if layout is None or not keys.shares_folder(layout):
            return frozenset()
        return frozenset(newest_indexes(self._log, marker, parallel=self._committer.parallel).values())

    def _guards_of(self, landed_in: Landed | None) -> Sequence[ExpiryGuard]:
        return self._guards if landed_in is None else (self._landed_in(landed_in), *self._guards)

    def _kept(
        self, batches: Sequence[CommittedBatch], guards: Sequence[ExpiryGuard], *, final: bool
    ) -> Mapping[int, str]:
        """Why batches are kept; the result has it, too."""
        tables = {owner.table for owner in owning_tables(self._log)} - self._rule.tables
        kept: dict[int, str] = {}
        if tables:
            unknown = few([printable(table) for table in sorted(tables)])
            why = f"table {unknown} may have them: name it, with its catalog, or that it is gone"
            kept = {plan.batch: why for plan, _ in batches}
        for guard in guards:
            left = [(plan, decision) for plan, decision in batches if plan.batch not in kept]
            kept |= guard.kept(left, final=final) if left else {}
        for plan, _ in batches:
            if (reason := kept.get(plan.batch)) is not None:
                self.result.keep(reason, plan.batch)
        return kept

    # -- deletion -----------------------------------------------------------------------------------------------------

    def delete(self, *, dry_run: bool) -> None:
        """Delete what was recorded long enough ago."""
        expiry = self._expiry()
        due = [waiting for waiting in expiry.waiting if waiting.delete_from <= self._now * 1000]
        for waiting in due:
            done = self._delete(waiting, dry_run=dry_run)
            if not dry_run:
                self._note_deleted(waiting, done)
        left = self._expiry().waiting
        self.result.waiting = sum(waiting.number for waiting in left)
        self.result.waiting_size = sum(waiting.size for waiting in left)
        self.result.delete_from = min((waiting.delete_from / 1000 for waiting in left), default=None)

    def _expiry(self) -> Expiry:
        stored = read_expiry(self._log)
        return Expiry(topic=self._log.topic) if stored is None else stored[0]

    def _begin(self, waiting: WaitingExpiry) -> bool:
        """Note that the objects of a record are deleted now; False if it was withdrawn, or others have deleted them."""

        def begun(expiry: Expiry) -> Expiry:
            records = [
                msgspec.structs.replace(other, has_begun=True) if _is_same(other, waiting) else other
                for other in expiry.waiting
            ]
            return msgspec.structs.replace(expiry, waiting=tuple(records))

        _, after = _change(self._committer, begun)
        return any(_is_same(other, waiting) for other in after.waiting)

    def _note_deleted(self, waiting: WaitingExpiry, done: _Deleted) -> None:
        """Note which objects of a record are deleted."""

        def without(other: WaitingExpiry) -> WaitingExpiry | None:
            if not _is_same(other, waiting):
                return other
            if not (left := other.objects.without(done.objects)):
                return None
            number, size = max(other.number - done.number, 0), max(other.size - done.size, 0)
            return msgspec.structs.replace(other, objects=left, number=number, size=size)

        def deleted(expiry: Expiry) -> Expiry:
            records = [left for other in expiry.waiting if (left := without(other)) is not None]
            return msgspec.structs.replace(expiry, deleted=expiry.deleted | done.objects, waiting=tuple(records))

        if done.objects:
            _change(self._committer, deleted)

    def _delete(self, waiting: WaitingExpiry, *, dry_run: bool) -> _Deleted:
        """Delete the objects of a record."""
        done, has_begun = _Deleted(), False
        guards, given_away = self._guards_of(waiting.landed_in), GivenAway(self._log)
        names = self._newest_chunks(self._log.require_marker()[0])
        numbers = itertools.chain.from_iterable(itertools.starmap(range, waiting.objects.numbers()))
        with progress(f"topic {self._log.topic}: expire", total=waiting.number, unit="object") as advance:
            committed = ((plan, decision) for plan, decision, _ in self._documents(numbers) if decision.objects)
            for block in _blocks(committed, lambda batch: len(batch[1].objects)):
                kept = {*self._kept(block, guards, final=True)}
                for plan, decision in block:
                    if (table := given_away.table_of_batch(plan.batch)) is not None:
                        why = f"they were given to table {printable(table)} since, whose engines delete them"
                    elif not names.isdisjoint(entry.key for entry in decision.objects):
                        why = "a marker file names an object of theirs"
                    else:
                        continue
                    self.result.keep(why, plan.batch)
                    kept.add(plan.batch)
                left = [
                    (plan, entry)
                    for plan, decision in block
                    if plan.batch not in kept
                    for entry in decision.objects
                    if waiting.objects.has(plan.batch, entry)
                ]
                if left and not dry_run and not has_begun:
                    # Until now it may be withdrawn.
                    has_begun = self._begin(waiting)
                    if not has_begun:
                        return done
                staying = {*kept, *(self._delete_objects(left) if not dry_run else self._would_delete(left))}
                gone = [(plan, entry) for plan, entry in left if plan.batch not in staying]
                done.add(waiting.objects, [plan.batch for plan, _ in block if plan.batch not in staying], gone)
                advance(len(left))
        return done

    def _would_delete(self, entries: Sequence[tuple[Plan, ObjectEntry]]) -> Iterable[int]:
        self.result.deleted += len(entries)
        self.result.deleted_size += sum(entry.size for _, entry in entries)
        return ()

    def _delete_objects(self, entries: Sequence[tuple[Plan, ObjectEntry]]) -> set[int]:
        """Delete objects; the batches that some of them are left of."""
        result, store = self.result, self._committer.store
        staying: set[int] = set()

        def look(item: tuple[Plan, ObjectEntry]) -> bool | str:
            try:
                return self._committer.objects.is_intact(*item)
            except ForeignObjectError as e:
                return message_of(e)

        for start in range(0, len(entries), _DELETED_AT_ONCE):
            block = entries[start : start + _DELETED_AT_ONCE]
            looks = dict(zip((entry.key for _, entry in block), self._committer.parallel(look, block), strict=True))
            there = [key for key, found in looks.items() if found is True]
            refused = dict(store.delete_objects(there)) if there else {}
            if there and len(refused) == len(there) and not result.deleted and _all_denied(refused):
                raise AccessDeniedError(
                    f"topic {self._log.topic!r}: the store refuses to delete each of {count(len(there), 'object')} "
                    f"({next(iter(refused.values()))}). Nothing was deleted, and they stay recorded as no longer "
                    f"needed. Give the role s3:DeleteObject (docs/iam.md), and run again; the first one: "
                    f"{store.url(there[0])}"
                )
            refused |= {key: found for key, found in looks.items() if isinstance(found, str)}
            for plan, entry in block:
                if (why := refused.get(entry.key)) is not None:
                    result.refuse(entry.key, why)
                    staying.add(plan.batch)
                elif looks[entry.key] is True:
                    result.deleted += 1
                    result.deleted_size += entry.size
                else:
                    result.absent += 1
        return staying


@dataclass
class _Deleted:
    """What is deleted of a record.

    Attributes:
        objects: they.
        number: how many.
        size: their bytes.
    """

    objects: ExpiredObjects = field(default_factory=ExpiredObjects)
    number: int = 0
    size: int = 0

    def add(self, recorded: ExpiredObjects, batches: Iterable[int], gone: Sequence[tuple[Plan, ObjectEntry]]) -> None:
        """Add all objects of a record that batches have."""
        times = dict(recorded.before)
        numbers = [*batches]
        whole = coalesce((batch, batch + 1) for batch in numbers if batch not in times)
        parts = tuple((batch, times[batch]) for batch in numbers if batch in times)
        self.objects |= ExpiredObjects(batches=whole) | ExpiredObjects(before=parts)
        self.number += len(gone)
        self.size += sum(entry.size for _, entry in gone)


def _is_same(record: WaitingExpiry, other: WaitingExpiry) -> bool:
    """Whether two are one record, whose deletion may have begun."""
    return record == msgspec.structs.replace(other, has_begun=record.has_begun)


def _all_denied(refused: Mapping[str, str]) -> bool:
    return all(why.startswith("AccessDenied") for why in refused.values())


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
    return _Candidate(plan, decision, bound, len(new), sum(entry.size for entry in new))


def _blocks(items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
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
