"""The interface of a converter: it makes typed values of the bytes of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, int64_array
from airflow_provider_kafka_s3.schemas.avro import Node

__all__ = ["Invalid", "TypedGroup", "TypedValues", "ValueConverter", "ValueSchema"]


@dataclass(frozen=True, eq=False)
class ValueSchema:
    """The schema of values. Two are compared by identity.

    Attributes:
        name: of the schema in messages, such as ``schema 12``.
        node: the schema.
        text: the schema as Avro's JSON, without references to other schemas.
    """

    name: str
    node: Node
    text: str


@dataclass(frozen=True)
class Invalid:
    """A value that cannot be converted.

    Attributes:
        row: of the value.
        reason: the cause, without any content of the value.
        remedy: what the user can do; begins with a verb.
    """

    row: int
    reason: str
    remedy: str


@dataclass(frozen=True)
class TypedGroup:
    """The values of one schema.

    Attributes:
        schema: index in :attr:`ValueConverter.schemas`.
        rows: of the batch, ascending.
        values: the decoded values, parallel to the rows, of the Arrow type of the schema; None if only datums were
            requested.
        encoded: the values as they are in Kafka, parallel to the rows.
        header: bytes before the datum in each of them.
    """

    schema: int
    rows: Int64Array
    values: Array | None
    encoded: Array
    header: int

    def datums(self) -> Array:
        """The values in Avro's binary encoding, as array of the type of ``encoded`` and parallel to the rows."""
        at, rows = bounds(self.encoded), len(self.encoded)
        # Headers and datums by turns, as values of one array: their selection copies each datum at once.
        large = pa.types.is_large_binary(self.encoded.type)
        parts = np.empty(2 * rows + 1, np.int64 if large else np.int32)
        parts[::2] = at
        parts[1::2] = at[:-1] + self.header
        buffers = [None, pa.py_buffer(parts.data), self.encoded.buffers()[2]]
        both = cast("Array", pa.Array.from_buffers(self.encoded.type, 2 * rows, buffers))
        return both.take(int64_array(np.arange(1, 2 * rows, 2, dtype=np.int64)))


@dataclass(frozen=True)
class TypedValues:
    """The converted values of a batch; every row is in one group, or invalid."""

    groups: Sequence[TypedGroup]
    invalid: Sequence[Invalid]

    def schemas(self, rows: int) -> Int64Array:
        """The index of the schema of each row; -1 for an invalid one."""
        schemas = np.full(rows, -1, np.int64)
        for group in self.groups:
            schemas[group.rows] = group.schema
        return schemas


class ValueConverter(Protocol):
    """Converts the values of one slice."""

    @property
    def schemas(self) -> Sequence[ValueSchema]:
        """The schemas of all values so far, in the order of their first appearance."""
        ...

    def convert(self, values: Array, *, decode: bool) -> TypedValues:
        """Convert values, none of them null.

        Args:
            values: binary or large_binary.
            decode: whether decoded values are needed beside the datums.
        """
        ...
