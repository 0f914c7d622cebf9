"""Checks that the live topic, and the log of each partition, are those that the stored offsets belong to."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import LogEnd, LogPosition, Source
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.documents.marker import Marker, highest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    TopicRecreatedError,
    TransientError,
)

__all__ = ["refuse_replaced_log", "refuse_shorter_log", "require_same_cluster", "require_topic_id", "topic_id_of"]


def require_topic_id(source: Source, topic_log: TopicLog, expected: str, *, cluster_id: str = "") -> str:
    """Check the live topic's id and return it; empty if it has none.

    Topic ids are never reused (KIP-516), so equal ids before and after a read mean that all of it was of that
    incarnation. An empty ``expected`` comes from brokers without topic ids and passes: they may have been upgraded.

    Args:
        source: the cluster.
        topic_log: log of the topic.
        expected: topic id in the log.
        cluster_id: cluster id in the log; empty if unknown.

    Raises:
        ConfigurationError: this is another cluster, and its topic has another id.
        TopicRecreatedError: the topic was deleted and created again.
        TransientError: the brokers report no topic ids any more.
    """
    topic = topic_log.topic
    info = source.describe(topic)
    live = info.topic_id or ""
    if live != expected:
        require_same_cluster(
            topic,
            cluster_id,
            info.cluster_id,
            f"Nothing was read or written. Correct the Kafka connection. If the topic has moved to this cluster, "
            f"continue with it: {topic_log.remedies.reset()}. Batches planned before end for good; new runs land the "
            f"topic from its beginning",
        )
    if expected and not live:
        raise TransientError(
            f"the brokers report no id of topic {topic!r} any more, and the stored offsets belong to "
            f"{printable(expected)}: whether it is the same topic is unknown. Nothing was read or "
            f"written. Try again when all brokers are "
            f"upgraded"
        )
    if expected and live != expected:
        raise TopicRecreatedError(
            f"topic {topic!r} was deleted and created again: the stored offsets belong to topic id "
            f"{printable(expected)}, the live topic has {live or 'none'}. Nothing was read or written. To land "
            f"the new topic from its beginning, "
            f"continue with it: {topic_log.remedies.reset()}. Batches planned before end for good; new runs land the "
            f"new topic"
        )
    return live


def require_same_cluster(topic: str, landed: str, live: str | None, consequence: str) -> None:
    """Require that the Kafka connection leads to the cluster that a topic was landed from.

    Args:
        topic: name of the topic.
        landed: ID of the cluster that it was landed from; empty if unknown.
        live: ID of the cluster of the connection; None if unknown.
        consequence: sentences for the error: what was not done, and what to do.

    Raises:
        ConfigurationError: both IDs are known and differ.
    """
    if landed and live and landed != live:
        raise ConfigurationError(
            f"topic {topic!r} was landed from another Kafka cluster, {landed!r}: the Kafka connection leads to "
            f"{live!r}. {consequence}"
        )


def topic_id_of(topic_log: TopicLog, plan: Plan) -> str:
    """The topic id that a plan's offsets belong to; empty if unknown.

    A plan from before the brokers were upgraded has none, but its log may have one by now. Without it the records of a
    topic that was created again would be taken for those of the plan.
    """
    if plan.topic_id:
        return plan.topic_id
    view = topic_log.view()
    closed = view.marker.history[plan.generation :]
    return closed[0].topic_id if closed else view.topic_id


def refuse_shorter_log(source: Source, topic: str, stored: Marker, ends: Mapping[int, int]) -> None:
    """Refuse a topic whose log ends before the covered offsets.

    The topic was created again (brokers without topic ids show it in no other way) or truncated. Either way new records
    would get offsets that count as covered, and would never be landed.

    Args:
        source: the cluster.
        topic: name of the topic.
        stored: its marker.
        ends: end offsets of the live topic, at the isolation level of the run.

    Raises:
        DataLossError: the log was truncated.
        TopicRecreatedError: it was created again, on brokers without topic ids.
    """
    landed = {p: ranges[-1][1] for p, ranges in stored.covered.items()}
    suspects = tuple(p for p, end in landed.items() if ends.get(p, 0) < end)
    if not suspects:
        return
    # An open transaction hides what was landed uncommitted; the high watermark does not.
    existing = tuple(p for p in suspects if p in ends)
    watermarks = source.ends(topic, existing, "read_uncommitted") if existing else {}
    short = {p: watermarks.get(p, 0) for p in suspects if watermarks.get(p, 0) < landed[p]}
    if not short:
        return
    partitions = ", ".join(f"partition {p} ends at {end}, stored is {landed[p]}" for p, end in sorted(short.items()))
    if stored.topic_id:
        raise DataLossError(
            f"topic {topic!r} ends before its landed offsets: {partitions}. The log was truncated (unclean leader "
            f"election); new records would get offsets that count as landed. Nothing was written. Land the topic with "
            f"another pipeline and topics_dir, from these ends as starting_offsets"
        )
    raise TopicRecreatedError(
        f"topic {topic!r} ends before its landed offsets: {partitions}. It was deleted and created again. Nothing was "
        f"written. Land the new topic with another pipeline and topics_dir: these brokers have no topic ids, so a "
        f"reset cannot distinguish the two"
    )


def refuse_replaced_log(source: Source, topic_log: TopicLog, view: View, ends: Mapping[int, LogEnd]) -> None:
    """Refuse a topic whose log has other records now at offsets that are landed, or claimed by an open batch.

    A log that was truncated may have grown past these offsets since, so its end does not show it. New records below
    them would never be landed. Each plan records the leader epochs of its ends. As long as these are the same, no
    leader was elected, and nothing was replaced. If not, Kafka is asked where the log of the recorded epoch ends: after
    a restart or a clean election it still reaches the offsets.

    Args:
        source: the cluster.
        topic_log: log of the topic.
        view: of the log.
        ends: of the partitions that the next plan may claim. They have to be requested before this check, so that the
            epochs of a plan never hide what an earlier leader has lost.

    Raises:
        DataLossError: other records are at these offsets.
        TransientError: the epoch of a leader is older than the recorded one.
    """
    open_plans = {n: p for n, p in sorted(view.open_plans.items()) if p.generation == view.marker.generation}
    reached_by = {n: plan.reached for n, plan in open_plans.items()}
    reached = highest(view.marker.reached, *reached_by.values())
    elected: dict[int, LogPosition] = {}
    for partition, position in reached.items():
        epoch = ends[partition].epoch if partition in ends else None
        if epoch is not None and epoch < position.epoch:
            raise TransientError(
                f"topic {topic_log.topic!r} partition {partition}: the leader has epoch {epoch}, and offsets below "
                f"{position.offset} were planned at epoch {position.epoch}. Nothing was written. A broker that is not "
                f"the leader any more may have answered: try again. If it stays so, the cluster was restored from an "
                f"older state, and may have other records: land the topic with another pipeline and topics_dir"
            )
        if epoch is not None and epoch > position.epoch:
            elected[partition] = position
    diverged = source.divergences(topic_log.topic, elected)
    if not diverged:
        return
    replaced = ", ".join(f"partition {p} from offset {offset} on" for p, offset in sorted(diverged.items()))
    message = (
        f"topic {topic_log.topic!r}: the log was truncated (unclean leader election, or a disk was lost), and other "
        f"records were appended since: {replaced}. Nothing was written"
    )
    claimed = [n for n, by_plan in reached_by.items() if any(by_plan.get(p, (0,))[0] > diverged[p] for p in diverged)]
    if claimed:
        message += (
            f". Open batches claim these offsets. Complete those that are decided "
            f"({topic_log.remedies.recover_decided()}), and abandon the others, so that their offsets are planned "
            f"again: {', '.join(map(topic_log.remedies.abandon, claimed))}"
        )
    covered = view.marker.covered
    landed = {p: offset for p, offset in sorted(diverged.items()) if (covered.end(p) or 0) > offset}
    if landed:
        ends_of = ", ".join(f"partition {p} up to {covered.end(p)}" for p in landed)
        message += (
            f". These offsets count as landed ({ends_of}), so the new records at them never would be. Land the topic "
            f"with another pipeline and topics_dir, from where the logs part as starting_offsets: {landed}"
        )
    raise DataLossError(message)
