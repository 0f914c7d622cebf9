"""Deletes the objects of a topic that were recorded as no longer needed long enough ago."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.expiry import change_expiry, current_expiry
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.documents.expiry import Expiry, WaitingExpiry
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ForeignObjectError, message_of
from airflow_provider_kafka_s3.maintenance.expiry_batches import ExpiryBatches, ObjectSum, blocks
from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.progress import progress

__all__ = ["ExpiryDeletion"]

_DELETED_AT_ONCE: Final = 1_000
"""Objects of one DeleteObjects request at most (API reference of S3)."""


class ExpiryDeletion:
    """Deletes what is recorded, in one call.

    Args:
        committer: of the topic.
        batches: of the topic.
        now: seconds since the epoch.
        result: what the call has done.
    """

    def __init__(self, committer: Committer, batches: ExpiryBatches, now: float, result: Expired) -> None:
        self._committer = committer
        self._log = committer.log
        self._batches = batches
        self._now = now
        self._result = result

    def delete(self, *, dry_run: bool) -> None:
        """Delete what was recorded long enough ago."""
        expiry = current_expiry(self._log)
        due = [waiting for waiting in expiry.waiting if waiting.delete_from <= self._now * 1000]
        for waiting in due:
            done = self._delete(waiting, dry_run=dry_run)
            if not dry_run:
                self._note_deleted(waiting, done)
        left = current_expiry(self._log).waiting
        self._result.waiting = sum(waiting.number for waiting in left)
        self._result.waiting_size = sum(waiting.size for waiting in left)
        self._result.delete_from = min((waiting.delete_from / 1000 for waiting in left), default=None)

    def _begin(self, waiting: WaitingExpiry) -> bool:
        """Note that the objects of a record are deleted now; False if it was withdrawn, or others have deleted them."""

        def begun(expiry: Expiry) -> Expiry:
            records = [
                msgspec.structs.replace(other, has_begun=True) if _is_same(other, waiting) else other
                for other in expiry.waiting
            ]
            return msgspec.structs.replace(expiry, waiting=tuple(records))

        _, after = change_expiry(self._log, begun)
        return any(_is_same(other, waiting) for other in after.waiting)

    def _note_deleted(self, waiting: WaitingExpiry, done: ObjectSum) -> None:
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
            change_expiry(self._log, deleted)

    def _delete(self, waiting: WaitingExpiry, *, dry_run: bool) -> ObjectSum:
        """Delete the objects of a record."""
        done, has_begun, recorded = ObjectSum(), False, waiting.objects
        guards = self._batches.guards_of(waiting.landed_in)
        numbers = itertools.chain.from_iterable(itertools.starmap(range, recorded.numbers()))
        with progress(f"topic {self._log.topic}: expire", total=waiting.number, unit="object") as advance:
            committed = ((plan, decision) for plan, decision, _ in self._batches.documents(numbers) if decision.objects)
            for block in blocks(committed, lambda batch: len(batch[1].objects)):
                # Tables may have been added since the last block.
                kept = self._batches.kept(block, guards, GivenAway(self._log), final=True)
                left = [
                    (plan, entry)
                    for plan, decision in block
                    if plan.batch not in kept
                    for entry in decision.objects
                    if recorded.has(plan.batch, entry)
                ]
                if left and not dry_run and not has_begun:
                    # Until now it may be withdrawn.
                    has_begun = self._begin(waiting)
                    if not has_begun:
                        return done
                staying = {*kept, *(self._delete_objects(left) if not dry_run else self._would_delete(left))}
                gone = [plan.batch for plan, _ in block if plan.batch not in staying]
                done.add(recorded.of(gone), len(gone), [entry for plan, entry in left if plan.batch not in staying])
                advance(len(left))
        return done

    def _would_delete(self, entries: Sequence[tuple[Plan, ObjectEntry]]) -> Iterable[int]:
        self._result.deleted += len(entries)
        self._result.deleted_size += sum(entry.size for _, entry in entries)
        return ()

    def _delete_objects(self, entries: Sequence[tuple[Plan, ObjectEntry]]) -> set[int]:
        """Delete objects; the batches that some of them are left of."""
        result, store = self._result, self._committer.store
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


def _is_same(record: WaitingExpiry, other: WaitingExpiry) -> bool:
    """Whether two are one record, whose deletion may have begun."""
    return record == msgspec.structs.replace(other, has_begun=record.has_begun)


def _all_denied(refused: Mapping[str, str]) -> bool:
    return all(why.startswith("AccessDenied") for why in refused.values())
