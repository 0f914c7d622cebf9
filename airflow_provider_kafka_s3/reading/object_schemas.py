"""The schema of values, as the objects have it: one rule for every reader."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from airflow_provider_kafka_s3.config import Envelope, JsonConverter, Layout
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    ForeignObjectError,
    KafkaS3Error,
)
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.formats.lines import LINE_SCHEMA
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.missing import missing_object
from airflow_provider_kafka_s3.reading.remote_file import open_object
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    from pyarrow import DataType, Field

__all__ = ["field_names", "merged_schema", "schema_of_objects", "schemas_of_objects"]

_READERS: Final = 16
"""Objects of which the schema is read at the same time."""
_DIGITS: Final = {32: 10, 64: 20}
"""Digits before the point with which Spark reads integers of some bits as decimals."""


class DataObject(Protocol):
    """An object of a snapshot."""

    @property
    def key(self) -> str:
        """In the bucket."""
        ...

    @property
    def url(self) -> str:
        """``s3://bucket/key``."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def layout(self) -> Layout:
        """Of its batch."""
        ...


def schema_of_objects(store: DurableStore, objects: Sequence[DataObject]) -> pa.Schema:
    """The columns of the values of objects.

    Parquet and Avro have theirs in each object: this reads the end of a Parquet file, the beginning of an Avro file. Of
    objects with a declared schema it reads one for each layout. A column of some objects is in the result; types that
    differ become the wider one, such as int64 of int32 and int64, if it has all their values: double does not have
    those of int64. Every column may be null.

    Args:
        store: their bucket.
        objects: of one snapshot.

    Raises:
        ConfigurationError: there is no object, the types of a column do not go together, or the format has no types.
        MissingObjectError: an object is gone.
        ForeignObjectError: an object is not of its format.
    """
    return merged_schema(schemas_of_objects(store, objects))


def schemas_of_objects(store: DurableStore, objects: Sequence[DataObject]) -> Mapping[pa.Schema, str]:
    """The different schemas of objects, each with the URL of one that has it; errors as above."""
    if not objects:
        raise ConfigurationError("no object is selected, so there is no schema. Select batches that have records")
    chosen = _with_all_schemas(objects)
    urls: dict[pa.Schema, str] = {}
    for data_object, schema in zip(
        chosen, in_threads(functools.partial(_schema, store), chosen, threads=_READERS), strict=True
    ):
        urls.setdefault(_without_metadata(schema), data_object.url)
    if len({schema == LINE_SCHEMA for schema in urls}) > 1:
        url = next(url for schema, url in urls.items() if schema == LINE_SCHEMA)
        raise ConfigurationError(
            f"{url} has lines, or bytes, where other objects have columns. Select batches of one format, by batches=, "
            f"or give a schema"
        )
    return urls


def merged_schema(places: Mapping[pa.Schema, str]) -> pa.Schema:
    """The columns of several schemas together, each in a type that has all its values; every one may be null.

    Args:
        places: schemas, each with the place of it for errors.

    Raises:
        ConfigurationError: the types of a column do not go together.
    """
    kinds: dict[str, dict[DataType, str]] = {}
    for schema, place in places.items():
        for column in schema:
            kinds.setdefault(column.name, {}).setdefault(_type(column.type), place)
    return pa.schema([pa.field(name, _common_type(name, of)) for name, of in kinds.items()])


def _common_type(name: str, urls: Mapping[DataType, str]) -> DataType:
    """A type that has each value of a column unchanged, and in which every reader of Parquet can read them."""
    if (unified := _unified(urls)) is not None:
        return unified
    pairs = itertools.combinations(urls, 2)
    kind, other = next((pair for pair in pairs if _unified(pair) is None), (*urls,)[:2])
    raise ConfigurationError(
        f"the types of the column {name!r} do not go together: it is {kind} in {urls[kind]} and {other} in "
        f"{urls[other]}, and no type has all values of both. Select batches whose values go together, by batches=, or "
        f"give a schema without this column"
    )


def _unified(kinds: Iterable[DataType]) -> DataType | None:
    schemas = [pa.schema([pa.field("column", kind)]) for kind in kinds]
    try:
        unified = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
    return unified if all(_keeps(unified, schema.field(0).type) for schema in schemas) else None


def _keeps(wide: DataType, kind: DataType) -> bool:
    """Whether a type has all values of another one, and Spark's reader of Parquet reads these with it."""
    types = pa.types
    if isinstance(kind, pa.StructType) and isinstance(wide, pa.StructType):
        return all(_keeps(wide.field(one.name).type, one.type) for one in kind)
    if isinstance(kind, pa.ListType) and isinstance(wide, pa.ListType):
        return _keeps(wide.value_type, kind.value_type)
    if isinstance(kind, pa.MapType) and isinstance(wide, pa.MapType):
        return _keeps(wide.key_type, kind.key_type) and _keeps(wide.item_type, kind.item_type)
    if wide == kind or types.is_null(kind):
        return True
    if types.is_floating(wide):
        # Float and int32 are double together.
        return types.is_floating(kind) or types.is_int32(kind)
    if types.is_decimal(wide):
        whole = wide.precision - wide.scale
        if types.is_decimal(kind):
            return bool(whole >= kind.precision - kind.scale and wide.scale >= kind.scale)
        return types.is_integer(kind) and bool(whole >= _DIGITS[kind.bit_width])
    return True


def field_names(store: DurableStore, objects: Sequence[DataObject]) -> set[str]:
    """The names of the columns of Parquet and Avro, whether or not their types go together; errors as above."""
    read = functools.partial(_schema, store)
    return {name for schema in in_threads(read, _with_all_schemas(objects), threads=_READERS) for name in schema.names}


def _with_all_schemas(objects: Sequence[DataObject]) -> list[DataObject]:
    """Objects that have all schemas of some objects together."""
    return [*{(one.layout, "" if _has_one_schema(one.layout) else one.key): one for one in objects}.values()]


def _has_one_schema(layout: Layout) -> bool:
    """Whether all objects of a layout have the same columns."""
    if not format_reader(layout.format).has_own_columns:
        return True
    converter = layout.value_converter
    return (
        not isinstance(layout.content, Envelope)
        and isinstance(converter, JsonConverter)
        and converter.schema is not None
    )


def _schema(store: DurableStore, one: DataObject) -> pa.Schema:
    try:
        missing = functools.partial(missing_object, store, one) if isinstance(one, SnapshotObject) else None
        file = open_object(store, one.key, one.size, missing=missing)
        return format_reader(one.layout.format).schema(file, one.url)
    except KafkaS3Error:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError) as e:
        raise ForeignObjectError(
            f"{one.url} is no {type(one.layout.format).__name__}: {e}. Check it with action='verify'"
        ) from e


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_field(one) for one in schema])


def _field(one: Field[Any]) -> Field[Any]:
    return pa.field(one.name, _type(one.type))


def _type(kind: DataType) -> DataType:
    if isinstance(kind, pa.StructType):
        return pa.struct([_field(one) for one in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(_field(kind.value_field))
    if isinstance(kind, pa.MapType):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    return kind
