"""The parameters of the operator that its runs depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from airflow_provider_kafka_s3.batch.request import Action, OnFutureTimestamp, RequestedWindow, RunRequest, Starting
from airflow_provider_kafka_s3.config import (
    Compatibility,
    Content,
    Converter,
    Format,
    KeyNaming,
    Landed,
    Layout,
    Limits,
    OnError,
    Partitioner,
    PartitionsIn,
    Rotation,
    Upload,
)
from airflow_provider_kafka_s3.config.runs import Seconds
from airflow_provider_kafka_s3.config.values import Value
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.retry import RetryPolicy

__all__ = ["RunSettings"]


class RunSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of :class:`~airflow_provider_kafka_s3.operators.kafka_to_s3.KafkaToS3Operator`, by the same names.

    Those whose type is ``Any`` may be templates until the operator has rendered them, and have checks of their own.
    Parameters with the name of a field of :class:`~airflow_provider_kafka_s3.config.Layout` or
    :class:`~airflow_provider_kafka_s3.batch.request.RunRequest` are that field.
    """

    topics: Any
    bucket: Any
    pipeline: Any
    topics_dir: Any
    format: Format
    value_converter: Converter | None
    key_converter: Converter
    content: Content
    partitioner: Partitioner
    offsets: Literal["incremental", "data_interval"]
    starting_offsets: Any
    rotation: Rotation
    naming: KeyNaming
    schema_compatibility: Compatibility | None
    limits: Limits
    upload: Upload
    errors: OnError
    max_dead_letters: Annotated[int, Meta(ge=0, description="dead letters")] | None
    on_bad_timestamp: str
    isolation: Isolation
    on_data_loss: Literal["fail", "skip"]
    on_future_timestamp: OnFutureTimestamp
    on_missing: Literal["fail", "ignore"]
    on_empty: Literal["success", "skip"]
    adopt_wait: Seconds
    partitions_in: PartitionsIn | None
    unsafe_single_writer: bool
    request_retry: RetryPolicy
    source: Landed | None
    kafka_options: dict[str, Any]
    kafka_conn_id: str
    aws_conn_id: str | None
    registry_conn_id: str | None
    spark_conn_id: str

    def __repr__(self) -> str:
        return f"RunSettings(pipeline={self.pipeline!r}, topics={self.topics!r})"  # kafka_options may hold secrets

    __str__ = __repr__

    def layout(self, topics_dir: str, zone_database: str = "", encryption: str = "") -> Layout:
        """The layout of the objects.

        Args:
            topics_dir: prefix of all keys, rendered.
            zone_database: release of the time zone database, which is known when the task runs.
            encryption: of the store, likewise.
        """
        rendered = {"topics_dir": topics_dir, "zone_database": zone_database, "encryption": encryption}
        stored = {"part_size": self.upload.part_size, "tags": self.upload.object_tags}
        return Layout(**{**self._named(Layout.__struct_fields__), **rendered, **stored})

    def request(
        self,
        layout: Layout,
        starting: Starting | None,
        *,
        run: str,
        window: RequestedWindow | None,
        action: Action,
        attempt: str,
    ) -> RunRequest:
        """The request of a run over one topic.

        Args:
            layout: of the objects.
            starting: first offsets, if the topic has no stored offsets.
            run: key of the run.
            window: times or offsets of the run; None: all since the stored offsets.
            action: of the run.
            attempt: try and host of the task, for people.

        Raises:
            ConfigurationError: a parameter is invalid.
        """
        # A window is landed as a whole: a limit would leave a gap that no later run fills.
        limits = self.limits
        if window is not None and self.offsets == "incremental":
            limits = msgspec.structs.replace(limits, records_per_run=None)
        params = {
            "offsets": self.offsets,
            "window": window,
            "starting_offsets": self.starting_offsets,
            "isolation": self.isolation,
            "records_per_run": limits.records_per_run,
        }
        of_run: dict[str, Any] = {
            "run": run,
            "offsets": "incremental" if window is None else "data_interval",
            "action": action,
            "layout": layout,
            "starting": starting,
            "window": window,
            "limits": limits,
            "attempt": attempt,
            "params": {name: str(value) for name, value in params.items() if value is not None},
        }
        return RunRequest(**{**self._named(field.name for field in dataclasses.fields(RunRequest)), **of_run})

    def _named(self, fields: Iterable[str]) -> dict[str, Any]:
        """The parameters with these names."""
        return {name: getattr(self, name) for name in fields if name in self.__struct_fields__}
