"""A topic of a pipeline and the S3 server that has it: enough to open its log in any process."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings

__all__ = ["TopicLocation"]


@dataclass(frozen=True)
class TopicLocation:
    """Where a topic of a pipeline is; the repr shows no secrets.

    Attributes:
        bucket: name of the bucket.
        address: of the topic in it.
        s3: settings of the S3 server.
        credentials: for it; None: boto3's own chain.
        connection_options: see :class:`~airflow_provider_kafka_s3.batch.log.TopicLog`; None: those of ``s3``.
    """

    bucket: str
    address: TopicAddress
    s3: S3Settings = field(default_factory=S3Settings, repr=False)
    credentials: S3Credentials | None = field(default=None, repr=False)
    connection_options: tuple[str, ...] | None = None

    def open_bucket(self) -> DurableStore:
        """The bucket, for any number of threads."""
        return open_bucket(self.bucket, self.s3, self.credentials)

    def open_log(self, store: DurableStore | None = None) -> TopicLog:
        """The log of the topic, for one thread.

        Args:
            store: of :meth:`open_bucket`; None: a new one, whose client takes a tenth of a second to make.
        """
        options = self.s3.command_options if self.connection_options is None else self.connection_options
        return TopicLog(store or self.open_bucket(), self.address, options)
