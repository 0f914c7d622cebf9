"""The sensor that waits for records that are not landed yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from airflow_provider_kafka_s3.airflow import parameters
from airflow_provider_kafka_s3.airflow.conditions import LagCondition
from airflow_provider_kafka_s3.airflow.polling_sensor import PollingSensor
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.layout import keys

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.conditions import Condition
    from airflow_provider_kafka_s3.triggers.polling import PollingTrigger

__all__ = ["KafkaLagSensor"]


class KafkaLagSensor(PollingSensor):
    """Wait until at least ``min_records`` records wait to be landed by a pipeline, all its ``topics`` together.

    What counts is what an incremental run would land now: the offsets beyond the stored ones of the pipeline, up to the
    end that ``isolation`` lets a reader see. They are counted as offsets: markers of transactions and what compaction
    removed count, too. A topic without stored offsets counts as a whole.

    All other keyword arguments (``poke_interval``, ``timeout``, ``mode``, …) are those of Airflow's sensors.

    Args:
        topics: one topic, several separated by commas, or a list. (templated)
        bucket: of the pipeline. (templated)
        pipeline: whose stored offsets to look at. (templated)
        topics_dir: of the pipeline. (templated)
        min_records: how many are enough.
        isolation: of the operator: ``"read_committed"`` or ``"read_uncommitted"``.
        kafka_conn_id: connection of type ``kafka``.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
        deferrable: whether to wait in the triggerer.

    Returns:
        The lag per topic: ``{"orders": 1200, "clicks": 0}``.

    Raises:
        AirflowFailException: asking again cannot help: a connection, the topic or the bucket is missing, or the topic
            is another one than was landed.
        AirflowException: trying again may help.
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
        parameters.require_choice("isolation", isolation, get_args(Isolation))
        parameters.require_types(vars(self))
        if not parameters.has_template(topics):
            parameters.parse_topics(topics)
        if not parameters.has_template(bucket):
            parameters.require_bucket(bucket)
        if not parameters.has_template(pipeline):
            keys.validate_pipeline(pipeline)

    def _condition(self, context: Context) -> LagCondition:  # noqa: ARG002 - the same for every run
        return LagCondition(
            topics=parameters.parse_topics(self.topics),
            bucket=parameters.require_bucket(self.bucket),
            pipeline=keys.validate_pipeline(self.pipeline),
            topics_dir=parameters.require_topics_dir(self.topics_dir),
            min_records=self.min_records,
            isolation=self.isolation,
            kafka_conn_id=self.kafka_conn_id,
            aws_conn_id=self.aws_conn_id,
        )

    def _trigger(self, condition: Condition) -> PollingTrigger:
        from airflow_provider_kafka_s3.triggers.polling import KafkaLagTrigger

        return KafkaLagTrigger(**condition.to_json(), poke_interval=self.poke_interval)
