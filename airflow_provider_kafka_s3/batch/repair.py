"""Build a lost or damaged marker again: it is the fold of the log, and the log holds everything.

Objects are looked at with HEAD and never completed or written. A batch with an object that is not there stays open: the
next run completes it, as it would have done before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.documents import encode, write_stamp
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.manifest import Manifest
from airflow_provider_kafka_s3.batch.marker import Marker, fold
from airflow_provider_kafka_s3.batch.owners import decode_owner
from airflow_provider_kafka_s3.batch.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    CorruptControlError,
    LogTamperedError,
    PipelineConflictError,
    TransientError,
)
from airflow_provider_kafka_s3.layout import keys

__all__ = ["Repaired", "repair"]

_PLAN: Final = re.compile(r"batches/(\d{10})\.plan\.json")
_TRIES: Final = 5
_READERS: Final = 16
"""Documents that are read at the same time; a manifest may list many objects."""


@dataclass(frozen=True)
class Repaired:
    """What the log says.

    Attributes:
        marker: the fold of the log.
        was: what was found: ``missing``, ``corrupt``, ``wrong`` (valid, but not what the log says) or ``right``.
        open: numbers of the batches that are not folded, with the reason; runs finish them, as always.
        written: whether the marker was replaced.
    """

    marker: Marker
    was: str
    open: Mapping[int, str] = field(default_factory=dict)
    written: bool = False


def repair(committer: Committer, *, start: Mapping[int, int], cluster_id: str = "", dry_run: bool = False) -> Repaired:
    """Rebuild the marker from the log, unless it is right.

    Args:
        committer: of the topic.
        start: where partitions begin that no batch has ever touched, if the marker does not tell any more.
        cluster_id: of the Kafka cluster, if the marker does not tell any more; information.
        dry_run: write nothing.

    Raises:
        ConfigurationError: there is no log.
        LogTamperedError: a plan or a decision is missing in the middle of the log; it has to be restored first.
        CorruptControlError: another document than the marker cannot be trusted; it has to be restored first.
        PipelineConflictError: the topic belongs to another pipeline.
    """
    topic_log = committer.log
    for _ in range(_TRIES):
        _require_owner(topic_log)
        plans = _plans(committer)
        stored = topic_log.store.get(keys.marker_key(topic_log.prefix))
        if stored is None and not plans:
            raise ConfigurationError(
                f"pipeline {topic_log.pipeline!r} has no batches of topic {topic_log.topic!r} under "
                f"{topic_log.store.url(topic_log.prefix)}; there is nothing to repair"
            )
        known, was = None, "missing"
        if stored is not None:
            try:
                known, was = topic_log.require_marker()[0], "wrong"
            except CorruptControlError:
                was = "corrupt"
        base = _base(topic_log, plans, known, start, cluster_id)
        marker, still_open = _fold(committer, base, plans, known)
        if known is not None and _content(known) == _content(marker):
            return Repaired(known, "right", still_open)
        if dry_run:
            return Repaired(marker, was, still_open)
        if stored is None:
            body = encode(marker, write_stamp())
            if topic_log.store.create(keys.marker_key(topic_log.prefix), body) == body:
                return Repaired(marker, was, still_open, written=True)
        elif topic_log.replace_marker(marker, stored.etag):
            return Repaired(marker, was, still_open, written=True)
    raise TransientError(
        f"the marker {topic_log.marker_url()} changed again and again while it was repaired; look at it and try again"
    )


def _require_owner(topic_log: TopicLog) -> None:
    key = keys.owner_key(topic_log.topics_dir, topic_log.topic)
    stored = topic_log.store.get(key)
    if stored is None:
        return
    owner = decode_owner(stored.body, key, topic_log.store.url(key), topics_dir=topic_log.topics_dir)
    if owner.pipeline != topic_log.pipeline:
        raise PipelineConflictError(
            f"topic {topic_log.topic!r} under topics_dir {topic_log.topics_dir!r} belongs to pipeline "
            f"{owner.pipeline!r}, not to {topic_log.pipeline!r}; name that one"
        )


def _plans(committer: Committer) -> list[Plan]:
    """All plans in order; found by listing, since the log may have holes that nobody may have."""
    topic_log = committer.log
    names = (info.key.removeprefix(topic_log.prefix) for info in topic_log.store.list(f"{topic_log.prefix}batches/"))
    there = sorted(int(found[1]) for name in names if (found := _PLAN.fullmatch(name)) is not None)
    # Never as many steps as a number in a name says: anybody may have put it there.
    expected = next((n for n, found in enumerate(there, start=1) if n != found), None)
    if expected is not None:
        raise LogTamperedError(
            f"plan {topic_log.plan_url(expected)} of topic {topic_log.topic!r} is gone from the middle of the log, "
            f"whose last plan is {there[-1]}: nobody knows any more which offsets it claimed. Nothing was changed. "
            f"Restore it (bucket versioning), then repair again"
        )
    return committer.parallel(lambda n: topic_log.require_plan(n)[0], there, threads=_READERS)


def _base(
    topic_log: TopicLog, plans: list[Plan], known: Marker | None, start: Mapping[int, int], cluster_id: str
) -> Marker:
    """The marker as it was created, before any batch."""
    first = plans[0] if plans else None
    if known is not None and known.generation == 0:
        start = known.start
    touched = {p for plan in plans if plan.generation == 0 for p in plan.claim}
    return Marker(
        topic=topic_log.topic,
        cluster_id=known.cluster_id if known is not None else cluster_id,
        topic_id=first.topic_id if first is not None else "" if known is None else known.topic_id,
        start=dict(start) if known is not None else {p: o for p, o in start.items() if p not in touched},
    )


def _fold(committer: Committer, base: Marker, plans: list[Plan], known: Marker | None) -> tuple[Marker, dict[int, str]]:
    marker, still_open = base, {}
    for plan, decision, why in _decided(committer, plans, look=known is None):
        if known is not None and known.is_resolved(plan.batch):
            if decision is None:
                raise _tampered(committer.log, plan.batch, committer.log.manifest_url(plan.batch))
            # What a user deleted from a batch that was complete is the user's business: the batch stays complete.
            marker = fold(marker, plan, decision)
        elif known is not None:
            # A marker that can be read says what is complete; to complete the others is not for a repair.
            still_open[plan.batch] = "nobody has completed it"
        elif reason := _not_foldable(plan, decision, marker, still_open) or why:
            still_open[plan.batch] = reason
        elif decision is not None:
            marker = fold(marker, plan, decision)
    if known is not None and known.last_resolved > len(plans):
        beyond = next(max(a, len(plans) + 1) for a, b in known.resolved if b > len(plans) + 1)
        raise _tampered(committer.log, beyond, committer.log.plan_url(beyond))
    return marker, still_open


def _decided(committer: Committer, plans: list[Plan], *, look: bool) -> Iterator[tuple[Plan, Manifest | None, str]]:
    """Per plan its decision, and what of its objects is not there, if somebody shall look; some at a time."""
    for at in range(0, len(plans), _READERS):
        some = plans[at : at + _READERS]
        decisions = committer.parallel(lambda plan: committer.log.read_manifest(plan.batch), some, threads=_READERS)
        found = list(zip(some, decisions, strict=True))
        entries = [(plan, entry) for plan, decision in found if look and decision for entry in decision.objects]
        intact = committer.parallel(lambda item: committer.is_intact(*item), entries)
        gone: dict[int, list[str]] = {}
        for (plan, entry), there in zip(entries, intact, strict=True):
            if not there:
                gone.setdefault(plan.batch, []).append(entry.key)
        for plan, decision in found:
            amended = committer.log.amended_keys(plan.batch)[0] if plan.batch in gone else frozenset()
            absent = [key for key in gone.get(plan.batch, ()) if key not in amended]
            count = 0 if decision is None else len(decision.objects)
            told = f"{len(absent)} of its {count} objects are not there, such as {absent[0]}" if absent else ""
            yield plan, decision, told
            committer.log.forget(plan.batch)


def _not_foldable(plan: Plan, decision: Manifest | None, marker: Marker, still_open: Mapping[int, str]) -> str:
    """Why a batch cannot be folded, whether its objects are there or not; empty if it can."""
    if plan.generation != marker.generation:
        return "it comes after a reset that is not complete"
    if decision is None:
        return "nobody has decided it"
    if decision.status == "reset" and still_open:
        return f"batches {sorted(still_open)} below the reset are not complete"
    return ""


def _tampered(topic_log: TopicLog, batch: int, where: str) -> LogTamperedError:
    return LogTamperedError(
        f"the marker {topic_log.marker_url()} has batch {batch} as resolved, and {where} is gone. Nothing was changed. "
        f"Restore it (bucket versioning), then repair again"
    )


def _content(marker: Marker) -> Marker:
    """What counts of a marker: how often it was written does not."""
    return msgspec.structs.replace(marker, revision=0)
