"""Which batches cover a target, and whether their objects are still there. Nothing is decided by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch import commands
from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.batch.offsets import Offsets
from airflow_provider_kafka_s3.batch.plan import Plan
from airflow_provider_kafka_s3.batch.requests import BatchSummary, OnMissing
from airflow_provider_kafka_s3.exceptions import LogTamperedError, MissingObjectError

__all__ = ["Covering", "covering_downward", "covering_upward", "few", "missing_objects", "verify"]

log = logging.getLogger(__name__)

_NAMED: Final = 10
"""Objects that an error names; the others are counted."""


@dataclass(frozen=True)
class Covering:
    """A batch that covers some of a target."""

    plan: Plan
    decision: Manifest

    def objects(self, target: Offsets) -> list[ObjectEntry]:
        """The objects that may hold offsets of the target: not those that lie beside it altogether."""
        if self.plan.claim <= target:
            return list(self.decision.objects)
        partitions = {s.id: s.partition for s in self.plan.slices}
        return [
            entry
            for entry in self.decision.objects
            if Offsets({partitions[entry.slices[0]]: [(entry.min_offset, entry.max_offset + 1)]}) & target
        ]

    def summary(self, topic_log: TopicLog, run: str) -> BatchSummary:
        """What the result of a run says about it."""
        return BatchSummary(
            batch=self.plan.batch,
            manifest=topic_log.manifest_url(self.plan.batch),
            mine=self.plan.run == run,
            objects=len(self.decision.objects),
            records=self.decision.records,
            size=self.decision.size,
            offsets=self.plan.claim,
        )


def covering_upward(topic_log: TopicLog, target: Offsets, *, generation: int, low: int) -> Iterator[Covering]:
    """The batches that cover a target, looked for from ``low`` upward.

    Raises:
        LogTamperedError: the log ends before the target is accounted for.
    """
    return _covering(topic_log, target, generation, _upward(low))


def covering_downward(topic_log: TopicLog, target: Offsets, *, generation: int, high: int) -> Iterator[Covering]:
    """The batches that cover a target, looked for from ``high`` downward.

    Raises:
        LogTamperedError: the log begins after the target.
    """
    return _covering(topic_log, target, generation, iter(range(high, 0, -1)))


def _upward(low: int) -> Iterator[int]:
    while True:
        yield low
        low += 1


def _covering(topic_log: TopicLog, target: Offsets, generation: int, batches: Iterator[int]) -> Iterator[Covering]:
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
            yield Covering(plan, decision)


def few(names: Sequence[str]) -> str:
    """The first names, and how many there are beside them."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def verify(
    committer: Committer, batches: Sequence[Covering], target: Offsets, *, on_missing: OnMissing
) -> tuple[int, int]:
    """Look, with HEAD, at every object of committed batches that may hold offsets of a target.

    Args:
        committer: of the topic.
        batches: that cover the target.
        target: offsets.
        on_missing: an object that is gone: ``fail``, ``restore`` (write it again from Kafka) or ``ignore``.

    Returns:
        How many objects are there, and how many of these had to be restored.

    Raises:
        MissingObjectError: objects are gone and ``on_missing`` is ``fail``; names them and the ways out.
        ForeignObjectError: a key holds something else.
        BatchLossError: an object that should be restored cannot be.
    """
    missing: list[tuple[Covering, list[ObjectEntry]]] = []
    there = restored = 0
    for batch in batches:
        amended = committer.log.amended_keys(batch.plan.batch)[0]
        entries = batch.objects(target)
        intact = committer.are_intact(batch.plan, entries)
        there += sum(intact)
        gone = [entry for entry, here in zip(entries, intact, strict=True) if not here and entry.key not in amended]
        if gone:
            missing.append((batch, gone))
    if missing and on_missing == "fail":
        raise missing_objects(
            committer, [batch.plan.batch for batch, _ in missing], [entry.key for _, gone in missing for entry in gone]
        )
    for batch, gone in missing:
        if on_missing == "restore":
            committer.restore(batch.plan, gone)
            restored += len(gone)
        else:
            log.warning("objects are gone, ignored as asked: %s", few([committer.store.url(e.key) for e in gone]))
    return there + restored, restored


def missing_objects(committer: Committer, batches: Sequence[int], missing: Sequence[str]) -> MissingObjectError:
    """The error about objects that are gone, with both ways out."""
    return MissingObjectError(
        f"{len(missing)} objects of committed batches {few([str(b) for b in sorted(set(batches))])} of topic "
        f"{committer.log.topic!r} are gone: {few([committer.store.url(key) for key in missing])}. Nothing was changed. "
        f"Write them again from Kafka: with mode='restore', or {commands.restore(committer.log, batches)}. Or accept "
        f"that they are gone: for this run with on_missing='ignore', for good by "
        f"{commands.accept_deleted(committer.log, batches)}"
    )
