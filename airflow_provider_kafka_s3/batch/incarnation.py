"""Whether the live topic is the one that the stored offsets belong to."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    TopicRecreatedError,
    TransientError,
)

__all__ = ["refuse_shorter_log", "require_same_cluster", "require_topic_id", "topic_id_of"]


def require_topic_id(source: Source, topic_log: TopicLog, expected: str, *, cluster_id: str = "") -> str:
    """The live topic's id, empty if it has none.

    Topic ids are never reused (KIP-516), so equal ids before and after a read mean that all of it hit that incarnation.
    An empty ``expected`` belongs to brokers without topic ids and passes: they may have been upgraded since.

    Args:
        source: the cluster.
        topic_log: of the topic.
        expected: id of the incarnation that the log is about.
        cluster_id: of the cluster that the log is about; empty: not known.

    Raises:
        ConfigurationError: this is another cluster, whose topic is not the one of the log.
        TopicRecreatedError: the topic is another one by now.
        TransientError: the brokers that answer give no topic ids any more.
    """
    topic = topic_log.topic
    info = source.describe(topic)
    live = info.topic_id or ""
    if live != expected:
        require_same_cluster(
            topic,
            cluster_id,
            info.cluster_id,
            f"Nothing was read or written. Correct the Kafka connection. If the topic has moved to this cluster, turn "
            f"to it: {topic_log.remedies.reset()}. What was planned before ends for good, new runs land the topic from "
            f"its beginning",
        )
    if expected and not live:
        raise TransientError(
            f"the brokers give no id of topic {topic!r} any more, and the stored offsets belong to {expected}: whether "
            f"it is the same topic cannot be told. Nothing was read or written. Try again when all brokers are upgraded"
        )
    if expected and live != expected:
        raise TopicRecreatedError(
            f"topic {topic!r} was deleted and created again: the stored offsets belong to topic id {expected}, the "
            f"live topic has {live or 'none'}. Nothing was read or written. If the new topic should be landed from its "
            f"beginning, turn to it: {topic_log.remedies.reset()}. What was planned before ends for good, new runs "
            f"land the new topic"
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
            f"topic {topic!r} was landed from another Kafka cluster, {landed}: the Kafka connection leads to {live}. "
            f"{consequence}"
        )


def topic_id_of(topic_log: TopicLog, plan: Plan) -> str:
    """The topic id that a plan's offsets belong to; empty if nobody knows it.

    A plan from before the brokers were upgraded has none, and its log may have one by now: without it the records
    of a topic that was created again would be taken for those of the plan.
    """
    if plan.topic_id:
        return plan.topic_id
    view = topic_log.view()
    closed = view.marker.history[plan.generation :]
    return closed[0].topic_id if closed else view.topic_id


def refuse_shorter_log(source: Source, topic: str, stored: Marker, ends: Mapping[int, int]) -> None:
    """Notice a log that ends before what is covered.

    Its topic was created again (brokers without topic ids do not tell otherwise) or truncated; either way records
    would get offsets that count as covered, and never be landed.

    Args:
        source: the cluster.
        topic: name of the topic.
        stored: its stored offsets.
        ends: of the live topic, for the reader that is going to read it.

    Raises:
        DataLossError: the log was truncated.
        TopicRecreatedError: it was created again, on brokers without topic ids.
    """
    landed = {p: end for p in stored.covered if (end := stored.covered.end(p)) is not None}
    suspects = tuple(p for p, end in landed.items() if ends.get(p, 0) < end)
    if not suspects:
        return
    # An open transaction hides what was landed uncommitted; the high watermark does not.
    known = tuple(p for p in suspects if p in ends)
    watermarks = source.ends(topic, known, "read_uncommitted") if known else {}
    short = {p: watermarks.get(p, 0) for p in suspects if watermarks.get(p, 0) < landed[p]}
    if not short:
        return
    told = ", ".join(f"partition {p} ends at {end}, stored is {landed[p]}" for p, end in sorted(short.items()))
    if stored.topic_id:
        raise DataLossError(
            f"topic {topic!r} is shorter than what was landed of it: {told}. The log was truncated (unclean leader "
            f"election); new records would get offsets that count as landed. Nothing was written. Land the topic with "
            f"another pipeline and topics_dir, from these ends as starting_offsets"
        )
    raise TopicRecreatedError(
        f"topic {topic!r} is shorter than what was landed of it: {told}. It was deleted and created again. Nothing was "
        f"written. Land the new topic with another pipeline and topics_dir: these brokers have no topic ids, so a "
        f"reset cannot tell the two apart"
    )
