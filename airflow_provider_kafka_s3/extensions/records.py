"""What classes of other packages get: batches of records, or one record at a time."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP
from airflow_provider_kafka_s3.config.extensions import RecordPart
from airflow_provider_kafka_s3.converters.field_values import FieldValue, FieldValues

__all__ = ["Batch", "Extension", "FailedRecordError", "Record", "Refused", "for_each_record", "records_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Records of one Kafka partition.

    Attributes:
        records: not empty, in the order of their offsets. Columns are ``offset`` and ``value``, and those that the
            class reads: ``timestamp`` (milliseconds since 1970, -1 for none), ``key``, ``headers``. Values
            and keys are bytes, as Kafka has them; a null value is a tombstone.
        topic: the Kafka topic.
        partition: the Kafka partition.
        fields: the fields of values that a partitioner looks at, by name, parallel to the records.
    """

    records: pa.RecordBatch
    topic: str
    partition: int
    fields: Mapping[str, FieldValues] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        topic: the Kafka topic.
        partition: the Kafka partition.
        offset: of the record.
        value: None for a tombstone.
        timestamp: in milliseconds since 1970; None for none, or if the class does not read timestamps.
        key: None for none, or if the class does not read keys.
        headers: in their order; empty if the class does not read them.
        fields: of the value, that a partitioner looks at, by name.
    """

    topic: str
    partition: int
    offset: int
    value: bytes | None
    timestamp: int | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    fields: Mapping[str, FieldValue] = field(default_factory=dict)


class Refused(NamedTuple):
    """A record that cannot be written: it fails the batch, or is a dead letter (see ``errors`` of the operator).

    Attributes:
        reason: why, without any content of the record.
    """

    reason: str


class Extension(ABC):
    """What partitioners and formats of other packages have in common.

    An instance is made for each slice, with the ``options`` of the DAG as keyword arguments.

    Attributes:
        version: text, which has to change with every change of folders or bytes that the class makes. A plan has it,
            and a process in which the class has another one refuses to write objects of that plan.
        reads: parts of records that it looks at beside offset and value: ``key``, ``headers``, ``timestamp``. Spark
            reads keys and headers only if they are needed.
    """

    version: str
    reads: Sequence[RecordPart] = ()


class FailedRecordError(Exception):
    """The record for which a class raised an exception, which is the cause."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def records_of(batch: Batch) -> Iterator[Record]:
    """The records of a batch, one at a time."""
    columns: dict[str, list[Any]] = {
        name: batch.records.column(name).to_pylist() for name in batch.records.schema.names
    }
    count = batch.records.num_rows
    nothing = [None] * count
    times, keys = columns.get("timestamp", nothing), columns.get("key", nothing)
    headers = columns.get("headers", nothing)
    values = [[column.values[code] for code in column.codes.tolist()] for column in batch.fields.values()]
    fields: list[Mapping[str, FieldValue]] = [{}] * count
    if values:
        fields = [dict(zip(batch.fields, row, strict=True)) for row in zip(*values, strict=True)]
    for row, (offset, value) in enumerate(zip(columns["offset"], columns["value"], strict=True)):
        time = times[row]
        yield Record(
            batch.topic,
            batch.partition,
            offset,
            value,
            None if time == NO_TIMESTAMP else time,
            keys[row],
            tuple((header["key"], header["value"]) for header in headers[row] or ()),
            fields[row],
        )


def for_each_record(batch: Batch, function: Callable[[Record], T]) -> Iterator[T]:
    """The results of a function for the records of a batch.

    Raises:
        FailedRecordError: it raised an exception.
    """
    for record in records_of(batch):
        try:
            yield function(record)
        except MemoryError:
            raise
        except Exception as e:
            raise FailedRecordError(record.offset) from e
