"""The interface of a format: it prepares whole batches, and writes the rows of each object.

A batch is prepared before it is split into objects, since one vectorised pass over 10,000 records is cheaper than one
pass per object, and since the split needs the encoded sizes. Only the format reads the prepared ``payload``: an array
of frames for line formats, a record batch for columnar formats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, Scattered, int64_array
from airflow_provider_kafka_s3.config import MIB
from airflow_provider_kafka_s3.converters.field_values import FieldValues
from airflow_provider_kafka_s3.converters.port import Stage
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.schemas.evolution import SchemaVersion

__all__ = ["Buffer", "ObjectWriter", "Payload", "Prepared", "RecordFormat", "Rejected", "Rows", "record_error"]

Buffer: TypeAlias = bytes | memoryview
"""Encoded bytes; a memoryview holds a reference to its Arrow buffer."""
Rows: TypeAlias = slice | Int64Array | Scattered
"""Rows of a prepared batch: a contiguous slice (explicit start and stop, no step), or others in ascending order."""
Payload: TypeAlias = "Array | pa.RecordBatch"


_MOVED_BYTES: Final = 16 * MIB
"""Bytes of a payload that is put into another order as a whole; rows of a larger one are copied group by group."""


@dataclass(frozen=True)
class Rejected:
    """A record that cannot be written.

    Attributes:
        row: in the batch that was prepared.
        stage: what failed.
        reason: the cause, without any content of the record.
        remedy: what the user can do; begins with a verb.
    """

    row: int
    stage: Stage
    reason: str
    remedy: str


def record_error(batch: pa.RecordBatch, rejected: Rejected, *, topic: str, partition: int) -> RecordError:
    """The error of a record of a batch that cannot be written."""
    offset = batch.column("offset")[rejected.row].as_py()
    return RecordError(f"topic {topic!r}, partition {partition}, offset {offset}: {rejected.reason}; {rejected.remedy}")


@dataclass(frozen=True)
class Prepared:
    """The records of a batch that can be written.

    Attributes:
        records: the records that will be written (see :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA`).
        sizes: bytes of each record in its object before compression, parallel to ``records``.
        payload: argument of the format's writers, parallel to ``records``.
        ignored: number of null values that were left out.
        rejected: the records that cannot be written, in the order of their rows.
        schemas: index of the schema of each record, if an object holds records of one schema only.
        payloads: see :meth:`with_schemas`.
        positions: see :meth:`with_schemas`.
        versions: the schemas by index, for layouts with a ``schema_compatibility`` or a ``schema_affix``; the same list
            for all batches, to which schemas are appended.
        fields: of the values, for partitioners; parallel to ``records``.
        field_paths: of the schemas of all values so far, or of the first JSON document; nested fields with dots.
        projected: makes the payload of rows of any schemas, as values of one schema; None: objects have the schema of
            all their records.
    """

    records: pa.RecordBatch
    sizes: Int64Array
    payload: Payload
    ignored: int
    rejected: Sequence[Rejected] = ()
    schemas: Int64Array | None = None
    payloads: Mapping[int, Payload] = field(default_factory=dict)
    positions: Int64Array | None = None
    versions: Sequence[SchemaVersion] = ()
    fields: Mapping[str, FieldValues] = field(default_factory=dict)
    field_paths: Collection[str] = ()
    projected: Callable[[Rows, int], Payload] | None = None
    _moved: list[tuple[Int64Array, Array]] = field(default_factory=list, init=False, repr=False, compare=False)

    def with_payload(self, payload: Payload) -> Prepared:
        """The same records with another payload."""
        return replace(self, payload=payload)

    def with_schemas(self, schemas: Int64Array, payloads: Mapping[int, Payload], positions: Int64Array) -> Prepared:
        """The same records, of which an object holds those of one schema only.

        Args:
            schemas: index of the schema of each record.
            payloads: of the records of each schema.
            positions: of each record in the payload of its schema.
        """
        return replace(self, schemas=schemas, payloads=payloads, positions=positions)

    def take(self, rows: Rows, schema: int | None = None) -> Payload:
        """The payload of some rows; a slice is not copied.

        Args:
            rows: all of one schema, if objects hold records of one schema only.
            schema: this schema; with :attr:`projected`, that of the object.
        """
        if schema is not None and self.projected is not None:
            return self.projected(rows, schema)
        payload = self.payload
        if isinstance(rows, Scattered):
            if not isinstance(payload, pa.RecordBatch) and self.positions is None and payload.nbytes <= _MOVED_BYTES:
                return self._in_order(payload, rows.order).slice(rows.start, rows.stop - rows.start)
            rows = rows.indices
        if schema is not None and self.positions is not None:
            payload, within = self.payloads[schema], self.positions[rows]
            first, last = int(within[0]), int(within[-1])
            rows = slice(first, last + 1) if last - first + 1 == len(within) else within
        if isinstance(rows, slice):
            return payload.slice(rows.start, rows.stop - rows.start)
        return payload.take(int64_array(rows))

    def _in_order(self, payload: Array, order: Int64Array) -> Array:
        """The payload in this order. It is moved once for all groups of rows, since a call for each costs more."""
        if not self._moved or self._moved[0][0] is not order:
            self._moved[:] = [(order, payload.take(int64_array(order)))]
        return self._moved[0][1]


class ObjectWriter(Protocol):
    """Encodes one object, with a buffer of bounded size."""

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Encode rows; yields the next bytes of the object, and must be consumed to its end."""
        ...

    def close(self) -> Iterable[Buffer]:
        """End the object; yields the rest of its bytes."""
        ...


class RecordFormat(Protocol):
    """Encodes the records of objects."""

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Check the records of a batch of one Kafka partition, and encode those that can be written."""
        ...

    def open(self, key: str, schema: int | None) -> ObjectWriter:
        """Begin an object.

        Args:
            key: of the object.
            schema: index of the schema of its records; None if objects may hold records of several schemas, or none.
        """
        ...
