"""The parameters of the operator that say what its runs land, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_kafka_s3.config import Format, Layout, Partitioner, Rotation
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark.spec import UploadSettings

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.run_window import OffsetRanges
    from airflow_provider_kafka_s3.batch.request import Purpose, RunRequest, Starting

__all__ = ["RunSettings"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Parameters of :class:`~airflow_provider_kafka_s3.operators.kafka_to_s3.KafkaToS3Operator`, by the same names.

    Those that may be templates (``topics``, ``bucket``, ``pipeline``, ``topics_dir``) are as the operator has them.
    """

    topics: str | Sequence[str]
    bucket: str
    pipeline: str
    topics_dir: str
    format: Format
    partitioner: Partitioner
    offsets: Literal["incremental", "data_interval"]
    starting_offsets: str | Mapping[Any, Any] | None
    flush_size: int | None
    max_bytes: int
    max_open_objects: int
    on_bad_timestamp: str
    directory_delim: str
    file_delim: str
    topic_prefix: str
    offset_pad_width: int
    part_size: int
    upload: UploadSettings
    isolation: Isolation
    max_records_per_run: int | None
    max_records_per_batch: int | None
    max_slice_records: int
    on_data_loss: Literal["fail", "skip"]
    on_future_timestamp: Literal["fail", "read_to_end"]
    on_missing: Literal["fail", "ignore"]
    adopt_wait: float
    unsafe_single_writer: bool
    request_retry: RetryPolicy
    kafka_options: dict[str, str] = field(repr=False)
    kafka_conn_id: str
    aws_conn_id: str | None

    def layout(self, topics_dir: str, zone_database: str = "") -> Layout:
        """Of the objects; ``topics_dir`` and the release of the time zone database are known when the task runs."""
        return Layout(
            topics_dir=topics_dir,
            format=self.format,
            partitioner=self.partitioner,
            rotation=Rotation(
                flush_size=self.flush_size, max_bytes=self.max_bytes, max_open_objects=self.max_open_objects
            ),
            directory_delim=self.directory_delim,
            file_delim=self.file_delim,
            topic_prefix=self.topic_prefix,
            offset_pad_width=self.offset_pad_width,
            part_size=self.part_size,
            on_bad_timestamp=self.on_bad_timestamp,
            zone_database=zone_database,
        )

    def request(
        self,
        layout: Layout,
        starting: Starting | None,
        *,
        run: str,
        window: tuple[int, int] | OffsetRanges | None,
        mode: Purpose,
        attempt: str,
    ) -> RunRequest:
        """What the engine is asked to do for one topic; wrong parameters are found by making it."""
        from airflow_provider_kafka_s3.batch.request import RunRequest

        # A window is landed whole: a cap on it would leave a gap that no later run looks for.
        most = self.max_records_per_run if window is None or self.offsets == "data_interval" else None
        said = {
            "offsets": self.offsets,
            "window": window,
            "starting_offsets": self.starting_offsets,
            "isolation": self.isolation,
            "max_records_per_run": most,
        }
        return RunRequest(
            run=run,
            mode="incremental" if window is None else "data_interval",
            purpose=mode,
            layout=layout,
            starting=starting,
            window=window,
            isolation=self.isolation,
            max_records_per_run=most,
            max_records_per_batch=self.max_records_per_batch,
            max_slice_records=self.max_slice_records,
            on_data_loss=self.on_data_loss,
            on_future_timestamp=self.on_future_timestamp,
            on_missing=self.on_missing,
            adopt_wait=self.adopt_wait,
            unsafe_single_writer=self.unsafe_single_writer,
            attempt=attempt,
            params={name: str(value) for name, value in said.items() if value is not None},
        )
