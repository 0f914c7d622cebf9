"""Committed Parquet objects as a dataset of Arrow, which reads only the columns and row groups that a query needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from airflow_provider_kafka_s3.config import Parquet
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import data_prefix
from airflow_provider_kafka_s3.reading.object_schemas import schema_of_objects
from airflow_provider_kafka_s3.reading.remote_file import open_object
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.reading.snapshot import Snapshot

__all__ = ["arrow_dataset"]

_READ_ONLY: Final = "these are the committed objects of a snapshot: they are only read"


def arrow_dataset(snapshot: Snapshot, *, schema: pa.Schema | None = None, **selection: Any) -> ds.Dataset:
    """The Parquet objects of a snapshot; their folders ``name=value`` are columns.

    They are read by ranged requests of the package's own client, so no other settings of S3 are needed.

    Args:
        snapshot: of one topic.
        schema: of the dataset; None: the columns of all objects, see
            :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.schema`, and the folders of the first one.
        selection: which objects, as :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.objects` takes it.

    Raises:
        ConfigurationError: there is no object, one is no Parquet, or the types of a column do not go together.
    """
    objects = snapshot.objects(**selection)
    others = [one for one in objects if not isinstance(one.layout.format, Parquet)]
    if others or not objects:
        what = f"{others[0].url} is {type(others[0].layout.format).__name__}" if others else "there is no object"
        raise ConfigurationError(
            f"topic {snapshot.log.topic!r} at batch {snapshot.batch} is no dataset of Parquet: {what}. Read it by "
            f"arrow_batches, or select batches of Parquet, by batches="
        )
    sizes = {one.key: one.size for one in objects}

    def dataset(schema: pa.Schema | None) -> ds.Dataset:
        return ds.dataset(
            [*sizes],
            schema=schema,
            format="parquet",
            filesystem=pafs.PyFileSystem(_Objects(snapshot.log.store, sizes)),
            partitioning=ds.partitioning(flavor="hive"),
            partition_base_dir=data_prefix(objects[0].layout, objects[0].topic),
        )

    if schema is not None:
        return dataset(schema)
    columns = schema_of_objects(snapshot.log.store, objects)
    folders = [field for field in dataset(None).schema if field.name not in columns.names]
    return dataset(pa.schema([*columns, *folders]))


class _Objects(pafs.FileSystemHandler):
    """The objects as files."""

    def __init__(self, store: DurableStore, sizes: dict[str, int]) -> None:
        self._store = store
        self._sizes = sizes

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "kafka-s3"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        return [
            pafs.FileInfo(path, pafs.FileType.File, size=self._sizes[path])
            if path in self._sizes
            else pafs.FileInfo(path, pafs.FileType.NotFound)
            for path in paths
        ]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        return self.get_file_info([path for path in self._sizes if path.startswith(selector.base_dir)])

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(cast("Any", open_object(self._store, path, self._sizes[path])), mode="r")

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError(_READ_ONLY)

    def delete_file(self, path: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError(_READ_ONLY)

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError(_READ_ONLY)

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError(_READ_ONLY)
