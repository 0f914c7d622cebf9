"""Checks of the topic that records are sent to, before anything is sent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TopicRecreatedError
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster, TopicInfo
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.replay.request import ReplayRequest

__all__ = ["check_target", "require_same_target"]


def require_same_target(config: Mapping[str, Any], plan: ReplayPlan, target: TopicInfo) -> None:
    """Refuse another cluster, or another topic of the same name, than those that a replay was planned for.

    Args:
        config: of the clients of the target's cluster, for messages.
        plan: of the replay.
        target: the topic as it is now.

    Raises:
        ConfigurationError: it is in another cluster.
        TopicRecreatedError: it was deleted and created again.
    """
    if plan.cluster_id and target.cluster_id and plan.cluster_id != target.cluster_id:
        raise ConfigurationError(
            f"replay {plan.replay!r} was planned for topic {plan.target!r} of the Kafka cluster with the id "
            f"{plan.cluster_id!r}, and the connection leads to the cluster {target.cluster_id!r} "
            f"({config['bootstrap.servers']}). Nothing was sent. To continue the replay, use the connection of the "
            f"first one; to send the records to the second one, use another id"
        )
    if plan.target_id and target.topic_id and plan.target_id != target.topic_id:
        raise TopicRecreatedError(
            f"topic {plan.target!r} was deleted and created again since replay {plan.replay!r} was planned: its id was "
            f"{plan.target_id!r}, and is {target.topic_id!r}. Nothing was sent. Use another id to send all records to "
            f"the new topic"
        )


def check_target(cluster: KafkaCluster, request: ReplayRequest, plan: ReplayPlan, there: TopicInfo) -> int:
    """Refuse a topic that would not keep the records as they are sent.

    Args:
        cluster: of the target.
        request: the replay.
        plan: what it sends.
        there: the topic.

    Returns:
        Bytes of its largest batch of records.

    Raises:
        ConfigurationError: the topic has too few partitions, or a setting that changes or deletes records at once.
        KafkaS3Error: the brokers refuse, or do not answer.
    """
    target = request.target
    absent = sorted(set(plan.numbers) - set(there.partitions))
    if request.keeps_partitions and absent:
        raise ConfigurationError(
            f"topic {target!r} has {count(len(there.partitions), 'partition')}, and records of partition {absent[-1]} "
            f"are to be sent. Nothing was sent. Add partitions to the topic, or let the hash of the key choose them "
            f"with keeps_partitions=False (--by-key-hash)"
        )
    settings = cluster.topic_settings(target)
    keeps_time = "timestamp" not in request.without
    if keeps_time and settings.get("message.timestamp.type") == "LogAppendTime":
        raise ConfigurationError(
            f"topic {target!r} has message.timestamp.type=LogAppendTime, so all timestamps would be those of the "
            f"replay. Nothing was sent. Set it to CreateTime, or accept that with without=('timestamp',) "
            f"(--without timestamp)"
        )
    now = int(time.time() * 1000)
    age = None if plan.oldest is None or not keeps_time else now - plan.oldest
    retention = int(settings.get("retention.ms", "-1"))
    if keeps_time and "delete" in settings.get("cleanup.policy", "delete") and retention >= 0:
        if age is None:
            raise ConfigurationError(
                f"topic {target!r} has retention.ms={retention}, and the age of the records is not known: Kafka may "
                f"delete them at once. Nothing was sent. Set retention.ms=-1 for the time of the replay"
            )
        if age > retention:
            raise ConfigurationError(
                f"topic {target!r} has retention.ms={retention}, and records are up to {age} ms old: Kafka deletes "
                f"such segments at once. Nothing was sent. Set retention.ms=-1, or above {age}, for as long as they "
                f"are needed"
            )
    before = int(settings.get("message.timestamp.before.max.ms", str(2**63 - 1)))
    if age is not None and age > before:
        raise ConfigurationError(
            f"topic {target!r} has message.timestamp.before.max.ms={before}, and records are up to {age} ms old: the "
            f"brokers refuse them. Nothing was sent. Set it above {age} for the time of the replay"
        )
    ahead = None if plan.newest is None or not keeps_time else plan.newest - now
    after = int(settings.get("message.timestamp.after.max.ms", str(2**63 - 1)))
    if ahead is not None and ahead > after:
        raise ConfigurationError(
            f"topic {target!r} has message.timestamp.after.max.ms={after}, and records are up to {ahead} ms in the "
            f"future: the brokers refuse them. Nothing was sent. Set it above {ahead} for the time of the replay, or "
            f"select records by until (--until)"
        )
    return int(settings.get("max.message.bytes", "1048588"))
