"""Writes a slice as a worker does, to memory."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import WHOLE_RECORD_SCHEMA
from airflow_provider_kafka_s3.batch.encode import write_slice
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.manifest import SliceResult
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.storage.port import Part
from airflow_provider_kafka_s3.storage.uploads import FinishedUpload
from tests.plans import data_plan, slices_of

__all__ = ["WrittenSlice", "written_slice"]


@dataclass
class _Sink:
    """The bytes of an object."""

    key: str
    body: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes | memoryview) -> None:
        self.body += data

    def seal(self) -> None:
        pass

    def finish(self) -> FinishedUpload:
        part = Part(number=1, etag="e", checksum="c")
        return FinishedUpload(self.key, "upload", (part,), len(self.body), zlib.crc32(self.body))


@dataclass(frozen=True)
class WrittenSlice:
    """What a slice was written to.

    Attributes:
        objects: bytes of the objects by key, in the order of their first records; without dead letters.
        offsets: number of records, first and last offset of each object, in the same order.
        times: lowest and highest timestamp of each object, in the same order.
        dead_times: the same of the objects of dead letters.
        dead_letters: the documents in the object of dead letters.
        result: of the slice.
    """

    objects: dict[str, bytes]
    offsets: list[tuple[int, int, int]]
    times: list[tuple[int, int]]
    dead_times: list[tuple[int, int]]
    dead_letters: list[dict[str, object]]
    result: SliceResult


def written_slice(
    layout: Layout,
    values: Sequence[bytes | None],
    *,
    topic: str = "orders",
    first: int = 0,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[bytes] | None = None,
    schemas: SchemaSource | None = None,
    cuts: Iterable[int] = (),
    large: bool = False,
) -> WrittenSlice:
    """Write values of partition 0.

    Args:
        layout: of the objects.
        values: of the records.
        topic: their topic.
        first: offset of the first one.
        timestamps: of the records; None: 0.
        keys: of the records; None: nulls.
        schemas: of a registry.
        cuts: rows before which a new batch begins.
        large: whether the Arrow type of values has wide offsets.
    """
    count = len(values)
    columns: Mapping[str, Sequence[object]] = {
        "offset": range(first, first + count),
        "timestamp": timestamps or [0] * count,
        "value": values,
        "key": keys or [None] * count,
        "headers": [None] * count,
    }
    schema = WHOLE_RECORD_SCHEMA.set(2, pa.field("value", pa.large_binary())) if large else WHOLE_RECORD_SCHEMA
    whole = pa.RecordBatch.from_pydict({k: list(v) for k, v in columns.items()}, schema=schema)
    edges = sorted({0, count, *(cut for cut in cuts if cut < count)})
    (slice_,) = slices_of((0, first, first + count))
    plan = data_plan(layout, [slice_], topic=topic)
    sinks: dict[str, _Sink] = {}

    def open_object(key: str, metadata: Mapping[str, str]) -> _Sink:
        del metadata
        assert key not in sinks
        sinks[key] = _Sink(key)
        return sinks[key]

    batches = [whole.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    rows = write_slice(plan, slice_, batches, open_object, schemas=schemas)
    dead = [sink.body for key, sink in sinks.items() if "/_dead_letters/" in key]
    landed = [entry for entry in rows.objects if "/_dead_letters/" not in entry.key]
    times = {entry.key: (entry.min_timestamp, entry.max_timestamp) for entry in rows.objects}
    return WrittenSlice(
        objects={entry.key: bytes(sinks[entry.key].body) for entry in landed},
        offsets=[(entry.records, entry.min_offset, entry.max_offset) for entry in landed],
        times=[times[entry.key] for entry in landed],
        dead_times=[found for key, found in times.items() if "/_dead_letters/" in key],
        dead_letters=[json.loads(line) for body in dead for line in body.splitlines()],
        result=rows.result,
    )
