"""Ways out of dead ends: what a person decides when the protocol cannot go on by itself.

Each is safe at any time, beside any number of running drivers, and harmless when repeated.
"""

from __future__ import annotations

import uuid
from typing import Literal

from airflow_provider_kafka_s3.batch import commands
from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import RunRecord
from airflow_provider_kafka_s3.batch.manifest import Amend, Manifest
from airflow_provider_kafka_s3.batch.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.batch.plan import Plan, layout_digest, writer_versions
from airflow_provider_kafka_s3.batch.planning import View, next_claim
from airflow_provider_kafka_s3.batch.source import require_topic_id
from airflow_provider_kafka_s3.config import Format, Layout
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError

__all__ = [
    "abandon",
    "absent",
    "accept_deleted",
    "accept_gone",
    "accept_loss",
    "finish_reset",
    "last_layout",
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
            f"batch {batch} of topic {plan.topic!r} is decided ({decision.status}, see "
            f"{committer.log.manifest_url(batch)}) and can only be rolled forward: {commands.recover(committer.log)}. "
            f"Nothing was changed"
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
        live = committer.source.describe(committer.log.topic).topic_id or ""
        if live == view.marker.topic_id:
            return False
        committer.log.create_plan(
            Plan(
                batch=view.next,
                type="reset",
                topic=committer.log.topic,
                topic_id=view.marker.topic_id,
                generation=view.marker.generation,
                run=f"operator:{operator}",
                tail=False,
                isolation="read_committed",
                slices=(),
                skipped=NO_OFFSETS,
                layout=None,
                layout_sha256="",
                new_topic_id=live,
            )
        )
        view = committer.log.view()
        if (pending := view.open_reset) is not None:
            finish_reset(committer, view, pending)
            return True


def finish_reset(committer: Committer, view: View, pending: Plan) -> None:
    """Carry an open reset out: a barrier, everything older is decided and resolved first."""
    for batch, plan in sorted(view.open_plans.items()):
        if batch > pending.batch:
            break
        if batch < pending.batch:
            decision = committer.abandon(plan, release="lost", reason="topic reset", operator="reset", run=pending.run)
        else:
            decision = committer.log.create_manifest(
                Manifest(
                    batch=batch,
                    plan_sha256=committer.log.require_plan(batch)[1],
                    status="reset",
                    run=pending.run,
                )
            )
        committer.carry_out(plan, decision)


def accept_loss(committer: Committer, batch: int, *, reason: str, operator: str) -> tuple[str, ...]:
    """Complete a decided batch without those objects that can be neither completed nor written again from Kafka.

    Returns:
        The keys that are accepted as lost, recorded in an amend; empty if all could be completed after all, or the
        batch was complete already.

    Raises:
        ConfigurationError: the batch is not committed.
    """
    plan, decision = _committed(committer, batch)
    # As before any Complete: what a user deleted from a resolved batch is no loss of the batch, and stays away.
    if committer.log.require_marker()[0].is_resolved(batch):
        return ()
    lost: list[str] = []
    for entry in decision.objects:
        try:
            if not committer.complete(plan, entry):
                return ()
        except BatchLossError:
            lost.append(entry.key)
    if lost:
        _, number = committer.log.amended_keys(batch)
        committer.log.create_amend(Amend(batch=batch, keys=tuple(lost), reason=reason, operator=operator), number)
    committer.carry_out(plan, decision)
    return tuple(lost)


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
    recorded: set[str] = set()
    while True:
        accepted, number = committer.log.amended_keys(batch)
        if not (gone := absent - accepted):
            return tuple(sorted(recorded))
        # Somebody else may take the number with other keys.
        committer.log.create_amend(
            Amend(batch=batch, keys=tuple(sorted(gone)), reason=reason, operator=operator), number
        )
        recorded |= gone


def accept_gone(committer: Committer, offsets: Offsets, *, reason: str, operator: str) -> Offsets:
    """Record offsets as lost that retention deleted before any batch claimed them.

    Returns:
        The offsets that are recorded now; those that are covered already are left as they are.

    Raises:
        ConfigurationError: Kafka still has some of them, or an open batch claims them. Nothing was changed.
        TopicRecreatedError: the topic is another one by now.
    """
    topic_log, source, topic = committer.log, committer.source, committer.log.topic
    run = f"operator:{operator}:{uuid.uuid4()}"
    recorded = NO_OFFSETS
    while True:
        view = topic_log.view()
        if not (left := offsets - view.marker.covered):
            return recorded
        require_topic_id(source, topic_log, view.marker.topic_id)
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
        claim, tail = next_claim(view, left, max_records=None)
        layout = last_layout(committer, view.next)
        # No plan without the record of its run, as in every run.
        topic_log.create_run(
            RunRecord(
                run=run,
                mode="recover",
                params={"reason": reason, "operator": operator},
                topic_id=view.marker.topic_id,
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
            topic_id=view.marker.topic_id,
            generation=view.marker.generation,
            run=run,
            tail=tail,
            isolation="read_committed",
            slices=(),
            skipped=claim,
            layout=layout,
            layout_sha256=layout_digest(layout),
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
    return Layout(topics_dir=committer.log.topics_dir, format=Format(kind="json"))


def absent(committer: Committer, batch: int) -> tuple[str, ...]:
    """Keys of a committed batch that are not there, are not accepted as lost, and have no upload to complete either."""
    plan, decision = _committed(committer, batch)
    accepted = committer.log.amended_keys(batch)[0]
    intact = committer.are_intact(plan, decision.objects)
    return tuple(
        entry.key
        for entry, there in zip(decision.objects, intact, strict=True)
        if not there and entry.key not in accepted and not committer.store.upload_exists(entry.key, entry.upload_id)
    )


def require_plan(committer: Committer, batch: int) -> Plan:
    """The plan of a batch that a person named.

    Raises:
        ConfigurationError: there is no such batch.
    """
    plan = committer.log.read_plan(batch)
    if plan is None:
        raise ConfigurationError(
            f"topic {committer.log.topic!r} has no batch {batch} (no plan {committer.log.plan_url(batch)}); nothing "
            f"was changed"
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
