"""Ways out of dead ends: what a person decides when the protocol cannot go on by itself.

Each is safe at any time, beside any number of running drivers, and harmless when repeated.
"""

from __future__ import annotations

from typing import Literal

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.manifest import Amend, Manifest
from airflow_provider_kafka_s3.batch.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.batch.plan import Plan
from airflow_provider_kafka_s3.batch.planning import View
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError

__all__ = ["abandon", "accept_loss", "finish_reset", "reset"]


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
    plan, _ = committer.log.require_plan(batch)
    decision = committer.abandon(plan, release=release, reason=reason, operator=operator, run=f"operator:{operator}")
    if decision.status != "abandoned":
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is decided ({decision.status}, see "
            f"{committer.log.manifest_url(batch)}) and can only be rolled forward; nothing was changed"
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
    plan, _ = committer.log.require_plan(batch)
    decision = committer.log.read_manifest(batch)
    if decision is None or decision.status != "commit":
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is not committed, so it has lost nothing yet; abandon it instead"
        )
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
