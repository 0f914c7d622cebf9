"""Which batches cover a target, and whether their objects are still there. Nothing is decided by it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch import commands
from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.documents import printable
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.batch.offsets import Offsets
from airflow_provider_kafka_s3.batch.plan import Plan
from airflow_provider_kafka_s3.batch.rebuild import Lost, batch_loss
from airflow_provider_kafka_s3.batch.requests import BatchSummary, OnMissing
from airflow_provider_kafka_s3.exceptions import LogTamperedError, MissingObjectError
from airflow_provider_kafka_s3.messages import few

__all__ = ["Covering", "covering_downward", "covering_upward", "missing_objects", "verify"]

log = logging.getLogger(__name__)

_AHEAD: Final = 64
"""Plans that are read at the same time at most, where the log has to be searched."""

_DECISIONS: Final = 8
"""Manifests that are read at the same time; each may list many objects."""

_LOOKED_AT_ONCE: Final = 1_000
"""Objects that are waited for together."""


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
            landed=self.decision.run == run,
            objects=len(self.decision.objects),
            records=self.decision.records,
            size=self.decision.size,
            offsets=self.plan.claim,
        )


def covering_upward(committer: Committer, target: Offsets, *, generation: int, low: int) -> Iterator[Covering]:
    """The batches that cover a target, looked for from ``low`` upward.

    Plans are read ahead, several at a time: never more than twice as many as are needed, and one. What was read of a
    batch that does not cover any of the target is forgotten.

    Raises:
        LogTamperedError: the log ends before the target is accounted for.
    """
    return _covering(committer, target, generation, itertools.count(low))


def covering_downward(committer: Committer, target: Offsets, *, generation: int, high: int) -> Iterator[Covering]:
    """The batches that cover a target, looked for from ``high`` downward; see :func:`covering_upward`.

    Raises:
        LogTamperedError: the log begins after the target.
    """
    return _covering(committer, target, generation, iter(range(high, 0, -1)))


def _covering(committer: Committer, target: Offsets, generation: int, batches: Iterator[int]) -> Iterator[Covering]:
    topic_log, left = committer.log, target
    for block in _ahead(batches):
        plans: list[Plan] = []
        for plan in committer.parallel(topic_log.read_plan, block, threads=_AHEAD):
            if plan is None:
                break
            plans.append(plan)
        fit = [plan for plan in plans if plan.generation == generation and plan.claim & left]
        for at in range(0, len(fit), _DECISIONS):
            needed = [plan for plan in fit[at : at + _DECISIONS] if plan.claim & left]
            decisions = committer.parallel(lambda plan: topic_log.read_manifest(plan.batch), needed)
            for plan, decision in zip(needed, decisions, strict=True):
                if decision is None or (decision.status == "abandoned" and decision.release == "debt"):
                    continue
                if not plan.claim & left:
                    continue
                left -= plan.claim
                if decision.status == "commit":
                    yield Covering(plan, decision)
        for batch in {*block} - {plan.batch for plan in fit}:
            topic_log.forget(batch)
        if not left:
            return
        if len(plans) < len(block):
            break
    if left:
        raise LogTamperedError(
            f"topic {topic_log.topic!r}: documents of the log are gone: its marker has offsets {printable(str(left))} "
            f"as landed, and no batch of the log covers them. Nothing was changed. Restore what is below (bucket "
            f"versioning): {topic_log.store.url(topic_log.prefix)}"
        )


def _ahead(batches: Iterator[int]) -> Iterator[list[int]]:
    """One number, one more, two, four, …: as many as there were before."""
    before = 0
    while block := list(itertools.islice(batches, min(max(before, 1), _AHEAD))):
        yield block
        before += len(block)


def verify(
    committer: Committer, batches: Iterable[Covering], target: Offsets, *, on_missing: OnMissing
) -> tuple[int, int]:
    """Look, with HEAD, at every object of committed batches that may hold offsets of a target.

    Args:
        committer: of the topic.
        batches: that cover the target; they are gone through once, and only those with missing objects are kept.
        target: offsets.
        on_missing: an object that is gone: ``fail``, ``restore`` (write it again from Kafka) or ``ignore``.

    Returns:
        How many objects are there, and how many of these had to be restored.

    Raises:
        MissingObjectError: objects are gone and ``on_missing`` is ``fail``; names them and the ways out.
        ForeignObjectError: a key holds something else.
        BatchLossError: an object that should be restored cannot be.
    """
    missing: list[tuple[Plan, list[ObjectEntry]]] = []
    there = restored = 0
    for group in _groups(batches, target):
        intact = committer.parallel(lambda found: committer.is_intact(*found), group)
        there += sum(intact)
        gone: dict[int, tuple[Plan, list[ObjectEntry]]] = {}
        for (plan, entry), here in zip(group, intact, strict=True):
            if not here:
                gone.setdefault(plan.batch, (plan, []))[1].append(entry)
        for batch, (plan, entries) in gone.items():
            amended = committer.log.amended_keys(batch)[0]
            if left := [entry for entry in entries if entry.key not in amended]:
                missing.append((plan, left))
    if missing and on_missing == "fail":
        raise missing_objects(
            committer, [plan.batch for plan, _ in missing], [entry.key for _, gone in missing for entry in gone]
        )
    lost: list[Lost] = []
    for plan, entries in missing:
        if on_missing == "restore":
            lost += committer.write_again(plan, entries) or ()
            restored += len(entries)
        else:
            log.warning("objects are gone, ignored as asked: %s", few([committer.store.url(e.key) for e in entries]))
    if lost:
        accept = commands.accept_deleted(committer.log, [one.plan.batch for one in lost])
        raise batch_loss(committer.log, lost, f"Accept that they are gone: {accept}")
    return there + restored, restored


def _groups(batches: Iterable[Covering], target: Offsets) -> Iterator[list[tuple[Plan, ObjectEntry]]]:
    """Objects of several small batches together, so that they are looked at side by side."""
    group: list[tuple[Plan, ObjectEntry]] = []
    for batch in batches:
        group += [(batch.plan, entry) for entry in batch.objects(target)]
        if len(group) >= _LOOKED_AT_ONCE:
            yield group
            group = []
    yield group


def missing_objects(committer: Committer, batches: Sequence[int], missing: Sequence[str]) -> MissingObjectError:
    """The error about objects that are gone, with both ways out."""
    return MissingObjectError(
        f"{len(missing)} objects of committed batches {few([str(b) for b in sorted(set(batches))])} of topic "
        f"{committer.log.topic!r} are gone: {few([committer.store.url(key) for key in missing])}. Nothing was changed. "
        f"Write them again from Kafka: with mode='restore', or {commands.restore(committer.log, batches)}. Or accept "
        f"that they are gone: for this run with on_missing='ignore', for good by "
        f"{commands.accept_deleted(committer.log, batches)}"
    )
