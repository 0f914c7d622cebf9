"""Open a bucket on an S3 server."""

from __future__ import annotations

from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings, S3Store, make_client

__all__ = ["open_bucket"]


def open_bucket(
    bucket: str, settings: S3Settings, credentials: S3Credentials | None, *, retrier: Retrier | None = None
) -> DurableStore:
    """A bucket, with retries. Nothing is sent yet.

    Args:
        bucket: name of the bucket.
        settings: of the S3 server, and of what objects are stored with.
        credentials: for it; None: boto3's own chain.
        retrier: repeats requests; None: with the default policy.
    """
    return DurableStore(S3Store(make_client(settings, credentials), bucket, settings), retrier or Retrier())
