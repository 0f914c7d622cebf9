"""Check that the objects of committed batches still exist: one HEAD request per object, no bytes are read.

:mod:`airflow_provider_kafka_s3.inspect.verify` reads the bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.coverage import Covering
from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.batch.rebuild import Lost, batch_loss
from airflow_provider_kafka_s3.batch.remedies import RESTORE_RUN
from airflow_provider_kafka_s3.batch.request import OnMissing
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import MissingObjectError
from airflow_provider_kafka_s3.messages import count, few

__all__ = ["missing_objects", "require_objects"]

log = logging.getLogger(__name__)

_HEADS_AT_ONCE: Final = 1_000
"""Objects checked together."""


def require_objects(
    committer: Committer, batches: Iterable[Covering], target: Offsets, *, on_missing: OnMissing
) -> tuple[int, int]:
    """Check by HEAD every object of committed batches that may hold offsets of a target.

    Objects that were given to a table, accepted as lost, or deleted on purpose may be gone.

    Args:
        committer: decides and completes the batches of the topic.
        batches: batches that cover the target; iterated once, and only those with missing objects are kept.
        target: offsets.
        on_missing: policy for missing objects: ``fail``, ``restore`` (write again from Kafka) or ``ignore``.

    Returns:
        Number of objects that exist, and number of these that were restored.

    Raises:
        MissingObjectError: objects are gone and ``on_missing`` is ``fail``; names the objects and the remedies.
        ForeignObjectError: a key holds an object that the batch did not write.
        BatchLossError: an object cannot be restored.
        UnknownOutcomeError: requests of another kind find an object that HEAD does not.
    """
    missing: list[tuple[Plan, list[ObjectEntry]]] = []
    given_away = GivenAway(committer.log)
    existing = restored = 0
    for group in _groups(batches, target):
        intact = committer.parallel(lambda pair: committer.objects.is_intact(*pair), group)
        existing += sum(intact)
        gone: dict[int, tuple[Plan, list[ObjectEntry]]] = {}
        for (plan, entry), exists in zip(group, intact, strict=True):
            if not exists:
                gone.setdefault(plan.batch, (plan, []))[1].append(entry)
        expired = expired_objects(committer.log) if gone else ExpiredObjects()
        for batch, (plan, entries) in gone.items():
            amended = committer.log.amended_keys(batch)[0]
            unamended = [entry for entry in entries if entry.key not in amended and not expired.has(batch, entry)]
            of_tables = given_away.tables(plan, unamended)
            unamended = [entry for entry in unamended if entry.key not in of_tables]
            if left := committer.objects.gone(plan, unamended):
                missing.append((plan, left))
            existing += len(unamended) - len(left)
    if missing and on_missing == "fail":
        raise missing_objects(
            committer, [plan.batch for plan, _ in missing], [entry.key for _, gone in missing for entry in gone]
        )
    lost: list[Lost] = []
    for plan, entries in missing:
        if on_missing == "restore":
            lost += committer.objects.write_again(plan, entries) or ()
            restored += len(entries)
        else:
            urls = [committer.store.url(entry.key) for entry in entries]
            log.warning("objects are gone, ignored since on_missing='ignore': %s", few(urls))
    if lost:
        accept = committer.log.remedies.accept_deleted([loss.plan.batch for loss in lost])
        raise batch_loss(committer.log, lost, f"Accept that they are gone: {accept}")
    return existing + restored, restored


def _groups(batches: Iterable[Covering], target: Offsets) -> Iterator[list[tuple[Plan, ObjectEntry]]]:
    """Objects of several small batches together, so that they are checked at the same time."""
    group: list[tuple[Plan, ObjectEntry]] = []
    for batch in batches:
        group += [(batch.plan, entry) for entry in batch.objects(target)]
        if len(group) >= _HEADS_AT_ONCE:
            yield group
            group = []
    yield group


def missing_objects(committer: Committer, batches: Sequence[int], missing: Sequence[str]) -> MissingObjectError:
    """The error for objects that are gone, with both remedies."""
    return MissingObjectError(
        f"{count(len(missing), 'object')} of committed batch{'' if len(set(batches)) == 1 else 'es'} "
        f"{few([str(b) for b in sorted(set(batches))])} of topic "
        f"{committer.log.topic!r} {'is' if len(missing) == 1 else 'are'} gone: "
        f"{few([committer.store.url(key) for key in missing])}. Neither HEAD nor GET nor LIST requests find them, the "
        f"last ones after a pause. Nothing was changed. "
        f"Write them again: by {RESTORE_RUN}, or {committer.log.remedies.restore(batches)}. Or accept "
        f"that they are gone: for this run with on_missing='ignore', for good by "
        f"{committer.log.remedies.accept_deleted(batches)}"
    )
