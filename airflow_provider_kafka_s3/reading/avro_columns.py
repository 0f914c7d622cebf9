"""Avro files as Arrow tables, with the columns that Parquet has for the same schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.converters.avro_cursor import LARGEST_BATCH
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.avro_scalar import InvalidDatumError
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading.avro_file import AvroFile, datums, file_schema
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema
from airflow_provider_kafka_s3.schemas.nodes import (
    ArrayOf,
    MapOf,
    Node,
    Record,
    Union,
    branch_names,
    branches_without_null,
    only_branch,
    record_of,
)

__all__ = ["avro_tables", "datum_arrays"]


def avro_tables(url: str, body: bytes, schema: pa.Schema) -> list[pa.Table]:
    """The datums of a file, a table for about each megabyte of them.

    Args:
        url: of the file, for errors.
        body: its bytes.
        schema: the columns that are needed. Tables may have others, and other types.

    Raises:
        ConfigurationError: a column is a union of several types, and the schema has none of them.
        ValueError: it is no Avro file, or is damaged.
    """
    node = file_schema(body)
    record = record_of(node)
    types = {"value": node} if record is None else {field.name: field.type for field in record.fields}
    try:
        columns = arrow_schema(node)
    except ConfigurationError:  # it is recursive, or has more columns than are decoded
        return _as_values(url, body, schema, types, is_record=record is not None)
    for column in schema:
        if column.name in types:
            _require_types_of_unions(types[column.name], column.type, f"{column.name!r} of {url}")
    try:
        return [*_decoded(body, AvroDecoder(node), columns, is_record=record is not None)]
    except InvalidDatumError:  # earlier versions have landed numbers of more bytes than Avro for Java reads
        return _as_values(url, body, schema, types, is_record=record is not None)


def datum_arrays(file: AvroFile, decoder: AvroDecoder) -> Iterator[Array]:
    """The bytes of the datums of a file, those of about a megabyte at a time.

    Args:
        file: from its beginning.
        decoder: of its schema.

    Raises:
        ValueError: a block is damaged, or has more than 2 GiB.
    """
    for blocks in file.blocks():
        starts = itertools.accumulate((len(block.data) for block in blocks), initial=0)
        parts = [decoder.ends(block.data, block.count) + start for block, start in zip(blocks, starts, strict=False)]
        ends = np.concatenate([[0], *parts])
        if ends[-1] > LARGEST_BATCH:
            raise ValueError("a block of it has more than 2 GiB, which no array of Arrow has: read its bytes otherwise")
        ends = ends.astype(np.int32)
        buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(block.data for block in blocks))]
        yield cast("Array", pa.Array.from_buffers(pa.binary(), len(ends) - 1, cast("Any", buffers)))


def _decoded(body: bytes, decoder: AvroDecoder, columns: pa.Schema, *, is_record: bool) -> Iterator[pa.Table]:
    yield columns.empty_table()
    for rows in datum_arrays(AvroFile(body), decoder):
        decoded = decoder.decode(rows)
        if decoded.bad.any():
            raise InvalidDatumError("is not one of its schema")
        values = cast("Any", decoded.values)
        yield pa.table(values.flatten() if is_record else [values], schema=columns)


def _as_values(
    url: str, body: bytes, schema: pa.Schema, types: Mapping[str, Node], *, is_record: bool
) -> list[pa.Table]:
    """The datums by way of values of Python, which do not have the types of unions."""
    for column in schema:
        if column.name in types:
            _require_no_union(types[column.name], column.type, f"{column.name!r} of {url}")
    tables = [
        pa.Table.from_pylist(found if is_record else [{"value": value} for value in found], schema=schema)
        for found in datums(body)
    ]
    return [schema.empty_table(), *tables]


def _require_types_of_unions(node: Node, kind: Any, at: str) -> None:
    """Raise ConfigurationError for a column that would be null, whichever type of a union a value has."""
    if isinstance(node, Union) and only_branch(node) is None and isinstance(kind, pa.StructType):
        names = branch_names(node)
        if names and kind.num_fields and not {*names} & {one.name for one in kind}:
            raise ConfigurationError(
                f"the column {at} is a union of several types: a struct with a field for each of them, {names}. Give "
                f"it one of these fields, or use the schema of the snapshot"
            )
    for part, inner, name in _parts(node, kind):
        _require_types_of_unions(part, inner, f"{at}, {name}" if name else at)


def _require_no_union(node: Node, kind: Any, at: str) -> None:
    """Raise ConfigurationError for a union of several types, of which a value of Python would not have the type."""
    if isinstance(node, Union) and only_branch(node) is None and len(node.branches) > 1:
        raise ConfigurationError(
            f"the column {at} is a union of several types in a schema that is recursive, so it is not read: give a "
            f"schema without it"
        )
    for part, inner, name in _parts(node, kind):
        _require_no_union(part, inner, f"{at}, {name}" if name else at)


def _parts(node: Node, kind: Any) -> Iterator[tuple[Node, Any, str]]:
    """The types inside a type of which a column has a part, with the parts and the names of fields."""
    if isinstance(node, Union):
        if (only := only_branch(node)) is not None:
            yield only, kind, ""
        elif isinstance(kind, pa.StructType):
            by_name = dict(zip(branch_names(node), branches_without_null(node), strict=True))
            yield from ((by_name[one.name], one.type, repr(one.name)) for one in kind if one.name in by_name)
    elif isinstance(node, Record) and isinstance(kind, pa.StructType):
        by_name = {field.name: field.type for field in node.fields}
        yield from ((by_name[one.name], one.type, repr(one.name)) for one in kind if one.name in by_name)
    elif isinstance(node, ArrayOf) and isinstance(kind, pa.ListType):
        yield node.items, kind.value_type, ""
    elif isinstance(node, MapOf) and isinstance(kind, pa.MapType):
        yield node.values, kind.item_type, ""
