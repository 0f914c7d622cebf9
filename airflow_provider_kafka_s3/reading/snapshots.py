"""The states of all topics of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.topics import nothing_there, owned_topics
from airflow_provider_kafka_s3.messages import or_nearest
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.snapshot import Snapshot, settings_of
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings

__all__ = ["snapshots"]


def snapshots(
    bucket: str | DurableStore,
    *,
    pipeline: str,
    topics_dir: str = "topics",
    topics: Iterable[str] | None = None,
    at: Mapping[str, int] | None = None,
    endpoint_url: str | None = None,
    s3: S3Settings | None = None,
    credentials: S3Credentials | None = None,
) -> dict[str, Snapshot]:
    """The states of the topics that a pipeline lands, in the order of their names.

    The markers are read at the same time. Topics are independent: no state is common to all of them, so keep the
    ``batch`` of each one to name the result again, or to continue behind it.

    Args:
        bucket: its name, or a bucket that is open.
        pipeline: name of the pipeline.
        topics_dir: prefix of the pipeline's keys.
        topics: only these; None: all that it has begun to land.
        at: number of the last batch, by topic; a topic that is not in it has its latest state.
        endpoint_url: URL of an S3-compatible store, with a name of the bucket; None: AWS, or the one of ``s3``.
        s3: more settings of the store, with a name of the bucket.
        credentials: for it; None: boto3's own chain.

    Raises:
        ConfigurationError: the pipeline has no topic, or not one that is named; a batch is not complete yet.
    """
    settings = settings_of(endpoint_url, s3)
    store = open_bucket(bucket, settings, credentials) if isinstance(bucket, str) else bucket
    landed = {address.topic: address for address in owned_topics(store, topics_dir=topics_dir, pipeline=pipeline)}
    if not landed:
        raise nothing_there(store, topics_dir=topics_dir, pipeline=pipeline)
    chosen = list(landed) if topics is None else sorted(set(topics))
    batches = at or {}
    for name in (*chosen, *batches):
        if name not in landed:
            use = f"its topics are {', '.join(landed)}"
            raise ConfigurationError(f"pipeline {pipeline!r} has no topic {name!r}{or_nearest(name, landed, use)}")

    def snapshot(topic: str) -> Snapshot:
        return Snapshot(TopicLog(store, landed[topic], settings.command_options), at=batches.get(topic))

    return dict(zip(chosen, in_threads(snapshot, chosen, threads=16), strict=True))
