"""Thousands of open objects: bounded memory and temporary files, and the same bytes whatever the bound."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.arrays import WHOLE_RECORD_SCHEMA
from airflow_provider_kafka_s3.batch.encode import write_slice
from airflow_provider_kafka_s3.config import (
    KIB,
    MIB,
    ByKey,
    BytesConverter,
    Format,
    JsonLines,
    Layout,
    Parquet,
    Rotation,
    Upload,
)
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import CompleteResult, DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import Part
from airflow_provider_kafka_s3.storage.uploads import FinishedUpload, ObjectUpload, UploadPool
from tests.plans import data_plan, slices_of

PART = 5 * MIB
OPEN = 2_000
LARGE = 3 * MIB
"""Bytes of a record of the first key, whose object has several parts."""


def records(topic: int = 0, keys: int = OPEN, large: int = LARGE) -> Iterator[pa.RecordBatch]:
    """The records of a slice, three for each key."""
    rng = np.random.default_rng(topic)
    for first in range(0, 3 * keys, 1_000):
        offsets = range(first, min(first + 1_000, 3 * keys))
        texts = [rng.bytes((large if n % keys == 0 else 200) // 2).hex() for n in offsets]
        columns: dict[str, Any] = {
            "offset": list(offsets),
            "timestamp": [0] * len(texts),
            "value": [b'{"n":%d,"text":"%s"}' % (n, text.encode()) for n, text in zip(offsets, texts, strict=True)],
            "key": [b"k%d" % (n % keys) for n in offsets],
            "headers": [None] * len(texts),
        }
        yield pa.RecordBatch.from_pydict(columns, schema=WHOLE_RECORD_SCHEMA)


SLICE = list(records())


def layout_of(record_format: Format) -> Layout:
    """One object for each key, all open until the slice ends."""
    converter = BytesConverter() if isinstance(record_format, Parquet) else None
    rotation = Rotation(max_open_objects=OPEN)
    return Layout(format=record_format, partitioner=ByKey(), rotation=rotation, value_converter=converter)


@dataclass
class Took:
    """What a task took beside the bytes of its objects."""

    buffered: int = 0
    spilled: int = 0
    furthest: int = 0
    descriptors: int = 0


@dataclass
class Task:
    """Uploads of a slice, and what they take."""

    folder: Path
    memory: int
    bucket: MemoryStore = field(default_factory=MemoryStore)
    took: Took = field(default_factory=Took)

    def land(self, layout: Layout, batches: Iterator[pa.RecordBatch]) -> dict[str, bytes]:
        """Write a slice and complete its uploads; the objects."""
        store, (slice_,) = DurableStore(self.bucket, Retrier()), slices_of((0, 0, 10**6))
        folder = str(self.folder)
        with UploadPool(store, part_size=PART, memory=self.memory, spill_dir=folder) as pool:
            written = write_slice(
                data_plan(layout, [slice_]),
                slice_,
                batches,
                lambda key, more: Sink(self, pool, pool.open(key, more)),
                upload=Upload(memory=max(self.memory, MIB), spill_dir=folder),
            )
        return {entry.key: self._complete(store, entry) for entry in written.objects}

    def _complete(self, store: DurableStore, entry: ObjectEntry) -> bytes:
        parts = [Part(n, etag, checksum) for n, (etag, checksum) in enumerate(entry.parts, 1)]
        assert store.complete(entry.key, entry.upload_id, parts) is CompleteResult.DONE
        stored = self.bucket.get(entry.key)
        assert stored is not None
        return stored.body


@dataclass
class Sink:
    """An upload that is looked at after each write."""

    task: Task
    pool: UploadPool
    upload: ObjectUpload

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self.upload.write(data)
        self.task.took.buffered = max(self.task.took.buffered, self.pool.buffered)

    def seal(self) -> None:
        """End the object."""
        self.upload.seal()

    def finish(self) -> FinishedUpload:
        """Wait for its parts."""
        return self.upload.finish()


def land(layout: Layout, memory: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, bytes], Took]:
    """The objects of a slice, and what a task with so much memory took for them."""
    task, pwrite, before = Task(folder, memory), os.pwrite, _descriptors()

    def observed(fd: int, data: Any, offset: int) -> int:
        written = pwrite(fd, data, offset)
        took = task.took
        took.spilled, took.furthest = took.spilled + written, max(took.furthest, offset + written)
        if took.spilled == written:  # the first time
            took.descriptors = len(_descriptors() - before)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", observed)
        objects = task.land(layout, iter(SLICE))
    assert os.listdir(folder) == []
    assert _descriptors() <= before
    return objects, task.took


def _descriptors() -> set[tuple[str, str]]:
    """The open descriptors of this process, each with the file or pipe that it is.

    A number would not do: Python may close those of an earlier test at any moment. Nor would sockets: a client of a
    broker that earlier tests have used connects again at any moment. The store of these tests is in memory.
    """
    descriptors = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            if not (target := os.readlink(f"/proc/self/fd/{number}")).startswith("socket:"):
                descriptors.add((number, target))
    return descriptors


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_objects_are_the_same_whatever_the_bound_of_memory(
    compression: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 open objects, one of several parts: in memory, partly in the temporary file, or always there."""
    layout = layout_of(JsonLines(compression=compression))
    objects, took = land(layout, Upload().memory, tmp_path, monkeypatch)
    assert len(objects) == OPEN
    assert (took.spilled, took.descriptors) == (0, 0)
    for memory in (1, MIB):
        same, took = land(layout, memory, tmp_path, monkeypatch)
        assert same == objects
        assert took.buffered <= memory
        assert took.spilled > 0
        assert took.descriptors == 1
        assert took.furthest <= OPEN * PART


def test_parquet_files_are_the_same_whatever_the_bound_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row groups are cut by the rows alone; rows that wait for theirs and bytes of others are in two files."""
    layout = layout_of(Parquet(row_group_bytes=128 * KIB))
    assert layout.max_open_objects == OPEN
    objects, took = land(layout, Upload().memory, tmp_path, monkeypatch)
    assert (took.spilled, took.descriptors) == (0, 0)
    same, took = land(layout, 1, tmp_path, monkeypatch)
    assert same == objects
    assert (took.buffered, took.spilled > 0) == (0, True)


def test_hundreds_of_topics_one_after_another_take_what_one_takes(tmp_path: Path) -> None:
    """A task leaves no memory, thread, file or descriptor to the next one in its worker."""
    layout = layout_of(JsonLines(compression="gzip"))
    descriptors, threads = _descriptors(), set(threading.enumerate())
    of_other_tests = _uploads()
    for topic in range(300):
        task = Task(tmp_path, 2 * KIB)
        assert len(task.land(layout, records(topic, keys=20, large=200))) == 20
        assert task.took.buffered <= 2 * KIB
        assert _descriptors() <= descriptors
        assert set(threading.enumerate()) <= threads
        assert os.listdir(tmp_path) == []
        del task
    assert not [it for it in _uploads() if not any(it is other for other in of_other_tests)]


def _uploads() -> list[object]:
    """The pools and uploads of this process that are in use."""
    gc.collect()
    return [it for it in gc.get_objects() if isinstance(it, UploadPool | ObjectUpload)]
