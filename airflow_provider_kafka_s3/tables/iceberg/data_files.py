"""The objects of batches as data files of an Iceberg table, from their footers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, StringType, StructType

from airflow_provider_kafka_s3.batch.remedies import RESTORE_RUN
from airflow_provider_kafka_s3.config import Parquet
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.missing import missing_object
from airflow_provider_kafka_s3.reading.remote_file import open_object
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.tables.iceberg.columns import FileColumns
from airflow_provider_kafka_s3.tables.iceberg.partitions import keeping, not_kept_apart

__all__ = ["Footer", "data_file", "read_footers"]

_READERS = 16
"""Footers that are read at the same time."""


@dataclass(frozen=True)
class Footer:
    """What the end of an object of Parquet says of it.

    Attributes:
        snapshot_object: the object.
        metadata: of its row groups and columns.
        schema: of Arrow.
    """

    snapshot_object: SnapshotObject
    metadata: Any
    schema: pa.Schema


def read_footers(store: DurableStore, objects: Sequence[SnapshotObject]) -> list[Footer]:
    """The footers of objects, in their order; each takes a request or two.

    Raises:
        ConfigurationError: an object is not of Parquet, or readers of tables would cut its name.
        ForeignObjectError: an object has another number of rows than its manifest says.
        MissingObjectError: an object is gone.
    """
    for snapshot_object in objects:
        _require_parquet(snapshot_object)

    def read(snapshot_object: SnapshotObject) -> Footer:
        missing = functools.partial(missing_object, store, snapshot_object)
        file = open_object(store, snapshot_object.key, snapshot_object.size, missing=missing)
        try:
            with pq.ParquetFile(cast("Any", pa.PythonFile(file, mode="r"))) as parquet_file:
                footer = Footer(snapshot_object, parquet_file.metadata, parquet_file.schema_arrow)
        except pa.ArrowException as e:
            raise ForeignObjectError(f"object {snapshot_object.url} is no Parquet file ({e})") from e
        rows = footer.metadata.num_rows
        if rows != snapshot_object.records:
            raise ForeignObjectError(
                f"object {snapshot_object.url} has {rows:,} rows, and {snapshot_object.records:,} by its manifest. "
                f"Nothing was added. Write it again by {RESTORE_RUN}"
            )
        return footer

    return in_threads(read, objects, threads=_READERS)


def _require_parquet(snapshot_object: SnapshotObject) -> None:
    url = snapshot_object.url
    if not isinstance(snapshot_object.layout.format, Parquet):
        kind = type(snapshot_object.layout.format).__name__
        raise ConfigurationError(
            f"object {url} is of {kind}; a table of Iceberg takes objects of Parquet. Nothing was added. Land the "
            f"topic as Parquet, from here on in the same topics_dir, or again in another one (docs/changing-layout.md)"
        )
    if snapshot_object.siblings:
        raise ConfigurationError(
            f"object {url} has keys or headers in objects beside it, which a table would not show. Nothing was added. "
            f"Land the topic with content='envelope'"
        )
    if "#" in url or "?" in url:
        raise ConfigurationError(
            f"the name of object {url} has a # or a ?, where readers of tables cut it, and read another object or "
            f"none. Nothing was added. Land the topic with a partitioner that gives other folders"
        )


def data_file(footer: Footer, columns: FileColumns, metadata: TableMetadata) -> DataFile:
    """The object as a data file, with the statistics of its columns and its partition.

    Args:
        footer: of the object.
        columns: of the object.
        metadata: of the table, which has all columns of the object.

    Raises:
        ConfigurationError: the object has records of several partitions of the table, or it is unknown of which.
    """
    schema = metadata.schema()
    paths = [footer.metadata.schema.column(i).path for i in range(footer.metadata.num_columns)]
    ids = dict(zip(paths, columns.leaves, strict=True))
    if len(ids) < len(paths):
        raise ConfigurationError(
            f"object {footer.snapshot_object.url} has two columns of one path, since a name has a dot. Nothing was "
            f"added. Rename one of them in the schema of the topic"
        )
    plan = compute_statistics_plan(schema, metadata.properties)
    for number in _without_bounds(footer, columns) & plan.keys():
        # Bounds of some row groups alone would hide the rows of the others.
        plan[number] = replace(plan[number], mode=MetricsMode(MetricModeTypes.COUNTS))
    unknown = StatisticsCollector(0, StringType(), MetricsMode(MetricModeTypes.NONE), "")
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer.metadata,
        stats_columns={**dict.fromkeys(columns.leaves, unknown), **plan},
        parquet_column_mapping=ids,
    )
    for number in {*columns.leaves} - plan.keys():
        statistics.column_sizes.pop(number, None)
    _require_no_nulls(footer, schema, statistics.null_value_counts)
    for field in metadata.spec().fields:
        _require_one_partition(footer, columns, field, schema.find_column_name(field.source_id) or "")
    try:
        partition = statistics.partition(metadata.spec(), schema)
    except ValueError as e:
        layout = footer.snapshot_object.layout
        named = [(field.transform, schema.find_column_name(field.source_id) or "") for field in metadata.spec().fields]
        ways = [keeping(layout, *partition) for partition in named if not_kept_apart(layout, *partition)]
        raise ConfigurationError(
            f"object {footer.snapshot_object.url} is not inside of one partition of the table ({e}). Nothing was "
            f"added. {ways[0] if ways else 'Use a table without this partition'}"
        ) from e
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=footer.snapshot_object.url,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=footer.snapshot_object.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _without_bounds(footer: Footer, columns: FileColumns) -> set[int]:
    """Ids of columns of which a row group has values and no bounds, such as of long texts, or none that Python has."""
    missing = set()
    for group in range(footer.metadata.num_row_groups):
        for position, number in enumerate(columns.leaves):
            column = footer.metadata.row_group(group).column(position)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count:
                missing.add(number)
            elif statistics.num_values or not statistics.null_count:
                try:
                    if statistics.min is None or statistics.max is None:
                        missing.add(number)
                except (OverflowError, ValueError, pa.ArrowException):
                    missing.add(number)
    return missing


def _require_no_nulls(footer: Footer, schema: Schema, nulls: Mapping[int, int]) -> None:
    """Refuse nulls in a column that the table requires: engines look for none there."""
    for number in _required_leaves(schema.fields):
        if nulls.get(number):
            raise ConfigurationError(
                f"object {footer.snapshot_object.url} has nulls in the column {schema.find_column_name(number)}, which "
                f"the table requires. Nothing was added. Make the column optional"
            )


def _required_leaves(fields: Iterable[NestedField]) -> Iterator[int]:
    """Ids of the columns that no row may lack; keys of a map that is empty, or null, count as nulls in a footer."""
    for field in fields:
        if field.required and isinstance(field.field_type, StructType):
            yield from _required_leaves(field.field_type.fields)
        elif field.required and field.field_type.is_primitive:
            yield field.field_id


def _require_one_partition(footer: Footer, columns: FileColumns, field: PartitionField, name: str) -> None:
    """Refuse an object whose footer does not show that no record is of another partition: readers would miss it."""
    url = footer.snapshot_object.url
    if field.source_id not in columns.leaves:
        raise ConfigurationError(
            f"object {url} lacks the column {name!r} of the table's partition {field.name!r}. Nothing was added"
        )
    position = columns.leaves.index(field.source_id)
    for group in range(footer.metadata.num_row_groups):
        column = footer.metadata.row_group(group).column(position)
        statistics = column.statistics
        counted = statistics is not None and statistics.has_null_count
        if counted and statistics.null_count:
            raise ConfigurationError(
                f"object {url} has nulls in the column {name!r}, by which the table has its partition {field.name!r}: "
                f"readers would miss these records. Nothing was added. Use a table without this partition"
            )
        if not counted or (column.num_values and not statistics.has_min_max):
            raise ConfigurationError(
                f"object {url} has no statistics of the column {name!r}, by which the table has its partition "
                f"{field.name!r}. Nothing was added. Use a table without this partition"
            )
