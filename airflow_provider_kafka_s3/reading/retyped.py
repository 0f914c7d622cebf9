"""Columns in other types.

Arrow's own cast makes invalid arrays of lists and maps of nulls, so nested types are taken apart here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array

__all__ = ["cast_leaf", "retyped", "retyped_column", "selected_columns"]

Leaf: TypeAlias = Callable[[Any, Any], Array]
"""Gives values that are not nested another type."""


def cast_leaf(values: Any, kind: Any) -> Array:
    """Arrow's cast, and that of times of day to 64 bits, which it does not have.

    Raises:
        pyarrow.ArrowException: the type does not have these values.
    """
    if pa.types.is_time32(values.type) and pa.types.is_int64(kind):
        values = values.cast(pa.int32())
    return cast("Array", values.cast(kind))


def retyped_column(column: pa.ChunkedArray[Any], kind: Any, leaf: Leaf = cast_leaf) -> pa.ChunkedArray[Any]:
    """A column in another type, see :func:`retyped`."""
    return pa.chunked_array([retyped(chunk, kind, leaf) for chunk in column.chunks], kind)


def retyped(values: Any, kind: Any, leaf: Leaf = cast_leaf) -> Array:
    """Values in another type; fields of structs are found by their names, and those that are not there are null.

    Args:
        values: an array.
        kind: its other type.
        leaf: what is done with values that are not nested.
    """
    if values.type == kind:
        return cast("Array", values)
    if pa.types.is_null(values.type):
        return cast("Array", pa.nulls(len(values), kind))
    if isinstance(kind, pa.StructType) and isinstance(values.type, pa.StructType):
        by_name = dict(zip([one.name for one in values.type], values.flatten(), strict=True))
        parts = [retyped(by_name[one.name] if one.name in by_name else _nulls(values), one.type, leaf) for one in kind]
        bits = values.is_valid().buffers()[1] if values.null_count else None
        return cast("Array", pa.Array.from_buffers(kind, len(values), [bits], children=parts))
    if isinstance(kind, pa.ListType) and isinstance(values.type, pa.ListType):
        return _with_items(values, kind, retyped(values.values, kind.value_type, leaf))
    if isinstance(kind, pa.MapType) and isinstance(values.type, pa.MapType):
        parts = [retyped(values.keys, kind.key_type, leaf), retyped(values.items, kind.item_type, leaf)]
        entry = pa.struct([kind.key_field, kind.item_field])
        return _with_items(values, kind, pa.Array.from_buffers(entry, len(parts[0]), [None], children=parts))
    return leaf(values, kind)


def _nulls(values: Any) -> Array:
    return cast("Array", pa.nulls(len(values)))


def _with_items(values: Any, kind: Any, items: Any) -> Array:
    """Lists or maps with other items."""
    buffers = values.buffers()[:2]
    return cast("Array", pa.Array.from_buffers(kind, len(values), buffers, offset=values.offset, children=[items]))


def selected_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema in its types; those that are not there are null."""
    columns = [
        retyped_column(table.column(column.name), column.type)
        if column.name in table.column_names
        else pa.nulls(table.num_rows, column.type)
        for column in schema
    ]
    return pa.table(columns, schema=schema) if columns else table.select([])
