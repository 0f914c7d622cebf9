"""Ids of the columns of Parquet, by which Iceberg and other readers know a column whatever it is called."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import pyarrow as pa

__all__ = ["ID_KEY", "field_id", "field_ids", "members", "with_field_ids"]

ID_KEY: Final = b"PARQUET:field_id"
"""In the metadata of an Arrow field: its id in Parquet."""

_IDS: Final = 2**30
"""Ids are below this. Iceberg reserves those near the end of 32 bits."""


@functools.lru_cache(maxsize=65_536)  # each object of a batch has the same columns
def field_id(*path: str) -> int:
    """The id of a column, by its path alone: it is the same in all objects, and nothing has to be stored.

    Args:
        path: names from the outermost column on; ``element`` of a list, ``key`` and ``value`` of a map.
    """
    digest = hashlib.sha256("\0".join(path).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % (_IDS - 1) + 1


def field_ids(schema: pa.Schema) -> dict[tuple[str, ...], int]:
    """The ids of all columns of a schema, also those inside others, by their paths."""
    return {path: field_id(*path) for field in schema for path in _paths(field, ())}


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """A schema with the ids of its columns, in place of those that it has.

    Where two of its columns have one id, which among 1,000 happens once in 2,000 schemas, none has an id: readers then
    take columns by their names.
    """
    ids: Mapping[tuple[str, ...], int] = field_ids(schema)
    if len(set(ids.values())) < len(ids):
        ids = {}
    return pa.schema([_with_ids(field, (), ids) for field in schema], metadata=cast("Any", schema.metadata))


def members(kind: pa.DataType) -> list[tuple[str, pa.Field[Any]]]:
    """The fields inside a type, and what their part of a path is."""
    match kind:
        case pa.StructType():
            return [(field.name, field) for field in kind]
        case pa.ListType():
            return [("element", kind.value_field)]
        case pa.MapType():
            return [("key", kind.key_field), ("value", kind.item_field)]
    return []


def _paths(field: pa.Field[Any], outer: tuple[str, ...], name: str | None = None) -> Iterator[tuple[str, ...]]:
    path = (*outer, field.name if name is None else name)
    yield path
    for part, member in members(field.type):
        yield from _paths(member, path, part)


def _with_ids(
    field: pa.Field[Any], outer: tuple[str, ...], ids: Mapping[tuple[str, ...], int], name: str | None = None
) -> pa.Field[Any]:
    path = (*outer, field.name if name is None else name)
    inner = [_with_ids(member, path, ids, part) for part, member in members(field.type)]
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != ID_KEY}
    if path in ids:
        metadata[ID_KEY] = str(ids[path]).encode()
    field = field.with_type(_with_members(field.type, inner))
    return field.with_metadata(cast("Any", metadata)) if metadata else field.remove_metadata()


def _with_members(kind: pa.DataType, inner: list[pa.Field[Any]]) -> pa.DataType:
    match kind:
        case pa.StructType():
            return pa.struct(inner)
        case pa.ListType():
            return pa.list_(inner[0])
        case pa.MapType():
            return pa.map_(cast("Any", inner[0]), cast("Any", inner[1]))
    return kind
