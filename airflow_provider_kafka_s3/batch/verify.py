"""Which batches cover a target, and whether their objects are still there. Nothing is decided by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.batch.offsets import Offsets
from airflow_provider_kafka_s3.batch.plan import Plan
from airflow_provider_kafka_s3.exceptions import LogTamperedError, MissingObjectError

__all__ = ["Covering", "OnMissing", "covering_downward", "covering_upward", "verify"]

log = logging.getLogger(__name__)

OnMissing = Literal["fail", "restore", "ignore"]


@dataclass(frozen=True)
class Covering:
    """A batch that covers some of a target."""

    plan: Plan
    decision: Manifest


def covering_upward(topic_log: TopicLog, target: Offsets, *, generation: int, low: int) -> list[Covering]:
    """The batches that cover a target, looked for from ``low`` upward.

    Raises:
        LogTamperedError: the log ends before the target is accounted for.
    """
    return _covering(topic_log, target, generation, _upward(low))


def covering_downward(topic_log: TopicLog, target: Offsets, *, generation: int, high: int) -> list[Covering]:
    """The batches that cover a target, looked for from ``high`` downward, in ascending order."""
    return _covering(topic_log, target, generation, iter(range(high, 0, -1)))[::-1]


def _upward(low: int) -> Iterator[int]:
    while True:
        yield low
        low += 1


def _covering(topic_log: TopicLog, target: Offsets, generation: int, batches: Iterator[int]) -> list[Covering]:
    found: list[Covering] = []
    left = target
    while left:
        batch = next(batches, None)
        plan = None if batch is None else topic_log.read_plan(batch)
        if batch is None or plan is None:
            raise LogTamperedError(
                f"the marker {topic_log.marker_url()} says that offsets {left} of topic {topic_log.topic!r} are "
                f"covered, but no batch of the log covers them. Nothing was changed. Restore the log's objects (bucket "
                "versioning)"
            )
        if plan.type != "data" or plan.generation != generation or not plan.claim & left:
            continue
        decision = topic_log.read_manifest(batch)
        if decision is None or (decision.status == "abandoned" and decision.release == "debt"):
            continue
        left -= plan.claim
        if decision.status == "commit":
            found.append(Covering(plan, decision))
    return found


def verify(committer: Committer, batches: list[Covering], *, on_missing: OnMissing) -> int:
    """Look at every object of committed batches.

    Args:
        committer: of the topic.
        batches: to look at.
        on_missing: an object that is gone: ``fail``, ``restore`` (write it again from Kafka) or ``ignore``.

    Returns:
        How many objects are there.

    Raises:
        MissingObjectError: objects are gone and ``on_missing`` is ``fail``; names them and the ways out.
        ForeignObjectError: a key holds something else.
        BatchLossError: an object that should be restored cannot be.
    """
    missing: list[tuple[Covering, ObjectEntry]] = []
    there = 0
    for batch in batches:
        amended = committer.log.amended_keys(batch.plan.batch)[0]
        for entry, intact in zip(
            batch.decision.objects, committer.are_intact(batch.plan, batch.decision.objects), strict=True
        ):
            there += intact
            if not intact and entry.key not in amended:
                missing.append((batch, entry))
    if missing and on_missing == "fail":
        named = ", ".join(committer.store.url(entry.key) for _, entry in missing[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise MissingObjectError(
            f"{len(missing)} objects of committed batches {sorted({b.plan.batch for b, _ in missing})} of topic "
            f"{committer.log.topic!r} are gone: {named}{more}. Nothing was changed. Write them again from Kafka with "
            f"on_missing='restore', or accept that they are gone with on_missing='ignore'"
        )
    for batch, entry in missing:
        if on_missing == "restore":
            committer.restore(batch.plan, entry)
            there += 1
        else:
            log.warning("object %s is gone; ignored as asked", committer.store.url(entry.key))
    return there
