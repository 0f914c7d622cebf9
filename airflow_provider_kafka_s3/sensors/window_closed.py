"""The sensor that waits for the end of a window of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_kafka_s3.airflow import parameters, run_window
from airflow_provider_kafka_s3.airflow.conditions import WindowCondition
from airflow_provider_kafka_s3.airflow.polling_sensor import PollingSensor
from airflow_provider_kafka_s3.config import Window, parse_partitioner
from airflow_provider_kafka_s3.config.values import make_value, require_fields
from airflow_provider_kafka_s3.kafka.options import Isolation

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.conditions import Condition
    from airflow_provider_kafka_s3.config import Partitioner
    from airflow_provider_kafka_s3.triggers.polling import PollingTrigger

__all__ = ["KafkaWindowClosedSensor"]


class KafkaWindowClosedSensor(PollingSensor):
    """Wait until every partition of the topics has passed the end of the run's window.

    A partition has passed it when it has a record with a timestamp at or after the end and, with ``read_committed``, no
    transaction is open below that record. A partition without such a record is quiet: it counts as passed from
    ``grace`` after the end on, if all of it can be read. Timestamps need not ascend: records that are appended later
    belong to the next run.

    The window is that of :class:`~airflow_provider_kafka_s3.operators.kafka_to_s3.KafkaToS3Operator` with
    ``offsets="data_interval"``; for the sensor it may end in the future. A run with explicit offsets succeeds at once.

    All other keyword arguments (``poke_interval``, ``timeout``, ``mode``, …) are those of Airflow's sensors.

    Args:
        topics: one topic, several separated by commas, or a list. (templated)
        grace: time after the end of the window to wait for quiet partitions; seconds or a ``timedelta``.
        isolation: as in the operator: ``"read_committed"`` or ``"read_uncommitted"``.
        partitioner: as in the operator; only for a DAG with partitions (Airflow 3.2 and later), whose windows have the
            partitioner's duration.
        window: as in the operator; only ``partition_length`` and ``timezone`` have an effect.
        kafka_conn_id: connection of type ``kafka``.
        deferrable: whether to wait in the triggerer.

    Returns:
        ``{"window": ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"],
        "topics": {"orders": {"passed": [0, 2], "quiet": [1]}}}``.

    Raises:
        AirflowFailException: a retry cannot succeed: a connection or topic is missing, or the run has no window.
        AirflowException: a retry may succeed.
    """

    template_fields: Sequence[str] = ("topics",)
    ui_color = "#fbe8d3"

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        grace: timedelta | float = timedelta(minutes=10),
        isolation: Isolation = "read_committed",
        partitioner: Partitioner | Mapping[str, Any] | str = "partition",
        window: Window | Mapping[str, Any] | None = None,
        kafka_conn_id: str = "kafka_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        seconds = grace.total_seconds() if isinstance(grace, timedelta) else grace
        own = {"grace": seconds, "isolation": isolation, "kafka_conn_id": kafka_conn_id}
        require_fields(WindowCondition, own)
        self.grace = float(seconds)
        self.isolation = isolation
        self.partitioner = parse_partitioner(partitioner)
        self.window = make_value("window", (Window,), window)
        self.kafka_conn_id = kafka_conn_id
        if not parameters.has_template(topics):
            parameters.parse_topics(topics)

    def _condition(self, context: Context) -> WindowCondition | None:
        run = run_window.resolve_window(
            context,
            offsets="data_interval",
            partitioner=self.partitioner,
            # The sensor waits for the end of the window.
            settings=msgspec.structs.replace(self.window, allow_open=True),
        )
        if run.window is None:
            return None
        return WindowCondition(
            topics=parameters.parse_topics(self.topics),
            start=run.window[0],
            end=run.window[1],
            grace=self.grace,
            isolation=self.isolation,
            kafka_conn_id=self.kafka_conn_id,
        )

    def _trigger(self, condition: Condition) -> PollingTrigger:
        from airflow_provider_kafka_s3.triggers.polling import KafkaWindowClosedTrigger

        return KafkaWindowClosedTrigger(**condition.to_json(), poke_interval=self.poke_interval)
