"""The columns of objects: the types that their values have in the files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pyarrow as pa

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BytesConverter,
    Converter,
    Csv,
    Envelope,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Parquet,
    StringConverter,
    needs_registry,
)
from airflow_provider_kafka_s3.converters.json_schema_nodes import json_schema_node
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.pinned_schema import decode_pinned_schema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.avro_file import AvroFile
from airflow_provider_kafka_s3.reading.object_schemas import merged_schema, schema_of_objects, schemas_of_objects
from airflow_provider_kafka_s3.reading.remote_file import open_object
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema, arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Node, Primitive, Union, branches_without_null, nodes_in, record_of
from airflow_provider_kafka_s3.tables.ddl.model import DOCUMENT, Column, Shape

if TYPE_CHECKING:
    from pyarrow import DataType

__all__ = ["HEADERS", "ColumnsOfObjects", "columns_of_objects", "json_columns"]

_READERS: Final = 16
HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""The type of the headers of a whole record."""


class ColumnsOfObjects(NamedTuple):
    """See :class:`~airflow_provider_kafka_s3.tables.ddl.model.LandedTable`."""

    shape: Shape
    columns: tuple[Column, ...]
    schemas: int = 0
    avro_schema: str = ""
    unions: frozenset[str] = frozenset()


def columns_of_objects(log: TopicLog, layout: Layout, objects: Sequence[SnapshotObject]) -> ColumnsOfObjects:
    """The columns of objects of one layout.

    Args:
        log: of the topic, with the schemas of its values.
        layout: of the newest one.
        objects: one at least, all of the layout's format.

    Raises:
        ConfigurationError: the types of a column do not go together, or the names of columns are not known.
        MissingObjectError: an object is gone.
        ForeignObjectError: an object is not of its format.
    """
    match layout.record_format:
        case Parquet():
            schema = schema_of_objects(log.store, objects)
            return ColumnsOfObjects("columns", tuple(Column(field.name, field.type) for field in schema))
        case AvroContainer():
            return _avro(log, objects)
        case JsonLines() as lines:
            return _json(log, layout, objects, numeric=lines.decimal_format == "NUMERIC")
        case Csv():
            return _csv(log, objects)
    return ColumnsOfObjects("bytes", (Column("value", pa.string()),))


def _avro(log: TopicLog, objects: Sequence[SnapshotObject]) -> ColumnsOfObjects:
    schemas, newest = schemas_of_objects(log.store, objects), objects[-1]
    file: Any = io.BufferedReader(open_object(log.store, newest.key, newest.size))
    text = json.dumps(AvroFile(file).schema, ensure_ascii=False)
    record = record_of(parse_schema(text))
    unions = frozenset(
        field.name
        for field in (() if record is None else record.fields)
        if any(isinstance(node, Union) and len(branches_without_null(node)) > 1 for node in nodes_in(field.type))
    )
    columns = tuple(Column(field.name, field.type) for field in merged_schema(schemas))
    return ColumnsOfObjects("columns", columns, len(schemas), avro_schema=text, unions=unions)


def json_columns(schema: pa.Schema, *, numeric: bool = False) -> tuple[Column, ...]:
    """The columns of JSON lines.

    Args:
        schema: of the values.
        numeric: whether decimals are digits, and not base64 of their unscaled numbers.
    """

    def column(name: str, kind: Any) -> Column:
        remarks: list[str] = []
        return Column(name, _json_type(kind, numeric, name, remarks.append), tuple(remarks))

    return tuple(column(field.name, field.type) for field in schema)


def _json(log: TopicLog, layout: Layout, objects: Sequence[SnapshotObject], *, numeric: bool) -> ColumnsOfObjects:
    if isinstance(layout.content, Envelope):
        kinds = {
            "key": _json_part(log, layout.key_converter, layout),
            "value": _json_part(log, layout.value_converter, layout),
            "headers": HEADERS,
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("ms", "UTC"),
        }
        return ColumnsOfObjects("columns", json_columns(pa.schema([*kinds.items()]), numeric=numeric))
    nodes = _nodes_of_all(log, objects)
    if not nodes or any(record_of(node) is None for node, _ in nodes):
        return ColumnsOfObjects("documents", (Column("value", DOCUMENT),))
    schemas = _arrow_schemas(nodes)
    return ColumnsOfObjects("columns", json_columns(merged_schema(schemas), numeric=numeric), len(schemas))


def _json_part(log: TopicLog, converter: Converter | None, layout: Layout) -> DataType:
    """The type of a key or a value in an envelope."""
    nodes = _nodes(log, converter, layout)
    kinds = {arrow_type(node) for node, _ in nodes}
    return kinds.pop() if len(kinds) == 1 else DOCUMENT


def _csv(log: TopicLog, objects: Sequence[SnapshotObject]) -> ColumnsOfObjects:
    nodes = _nodes_of_all(log, objects)
    if not nodes:
        raise ConfigurationError(
            f"topic {log.topic!r} of pipeline {log.pipeline!r}: the names and types of its columns of CSV are not "
            f"known: {objects[-1].layout.value_converter!r} has no schema of columns in the log. Land the topic with "
            f"JsonConverter(schema=…), 'avro' or 'json_schema', or declare the table by hand"
        )
    schemas = _arrow_schemas(nodes)
    columns = []
    for field in merged_schema(schemas):
        is_base64 = pa.types.is_binary(field.type) or pa.types.is_fixed_size_binary(field.type)
        remarks = (f"`{field.name}` has bytes as text in base64",) if is_base64 else ()
        columns.append(Column(field.name, pa.string() if is_base64 else field.type, remarks))
    return ColumnsOfObjects("columns", tuple(columns), len(schemas))


def _arrow_schemas(nodes: Sequence[tuple[Node, str]]) -> dict[pa.Schema, str]:
    """Where each different schema is from."""
    schemas: dict[pa.Schema, str] = {}
    for node, where in nodes:
        schemas.setdefault(arrow_schema(node), where)
    return schemas


def _nodes_of_all(log: TopicLog, objects: Sequence[SnapshotObject]) -> list[tuple[Node, str]]:
    """The schemas of the values of all layouts of some objects; none: those of one are not in the log."""
    layouts = {one.layout.value_converter: one.layout for one in objects}
    of_each = [_nodes(log, converter, layout) for converter, layout in layouts.items()]
    return [node for nodes in of_each for node in nodes] if all(of_each) else []


def _nodes(log: TopicLog, converter: Converter | None, layout: Layout) -> list[tuple[Node, str]]:
    """The schemas of values, each with the place where it is; none: they are not in the log."""
    match converter:
        case JsonConverter(schema=str() as text):
            return [(parse_schema(text), "the declared schema")]
        case StringConverter():
            return [(Primitive("string"), "texts")]
        case BytesConverter():
            return [(Primitive("bytes"), "bytes")]
        case AvroConverter() | JsonSchemaConverter():
            # Schemas of keys and of values are stored alike, so it is not known which is which.
            if needs_registry(layout.key_converter) and needs_registry(layout.value_converter):
                return []
            return [*_pinned(log, converter)]
    return []


def _pinned(log: TopicLog, converter: AvroConverter | JsonSchemaConverter) -> Iterator[tuple[Node, str]]:
    """The schemas of the registry that the topic's records were decoded with, in the order of their ids."""
    prefix = addresses.schemas_prefix(log.prefix)
    names = [info.key.removeprefix(prefix).removesuffix(".json") for info in log.store.walk(prefix)]
    ids = sorted(int(name) for name in names if name.isdigit())

    def read(schema_id: int) -> RegisteredSchema | None:
        key = addresses.schema_key(log.prefix, schema_id)
        stored = log.store.get(key)
        return None if stored is None else decode_pinned_schema(stored.body, schema_id, log.store.url(key))

    wanted = "AVRO" if isinstance(converter, AvroConverter) else "JSON"
    for registered in in_threads(read, ids, threads=_READERS):
        if registered is None or registered.type != wanted:
            continue
        try:
            node = _node(registered)
        except ConfigurationError:  # no record of such a schema is landed
            continue
        yield node, log.store.url(addresses.schema_key(log.prefix, registered.id))


def _node(registered: RegisteredSchema) -> Node:
    if registered.type == "AVRO":
        return parse_schema(registered.text, [reference.text for reference in registered.references])
    return json_schema_node(registered.text, registered.references, decimal_format="BASE64")


def _json_type(kind: Any, numeric: bool, path: str, remark: Callable[[str], None]) -> DataType:
    """The type of a value in JSON lines, where times are numbers, and bytes are texts."""
    types = pa.types
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(f.name, _json_type(f.type, numeric, f"{path}.{f.name}", remark)) for f in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(_json_type(kind.value_type, numeric, f"{path}[]", remark))
    if isinstance(kind, pa.MapType):
        if types.is_string(kind.key_type):
            return pa.map_(pa.string(), _json_type(kind.item_type, numeric, f"{path}[]", remark))
        remark(f"`{path}` is an array of [key, value] in JSON, as its keys are no strings")
        return DOCUMENT
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        remark(f"`{path}` has bytes as text in base64")
        return pa.string()
    if types.is_decimal(kind) and not numeric:
        remark(f"`{path}` has the unscaled number of a decimal of scale {kind.scale} as text in base64")
        return pa.string()
    if types.is_date32(kind):
        remark(f"`{path}` has days since 1970-01-01")
        return pa.int32()
    if types.is_time(kind) or types.is_timestamp(kind):
        since = "midnight" if types.is_time(kind) else "1970-01-01"
        remark(f"`{path}` has {'milli' if kind.unit == 'ms' else 'micro'}seconds since {since}")
        return pa.int32() if types.is_time32(kind) else pa.int64()
    return cast("DataType", kind)
