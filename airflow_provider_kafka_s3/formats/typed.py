"""Formats of typed values: what a converter made of records, as JSON lines, Avro, Parquet or CSV."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, Protocol, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import Array, Int64Array, Scattered, bounds, int64_array, join
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.field_values import FieldValues, typed_field
from airflow_provider_kafka_s3.converters.port import Invalid, RecordConverter, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.avro import AvroWriter
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.formats.csv import CsvEncoder, CsvWriter
from airflow_provider_kafka_s3.formats.frames import FrameWriter, Kept, without_nulls
from airflow_provider_kafka_s3.formats.json_values import encode_json
from airflow_provider_kafka_s3.formats.jsonlines import JSON_DOCUMENT
from airflow_provider_kafka_s3.formats.parquet import ParquetWriter
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Payload, Prepared, Rejected, Rows
from airflow_provider_kafka_s3.formats.waiting_rows import WaitingRows
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema
from airflow_provider_kafka_s3.schemas.evolution import SchemaVersion, version_in_subject
from airflow_provider_kafka_s3.schemas.nodes import (
    ArrayOf,
    Fixed,
    MapOf,
    Node,
    Record,
    Union,
    field_paths,
    record_of,
)
from airflow_provider_kafka_s3.schemas.projection import Projection, projection, same_schema

__all__ = ["AvroEncoding", "CsvEncoding", "JsonEncoding", "ParquetEncoding", "TypedEncoding", "TypedFormat"]


_MOST_PATHS: Final = 10_000
"""Fields of a schema that are looked at: records in each other may have any number of paths."""


class TypedEncoding(Protocol):
    """How values of one schema are written to objects."""

    @property
    def decode(self) -> bool:
        """Whether decoded values are needed beside the datums."""
        ...

    @property
    def by_schema(self) -> bool:
        """Whether an object holds values of one schema only."""
        ...

    def invalid(self, group: TypedGroup, schema: ValueSchema) -> Sequence[Invalid]:
        """The values that objects cannot hold; their rows are indices in the group, ascending."""
        ...

    def payload(self, group: TypedGroup, schema: ValueSchema) -> Payload:
        """What the writers get, parallel to the rows of the group."""
        ...

    def open(self, key: str, schema: ValueSchema | None) -> ObjectWriter:
        """Begin an object; ``schema`` is None unless it holds values of one schema only."""
        ...


class TypedFormat:
    """A format of records, or parts of them, that a converter decodes.

    Args:
        converter: of the records.
        encoding: of the objects.
        on_null: what a null value does.
        part: of the records that must not be null; None: none.
        topic: of the values, if the layout distinguishes schemas; then values are projected to the schema of their
            object.
        fields: of the values, that partitioners need; by name, the path in what the converter decodes.
    """

    def __init__(
        self,
        converter: RecordConverter,
        encoding: TypedEncoding,
        on_null: config.OnNull,
        part: Literal["key", "value"] | None = "value",
        topic: str | None = None,
        *,
        fields: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._fields = fields or {}
        self._converter = converter
        self._encoding = encoding
        self._on_null = on_null
        self._part: Literal["key", "value"] | None = part
        self._topic = topic
        self._versions: list[SchemaVersion] = []
        self._projections: dict[tuple[int, int], Projection | None] = {}
        self._field_paths: set[str] = set()
        self._seen = 0

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Convert and encode the records; those that cannot be converted are rejected."""
        kept = Kept(batch, None, 0, ()) if self._part is None else without_nulls(batch, self._on_null, self._part)
        count = kept.records.num_rows
        decode = self._encoding.decode or bool(self._fields)
        typed, refused = self._without_invalid(self._converter.convert(kept.records, decode=decode))
        schemas = typed.schemas(count)
        good = np.flatnonzero(schemas >= 0)
        payloads = {g.schema: self._encoding.payload(g, self._converter.schemas[g.schema]) for g in typed.groups}
        every = len(good) == count
        records = kept.records if every else kept.records.take(int64_array(good))
        rows = kept.rows
        rejected = [
            Rejected(i.row if rows is None else int(rows[i.row]), i.stage, i.reason, i.remedy)
            for i in (*typed.invalid, *refused)
        ]
        prepared = Prepared(
            records=records,
            sizes=_sizes(records.column("value")),
            payload=_one(payloads),
            ignored=kept.ignored,
            rejected=sorted([*kept.rejected, *rejected], key=lambda r: r.row),
            fields={name: self._field(typed.groups, path, count).take(good) for name, path in self._fields.items()},
            field_paths=self._all_field_paths(),
        )
        if self._encoding.by_schema:
            prepared = prepared.with_schemas(schemas[good], payloads, _positions(typed.groups, count)[good])
            return prepared if self._topic is None else self._projecting(prepared, typed.groups, self._topic)
        return prepared if len(payloads) <= 1 else prepared.with_payload(_in_order(typed.groups, payloads))

    def _field(self, groups: Sequence[TypedGroup], path: Sequence[str], count: int) -> FieldValues:
        """A field of all records; those in no group have any value."""
        parts = []
        for group in groups:
            assert group.values is not None, "fields are those of decoded values"
            parts.append((group.rows, typed_field(group.values, self._converter.schemas[group.schema].node, path)))
        return FieldValues.merged(count, parts, None)

    def _all_field_paths(self) -> Collection[str]:
        for schema in self._converter.schemas[self._seen :]:
            self._field_paths.update(itertools.islice(field_paths(schema.node), _MOST_PATHS))
        self._seen = len(self._converter.schemas)
        return self._field_paths

    def _without_invalid(self, typed: TypedValues) -> tuple[TypedValues, list[Invalid]]:
        """The values that objects can hold, and the others, by their rows in the batch."""
        groups: list[TypedGroup] = []
        refused: list[Invalid] = []
        for group in typed.groups:
            if invalid := self._encoding.invalid(group, self._converter.schemas[group.schema]):
                refused += [replace(i, row=int(group.rows[i.row]), stage="format") for i in invalid]
                group = _kept(group, np.delete(np.arange(len(group.rows)), [i.row for i in invalid]))  # noqa: PLW2901
            groups.append(group)
        return replace(typed, groups=groups), refused

    def _projecting(self, prepared: Prepared, groups: Sequence[TypedGroup], topic: str) -> Prepared:
        """The same records, of which an object may hold those of several schemas as values of one."""
        for schema in self._converter.schemas[len(self._versions) :]:
            version = version_in_subject(schema.versions, topic)
            self._versions.append(SchemaVersion(schema.node, version, schema.connect_name))
        schemas, values = prepared.schemas, {group.schema: group.values for group in groups}
        assert schemas is not None, "values of one schema each"

        def projected(rows: Rows, target: int) -> Payload:
            numbers = _numbers(rows)
            of = schemas[numbers]
            parts, order = [], []
            for schema in np.unique(of).tolist():
                places = np.flatnonzero(of == schema)
                if (change := self._projection(schema, target)) is None:
                    parts.append(prepared.take(numbers[places], schema))
                else:
                    column = change.apply(self._values(prepared, values[schema], numbers[places]))
                    parts.append(self._payload(column, target))
                order.append(places)
            if len(parts) == 1:
                return parts[0]
            return _concatenated(parts).take(int64_array(np.argsort(np.concatenate(order))))

        return replace(prepared, versions=self._versions, projected=projected)

    def _projection(self, schema: int, target: int) -> Projection | None:
        """From values of one schema to those of another one; None if they are the same."""
        if (schema, target) not in self._projections:
            source, to = self._converter.schemas[schema].node, self._converter.schemas[target].node
            self._projections[schema, target] = None if same_schema(source, to) else projection(source, to)
        return self._projections[schema, target]

    def _values(self, prepared: Prepared, values: Array | None, rows: Int64Array) -> Array:
        """The decoded values of rows of one schema; ``values`` are all of this schema, if they are decoded already."""
        if values is not None:
            assert prepared.positions is not None, "values of one schema each"
            return values.take(int64_array(prepared.positions[rows]))
        (group,) = self._converter.convert(prepared.records.take(int64_array(rows)), decode=True).groups
        assert group.values is not None, "they are requested"
        return group.values

    def _payload(self, values: Array, schema: int) -> Payload:
        """The payload of values that were projected to a schema."""
        to = self._converter.schemas[schema]
        group = TypedGroup(schema, np.arange(len(values)), values, lambda: encode_datums(values, to.node))
        return self._encoding.payload(group, to)

    def open(self, key: str, schema: int | None) -> ObjectWriter:
        """Begin an object."""
        return self._encoding.open(key, None if schema is None else self._converter.schemas[schema])


def _numbers(rows: Rows) -> Int64Array:
    if isinstance(rows, Scattered):
        return rows.indices
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _kept(group: TypedGroup, within: Int64Array) -> TypedGroup:
    """Some values of a group."""
    indices = int64_array(within)
    values = None if group.values is None else group.values.take(indices)
    return TypedGroup(group.schema, group.rows[within], values, lambda: group.datums().take(indices))


def _sizes(values: Array) -> Int64Array:
    """Bytes of each value in Kafka, since those in the object are only known when it is written."""
    ends = bounds(values)
    return ends[1:] - ends[:-1]


def _one(payloads: dict[int, Payload]) -> Payload:
    """The only payload; empty if there is none."""
    return next(iter(payloads.values())) if payloads else cast("Array", pa.nulls(0, pa.large_binary()))


def _concatenated(parts: Sequence[Payload]) -> Payload:
    """Payloads of one schema, one after another."""
    if isinstance(parts[0], pa.RecordBatch):
        batches = cast("Sequence[pa.RecordBatch]", parts)
        columns = [pa.concat_arrays([batch.column(i) for batch in batches]) for i in range(batches[0].num_columns)]
        return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
    arrays = cast("Sequence[Array]", parts)
    wide = any(pa.types.is_large_binary(array.type) for array in arrays)
    return pa.concat_arrays([array.cast(pa.large_binary()) if wide else array for array in arrays])


def _positions(groups: Sequence[TypedGroup], rows: int) -> Int64Array:
    """Per row its position in its group."""
    positions = np.zeros(rows, np.int64)
    for group in groups:
        positions[group.rows] = np.arange(len(group.rows))
    return positions


def _in_order(groups: Sequence[TypedGroup], payloads: dict[int, Payload]) -> Array:
    """The frames of all groups in the order of their rows."""
    order = np.argsort(np.concatenate([group.rows for group in groups]), kind="stable")
    frames = pa.concat_arrays([cast("Array", payloads[group.schema]) for group in groups])
    return frames.take(int64_array(order))


class JsonEncoding:
    """JSON lines of decoded values."""

    decode = True

    def __init__(self, settings: config.JsonLines, *, by_schema: bool = False) -> None:
        self.by_schema = by_schema
        self._compression = make_compression(settings.compression, settings.compression_level)
        self._decimal_format = settings.decimal_format

    def invalid(self, group: TypedGroup, schema: ValueSchema) -> Sequence[Invalid]:  # noqa: ARG002 - the interface has it
        """Values of every kind can be written."""
        return ()

    def payload(self, group: TypedGroup, schema: ValueSchema) -> Payload:
        """One line per value."""
        assert group.values is not None, "JSON is made of decoded values"
        record = record_of(schema.node)
        fields = () if record is None else record.fields
        documents = {f.name for f in fields if isinstance(f.type, Union) and JSON_DOCUMENT in f.type.branches}
        return join(encode_json(group.values, decimal_format=self._decimal_format, documents=documents), b"\n")

    def open(self, key: str, schema: ValueSchema | None) -> ObjectWriter:  # noqa: ARG002 - the interface has them
        """Begin an object."""
        return FrameWriter(self._compression)


class AvroEncoding:
    """Avro container files; the datums are those of the records."""

    decode = False
    by_schema = True

    def __init__(self, settings: config.AvroContainer) -> None:
        self._codec = settings.codec

    def invalid(self, group: TypedGroup, schema: ValueSchema) -> Sequence[Invalid]:  # noqa: ARG002 - the interface has it
        """Values of every kind can be written."""
        return ()

    def payload(self, group: TypedGroup, schema: ValueSchema) -> Payload:  # noqa: ARG002 - the interface has it
        """The datums."""
        return group.datums()

    def open(self, key: str, schema: ValueSchema | None) -> ObjectWriter:
        """Begin a file; its sync marker follows from the key, so the same file has the same bytes every time."""
        assert schema is not None, "an Avro file has a schema"
        # Not for security: sixteen bytes that records do not contain by chance.
        sync = hashlib.md5(key.encode(), usedforsecurity=False).digest()
        return AvroWriter(schema.text.encode(), self._codec, sync=sync)


class ParquetEncoding:
    """Parquet files: the fields of records as columns, values of other schemas as the column ``value``.

    A field whose type is unknown has no column: readers of several files take it for null then, while a column of nulls
    would have a type that does not go with that of other files.
    """

    decode = True
    by_schema = True

    def __init__(self, settings: config.Parquet, waiting: WaitingRows | None = None) -> None:
        self._settings = settings
        self._waiting = waiting
        self._columns: dict[ValueSchema, pa.Schema] = {}

    def invalid(self, group: TypedGroup, schema: ValueSchema) -> Sequence[Invalid]:  # noqa: ARG002 - the interface has it
        """Values of every kind can be written."""
        return ()

    def payload(self, group: TypedGroup, schema: ValueSchema) -> Payload:
        """A batch of columns."""
        return _record_batch(group, schema, self._columns_of(schema))

    def open(self, key: str, schema: ValueSchema | None) -> ObjectWriter:  # noqa: ARG002 - the interface has it
        """Begin a file."""
        assert schema is not None, "a Parquet file has a schema"
        return ParquetWriter(self._columns_of(schema), self._settings, self._waiting)

    def _columns_of(self, schema: ValueSchema) -> pa.Schema:
        if schema not in self._columns:
            self._columns[schema] = _parquet_columns(schema)
        return self._columns[schema]


class CsvEncoding:
    """CSV: the fields of records, values of other schemas as the field ``value``."""

    decode = True
    by_schema = True

    def __init__(self, settings: config.Csv) -> None:
        self._settings = settings
        self._compression = make_compression(settings.compression, settings.compression_level)
        self._encoders: dict[ValueSchema, tuple[pa.Schema, CsvEncoder]] = {}

    def invalid(self, group: TypedGroup, schema: ValueSchema) -> Sequence[Invalid]:
        """Times that have no text."""
        _, encoder = self._encoder_of(schema)
        return [
            Invalid(
                row,
                f"the value of {schema.name} has a time outside the years 1 to 9999 in field {field!r}, which has no "
                f"text in CSV",
                "correct the producer, use format='avro' or 'parquet', or set the record aside with "
                "errors='dead_letter'",
            )
            for row, field in encoder.invalid(self._batch(group, schema)).items()
        ]

    def payload(self, group: TypedGroup, schema: ValueSchema) -> Payload:
        """One line per value."""
        return self._encoder_of(schema)[1].encode(self._batch(group, schema))

    def open(self, key: str, schema: ValueSchema | None) -> ObjectWriter:  # noqa: ARG002 - the interface has it
        """Begin an object."""
        assert schema is not None, "the header line is of one schema"
        return CsvWriter(self._encoder_of(schema)[1].header, self._compression)

    def _batch(self, group: TypedGroup, schema: ValueSchema) -> pa.RecordBatch:
        return _record_batch(group, schema, self._encoder_of(schema)[0])

    def _encoder_of(self, schema: ValueSchema) -> tuple[pa.Schema, CsvEncoder]:
        if schema not in self._encoders:
            columns = arrow_schema(schema.node, schema.unknown)
            try:
                self._encoders[schema] = columns, CsvEncoder(columns, self._settings)
            except ConfigurationError as e:
                raise ConfigurationError(f"{schema.name}: {e}") from None
        return self._encoders[schema]


def _record_batch(group: TypedGroup, schema: ValueSchema, columns: pa.Schema) -> pa.RecordBatch:
    """The decoded values of a group as columns."""
    assert group.values is not None, "columns are made of decoded values"
    if (record := record_of(schema.node)) is not None:
        parts = zip(record.fields, cast("pa.StructArray", group.values).flatten(), strict=True)
        known = [part for field, part in parts if field.name not in schema.unknown]
        return pa.RecordBatch.from_arrays(known, schema=columns)
    return pa.RecordBatch.from_arrays([group.values], schema=columns)


def _parquet_columns(schema: ValueSchema) -> pa.Schema:
    """The columns of a Parquet file.

    Raises:
        ConfigurationError: Parquet has no such column.
    """
    columns = arrow_schema(schema.node, schema.unknown)
    if (part := _without_bytes(schema.node)) is not None:
        raise ConfigurationError(f"{schema.name} has {part}, which Parquet cannot hold; use format='avro'")
    return columns


def _without_bytes(node: Node) -> str | None:
    """A type inside a schema whose values have no bytes, and so no column; None if there is none."""
    match node:
        case Record(fields=()):
            return f"the record {node.name!r} without fields"
        case Fixed(size=0):
            return f"the fixed {node.name!r} of 0 bytes"
        case Record(fields=fields):
            parts: Sequence[Node] = [f.type for f in fields]
        case Union(branches=branches):
            parts = branches
        case ArrayOf(items=part) | MapOf(values=part):
            parts = [part]
        case _:
            parts = []
    return next((inner for part in parts if (inner := _without_bytes(part)) is not None), None)
