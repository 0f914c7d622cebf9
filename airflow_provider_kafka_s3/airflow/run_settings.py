"""The parameters of the operator that its runs depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from airflow_provider_kafka_s3.config import (
    Compatibility,
    Content,
    Converter,
    Format,
    KeyNaming,
    Layout,
    Limits,
    OnError,
    Partitioner,
    Rotation,
    Upload,
)
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.retry import RetryPolicy

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.run_window import OffsetRanges
    from airflow_provider_kafka_s3.batch.request import Action, RunRequest, Starting

__all__ = ["RunSettings"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Parameters of :class:`~airflow_provider_kafka_s3.operators.kafka_to_s3.KafkaToS3Operator`, by the same names.

    ``topics``, ``bucket``, ``pipeline`` and ``topics_dir`` may be templates until the operator has rendered them. They
    are not checked here.
    """

    topics: str | Sequence[str]
    bucket: str
    pipeline: str
    topics_dir: str
    format: Format
    value_converter: Converter | None
    key_converter: Converter
    content: Content
    partitioner: Partitioner
    offsets: Literal["incremental", "data_interval"]
    starting_offsets: str | Mapping[Any, Any] | None
    rotation: Rotation
    naming: KeyNaming
    schema_compatibility: Compatibility | None
    limits: Limits
    upload: Upload
    errors: OnError
    max_dead_letters: int | None
    on_bad_timestamp: str
    isolation: Isolation
    on_data_loss: Literal["fail", "skip"]
    on_future_timestamp: Literal["fail", "read_to_end"]
    on_missing: Literal["fail", "ignore"]
    adopt_wait: float
    unsafe_single_writer: bool
    request_retry: RetryPolicy
    kafka_options: dict[str, str] = field(repr=False)
    kafka_conn_id: str
    aws_conn_id: str | None
    registry_conn_id: str | None

    def layout(self, topics_dir: str, zone_database: str = "", encryption: str = "") -> Layout:
        """The layout of the objects.

        Args:
            topics_dir: prefix of all keys, rendered.
            zone_database: release of the time zone database, which is known when the task runs.
            encryption: of the store, likewise.
        """
        return Layout(
            topics_dir=topics_dir,
            format=self.format,
            value_converter=self.value_converter,
            key_converter=self.key_converter,
            content=self.content,
            partitioner=self.partitioner,
            rotation=self.rotation,
            naming=self.naming,
            part_size=self.upload.part_size,
            errors=self.errors,
            on_bad_timestamp=self.on_bad_timestamp,
            zone_database=zone_database,
            schema_compatibility=self.schema_compatibility,
            tags=self.upload.object_tags,
            encryption=encryption,
        )

    def request(
        self,
        layout: Layout,
        starting: Starting | None,
        *,
        run: str,
        window: tuple[int, int] | OffsetRanges | None,
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
        from airflow_provider_kafka_s3.batch.request import RunRequest

        # A window is landed as a whole: a limit would leave a gap that no later run fills.
        limits = self.limits
        if window is not None and self.offsets == "incremental":
            limits = msgspec.structs.replace(limits, records_per_run=None)
        given = {
            "offsets": self.offsets,
            "window": window,
            "starting_offsets": self.starting_offsets,
            "isolation": self.isolation,
            "records_per_run": limits.records_per_run,
        }
        return RunRequest(
            run=run,
            offsets="incremental" if window is None else "data_interval",
            action=action,
            layout=layout,
            starting=starting,
            window=window,
            isolation=self.isolation,
            limits=limits,
            on_data_loss=self.on_data_loss,
            max_dead_letters=self.max_dead_letters,
            on_future_timestamp=self.on_future_timestamp,
            on_missing=self.on_missing,
            adopt_wait=self.adopt_wait,
            unsafe_single_writer=self.unsafe_single_writer,
            attempt=attempt,
            params={name: str(value) for name, value in given.items() if value is not None},
        )
