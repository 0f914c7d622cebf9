"""A replay: the records of landed objects are sent to a topic, each once.

What is sent, and in which order, is a document that is created once. A partition is sent by a transactional producer,
which fences the one before it, and has its progress in the transactions. So a replay that was killed is repeated with
the same id, as often as need be.

Producers are in a process of their own: an error in their C library ends that process only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import corrupt, decode, encode, write_stamp
from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, CorruptControlError
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster, TopicInfo
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.replay.foreign import plan_foreign_replay
from airflow_provider_kafka_s3.replay.job import ReplayJob, ended, send
from airflow_provider_kafka_s3.replay.plan import plan_replay
from airflow_provider_kafka_s3.replay.process import ReplayProcess
from airflow_provider_kafka_s3.replay.request import ReplayRequest, require_target
from airflow_provider_kafka_s3.replay.target import check_target, require_same_target
from airflow_provider_kafka_s3.retry import Retrier

__all__ = ["ReplayProcess", "Replayed", "replay", "send"]

log = logging.getLogger(__name__)

_LOOKS_AGAIN: Final = 0.2
"""Seconds between two requests for the last stable offsets."""


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        replay: its id.
        target: the topic that records were sent to.
        batch: number of the last batch that it has records of.
        planned: number of records in its objects, per Kafka partition; a selection sends fewer. None: objects of
            another sink have no number.
        sent: number of records that were sent, by all runs together; empty for a dry run.
        notes: what differs in some records from those in Kafka, for people.
        last_stable_offsets: of the target's partitions with a transaction that is still open after the replay, of this
            one or of another producer: readers of committed records read no further.
    """

    replay: str
    target: str
    batch: int
    planned: Mapping[int, int | None]
    sent: Mapping[int, int]
    notes: tuple[str, ...] = ()
    last_stable_offsets: Mapping[int, int] = field(default_factory=dict)


def replay(
    place: TopicLocation,
    config: Mapping[str, Any],
    request: ReplayRequest,
    *,
    dry_run: bool = False,
    stalled_after: float = 180.0,
    visible_within: float = 10.0,
    process: ReplayProcess | None = None,
) -> Replayed:
    """Send the records of landed objects to a topic; repeated with the same id, it continues, or does nothing.

    Args:
        place: where the records are.
        config: of the clients of the target's cluster, as librdkafka has it.
        request: what to send.
        dry_run: plan it and check the target; nothing is written or sent.
        stalled_after: seconds without a record after which the process that sends is ended and another one continues:
            librdkafka may wait for ever for the offsets of a transaction if a broker was restarted.
        visible_within: seconds to wait for Kafka to make the last transactions visible.
        process: by which the replay can be killed; None: it cannot, but by the end of this process.

    Raises:
        ConfigurationError: see :func:`~airflow_provider_kafka_s3.replay.plan.plan_replay` and
            :func:`~airflow_provider_kafka_s3.replay.target.check_target`; or the id has other settings, or is that of
            a replay to another cluster.
        TopicRecreatedError: the target was deleted and created again since the replay was planned.
        ReplayOvertakenError: another process sends the same replay.
        ControlError: Kafka has forgotten how far the replay came.
        TransientError: it was killed, or a request failed, also after retries.
        KafkaS3Error: a request failed, also after retries.
    """
    topic_log = place.open_log()
    require_target(topic_log, request)
    cluster = KafkaCluster(config)
    target = cluster.describe(request.target)
    plan = _planned(topic_log, request, target, dry_run=dry_run)
    require_same_target(config, plan, target)
    done = ended(topic_log, plan)
    planned = plan.records
    if len(done) == len(plan.numbers):
        log.info("replay %s to topic %s has ended before; nothing is sent", plan.replay, plan.target)
        return Replayed(plan.replay, plan.target, plan.batch, planned, done, plan.notes)
    largest = check_target(cluster, request, plan, target)
    log.info(
        "replay %s: %s of %s of topic %s to topic %s",
        plan.replay,
        f"records up to batch {plan.batch}"
        if request.written_by is None
        else f"objects of {request.written_by}'s sink",
        count(len(planned), "partition"),
        plan.topic,
        plan.target,
    )
    for note in plan.notes:
        log.info("replay %s: of some records, %s", plan.replay, note)
    if dry_run:
        return Replayed(plan.replay, plan.target, plan.batch, planned, {}, plan.notes)
    # Records that were landed fit into the batches of their topic; librdkafka's own limit may be lower.
    # Several records in one request must not have more than the topic's, which may be the lower one.
    settings = {"message.max.bytes": max(largest, 1_000_000), "batch.size": min(largest, 1_000_000), **config}
    if request.records_per_second is not None:
        stalled_after = max(stalled_after, 10 / request.records_per_second)
    job = ReplayJob(place, settings, request, plan, stalled_after)
    process = process or ReplayProcess()
    sent = Retrier().call(lambda: process.send(job), what=f"send replay {plan.replay} to topic {plan.target}")
    stable = _open_at_the_end(cluster, target, visible_within)
    for partition, offset in stable.items():
        log.warning(
            "replay %s: partition %d of topic %s has an open transaction: consumers of committed records read nothing "
            "from offset %d on. It may be one of another producer. If it stays open, a broker that died may have left "
            "it: see `kafka-transactions.sh find-hanging`",
            plan.replay,
            partition,
            plan.target,
            offset,
        )
    return Replayed(plan.replay, plan.target, plan.batch, planned, sent, plan.notes, stable)


def _open_at_the_end(cluster: KafkaCluster, target: TopicInfo, seconds: float) -> dict[int, int]:
    """The last stable offsets of partitions whose records are not all visible within some seconds.

    Kafka confirms a transaction before it writes its end to the partitions. A broker that dies in between does so when
    it starts again. Kafka 4.3 with a single broker may skip it then, since no partition has a leader yet.
    """
    deadline = time.monotonic() + seconds
    ends = cluster.ends(target.name, target.partitions, "read_uncommitted")
    while True:
        stable = cluster.ends(target.name, target.partitions, "read_committed")
        behind = {partition: offset for partition, offset in stable.items() if offset < ends[partition]}
        if not behind or time.monotonic() > deadline:
            return behind
        time.sleep(_LOOKS_AGAIN)


def _planned(topic_log: TopicLog, request: ReplayRequest, target: TopicInfo, *, dry_run: bool) -> ReplayPlan:
    where = topic_log.replay_url(request.replay, "plan")
    try:
        plan = topic_log.read_replay(ReplayPlan, request.replay, "plan")
        if plan is None:
            choose = plan_replay if request.written_by is None else plan_foreign_replay
            plan = choose(topic_log, request, target)
            if dry_run:
                return plan
            key = addresses.replay_key(topic_log.prefix, request.replay, "plan")
            plan, _ = decode(ReplayPlan, topic_log.store.create(key, encode(plan, write_stamp(), where)), where)
        if plan.replay != request.replay:
            raise corrupt(where, f"it is of replay {plan.replay!r}")
        if not (plan.partitions if request.written_by is None else plan.foreign):
            raise corrupt(where, "it has no objects that such a replay sends")
    except CorruptControlError as e:
        e.add_note(
            f"or compare the target with the source, and send what is missing with another id: what replay "
            f"{request.replay!r} sends is in this document alone"
        )
        raise
    wanted = {**request.settings, "target": request.target, "topic": topic_log.topic}
    planned = {**plan.settings, "target": plan.target, "topic": plan.topic}
    differing = [name for name in wanted if wanted[name] != planned.get(name)]
    if request.at is not None and request.at != plan.batch:
        differing.append("at")
    if differing:
        raise ConfigurationError(
            f"replay {request.replay!r} was planned before with other settings: {', '.join(differing)}. Nothing was "
            f"sent. Use the same ones to continue it, or another id: {where}"
        )
    return plan
