"""Record objects and offsets as lost. Safe beside any number of running drivers, and harmless when repeated."""

from __future__ import annotations

import uuid
from collections.abc import Set
from dataclasses import dataclass

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.incarnation import require_same_cluster, require_topic_id
from airflow_provider_kafka_s3.batch.planning import next_claim, untouched
from airflow_provider_kafka_s3.batch.roll_forward import finish_reset
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
    plan, decision = require_committed(committer, batch)
    done = committer.objects.complete(plan, decision, accepting=True)
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
    committer.objects.abort_refused(lost)
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
    gone = committer.log.remedies.accept_loss(batch, other_cluster=True)
    require_same_cluster(
        topic,
        landed,
        live,
        f"The other cluster may have what batch {batch} lacks. Nothing was recorded. Correct the Kafka connection. If "
        f"that cluster is gone for good: {gone}",
    )


def accept_deleted(committer: Committer, batch: int, *, reason: str, operator: str) -> tuple[str, ...]:
    """Record that the objects which are gone from a completed batch stay away: runs no longer miss them.

    Returns:
        The keys that are recorded now; empty if all objects are there, or recorded before.

    Raises:
        ConfigurationError: the batch is not complete.
        ForeignObjectError: a key holds something else.
    """
    plan, decision = require_committed(committer, batch)
    if not committer.log.require_marker()[0].is_resolved(batch):
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is not complete: what is absent may still come. Complete it: "
            f"{committer.log.remedies.recover()}"
        )
    intact = committer.objects.are_intact(plan, decision.objects)
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
                f"up first: {', '.join(topic_log.remedies.abandon(n) for n in owners)}"
            )
        begin = untouched(view, left)
        if between := Offsets({p: [(begin[p], left.end(p) or 0)] for p in left}) - left:
            raise ConfigurationError(
                f"topic {topic!r}: offsets {between} lie below these and were never landed; runs would go on behind "
                f"them and leave them out. Nothing was recorded. Accept all of them: "
                f"{topic_log.remedies.accept_gone(left | between)}"
            )
        claim, tail = next_claim(view, left, max_records=None)
        layout = topic_log.last_layout(view.next)
        # No plan without the record of its run, as in every run.
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
    plan, decision = require_committed(committer, batch)
    accepted = committer.log.amended_keys(batch)[0]
    intact = committer.objects.are_intact(plan, decision.objects)
    left = [e for e, there in zip(decision.objects, intact, strict=True) if not there and e.key not in accepted]
    pending = committer.parallel(lambda entry: committer.store.upload_exists(entry.key, entry.upload_id), left)
    found = list(zip(left, pending, strict=True))
    return Absent(
        gone=tuple(entry.key for entry, waits in found if not waits),
        waiting=tuple(entry.key for entry, waits in found if waits),
    )
