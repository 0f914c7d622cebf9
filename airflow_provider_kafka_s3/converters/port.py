"""The interfaces of converters: they make typed values of the bytes of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array
from airflow_provider_kafka_s3.schemas.nodes import Node
from airflow_provider_kafka_s3.schemas.projection import connect_name

__all__ = ["Invalid", "RecordConverter", "Stage", "TypedGroup", "TypedValues", "ValueConverter", "ValueSchema"]

Stage = Literal["key", "value", "headers", "format"]
"""What failed: a converter, or the format."""


@dataclass(frozen=True, eq=False)
class ValueSchema:
    """The schema of values. Two are compared by identity.

    Attributes:
        name: of the schema in messages, such as ``schema 12``.
        node: the schema.
        text: the schema as Avro's JSON, without references to other schemas.
        versions: highest version of the schema per subject; empty if it has none.
        given_name: of the schema in Kafka Connect, ``null`` for none; empty: the one that follows from the node.
        unknown: names of fields that are always null, since nothing that would have given them a type was read before.
    """

    name: str
    node: Node
    text: str
    versions: Mapping[str, int] = field(default_factory=dict)
    given_name: str = ""
    unknown: frozenset[str] = frozenset()

    @property
    def connect_name(self) -> str:
        """The name of the schema in Kafka Connect, ``null`` for none."""
        return self.given_name or connect_name(self.node) or "null"


@dataclass(frozen=True)
class Invalid:
    """A value that cannot be converted.

    Attributes:
        row: of the value.
        reason: the cause, without any content of the value.
        remedy: what the user can do; begins with a verb.
        stage: what failed.
    """

    row: int
    reason: str
    remedy: str
    stage: Stage = "value"


@dataclass(frozen=True)
class TypedGroup:
    """The values of one schema.

    Attributes:
        schema: index in :attr:`ValueConverter.schemas`.
        rows: of the batch, ascending.
        values: the decoded values, parallel to the rows, of the Arrow type of the schema; None if only datums were
            requested.
        datums: makes the values in Avro's binary encoding: a binary or large_binary array parallel to the rows.
    """

    schema: int
    rows: Int64Array
    values: Array | None
    datums: Callable[[], Array]


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


class RecordConverter(Protocol):
    """Converts the records of one slice, or a part of them."""

    @property
    def schemas(self) -> Sequence[ValueSchema]:
        """See :class:`ValueConverter`."""
        ...

    def convert(self, records: pa.RecordBatch, *, decode: bool) -> TypedValues:
        """Convert records; arguments as of :meth:`ValueConverter.convert`.

        Args:
            records: of :data:`~airflow_provider_kafka_s3.arrays.WHOLE_RECORD_SCHEMA`, or of
                :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA` if values are enough.
            decode: whether decoded values are needed beside the datums.
        """
        ...
