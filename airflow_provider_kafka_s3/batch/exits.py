"""Ways out of dead ends: what a person decides when the protocol cannot go on by itself.

Each is safe at any time, beside any number of running drivers, and harmless when repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from airflow_provider_kafka_s3.batch import commands
from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.decided import finish_reset
from airflow_provider_kafka_s3.batch.log import RunRecord
from airflow_provider_kafka_s3.batch.manifest import Amend, Manifest
from airflow_provider_kafka_s3.batch.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.batch.plan import Plan, layout_digest, writer_versions
from airflow_provider_kafka_s3.batch.planning import View, next_claim, untouched
from airflow_provider_kafka_s3.batch.source import require_topic_id
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError, TopicNotFoundError, raise_first
from airflow_provider_kafka_s3.messages import few

__all__ = [
    "Absent",
    "abandon",
    "absent",
    "accept_deleted",
    "accept_gone",
    "accept_loss",
    "last_layout",
    "live_topic_id",
    "record_gone",
    "require_plan",
    "reset",
]


def abandon(
    committer: Committer, batch: int, *, release: Literal["debt", "lost"], reason: str, operator: str
) -> Manifest:
    """Give an undecided batch up.

    Args:
        committer: of the topic.
        batch: its number.
        release: ``debt``: its offsets are planned again, with the configuration of then; ``lost``: the gap is accepted.
        reason: why, for the record.
        operator: who says so, for the record.

    Raises:
        ConfigurationError: the batch is committed already and can only be rolled forward.
    """
    plan = require_plan(committer, batch)
    decision = committer.abandon(plan, release=release, reason=reason, operator=operator, run=f"operator:{operator}")
    if decision.status != "abandoned":
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is decided ({decision.status}) and can only be rolled forward: "
            f"{commands.recover(committer.log)}. Nothing was changed. The decision: {committer.log.manifest_url(batch)}"
        )
    committer.resolve(plan, decision)
    return decision


def reset(committer: Committer, *, operator: str) -> bool:
    """Turn the pipeline to the live incarnation of its topic; False if it is there already.

    What older batches decided is carried out first, what they did not decide is recorded as lost: their topic is gone.
    """
    while True:
        view = committer.log.view()
        if (pending := view.open_reset) is not None:
            finish_reset(committer, view, pending)
            continue
        live = live_topic_id(committer, view)
        if live == view.topic_id:
            return False
        committer.log.create_plan(
            Plan(
                batch=view.next,
                type="reset",
                topic=committer.log.topic,
                topic_id=view.topic_id,
                generation=view.marker.generation,
                run=f"operator:{operator}",
                tail=False,
                isolation="read_committed",
                slices=(),
                skipped=NO_OFFSETS,
                layout=None,
                layout_sha256="",
                start=view.start_of_log,
                new_topic_id=live,
            )
        )
        view = committer.log.view()
        if (pending := view.open_reset) is not None:
            finish_reset(committer, view, pending)
            return True


def live_topic_id(committer: Committer, view: View) -> str:
    """Incarnation of the live topic, which can be told from the one that was landed.

    Raises:
        ConfigurationError: one of the two has no id, and the other has: the brokers were upgraded.
    """
    topic = committer.log.topic
    live = committer.source.describe(topic).topic_id or ""
    if bool(live) != bool(view.topic_id):
        raise ConfigurationError(
            f"nobody can tell whether topic {topic!r} is another one than was landed: its stored offsets have topic id "
            f"{view.topic_id or 'none'}, the live topic has {live or 'none'}. Nothing was changed. If it was created "
            f"again, land it with another pipeline and topics_dir; if not, there is nothing to do"
        )
    return live


def accept_loss(
    committer: Committer, batch: int, *, reason: str, operator: str, other_cluster: bool = False
) -> tuple[str, ...]:
    """Complete a decided batch without those objects that can be neither completed nor written again from Kafka.

    Args:
        committer: of the topic.
        batch: its number.
        reason: why, for the record.
        operator: who says so, for the record.
        other_cluster: the cluster that was landed is gone for good: what another one does not have is lost, too.

    Returns:
        The keys that are accepted as lost, recorded in an amend; empty if all could be completed after all, or the
        batch was complete already.

    Raises:
        ConfigurationError: the batch is not committed; or objects are lost, and the cluster is not the one that was
            landed. Nothing was recorded.
        BatchLossError: objects are not lost, but can only be written by another installation. Nothing was recorded.
        KafkaS3Error: something went wrong with an object that may not be lost; all others were seen to first.
    """
    plan, decision = _committed(committer, batch)
    done = committer.complete(plan, decision, accepting=True)
    if done is None:
        return ()
    lost, errors = done
    raise_first(errors)
    if elsewhere := [one for one in lost if one.elsewhere]:
        raise BatchLossError(
            f"not all that batch {batch} of topic {plan.topic!r} lacks is lost. Nothing was recorded: "
            f"{elsewhere[0].why}. Objects that it could write: "
            f"{few([committer.store.url(one.entry.key) for one in elsewhere])}"
        )
    if lost and not other_cluster:
        _require_cluster(committer, batch)
    recorded = record_gone(committer, batch, {one.entry.key for one in lost}, reason=reason, operator=operator)
    committer.give_up(lost)
    # Every other object was seen just now, so nothing has to be looked at again.
    committer.resolve(plan, decision)
    return recorded


def _require_cluster(committer: Committer, batch: int) -> None:
    """What a cluster does not have that was never landed is not lost."""
    topic, landed = committer.log.topic, committer.log.require_marker()[0].cluster_id
    try:
        live = committer.source.describe(topic).cluster_id
    except TopicNotFoundError as e:
        live = e.cluster_id
    if landed and live and live != landed:
        gone = commands.accept_loss(committer.log, batch, other_cluster=True)
        raise ConfigurationError(
            f"the Kafka connection leads to cluster {live!r}, topic {topic!r} was landed from {landed!r}, which may "
            f"have what batch {batch} lacks. Nothing was recorded. Correct the connection. If that cluster is gone for "
            f"good: {gone}"
        )


def accept_deleted(committer: Committer, batch: int, *, reason: str, operator: str) -> tuple[str, ...]:
    """Record that the objects which are gone from a completed batch stay away: runs no longer miss them.

    Returns:
        The keys that are recorded now; empty if all objects are there, or recorded before.

    Raises:
        ConfigurationError: the batch is not complete.
        ForeignObjectError: a key holds something else.
    """
    plan, decision = _committed(committer, batch)
    if not committer.log.require_marker()[0].is_resolved(batch):
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is not complete: what is absent may still come. Complete it: "
            f"{commands.recover(committer.log)}"
        )
    intact = committer.are_intact(plan, decision.objects)
    absent = {entry.key for entry, there in zip(decision.objects, intact, strict=True) if not there}
    return record_gone(committer, batch, absent, reason=reason, operator=operator)


def record_gone(committer: Committer, batch: int, gone: Set[str], *, reason: str, operator: str) -> tuple[str, ...]:
    """Write down that objects of a committed batch stay away.

    Args:
        committer: of the topic.
        batch: its number.
        gone: keys of its objects.
        reason: why, for the record.
        operator: who says so, for the record.

    Returns:
        The keys that are recorded now, not before.
    """
    recorded: set[str] = set()
    while True:
        accepted, number = committer.log.amended_keys(batch)
        if not (left := gone - accepted):
            return tuple(sorted(recorded))
        # Somebody else may take the number with other keys.
        committer.log.create_amend(
            Amend(batch=batch, keys=tuple(sorted(left)), reason=reason, operator=operator), number
        )
        recorded |= left


def accept_gone(committer: Committer, offsets: Offsets, *, reason: str, operator: str) -> Offsets:
    """Record offsets as lost that retention deleted before any batch claimed them.

    Returns:
        The offsets that are recorded now; those that are covered already are left as they are.

    Raises:
        ConfigurationError: Kafka still has some of them, an open batch claims them, or others below them were never
            landed and would be left out. Nothing was changed.
        TopicRecreatedError: the topic is another one by now.
    """
    topic_log, source, topic = committer.log, committer.source, committer.log.topic
    run = f"operator:{operator}:{uuid.uuid4()}"
    recorded = NO_OFFSETS
    while True:
        view = topic_log.view()
        if (pending := view.open_reset) is not None:
            finish_reset(committer, view, pending)
            continue
        if not (left := offsets - view.marker.covered):
            return recorded
        topic_id = require_topic_id(source, topic_log, view.topic_id, cluster_id=view.marker.cluster_id)
        earliest = source.earliest(topic, tuple(left))
        if held := left - Offsets({p: [(0, earliest[p])] for p in left}):
            raise ConfigurationError(
                f"topic {topic!r}: offsets {held} are not gone, Kafka has them or will have them (the log starts at "
                f"{earliest}); nothing was recorded. Name only offsets below that"
            )
        if claimed := left & view.claims:
            owners = [n for n, plan in sorted(view.open_plans.items()) if plan.claim & claimed]
            raise ConfigurationError(
                f"topic {topic!r}: offsets {claimed} belong to open batches {owners}; nothing was recorded. Give these "
                f"up first: {', '.join(commands.abandon(topic_log, n) for n in owners)}"
            )
        begin = untouched(view, left)
        if between := Offsets({p: [(begin[p], left.end(p) or 0)] for p in left}) - left:
            raise ConfigurationError(
                f"topic {topic!r}: offsets {between} lie below these and were never landed; runs would go on behind "
                f"them and leave them out. Nothing was recorded. Accept all of them: "
                f"{commands.accept_gone(topic_log, left | between)}"
            )
        claim, tail = next_claim(view, left, max_records=None)
        layout = last_layout(committer, view.next)
        # No plan without the record of its run, as in every run.
        topic_log.create_run(
            RunRecord(
                run=run,
                mode="recover",
                params={"reason": reason, "operator": operator},
                topic_id=topic_id,
                generation=view.marker.generation,
                target=left,
                low=min(view.open_plans, default=view.next),
                layout_sha256=layout_digest(layout),
            )
        )
        plan = Plan(
            batch=view.next,
            type="data",
            topic=topic,
            topic_id=topic_id,
            generation=view.marker.generation,
            run=run,
            tail=tail,
            isolation="read_committed",
            slices=(),
            skipped=claim,
            layout=layout,
            layout_sha256=layout_digest(layout),
            start=view.start_of_log,
            writer=writer_versions(),
        )
        if topic_log.create_plan(plan):
            committer.carry_out(plan, committer.decide(plan, (), run=run))
            recorded |= claim


def last_layout(committer: Committer, upcoming: int) -> Layout:
    """The layout of the latest batch below ``upcoming``; a plain one if there is none, for a batch without objects."""
    for batch in range(upcoming - 1, 0, -1):
        plan, _ = committer.log.require_plan(batch)
        if plan.layout is not None:
            return plan.layout
    return Layout(topics_dir=committer.log.topics_dir, format=JsonLines())


@dataclass(frozen=True)
class Absent:
    """Keys of a committed batch that are not there and not accepted as lost.

    Attributes:
        gone: without an upload that could be completed.
        waiting: with a pending upload; whether the store completes it, only Complete shows.
    """

    gone: tuple[str, ...]
    waiting: tuple[str, ...]


def absent(committer: Committer, batch: int) -> Absent:
    """What of a committed batch is absent; nothing is changed.

    Raises:
        ConfigurationError: the batch is not committed.
        ForeignObjectError: a key holds something else.
    """
    plan, decision = _committed(committer, batch)
    accepted = committer.log.amended_keys(batch)[0]
    intact = committer.are_intact(plan, decision.objects)
    left = [e for e, there in zip(decision.objects, intact, strict=True) if not there and e.key not in accepted]
    pending = committer.parallel(lambda entry: committer.store.upload_exists(entry.key, entry.upload_id), left)
    found = list(zip(left, pending, strict=True))
    return Absent(
        gone=tuple(entry.key for entry, waits in found if not waits),
        waiting=tuple(entry.key for entry, waits in found if waits),
    )


def require_plan(committer: Committer, batch: int) -> Plan:
    """The plan of a batch that a person named.

    Raises:
        ConfigurationError: there is no such batch.
    """
    plan = committer.log.read_plan(batch)
    if plan is None:
        raise ConfigurationError(
            f"topic {committer.log.topic!r} has no batch {batch}; nothing was changed. Its plan would be "
            f"{committer.log.plan_url(batch)}"
        )
    return plan


def _committed(committer: Committer, batch: int) -> tuple[Plan, Manifest]:
    plan = require_plan(committer, batch)
    decision = committer.log.read_manifest(batch)
    if decision is None:
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is not decided, so it has lost nothing yet; abandon it instead: "
            f"{commands.abandon(committer.log, batch)}"
        )
    if decision.status != "commit":
        raise ConfigurationError(f"batch {batch} of topic {plan.topic!r} has no objects: it is {decision.status}")
    return plan, decision
