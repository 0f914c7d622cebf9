"""The pipelines and topics of a bucket, by their owner documents, and errors for names that are not among them."""

from __future__ import annotations

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.owner import read_owner
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import few, or_nearest
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["has_begun", "nothing_there", "owned_topic", "owned_topics", "require_begun", "require_landed"]


def owned_topics(store: DurableStore, *, topics_dir: str, pipeline: str | None = None) -> list[TopicAddress]:
    """The topics that pipelines have begun to land under a ``topics_dir``, by their names.

    Args:
        store: the bucket.
        topics_dir: prefix of all keys.
        pipeline: only topics of this pipeline.
    """
    keys = [info.key for info in store.list(addresses.owners_prefix(topics_dir))]
    owned = in_threads(lambda key: owned_topic(store, key, topics_dir=topics_dir), keys, threads=16)
    return sorted(address for address in owned if address is not None and pipeline in (None, address.pipeline))


def owned_topic(store: DurableStore, key: str, *, topics_dir: str) -> TopicAddress | None:
    """The topic of an owner document; None: its pipeline has released it.

    Args:
        store: the bucket.
        key: of the document.
        topics_dir: prefix of all keys.
    """
    stored = read_owner(store, key, topics_dir=topics_dir)
    if stored is None or stored[0].released:
        return None
    return TopicAddress(topics_dir=topics_dir, pipeline=stored[0].pipeline, topic=stored[0].topic)


def nothing_there(store: DurableStore, *, topics_dir: str, pipeline: str | None) -> ConfigurationError:
    """The error for a pipeline without topics, or for a place without pipelines: a name is probably misspelt.

    Args:
        store: the bucket.
        topics_dir: prefix of all keys.
        pipeline: its name; None: no pipeline is named.
    """
    where = store.url(topics_dir)
    names = sorted({address.pipeline for address in owned_topics(store, topics_dir=topics_dir)})
    if pipeline is None or not names:
        return ConfigurationError(f"there is no pipeline below {where}. Nothing was read; check bucket and topics_dir")
    there = or_nearest(pipeline, names, f"the pipelines there are {few(names)}")
    return ConfigurationError(f"there is no pipeline {pipeline!r} below {where}. Nothing was read{there}")


def has_begun(log: TopicLog) -> bool:
    """Whether the log has a marker or a batch."""
    return log.store.head(addresses.marker_key(log.prefix)) is not None or log.read_plan(1) is not None


def require_begun(log: TopicLog) -> None:
    """Refuse a topic that no run of the pipeline has begun to land: its name, or another one, is probably misspelt.

    One whose first run has failed before its first batch has begun.

    Raises:
        ConfigurationError: there is neither a log nor an owner document, with the nearest names that are there.
    """
    if has_begun(log):
        return
    owned = owned_topics(log.store, topics_dir=log.topics_dir, pipeline=log.pipeline)
    topics = [address.topic for address in owned]
    if not topics:
        raise nothing_there(log.store, topics_dir=log.topics_dir, pipeline=log.pipeline)
    if log.topic not in topics:
        there = or_nearest(log.topic, topics, f"it lands {few(topics)}")
        raise ConfigurationError(
            f"pipeline {log.pipeline!r} has not begun to land topic {log.topic!r} below "
            f"{log.store.url(log.topics_dir)}. Nothing was read{there}"
        )


def require_landed(log: TopicLog) -> None:
    """Refuse a topic without marker and without batches: its name, or another option, is probably misspelt.

    Raises:
        ConfigurationError: the pipeline has never landed it.
    """
    if not has_begun(log):
        require_begun(log)
        raise ConfigurationError(
            f"nothing of topic {log.topic!r} is landed: the first run of pipeline {log.pipeline!r} has ended "
            f"before its first batch. Nothing was changed. Start a run; or, if it is not the pipeline that should "
            f"land the topic: {log.remedies.release()}"
        )
