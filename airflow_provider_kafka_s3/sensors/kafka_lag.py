"""The sensor that waits for a minimum lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_kafka_s3.airflow import parameters
from airflow_provider_kafka_s3.airflow.conditions import LagCondition
from airflow_provider_kafka_s3.airflow.polling_sensor import PollingSensor
from airflow_provider_kafka_s3.config.values import require_fields
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.kafka.options import Isolation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.conditions import Condition
    from airflow_provider_kafka_s3.triggers.polling import PollingTrigger

__all__ = ["KafkaLagSensor"]


class KafkaLagSensor(PollingSensor):
    """Wait until a pipeline has a lag of at least ``min_records``, all ``topics`` together.

    The lag is the number of offsets that an incremental run would land now: those after the stored offsets of the
    pipeline, up to the end that ``isolation`` allows to read. Offsets of transaction markers and of compacted records
    count as well. A topic without stored offsets counts as a whole.

    All other keyword arguments (``poke_interval``, ``timeout``, ``mode``, …) are those of Airflow's sensors.

    Args:
        topics: one topic, several separated by commas, or a list. (templated)
        bucket: bucket of the pipeline. (templated)
        pipeline: name of the pipeline, which owns the stored offsets. (templated)
        topics_dir: prefix of the pipeline's keys. (templated)
        min_records: minimum lag.
        isolation: as in the operator: ``"read_committed"`` or ``"read_uncommitted"``.
        kafka_conn_id: connection of type ``kafka``.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
        deferrable: whether to wait in the triggerer.

    Returns:
        The lag per topic: ``{"orders": 1200, "clicks": 0}``.

    Raises:
        AirflowFailException: a retry cannot succeed: a connection, the topic or the bucket is missing, or the topic is
            not the landed one.
        AirflowException: a retry may succeed.
    """

    template_fields: Sequence[str] = ("topics", "bucket", "pipeline", "topics_dir")
    ui_color = "#fbe8d3"

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        bucket: str,
        pipeline: str,
        topics_dir: str = "topics",
        min_records: int = 1,
        isolation: Isolation = "read_committed",
        kafka_conn_id: str = "kafka_default",
        aws_conn_id: str | None = "aws_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.bucket = bucket
        self.pipeline = pipeline
        self.topics_dir = topics_dir
        self.min_records = min_records
        self.isolation = isolation
        self.kafka_conn_id = kafka_conn_id
        self.aws_conn_id = aws_conn_id
        own = ("min_records", "isolation", "kafka_conn_id", "aws_conn_id")
        require_fields(LagCondition, {name: getattr(self, name) for name in own})
        if not parameters.has_template(topics):
            parameters.parse_topics(topics)
        if not parameters.has_template(bucket):
            parameters.require_bucket(bucket)
        if not parameters.has_template(pipeline):
            addresses.validate_pipeline(pipeline)

    def _condition(self, context: Context) -> LagCondition:  # noqa: ARG002 - the same for every run
        return LagCondition(
            topics=parameters.parse_topics(self.topics),
            bucket=parameters.require_bucket(self.bucket),
            pipeline=addresses.validate_pipeline(self.pipeline),
            topics_dir=parameters.require_topics_dir(self.topics_dir),
            min_records=self.min_records,
            isolation=self.isolation,
            kafka_conn_id=self.kafka_conn_id,
            aws_conn_id=self.aws_conn_id,
        )

    def _trigger(self, condition: Condition) -> PollingTrigger:
        from airflow_provider_kafka_s3.triggers.polling import KafkaLagTrigger

        return KafkaLagTrigger(**condition.to_json(), poke_interval=self.poke_interval)
