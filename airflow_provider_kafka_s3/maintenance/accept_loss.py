"""Record objects and offsets as lost. Safe while any number of drivers run, and harmless when repeated."""

from __future__ import annotations

import uuid
from collections.abc import Set
from dataclasses import dataclass

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.derived.registry import follow_amend
from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.incarnation import require_same_cluster, require_topic_id
from airflow_provider_kafka_s3.batch.planning import next_claim, untouched
from airflow_provider_kafka_s3.batch.roll_forward import finish_reset
from airflow_provider_kafka_s3.batch.source import pipeline_source
from airflow_provider_kafka_s3.documents.manifest import Amend
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, layout_digest, writer_versions
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError, TopicNotFoundError, raise_first
from airflow_provider_kafka_s3.maintenance.named_batch import require_committed
from airflow_provider_kafka_s3.messages import few

__all__ = ["Absent", "absent", "accept_deleted", "accept_gone", "accept_loss", "record_gone"]


def accept_loss(
    committer: Committer, batch: int, *, reason: str, operator: str, other_cluster: bool = False
) -> tuple[str, ...]:
    """Complete a decided batch without those objects that can be neither completed nor written again from Kafka.

    Args:
        committer: decides and completes the batches of the topic.
        batch: its number.
        reason: reason, for the record.
        operator: person who accepts the loss, for the record.
        other_cluster: the landed cluster is gone for good: records that this one does not have are lost, too.

    Returns:
        The keys accepted as lost, recorded in an amend; empty if all objects could be completed, or the batch was
        complete already.

    Raises:
        ConfigurationError: the batch is not committed; or objects are lost, and this is not the landed cluster. Nothing
            was recorded.
        BatchLossError: objects are not lost, but can only be written by another installation. Nothing was recorded.
        KafkaS3Error: an object that may not be lost failed; all others were processed first.
    """
    plan, decision = require_committed(committer, batch)
    completed = committer.objects.complete(plan, decision, accepting=True)
    if completed is None:
        return ()
    lost, errors = completed
    raise_first(errors)
    if rebuildable := [loss for loss in lost if loss.rebuildable]:
        raise BatchLossError(
            f"not all missing objects of batch {batch} of topic {plan.topic!r} are lost. Nothing was recorded: "
            f"{rebuildable[0].why}. Objects that it could write: "
            f"{few([committer.store.url(loss.entry.key) for loss in rebuildable])}"
        )
    if lost and not other_cluster:
        _require_cluster(committer, batch)
    recorded = record_gone(committer, batch, {loss.entry.key for loss in lost}, reason=reason, operator=operator)
    committer.objects.abort_refused(lost)
    # Every other object was checked just now, so the batch can be resolved.
    committer.resolve(plan, decision)
    return recorded


def _require_cluster(committer: Committer, batch: int) -> None:
    """Refuse another cluster than the landed one: records that it does not have are not lost."""
    topic, landed = committer.log.topic, committer.log.require_marker()[0].cluster_id
    try:
        live = committer.source.describe(topic).cluster_id
    except TopicNotFoundError as e:
        live = e.cluster_id
    gone = committer.log.remedies.accept_loss(batch, other_cluster=True)
    require_same_cluster(
        topic,
        landed,
        live,
        f"The other cluster may have the missing records of batch {batch}. Nothing was recorded. Correct the Kafka "
        f"connection. If that cluster is gone for good: {gone}",
    )


def accept_deleted(committer: Committer, batch: int, *, reason: str, operator: str) -> tuple[str, ...]:
    """Accept that the missing objects of a complete batch stay gone: runs no longer report them.

    Returns:
        The newly recorded keys; empty if no object is missing, or all were recorded before.

    Raises:
        ConfigurationError: the batch is not complete.
        ForeignObjectError: a key holds an object that the batch did not write.
        UnknownOutcomeError: requests of another kind find an object that HEAD does not. Nothing was recorded.
    """
    plan, decision = require_committed(committer, batch)
    if not committer.log.require_marker()[0].is_resolved(batch):
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is not complete: absent objects may still appear. Complete it: "
            f"{committer.log.remedies.recover()}"
        )
    intact = committer.objects.are_intact(plan, decision.objects)
    expired = expired_objects(committer.log)
    looks = zip(decision.objects, intact, strict=True)
    absent = [entry for entry, exists in looks if not exists and not expired.has(batch, entry)]
    gone = {entry.key for entry in committer.objects.gone(plan, absent)}
    return record_gone(committer, batch, gone, reason=reason, operator=operator)


def record_gone(committer: Committer, batch: int, gone: Set[str], *, reason: str, operator: str) -> tuple[str, ...]:
    """Record in an amend that objects of a committed batch stay gone.

    Args:
        committer: decides and completes the batches of the topic.
        batch: its number.
        gone: keys of its objects.
        reason: reason, for the record.
        operator: person who accepts it, for the record.

    Returns:
        The newly recorded keys.
    """
    recorded: set[str] = set()
    while True:
        accepted, number = committer.log.amended_keys(batch)
        if not (left := gone - accepted):
            if gone:
                # Also if an earlier call has recorded them, which may have ended before this.
                follow_amend(committer.log, batch)
            return tuple(sorted(recorded))
        # Another process may take the number with other keys.
        committer.log.create_amend(
            Amend(batch=batch, keys=tuple(sorted(left)), reason=reason, operator=operator), number
        )
        recorded |= left


def accept_gone(committer: Committer, offsets: Offsets, *, reason: str, operator: str) -> Offsets:
    """Record offsets as lost that retention deleted before any batch claimed them.

    Returns:
        The newly recorded offsets; covered ones are not changed.

    Raises:
        ConfigurationError: Kafka still has some of them, an open batch claims them, or others below them were never
            landed and would be left out. Nothing was changed.
        TopicRecreatedError: the topic was deleted and created again.
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
        earliest, landed = source.earliest(topic, tuple(left)), pipeline_source(source)
        expired = NO_OFFSETS if landed is None else landed.gone(topic)
        if held := left - Offsets({p: [(0, earliest[p])] for p in left}) - expired:
            raise ConfigurationError(
                f"topic {topic!r}: offsets {held} are not gone, Kafka has them or will have them (the log starts at "
                f"{earliest}); nothing was recorded. Give only offsets below that"
            )
        if claimed := left & view.claims:
            owners = [n for n, plan in sorted(view.open_plans.items()) if plan.claim & claimed]
            raise ConfigurationError(
                f"topic {topic!r}: offsets {claimed} belong to open batches {owners}; nothing was recorded. Abandon "
                f"these first: {', '.join(topic_log.remedies.abandon(n) for n in owners)}"
            )
        begin = untouched(view, left)
        if between := Offsets({p: [(begin[p], left.end(p) or 0)] for p in left}) - left:
            raise ConfigurationError(
                f"topic {topic!r}: offsets {between} lie below these and were never landed; runs would continue after "
                f"them and leave them out. Nothing was recorded. Accept all of them: "
                f"{topic_log.remedies.accept_gone(left | between)}"
            )
        claim, tail = next_claim(view, left, max_records=None)
        layout = topic_log.last_layout(view.next)
        # As in every run, the run record is created before the plan.
        topic_log.create_run(
            RunRecord(
                run=run,
                offsets="recover",
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


@dataclass(frozen=True)
class Absent:
    """Keys of a committed batch that are absent and not accepted as lost.

    Attributes:
        gone: without an upload that could be completed.
        pending: with a pending upload; whether the store completes it is unknown until Complete.
    """

    gone: tuple[str, ...]
    pending: tuple[str, ...]


def absent(committer: Committer, batch: int) -> Absent:
    """The absent objects of a committed batch; nothing is changed.

    Raises:
        ConfigurationError: the batch is not committed.
        ForeignObjectError: a key holds an object that the batch did not write.
    """
    plan, decision = require_committed(committer, batch)
    accepted, expired = committer.log.amended_keys(batch)[0], expired_objects(committer.log)
    intact = committer.objects.are_intact(plan, decision.objects)
    left = [
        entry
        for entry, exists in zip(decision.objects, intact, strict=True)
        if not exists and entry.key not in accepted and not expired.has(batch, entry)
    ]
    pending = committer.parallel(lambda entry: committer.store.upload_exists(entry.key, entry.upload_id), left)
    without = [entry for entry, is_pending in zip(left, pending, strict=True) if not is_pending]
    return Absent(
        gone=tuple(entry.key for entry in committer.objects.gone(plan, without)),
        pending=tuple(entry.key for entry, is_pending in zip(left, pending, strict=True) if is_pending),
    )
