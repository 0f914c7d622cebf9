"""Writes batches to objects like the engine, with dictionaries instead of uploads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.formats.parts import MAIN, PreparedParts
from airflow_provider_kafka_s3.formats.port import ObjectWriter, record_error
from airflow_provider_kafka_s3.formats.registry import make_formats
from airflow_provider_kafka_s3.layout.split import Append, Event, LeaveOut, Splitter

TOPIC = "flights"
PARTITION = 3


@dataclass
class Written:
    """An object that was written: its bytes, and the offsets of its records in file order."""

    body: bytearray = field(default_factory=bytearray)
    offsets: list[int] = field(default_factory=list)
    closed: bool = False


MakeBatch: TypeAlias = Callable[..., pa.RecordBatch]
WriteObjects: TypeAlias = Callable[..., dict[str, Written]]


def _batch(
    values: Sequence[bytes | None],
    *,
    first: int = 0,
    offsets: Sequence[int] | None = None,
    timestamps: Sequence[int] | None = None,
    large: bool = False,
) -> pa.RecordBatch:
    """A batch of one Kafka partition."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first, first + len(values)) if offsets is None else offsets, pa.int64()),
            pa.array([0] * len(values) if timestamps is None else timestamps, pa.int64()),
            pa.array(values, pa.large_binary() if large else pa.binary()),
        ],
        names=["offset", "timestamp", "value"],
    )


def _write_objects(
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    *,
    topic: str = TOPIC,
    partition: int = PARTITION,
    generation: int = 0,
) -> dict[str, Written]:
    """Write batches like a task, to memory."""
    formats = make_formats(layout, topic=topic, partition=lambda: partition)
    splitter = Splitter(layout, topic=topic, partition=partition, generation=generation)
    writers: dict[str, ObjectWriter] = {}
    objects: dict[str, Written] = {}

    def follow(events: Iterable[Event], prepared: PreparedParts | None = None) -> None:
        for event in events:
            if isinstance(event, LeaveOut):
                raise RecordError(f"{event.reason}; {event.remedy}")
            key = event.object.key
            if isinstance(event, Append):
                assert prepared is not None
                if key not in writers:
                    assert key not in objects
                    writers[key], objects[key] = formats.open(MAIN, key, event.object.schema), Written()
                for data in writers[key].write(prepared.take(MAIN, event.rows, event.object.schema)):
                    objects[key].body += data
                objects[key].offsets += event.offsets.tolist()
            else:
                for data in writers.pop(key).close():
                    objects[key].body += data
                objects[key].closed = True

    for batch in batches:
        prepared = formats.prepare(batch)
        if prepared.rejected:
            raise record_error(batch, prepared.rejected[0], topic=topic, partition=partition)
        events = splitter.feed(prepared.records, prepared.sizes, prepared.schemas, fields=prepared.fields)
        follow(events, prepared)
    follow(splitter.finish())
    assert not writers
    assert all(o.closed and o.offsets == sorted(o.offsets) for o in objects.values())
    return objects


@pytest.fixture(scope="session")
def make_batch() -> MakeBatch:
    """Make a record batch of values."""
    return _batch


@pytest.fixture(scope="session")
def write_objects() -> WriteObjects:
    """Write batches to objects in memory."""
    return _write_objects


@pytest.fixture(scope="session")
def recut() -> Callable[[pa.RecordBatch, Sequence[int]], list[pa.RecordBatch]]:
    """Split a batch at some rows: the same records in other batches."""

    def cut(batch: pa.RecordBatch, rows: Sequence[int]) -> list[pa.RecordBatch]:
        edges = np.unique([0, *(r % (batch.num_rows + 1) for r in rows), batch.num_rows]).tolist()
        return [batch.slice(a, b - a) for a, b in itertools.pairwise(edges)]

    return cut
