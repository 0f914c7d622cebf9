"""A Python data source of Spark (4.0 and later) for the committed objects of a topic.

::

    from airflow_provider_kafka_s3.reading.data_source import KafkaS3DataSource

    spark.dataSource.register(KafkaS3DataSource)
    frame = spark.read.format("kafka_s3").options(bucket="lake", topic="orders", pipeline="orders-to-lake").load()

The executors read objects through the package's own client, so Spark needs no file system for S3. The state is fixed
when the frame is made, or by the first action on it if it has a schema: two actions on it read the same records,
whatever is landed in between. A Spark Connect server makes the frame again for later actions. The options of a snapshot
fix the state before::

    frame = spark.read.format("kafka_s3").options(**snapshot.options).load()
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import (  # noqa: TID253 - this module is for Spark only
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import or_nearest
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from airflow_provider_kafka_s3.structs import convert_to_struct

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["KafkaS3DataSource"]

_DEFAULT: Final = (
    "value binary, _kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_batch bigint, "
    "_kafka_object string"
)
_OF_S3: Final = ("endpoint_url", "region", "addressing_style")
_REQUIRED: Final = ("bucket", "topic", "pipeline")
_OPTIONAL: Final = ("topics_dir", "at", "since", "batches", *_OF_S3, "partition_bytes")
_WHOLE: Final = re.compile(r"\s*[0-9]{1,18}\s*")
"""A whole number, in 64 bits."""
_PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the objects of one partition, about; objects are not cut."""


class KafkaS3DataSource(DataSource):
    """The format ``kafka_s3``.

    Without a schema its columns are those of :data:`~airflow_provider_kafka_s3.reading.arrow.VALUE_SCHEMA`; with one,
    the fields of values and columns ``_kafka_…``.

    Options: ``bucket``, ``topic`` and ``pipeline``; ``topics_dir`` (``topics``); ``at``: number of the last batch;
    ``since``: of the batch behind which to begin; ``batches``: only these, such as ``3,4``, which may be any complete
    ones; ``endpoint_url``, ``region`` and ``addressing_style`` of the S3 server; ``partition_bytes`` of a Spark
    partition (64 MiB). Spark shows options in its web interface, so there are none for credentials: every process has
    those of boto3's own chain.

    As a stream it has an offset ``{"batch": 7}``: each micro-batch has what was landed since the one before. An open
    batch holds back the complete ones behind it; they are in the micro-batch that is read when it is complete.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options, and fix the state."""
        super().__init__(dict(options))
        # Spark's options have no case.
        by_name = {name.lower(): value for name, value in options.items()}
        known = (*_REQUIRED, *_OPTIONAL)
        for name in by_name:
            # Spark passes the path of load(), which has no meaning here.
            if name not in (*known, "path"):
                use = f"use {', '.join(known)}"
                raise ConfigurationError(f"the format kafka_s3 has no option {name!r}{or_nearest(name, known, use)}")
        if absent := [name for name in _REQUIRED if not by_name.get(name)]:
            raise ConfigurationError(f"the format kafka_s3 needs the options {', '.join(absent)}")
        self._settings = _Settings(
            location=TopicLocation(
                by_name["bucket"],
                TopicAddress(
                    topics_dir=by_name.get("topics_dir", "topics"), pipeline=by_name["pipeline"], topic=by_name["topic"]
                ),
                _s3_settings(by_name),
            ),
            partition_bytes=_number(by_name, "partition_bytes") or _PARTITION_BYTES,
        )
        self._since = _number(by_name, "since") or 0
        self._only = _numbers(by_name, "batches")
        batch = _number(by_name, "at")
        self._is_fixed = batch is not None
        snapshot = Snapshot(self._settings.location.open_log(), at=batch, since=self._since)
        snapshot.require_complete(self._only or ())
        self._batch = snapshot.batch

    @classmethod
    def name(cls) -> str:
        """See :class:`pyspark.sql.datasource.DataSource`."""
        return "kafka_s3"

    def schema(self) -> str:
        """See :class:`pyspark.sql.datasource.DataSource`."""
        return _DEFAULT

    def reader(self, schema: StructType) -> DataSourceReader:
        """See :class:`pyspark.sql.datasource.DataSource`."""
        return _Reader(self._settings, schema, self._since, self._batch, self._only)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """See :class:`pyspark.sql.datasource.DataSource`."""
        for name, is_given in (("batches", self._only is not None), ("at", self._is_fixed)):
            if is_given:
                raise ConfigurationError(f"a stream of the format kafka_s3 has no option {name!r}; use 'since'")
        return _StreamReader(self._settings, schema, self._since)


@dataclass(frozen=True)
class _Settings:
    """Where a topic is, and how it is divided."""

    location: TopicLocation
    partition_bytes: int

    def partitions(self, since: int, at: int, only: tuple[int, ...] | None = None) -> Sequence[InputPartition]:
        objects = Snapshot(self.location.open_log(), at=at, since=since).objects(batches=only)
        groups: list[list[SnapshotObject]] = []
        size = self.partition_bytes
        for snapshot_object in objects:
            if size >= self.partition_bytes:
                groups.append([])
                size = 0
            groups[-1].append(snapshot_object)
            size += snapshot_object.size
        return [InputPartition(group) for group in groups] or [InputPartition([])]

    def read(self, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from airflow_provider_kafka_s3.reading.arrow import arrow_batches

        if partition.value:
            yield from arrow_batches(self.location.open_bucket(), partition.value, to_arrow_schema(schema))


class _Reader(DataSourceReader):
    def __init__(
        self, settings: _Settings, schema: StructType, since: int, at: int, only: tuple[int, ...] | None
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._since = since
        self._at = at
        self._only = only

    def partitions(self) -> Sequence[InputPartition]:
        return self._settings.partitions(self._since, self._at, self._only)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._settings.read(self._schema, partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, settings: _Settings, schema: StructType, since: int) -> None:
        self._settings = settings
        self._schema = schema
        self._since = since

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": self._since}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": Snapshot(self._settings.location.open_log()).batch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._settings.partitions(start["batch"], end["batch"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._settings.read(self._schema, partition)


def _s3_settings(options: Mapping[str, str]) -> S3Settings:
    settings = {name: options[name] for name in _OF_S3 if name in options}
    try:
        return convert_to_struct(settings, S3Settings)
    except msgspec.ValidationError as e:
        raise ConfigurationError(f"the options {settings} of the format kafka_s3 are refused: {e}") from e


def _numbers(options: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    text = options.get(name)
    if text is None:
        return None
    return tuple(_number({name: number.strip()}, name) or 0 for number in text.split(",") if number.strip())


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None:
        raise ConfigurationError(f"{name}={text!r} of the format kafka_s3 must be a whole number, 0 or more")
    return int(text)
