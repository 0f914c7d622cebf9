"""The types of Arrow that columns of a schema have."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final, cast

import pyarrow as pa

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Enum,
    Fixed,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    branch_names,
    branches_without_null,
    is_recursive,
    only_branch,
    record_of,
)

__all__ = ["ARROW_LOGICAL", "arrow_field", "arrow_schema", "arrow_type"]

_LARGEST_128: Final = 38
_MOST_COLUMNS: Final = 10_000
_LONGEST_FIXED: Final = 65_536


def arrow_type(node: Node) -> pa.DataType:
    """The Arrow type of a schema.

    A union of one type, with null or without it, is that type, one of null alone is null. Any other union is a struct
    with one field per branch that is not null; one of them is set.

    Raises:
        ConfigurationError: the schema is recursive, which no column type can express, has more than 10,000 columns, or
            a fixed of more than 65,536 bytes.
    """
    if is_recursive(node):
        raise ConfigurationError("the schema is recursive: a record contains itself, which no column type can express")
    columns = _columns(node, {})
    if columns > _MOST_COLUMNS:
        raise ConfigurationError(f"the schema has {columns:,} columns with those of its nested types, more than 10,000")
    return _arrow(node)


def arrow_schema(node: Node, without: Container[str] = ()) -> pa.Schema:
    """The columns of values: the fields of a record, or the column ``value`` of any other type.

    Args:
        node: the schema of values.
        without: names of fields that have no column.

    Raises:
        ConfigurationError: see :func:`arrow_type`.
    """
    arrow_type(node)
    record = record_of(node)
    if record is None:
        return pa.schema([arrow_field("value", node)])
    return pa.schema([arrow_field(f.name, f.type, f.number) for f in record.fields if f.name not in without])


def _columns(node: Node, known: dict[int, int]) -> int:
    """Columns of a type that is not recursive, with those that contain others."""
    match node:
        case ArrayOf(items=part) | MapOf(values=part):
            return 1 + _columns(part, known)
        case Union(branches=branches):
            return 1 + sum(_columns(branch, known) for branch in branches)
        case Record():
            if id(node) not in known:
                known[id(node)] = 1 + sum(_columns(f.type, known) for f in node.fields)
            return known[id(node)]
    return 1


def arrow_field(name: str, node: Node, number: int | None = None) -> pa.Field[Any]:
    """The Arrow field of a value that has a schema; ``number`` is its id in Parquet."""
    nullable = node == NULL or (isinstance(node, Union) and NULL in node.branches)
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, _arrow(node), nullable=nullable, metadata=metadata)


_ARROW: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
ARROW_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def _arrow(node: Node) -> pa.DataType:
    match node:
        case Primitive(logical=Decimal() as decimal) | Fixed(logical=Decimal() as decimal):
            make = pa.decimal128 if decimal.precision <= _LARGEST_128 else pa.decimal256
            return make(decimal.precision, decimal.scale)
        case Primitive(name=name, logical=logical):
            return ARROW_LOGICAL.get((name, str(logical)), _ARROW[name])
        case Fixed(name=name, size=size):
            if size > _LONGEST_FIXED:
                raise ConfigurationError(
                    f"fixed {name!r} of the Avro schema has {size:,} bytes. A column has them for nulls too, and has "
                    f"at most {_LONGEST_FIXED:,} of them: use bytes"
                )
            return pa.binary(size)
        case Enum():
            return pa.string()
        case ArrayOf(items=items):
            return pa.list_(arrow_field("element", items))
        case MapOf(values=values, keys=keys):
            return pa.map_(_arrow(keys), cast("Any", arrow_field("value", values)))
        case Record(fields=fields):
            return pa.struct([arrow_field(f.name, f.type, f.number) for f in fields])
        case Union():
            branch = only_branch(node)
            if branch is not None:
                return _arrow(branch)
            if node.branches == (NULL,):
                return pa.null()
            return pa.struct(
                [
                    pa.field(name, _arrow(b))
                    for name, b in zip(branch_names(node), branches_without_null(node), strict=True)
                ]
            )
