"""The schema of columns: from the types of Arrow that objects have, back to those of a schema."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import ARROW_LOGICAL
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Field,
    Fixed,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
)

__all__ = ["node_of_columns"]

_LOGICAL: Final = {kind: Primitive(name, logical) for (name, logical), kind in ARROW_LOGICAL.items()}
_PRIMITIVE: Final = {
    pa.null(): NULL,
    pa.bool_(): Primitive("boolean"),
    pa.int32(): Primitive("int"),
    pa.int64(): Primitive("long"),
    pa.float32(): Primitive("float"),
    pa.float64(): Primitive("double"),
    pa.binary(): Primitive("bytes"),
    pa.string(): Primitive("string"),
}


def node_of_columns(schema: pa.Schema) -> Record:
    """A record with a field for each column, whose columns are these again.

    What several types of a schema have as the same column is the simplest of them: an enum is a string.

    Args:
        schema: columns of objects of this package.

    Raises:
        ConfigurationError: no schema has such columns.
    """
    return Record("Value", tuple(_field(column, "Value") for column in schema))


def _field(column: pa.Field[Any], path: str) -> Field:
    return Field(column.name, _optional(column, f"{path}.{column.name}"))


def _optional(field: pa.Field[Any], path: str) -> Node:
    node = _node(field.type, path)
    return Union((NULL, node)) if field.nullable and node != NULL else node


def _node(kind: pa.DataType, path: str) -> Node:
    if (primitive := _PRIMITIVE.get(kind) or _LOGICAL.get(kind)) is not None:
        return primitive
    if isinstance(kind, pa.Decimal128Type | pa.Decimal256Type):
        return Primitive("bytes", Decimal(kind.precision, kind.scale))
    if isinstance(kind, pa.FixedSizeBinaryType):
        return Fixed(path, kind.byte_width)
    if isinstance(kind, pa.StructType):
        return Record(path, tuple(_field(field, path) for field in kind))
    if isinstance(kind, pa.MapType):
        keys = _node(kind.key_type, path)
        if isinstance(keys, Primitive):
            return MapOf(_optional(kind.item_field, f"{path}.value"), keys)
    elif isinstance(kind, pa.ListType):
        return ArrayOf(_optional(kind.value_field, f"{path}.element"))
    raise ConfigurationError(f"the column {path.removeprefix('Value.')!r} has the type {kind}, which no schema has")
