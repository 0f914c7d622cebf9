"""Search of the log for the committed batches that cover a target."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import BatchSummary
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import LogTamperedError

__all__ = ["Covering", "covering_downward", "covering_upward"]

_AHEAD: Final = 64
"""Plans read at the same time at most, during a search of the log."""

_DECISIONS: Final = 8
"""Manifests read at the same time; each may list many objects."""


@dataclass(frozen=True)
class Covering:
    """A batch that covers some of a target."""

    plan: Plan
    decision: Manifest

    def objects(self, target: Offsets) -> list[ObjectEntry]:
        """The objects that may hold offsets of the target."""
        if self.plan.claim <= target:
            return list(self.decision.objects)
        partitions = {s.id: s.partition for s in self.plan.slices}
        return [
            entry
            for entry in self.decision.objects
            if any(Offsets({partitions[p.id]: [(p.min_offset, p.max_offset + 1)]}) & target for p in entry.by_slice)
        ]

    def summary(self, topic_log: TopicLog, run: str) -> BatchSummary:
        """The summary of the batch in the result of a run."""
        return BatchSummary(
            batch=self.plan.batch,
            manifest=topic_log.manifest_url(self.plan.batch),
            mine=self.plan.run == run,
            landed=self.decision.run == run,
            objects=len(self.decision.objects),
            records=self.decision.records,
            tombstones=self.decision.tombstones,
            ignored=self.decision.ignored,
            dead_letters=self.decision.dead_letters,
            size=self.decision.size,
            offsets=self.plan.claim,
        )


def covering_upward(committer: Committer, target: Offsets, *, generation: int, low: int) -> Iterator[Covering]:
    """The batches that cover a target, searched from ``low`` upward.

    Plans are read ahead, several at a time: at most twice as many as needed, plus one. The documents of a batch that
    covers nothing of the target are dropped from memory.

    Raises:
        LogTamperedError: the log ends before the target is accounted for.
    """
    return _covering(committer, target, generation, itertools.count(low))


def covering_downward(committer: Committer, target: Offsets, *, generation: int, high: int) -> Iterator[Covering]:
    """The batches that cover a target, searched from ``high`` downward; see :func:`covering_upward`.

    Raises:
        LogTamperedError: the log begins after the target.
    """
    return _covering(committer, target, generation, iter(range(high, 0, -1)))


def _covering(committer: Committer, target: Offsets, generation: int, batches: Iterator[int]) -> Iterator[Covering]:
    topic_log, left = committer.log, target
    for block in _growing_blocks(batches):
        plans: list[Plan] = []
        for plan in committer.parallel(topic_log.read_plan, block, threads=_AHEAD):
            if plan is None:
                break
            plans.append(plan)
        overlapping = [plan for plan in plans if plan.generation == generation and plan.claim & left]
        for at in range(0, len(overlapping), _DECISIONS):
            needed = [plan for plan in overlapping[at : at + _DECISIONS] if plan.claim & left]
            decisions = committer.parallel(lambda plan: topic_log.read_manifest(plan.batch), needed)
            for plan, decision in zip(needed, decisions, strict=True):
                if decision is None or (decision.status == "abandoned" and decision.release == "debt"):
                    continue
                if not plan.claim & left:
                    continue
                left -= plan.claim
                if decision.status == "commit":
                    yield Covering(plan, decision)
        for batch in {*block} - {plan.batch for plan in overlapping}:
            topic_log.forget(batch)
        if not left:
            return
        if len(plans) < len(block):
            break
    if left:
        raise LogTamperedError(
            f"topic {topic_log.topic!r}: documents of the log are gone: its marker has offsets {printable(str(left))} "
            f"as landed, and no batch of the log covers them. Nothing was changed. Restore the objects below this "
            f"prefix (bucket versioning): {topic_log.store.url(topic_log.prefix)}"
        )


def _growing_blocks(batches: Iterator[int]) -> Iterator[list[int]]:
    """Blocks of 1, 1, 2, 4, … numbers: each as long as all before it together."""
    count = 0
    while block := list(itertools.islice(batches, min(max(count, 1), _AHEAD))):
        yield block
        count += len(block)
