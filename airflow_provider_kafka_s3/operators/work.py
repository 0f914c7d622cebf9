"""What one try of a task works with: its topics, the store, and how a Spark job is told about both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_kafka_s3.operators import connections
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark.spec import JobSpec, PlanRef, UploadSettings
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Store, make_client

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.plan import Plan
    from airflow_provider_kafka_s3.batch.runs import TopicRun
    from airflow_provider_kafka_s3.storage.port import ObjectStore

__all__ = ["Work", "open_store"]


@dataclass
class Work:
    """One try of a task; its repr shows nothing secret.

    Attributes:
        run: key of the run.
        runs: per topic.
        store: that all topics share.
        bucket: of the store.
        access: how the store is reached now.
        kafka: librdkafka settings.
        kafka_options: Java names for Spark's source.
        retry: of every request.
        upload: how tasks upload.
        on_data_loss: see the operator.
    """

    run: str
    runs: dict[str, TopicRun]
    store: DurableStore
    bucket: str
    access: connections.S3Access
    kafka: dict[str, Any] = field(repr=False)
    kafka_options: dict[str, str] = field(repr=False)
    retry: RetryPolicy
    upload: UploadSettings
    on_data_loss: Literal["fail", "skip"]

    def job(self, plans: Mapping[str, Plan], *, result_path: str) -> JobSpec:
        """What the driver has to know to execute one plan per topic; secrets are in it."""
        return JobSpec(
            run=self.run,
            plans=tuple(
                PlanRef(
                    topics_dir=self.runs[topic].log.topics_dir,
                    pipeline=self.runs[topic].log.pipeline,
                    topic=topic,
                    batch=plan.batch,
                )
                for topic, plan in plans.items()
            ),
            kafka=self.kafka,
            kafka_overrides=self.kafka_options,
            bucket=self.bucket,
            s3=self.access.settings,
            credentials=self.access.credentials,
            retry=self.retry,
            upload=self.upload,
            on_data_loss=self.on_data_loss,
            result_path=result_path,
        )

    def renew(self, access: connections.S3Access) -> None:
        """Reach the store by new credentials: those of a role end, and a Spark job may take longer."""
        if access != self.access:
            self.access = access
            self.store.store = open_store(access, self.bucket)


def open_store(access: connections.S3Access, bucket: str) -> ObjectStore:
    """The bucket; nothing is sent yet."""
    return S3Store(make_client(access.settings, access.credentials), bucket)
