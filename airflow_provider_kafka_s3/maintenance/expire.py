"""Delete objects of a topic that are no longer needed, behind a record in its log that they are gone on purpose.

The record comes first, and objects are deleted some time behind it, so that readers which began before can end. From
then on no reader expects them, and no run writes them again. Until the deletion begins, the record can be withdrawn.
Each call goes on where an earlier one has ended, so it may be interrupted anywhere. What is deleted is compared with
its manifest before: another object at a key stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.expiry import change_expiry
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.expiry import Expiry
from airflow_provider_kafka_s3.maintenance.expiry_batches import ExpiryBatches
from airflow_provider_kafka_s3.maintenance.expiry_deletion import ExpiryDeletion
from airflow_provider_kafka_s3.maintenance.expiry_record import ExpiryRecorder
from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired, ExpiryGuard, ExpiryRule

__all__ = ["expire", "withdraw"]


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
    result = Expired()
    # What keeps objects is looked at again for the deletion.
    to_record, to_delete = (ExpiryBatches(committer, rule, landed_in, guards, result) for _ in range(2))
    ExpiryRecorder(committer, rule, to_record, now, result).record(dry_run=dry_run)
    ExpiryDeletion(committer, to_delete, now, result).delete(dry_run=dry_run)
    return result


def withdraw(committer: Committer) -> tuple[int, int]:
    """Take back what is recorded as no longer needed, as far as its deletion has not begun.

    Returns:
        Number of objects that are needed again, and of those whose deletion has begun.
    """

    def begun_only(expiry: Expiry) -> Expiry:
        begun = tuple(waiting for waiting in expiry.waiting if waiting.has_begun)
        return msgspec.structs.replace(expiry, waiting=begun)

    taken, left = (
        sum(waiting.number for waiting in expiry.waiting) for expiry in change_expiry(committer.log, begun_only)
    )
    return taken - left, left
