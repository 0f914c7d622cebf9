"""The columns of objects as those of an Iceberg table, and how a table gets the columns of new objects.

A column is known by its id, whatever it is called. Objects have the ids of :mod:`~..schemas.field_ids`; those that were
landed before have none, and their columns are known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.field_ids import ID_KEY, field_id, field_ids, members

__all__ = ["FileColumns", "columns_of_file", "merged_schema", "require_free_ids"]

Path: TypeAlias = tuple[str, ...]
"""Names from the outermost column on; ``element``, ``key`` and ``value`` inside lists and maps."""

_MOST_DIGITS: Final = 38

_PRIMITIVES: Final[Mapping[pa.DataType, IcebergType]] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time64("us"): TimeType(),
}

_REFUSED: Final[Mapping[pa.DataType, str]] = {
    pa.null(): "it has no values but null, so it has no type",
    pa.time32("ms"): "a time of day in milliseconds: Iceberg has microseconds (time-micros of Avro)",
    pa.uint64(): "Iceberg has no integers above 2**63",
}


@dataclass(frozen=True)
class FileColumns:
    """The columns of an object.

    Attributes:
        schema: as Iceberg has them, each with its id.
        leaves: ids of the columns of Parquet, in their order.
        has_ids: whether the object has the ids itself; else its columns are known by name.
    """

    schema: Schema
    leaves: tuple[int, ...]
    has_ids: bool


def columns_of_file(schema: pa.Schema, url: str, known: Callable[[Path], int | None] = lambda _: None) -> FileColumns:
    """The columns of an object, with their ids.

    Args:
        schema: of the object.
        url: of the object, for errors.
        known: id of a column that a table knows by its path, for objects without ids.

    Raises:
        ConfigurationError: Iceberg has no type for a column, or the object has ids of another kind.
    """
    own = dict(_ids_in_file(schema))
    by_path = field_ids(schema)
    has_ids = own == by_path
    if own and not has_ids:
        raise ConfigurationError(
            f"object {url} has ids of columns that are unique only inside a message of Protobuf, or come from the "
            f"schema (field_ids='schema'), so a table cannot know its columns. Nothing was added. Land the topic again "
            f"with format=Parquet(), whose columns have ids of their own, in another topics_dir"
        )
    refusals: dict[str, str] = {}

    def id_of(path: Path) -> int:
        if has_ids:
            return by_path[path]
        return known(path) or field_id(*path)

    ids = [id_of(path) for path in by_path]
    if len({*ids}) < len(ids):
        same = ", ".join(".".join(path) for path in by_path if ids.count(id_of(path)) > 1)
        raise ConfigurationError(
            f"object {url} has columns with one id, so a table cannot know them apart: {same}. Nothing was added. "
            f"Rename one of the fields in the schema of the topic"
        )
    leaves = tuple(id_of(path) for field in schema for path in _leaves(field.type, (field.name,)))
    fields = []
    for field in schema:
        kind = _iceberg_type(field.type, (field.name,), id_of, refusals)
        if kind is not None:
            fields.append(NestedField(id_of((field.name,)), field.name, kind, required=False))
    if refusals:
        reasons = "; ".join(f"column {name}: {reason}" for name, reason in sorted(refusals.items()))
        raise ConfigurationError(
            f"object {url} has columns for which Iceberg has no type: {reasons}. Nothing was added, and landing goes "
            f"on. Change the schema of the topic, and land it into another topics_dir for its table"
        )
    return FileColumns(Schema(*fields), leaves, has_ids)


def merged_schema(table: Schema, columns: Schema, where: str) -> Schema:
    """The columns of a table and of an object together.

    Columns that the table lacks are added behind its own, and a type becomes the wider one where Iceberg allows it: int
    to long, float to double, a decimal with more digits.

    Args:
        table: of the table; the result is equal to it if nothing has to change.
        columns: of the object.
        where: names table and object in errors.

    Raises:
        ConfigurationError: a column of the table has another id or type, or is required and the object lacks it.
    """
    fields = _merged_fields(table.fields, columns.fields, (), where)
    return Schema(*fields, schema_id=table.schema_id, identifier_field_ids=table.identifier_field_ids)


def _merged_fields(
    old: Sequence[NestedField], new: Sequence[NestedField], path: Path, where: str
) -> tuple[NestedField, ...]:
    by_id = {field.field_id: field for field in new}
    names = {field.name: field for field in old}
    merged = []
    for field in old:
        other = by_id.pop(field.field_id, None)
        if other is None and field.required:
            raise _refused(
                (*path, field.name), where, "the table requires it, and the object lacks it. Make it optional"
            )
        merged.append(field if other is None else _merged_field(field, other, path, where))
    for field in by_id.values():
        if (clash := names.get(field.name)) is not None:
            raise _refused(
                (*path, field.name),
                where,
                f"it has the id {clash.field_id} in the table and {field.field_id} in the object, so readers would "
                f"have null. Use another table, which this package creates; or rename the column of the table",
            )
        merged.append(field)
    return tuple(merged)


def require_free_ids(earlier: Iterable[Schema], schema: Schema, where: str) -> None:
    """Refuse a column whose id an earlier schema of the table gave to values that cannot be read as its own.

    Args:
        earlier: all schemas of the table.
        schema: that the table gets.
        where: names the table in errors.

    Raises:
        ConfigurationError: a dropped column comes again with another type; objects with it could not be read.
    """
    kinds = {number: schema.find_type(number) for number in schema.field_ids}
    for old in earlier:
        for number in old.field_ids & kinds.keys():
            before, kind = old.find_type(number), kinds[number]
            if before.is_primitive and before != kind and not _widens(before, kind):
                raise _refused(
                    (schema.find_column_name(number) or "",),
                    where,
                    f"it was dropped as {before} and comes again as {kind}, and earlier objects have it. Give the "
                    f"field another name in the schema of the topic",
                )


def _merged_field(old: NestedField, new: NestedField, path: Path, where: str) -> NestedField:
    named = (*path, old.name)
    if old.name != new.name and field_id(*named) == old.field_id:
        # A column that was renamed has an id that its new name does not give.
        raise _refused(
            (*path, new.name), where, f"its id is that of the column {old.name} of the table. Rename the field"
        )
    kind = _merged_type(old.field_type, new.field_type, named, where)
    return old if kind == old.field_type else old.model_copy(update={"field_type": kind})


def _merged_type(old: IcebergType, new: IcebergType, path: Path, where: str) -> IcebergType:
    match old, new:
        case StructType(), StructType():
            return StructType(*_merged_fields(old.fields, new.fields, path, where))
        case ListType(), ListType() if old.element_id == new.element_id:
            kind = _merged_type(old.element_type, new.element_type, (*path, "element"), where)
            return ListType(old.element_id, kind, element_required=old.element_required)
        case MapType(), MapType() if (old.key_id, old.value_id) == (new.key_id, new.value_id):
            if old.key_type == new.key_type:
                kind = _merged_type(old.value_type, new.value_type, (*path, "value"), where)
                return MapType(old.key_id, old.key_type, old.value_id, kind, value_required=old.value_required)
        case _ if old == new:
            return old
        case _ if _widens(old, new):
            return new
        case _ if _widens(new, old):
            return old
    raise _refused(
        path,
        where,
        f"its type is {old} in the table and {new} in the object, and Iceberg reads neither as the other. Give "
        f"the field another name in the schema of the topic, or add the topic to another table from its own batches on",
    )


def _widens(old: IcebergType, new: IcebergType) -> bool:
    """Whether Iceberg reads the values of an old type as those of a new one."""
    match old, new:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return old.scale == new.scale and old.precision < new.precision
    return False


def _refused(path: Path, where: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: column {'.'.join(path)} does not fit: {why}. Nothing was added from this batch on; landing goes on"
    )


def _iceberg_type(
    kind: pa.DataType, path: Path, id_of: Callable[[Path], int], refusals: dict[str, str]
) -> IcebergType | None:
    """The type of a column; None, with an entry in ``refusals``, if there is none for it or for one inside it."""
    match kind:
        case pa.StructType():
            parts = [(member, _iceberg_type(member.type, (*path, member.name), id_of, refusals)) for member in kind]
            fields = [
                NestedField(id_of((*path, member.name)), member.name, part, required=False)
                for member, part in parts
                if part is not None
            ]
            return StructType(*fields) if len(fields) == len(parts) else None
        case pa.ListType():
            element = _iceberg_type(kind.value_type, (*path, "element"), id_of, refusals)
            return element and ListType(id_of((*path, "element")), element, element_required=False)
        case pa.MapType():
            key = _iceberg_type(kind.key_type, (*path, "key"), id_of, refusals)
            value = _iceberg_type(kind.item_type, (*path, "value"), id_of, refusals)
            if key is None or value is None:
                return None
            return MapType(id_of((*path, "key")), key, id_of((*path, "value")), value, value_required=False)
    primitive = _primitive(kind)
    if primitive is None:
        refusals[".".join(path)] = _REFUSED.get(kind, f"the type {kind}")
    return primitive


def _primitive(kind: Any) -> IcebergType | None:
    if pa.types.is_decimal128(kind) and kind.precision <= _MOST_DIGITS:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return TimestampType() if kind.tz is None else TimestamptzType()
    return _PRIMITIVES.get(kind)


def _leaves(kind: Any, path: Path) -> Iterator[Path]:
    """Paths of the columns of Parquet inside a column."""
    inner = members(kind)
    if not inner:
        yield path
    for name, member in inner:
        yield from _leaves(member.type, (*path, name))


def _ids_in_file(schema: pa.Schema) -> Iterator[tuple[Path, int]]:
    def walk(field: pa.Field[Any], path: Path) -> Iterator[tuple[Path, int]]:
        number = (field.metadata or {}).get(ID_KEY)
        if number is not None and int(number) >= 0:
            yield path, int(number)
        for name, member in members(field.type):
            yield from walk(member, (*path, name))

    for field in schema:
        yield from walk(field, (field.name,))
