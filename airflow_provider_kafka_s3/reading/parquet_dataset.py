"""Committed Parquet objects as a dataset of Arrow, which reads only the columns and row groups that a query needs."""

from __future__ import annotations

import atexit
import functools
import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from airflow_provider_kafka_s3.config import Parquet
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER
from airflow_provider_kafka_s3.reading.folder_columns import folder_types
from airflow_provider_kafka_s3.reading.missing import missing_object
from airflow_provider_kafka_s3.reading.object_schemas import schema_of_objects
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile, open_object
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.reading.snapshot import Snapshot
    from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

__all__ = ["arrow_dataset"]

_MOST_SECONDS: Final = 2.0
"""That the end of the interpreter waits for threads of Arrow."""

_LAST_SECONDS: Final = 0.1
"""That it then leaves to them: a thread that has given its file back still has to return from Python."""

_READ_ONLY: Final = "these are the committed objects of a snapshot: they are only read"


def arrow_dataset(snapshot: Snapshot, *, schema: pa.Schema | None = None, **selection: Any) -> ds.Dataset:
    """The Parquet objects of a snapshot; their folders ``name=value`` are columns.

    They are read by ranged requests of the package's own client, so no other settings of S3 are needed. A folder with
    the name of a column, as of a field that is the partitioner's, is none: the column is that of the files.

    Args:
        snapshot: of one topic.
        schema: of the dataset; None: the columns of all objects, see
            :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.schema`, and the folders: int32 if all values of
            a folder are such numbers, else text. Leading zeros are those of a number in folders of times, as
            ``month=01``; in folders of keys and fields, ``007`` is a text and not the number 7.
        selection: which objects, as :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.objects` takes it.

    Raises:
        ConfigurationError: there is no object, one is no Parquet, the types of a column do not go together, or a value
            of a folder is not of its type in ``schema``.
    """
    objects = snapshot.objects(**selection)
    topic, batch, store = snapshot.log.topic, snapshot.batch, snapshot.log.store
    if not objects:
        raise ConfigurationError(
            f"topic {topic!r} at batch {batch} is no dataset: no object is selected. Select batches that have records"
        )
    if others := [one for one in objects if not isinstance(one.layout.format, Parquet)]:
        raise ConfigurationError(
            f"topic {topic!r} at batch {batch} is no dataset of Parquet: {others[0].url} is "
            f"{type(others[0].layout.format).__name__}. Read it by arrow_batches(snapshot.log.store, "
            f"snapshot.objects(), schema), which reads every format and can be the argument of "
            f"pyarrow.RecordBatchReader.from_batches; or select batches of Parquet, by batches="
        )
    folders = folder_types(objects)
    if schema is None or not folders.keys().isdisjoint(schema.names):
        columns = schema_of_objects(store, objects)
        folders = {name: kind for name, kind in folders.items() if name not in columns.names}
        if schema is None:
            schema = pa.schema([*columns, *folders.items()])
    names = [name for name in schema.names if name in folders]
    return ds.FileSystemDataset.from_paths(
        [one.key for one in objects],
        schema=schema,
        format=ds.ParquetFileFormat(),
        filesystem=pafs.PyFileSystem(_Objects(store, {one.key: one for one in objects})),
        partitions=[_condition(one, schema, names) for one in objects],
    )


def _condition(one: SnapshotObject, schema: pa.Schema, names: Sequence[str]) -> ds.Expression:
    """What holds for all rows of an object: the values of its folders."""
    condition = ds.scalar(True)
    for name in names:
        text = one.columns.get(name, NULL_FOLDER)
        if text == NULL_FOLDER:
            condition &= ds.field(name).is_null()
            continue
        kind = schema.field(name).type
        try:
            condition &= ds.field(name) == pa.scalar(text).cast(kind)
        except pa.ArrowException as e:
            raise ConfigurationError(
                f"the folder {name}={text} of {one.url} is no {kind}: {e}. Give the column {name!r} of the schema "
                f"another type, such as string"
            ) from e
    return condition


class _OpenFiles:
    """The files that threads of Arrow read, which have ended before the interpreter does.

    A thread of Arrow gives its file back behind the result of a query. If the interpreter ends meanwhile, it ends the
    thread inside of C++, and so the process by SIGABRT ("terminate called without an active exception").
    """

    def __init__(self) -> None:
        self._ended = threading.Condition()
        self._open = 0
        self._any = False
        atexit.register(self.wait)

    def add(self, file: RemoteFile) -> None:
        """A file that a thread has begun to read."""
        with self._ended:
            self._open += 1
            self._any = True
        weakref.finalize(file, self._end).atexit = False

    def wait(self) -> None:
        """Wait until none is open; not for long, since a query that was not read to its end keeps its files."""
        with self._ended:
            self._ended.wait_for(lambda: not self._open, timeout=_MOST_SECONDS)
        if self._any:
            time.sleep(_LAST_SECONDS)

    def _end(self) -> None:
        with self._ended:
            self._open -= 1
            self._ended.notify_all()


_FILES: Final = _OpenFiles()


class _Objects(pafs.FileSystemHandler):
    """The objects as files."""

    def __init__(self, store: DurableStore, objects: dict[str, SnapshotObject]) -> None:
        self._store = store
        self._objects = objects

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "kafka-s3"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        return [
            pafs.FileInfo(path, pafs.FileType.File, size=self._objects[path].size)
            if path in self._objects
            else pafs.FileInfo(path, pafs.FileType.NotFound)
            for path in paths
        ]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        return self.get_file_info([path for path in self._objects if path.startswith(selector.base_dir)])

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        data_object = self._objects[path]
        missing = functools.partial(missing_object, self._store, data_object)
        file = open_object(self._store, path, data_object.size, missing=missing)
        _FILES.add(file)
        return pa.PythonFile(cast("Any", file), mode="r")

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
