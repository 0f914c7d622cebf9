"""Formats of typed values: what a converter made of records, as JSON lines, Avro, Parquet or CSV."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, int64_array
from airflow_provider_kafka_s3.converters.port import Invalid, RecordConverter, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.avro import AvroWriter
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.formats.csv import CsvEncoder, CsvWriter
from airflow_provider_kafka_s3.formats.frames import FrameWriter, Kept, join, without_nulls
from airflow_provider_kafka_s3.formats.json_values import encode_json
from airflow_provider_kafka_s3.formats.jsonlines import JSON_DOCUMENT
from airflow_provider_kafka_s3.formats.parquet import ParquetSettings, ParquetWriter
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Payload, Prepared, Rejected
from airflow_provider_kafka_s3.schemas.avro import (
    ArrayOf,
    Fixed,
    MapOf,
    Node,
    Record,
    Union,
    arrow_field,
    arrow_type,
)

__all__ = ["AvroEncoding", "CsvEncoding", "JsonEncoding", "ParquetEncoding", "TypedEncoding", "TypedFormat"]


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
    """

    def __init__(
        self,
        converter: RecordConverter,
        encoding: TypedEncoding,
        on_null: config.OnNull,
        part: Literal["key", "value"] | None = "value",
    ) -> None:
        self._converter = converter
        self._encoding = encoding
        self._on_null = on_null
        self._part: Literal["key", "value"] | None = part

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Convert and encode the records; those that cannot be converted are rejected."""
        kept = Kept(batch, None, 0, ()) if self._part is None else without_nulls(batch, self._on_null, self._part)
        count = kept.records.num_rows
        typed, refused = self._without_invalid(self._converter.convert(kept.records, decode=self._encoding.decode))
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
        )
        if self._encoding.by_schema:
            return prepared.with_schemas(schemas[good], payloads, _positions(typed.groups, count)[good])
        return prepared if len(payloads) <= 1 else prepared.with_payload(_in_order(typed.groups, payloads))

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

    def open(self, key: str, schema: int | None) -> ObjectWriter:
        """Begin an object."""
        return self._encoding.open(key, None if schema is None else self._converter.schemas[schema])


def _kept(group: TypedGroup, within: Int64Array) -> TypedGroup:
    """Some values of a group."""
    at = int64_array(within)
    values = None if group.values is None else group.values.take(at)
    return TypedGroup(group.schema, group.rows[within], values, lambda: group.datums().take(at))


def _sizes(values: Array) -> Int64Array:
    """Bytes of each value in Kafka, since those in the object are only known when it is written."""
    ends = bounds(values)
    return ends[1:] - ends[:-1]


def _one(payloads: dict[int, Payload]) -> Payload:
    """The only payload; empty if there is none."""
    return next(iter(payloads.values())) if payloads else cast("Array", pa.nulls(0, pa.large_binary()))


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
    by_schema = False

    def __init__(self, settings: config.JsonLines) -> None:
        self._compression = make_compression(settings.compression, settings.compression_level)
        self._decimal_format = settings.decimal_format

    def invalid(self, group: TypedGroup, schema: ValueSchema) -> Sequence[Invalid]:  # noqa: ARG002 - the interface has it
        """Values of every kind can be written."""
        return ()

    def payload(self, group: TypedGroup, schema: ValueSchema) -> Payload:
        """One line per value."""
        assert group.values is not None, "JSON is made of decoded values"
        fields = schema.node.fields if isinstance(schema.node, Record) else ()
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
    """Parquet files: the fields of records as columns, values of other schemas as the column ``value``."""

    decode = True
    by_schema = True

    def __init__(self, settings: config.Parquet) -> None:
        self._settings = ParquetSettings(
            compression=settings.compression,
            compression_level=settings.compression_level,
            row_group_records=settings.row_group_records,
            row_group_bytes=settings.row_group_bytes,
            page_bytes=settings.page_bytes,
        )
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
        return ParquetWriter(self._columns_of(schema), self._settings)

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
            columns = _columns(schema)
            try:
                self._encoders[schema] = columns, CsvEncoder(columns, self._settings)
            except ConfigurationError as e:
                raise ConfigurationError(f"{schema.name}: {e}") from None
        return self._encoders[schema]


def _record_batch(group: TypedGroup, schema: ValueSchema, columns: pa.Schema) -> pa.RecordBatch:
    """The decoded values of a group as columns."""
    assert group.values is not None, "columns are made of decoded values"
    if isinstance(schema.node, Record):
        return pa.RecordBatch.from_arrays(cast("pa.StructArray", group.values).flatten(), schema=columns)
    return pa.RecordBatch.from_arrays([group.values], schema=columns)


def _parquet_columns(schema: ValueSchema) -> pa.Schema:
    """The columns of a Parquet file.

    Raises:
        ConfigurationError: Parquet has no such column.
    """
    columns = _columns(schema)
    if (part := _without_bytes(schema.node)) is not None:
        raise ConfigurationError(f"{schema.name} has {part}, which Parquet cannot hold; use format='avro'")
    return columns


def _columns(schema: ValueSchema) -> pa.Schema:
    """The columns of values; ConfigurationError if their schema is recursive or has too many."""
    arrow_type(schema.node)
    if not isinstance(schema.node, Record):
        return pa.schema([arrow_field("value", schema.node)])
    return pa.schema([arrow_field(f.name, f.type, f.number) for f in schema.node.fields])


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
    return next((found for part in parts if (found := _without_bytes(part)) is not None), None)
