"""Converters of records: of one part of each, or of all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import (
    NO_TIMESTAMP,
    Array,
    Int64Array,
    int64_array,
    int64_values,
    valid_rows,
    validity_buffer,
)
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.columns import buffer
from airflow_provider_kafka_s3.converters.port import (
    Invalid,
    TypedGroup,
    TypedValues,
    ValueConverter,
    ValueSchema,
)
from airflow_provider_kafka_s3.converters.primitive import invalid_text
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_field, arrow_type
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.nodes import NULL, ArrayOf, Field, Node, Primitive, Record, Union, is_recursive

__all__ = ["ColumnConverter", "EnvelopeConverter", "HeadersConverter", "envelope_headers", "envelope_timestamps"]

_ABSENT: Final = -1
"""Index of the schema of nulls before the first value of a slice."""
_BEFORE_ALL: Final = {"": 0}
"""Version of nulls before the first value of a slice: lower than those of all schemas."""
_CORRECT: Final = "correct the producer, or use errors='dead_letter' to set such records aside"
_HEADER: Final = Record("kafka_s3.Header", (Field("key", Primitive("string")), Field("value", Primitive("string"))))
_HEADER_OF_ENVELOPE: Final = Record(
    "kafka_s3.Header",
    (Field("key", Primitive("string")), Field("value", Union((NULL, Primitive("bytes"))))),
)


class ColumnConverter:
    """The keys or the values of records, none of them null.

    Args:
        converter: of the bytes.
        part: of the records.
    """

    def __init__(self, converter: ValueConverter, part: Literal["key", "value"]) -> None:
        self._converter = converter
        self._part: Literal["key", "value"] = part

    @property
    def schemas(self) -> Sequence[ValueSchema]:
        """See :class:`~airflow_provider_kafka_s3.converters.port.RecordConverter`."""
        return self._converter.schemas

    def convert(self, records: pa.RecordBatch, *, decode: bool) -> TypedValues:
        """See :class:`~airflow_provider_kafka_s3.converters.port.RecordConverter`."""
        return _of_part(self._converter.convert(records.column(self._part), decode=decode), self._part)


def _of_part(typed: TypedValues, part: Literal["key", "value"]) -> TypedValues:
    """What was converted, with reasons that name the part of the record."""
    if part == "value" or not typed.invalid:
        return typed
    invalid = [replace(i, reason=i.reason.replace("the value", "the key", 1), stage="key") for i in typed.invalid]
    return TypedValues(typed.groups, invalid)


class HeadersConverter:
    """The headers of records, as text.

    Args:
        in_record: whether the headers are the field ``headers`` of a record; False: the value is the array.
    """

    def __init__(self, *, in_record: bool) -> None:
        array = ArrayOf(_HEADER)
        self._in_record = in_record
        self._node: Node = Record("kafka_s3.Headers", (Field("headers", array),)) if in_record else array
        self.schemas = (ValueSchema("headers", self._node, node_text(self._node)),)

    def convert(self, records: pa.RecordBatch, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.RecordConverter`."""
        bad = _without_text(records)
        invalid = [Invalid(row, reason, _CORRECT, "headers") for row, reason in sorted(bad.items())]
        rows = np.delete(np.arange(records.num_rows), [i.row for i in invalid])
        if not len(rows):
            return TypedValues((), invalid)
        ends, entries = _entries((records.take(int64_array(rows)) if bad else records).column("headers"))
        values = _lists(_HEADER, ends, entries.field(0), entries.field(1).cast(pa.string()))
        if self._in_record:
            field = arrow_field("headers", ArrayOf(_HEADER))
            values = cast("Array", pa.StructArray.from_arrays([values], fields=[field]))
        return TypedValues([TypedGroup(0, rows, values, lambda: encode_datums(values, self._node))], invalid)


def _without_text(records: pa.RecordBatch) -> dict[int, str]:
    """The rows whose headers cannot be written as text, and why."""
    ends, entries = _entries(records.column("headers"))
    values = entries.field(1)
    valid = valid_rows(values)
    reasons = {_row(ends, int(at)): "the value of a header is null" for at in np.flatnonzero(~valid)}
    present = np.flatnonzero(valid)
    for place, byte in invalid_text(values if valid.all() else values.take(int64_array(present))):
        reasons.setdefault(_row(ends, int(present[place])), f"the value of a header is not text in UTF-8 (byte {byte})")
    return reasons


def envelope_headers(records: pa.RecordBatch) -> Array:
    """The headers of whole records, as the envelope has them: an empty list for none."""
    ends, entries = _entries(records.column("headers"))
    return _lists(_HEADER_OF_ENVELOPE, ends, entries.field(0), entries.field(1))


def envelope_timestamps(records: pa.RecordBatch) -> Array:
    """The timestamps of records in milliseconds; null for none."""
    times = int64_values(records.column("timestamp"))
    buffers: list[pa.Buffer | None] = [validity_buffer(times != NO_TIMESTAMP), buffer(times)]
    return cast("Array", pa.Array.from_buffers(pa.timestamp("ms", "UTC"), len(times), buffers))


def _entries(headers: Array) -> tuple[npt.NDArray[np.int32], Any]:
    """Where the headers of each record begin among all headers, and where the last ones end; and all headers."""
    lists: Any = headers
    ends = np.zeros(len(headers) + 1, np.int32)
    if len(headers):
        whole = np.frombuffer(memoryview(cast("pa.Buffer", headers.buffers()[1])).toreadonly(), np.int32)
        offsets = whole[headers.offset : headers.offset + len(headers) + 1]
        ends[1:] = np.cumsum(np.where(valid_rows(headers), offsets[1:] - offsets[:-1], 0))
    # Flattening leaves out what nulls may have.
    return ends, lists.flatten()


def _lists(header: Record, ends: npt.NDArray[np.int32], names: Array, values: Array) -> Array:
    items = pa.StructArray.from_arrays([names, values], fields=[arrow_field(f.name, f.type) for f in header.fields])
    kind: pa.DataType = arrow_type(ArrayOf(header))
    buffers: list[pa.Buffer | None] = [None, buffer(ends)]
    return cast("Array", pa.Array.from_buffers(kind, len(ends) - 1, buffers, children=[items]))


def _row(ends: npt.NDArray[np.int32], entry: int) -> int:
    return int(np.searchsorted(ends, entry, side="right")) - 1


@dataclass(frozen=True)
class _Converted:
    """The keys or the values of a batch, of which some are null.

    Attributes:
        schemas: index of the schema of each row.
        valid: whether each row could be converted, or is null.
        groups: of the values, by schema; their rows are those of the batch.
        examples: gives a value of a schema.
        invalid: values.
    """

    schemas: Int64Array
    valid: npt.NDArray[np.bool_]
    groups: Mapping[int, TypedGroup]
    examples: Callable[[int], Array]
    invalid: Sequence[Invalid]

    def taken(self, schema: int, rows: Int64Array) -> Array:
        """The values of some rows, which have the schema or are null."""
        if schema == _ABSENT:
            nulls: Array = pa.nulls(len(rows))
            return nulls
        group = self.groups.get(schema)
        if group is None or group.values is None:
            return _with_nulls(self.examples(schema), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_))
        if len(group.rows) == len(rows) and (group.rows == rows).all():
            return group.values
        places = np.minimum(np.searchsorted(group.rows, rows), len(group.rows) - 1)
        return _with_nulls(group.values, places, group.rows[places] == rows)


def _with_nulls(values: Array, at: Int64Array, valid: npt.NDArray[np.bool_]) -> Array:
    """The values at these places; null where they are not valid."""
    if not pa.types.is_struct(values.type):
        indices: list[pa.Buffer | None] = [validity_buffer(valid), buffer(at)]
        return values.take(cast("pa.Int64Array", pa.Array.from_buffers(pa.int64(), len(at), indices)))
    # Fields that cannot be null have a value in a null record, too.
    taken = values.take(int64_array(at))
    children = [cast("pa.StructArray", taken).field(i) for i in range(values.type.num_fields)]
    buffers: list[pa.Buffer | None] = [validity_buffer(valid & valid_rows(taken))]
    return cast("Array", pa.Array.from_buffers(values.type, len(at), buffers, children=children))


def _zero(kind: pa.DataType) -> Array:
    """An array of one value that is not null: zeros, and nothing where the length varies."""
    if pa.types.is_null(kind):
        return pa.nulls(1)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return cast("Array", pa.StructArray.from_arrays([_zero(field.type) for field in fields], fields=fields))
    nothing = pa.py_buffer(bytes(32))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        items = pa.nulls(0, kind.field(0).type)
        return cast("Array", pa.Array.from_buffers(kind, 1, [None, nothing], children=[items]))
    variable = pa.types.is_string(kind) or pa.types.is_binary(kind)
    size = kind.byte_width if pa.types.is_fixed_size_binary(kind) else 32
    data = [nothing, pa.py_buffer(b"")] if variable else [pa.py_buffer(bytes(size))]
    return cast("Array", pa.Array.from_buffers(kind, 1, [None, *data]))


class _NullableConverter:
    """The keys or the values of records, of which some are null.

    A null has the schema of the last value before it in the slice, so that it needs no object of its own. If all
    values have the same schema, it is known before the first one.
    """

    def __init__(self, converter: ValueConverter, part: Literal["key", "value"]) -> None:
        self.converter = converter
        self.part: Literal["key", "value"] = part
        self._last = 0 if converter.schemas else _ABSENT
        self._examples: dict[int, Array] = {}

    def convert(self, records: pa.RecordBatch) -> _Converted:
        """Convert the keys or the values of the next records."""
        column = records.column(self.part)
        is_value = valid_rows(column)
        rows = np.flatnonzero(is_value)
        values = column if len(rows) == len(column) else column.take(int64_array(rows))
        typed = _of_part(self.converter.convert(values, decode=True), self.part)
        groups = {group.schema: replace(group, rows=rows[group.rows]) for group in typed.groups}
        schemas = np.full(len(column), _ABSENT, np.int64)
        for group in groups.values():
            schemas[group.rows] = group.schema
            assert group.values is not None, "rows are made of decoded values"
            self._examples.setdefault(group.schema, group.values.slice(0, 1))
        known = schemas != _ABSENT
        before = np.maximum.accumulate(np.where(known, np.arange(len(column)), -1))
        schemas = np.where(before < 0, self._last, schemas[before])
        self._last = int(schemas[-1]) if len(schemas) else self._last
        invalid = [replace(i, row=int(rows[i.row])) for i in typed.invalid]
        return _Converted(schemas, known | ~is_value, groups, self._example, invalid)

    def _example(self, schema: int) -> Array:
        if schema not in self._examples:
            self._examples[schema] = _zero(arrow_type(self.converter.schemas[schema].node))
        return self._examples[schema]


class EnvelopeConverter:
    """Whole records: key, value, headers, topic, partition, offset and timestamp.

    Records with the same schemas of key and value have the same schema of the envelope.

    Args:
        key: converter of keys.
        value: converter of values.
        topic: the Kafka topic.
        partition: gives the Kafka partition of the records that are converted.
    """

    def __init__(self, key: ValueConverter, value: ValueConverter, *, topic: str, partition: Callable[[], int]) -> None:
        self.schemas: list[ValueSchema] = []
        self._parts = (_NullableConverter(key, "key"), _NullableConverter(value, "value"))
        self._topic = topic.encode()
        self._partition = partition
        self._indices: dict[tuple[int, int], int] = {}

    def convert(self, records: pa.RecordBatch, *, decode: bool) -> TypedValues:  # noqa: ARG002 - rows are made of values
        """See :class:`~airflow_provider_kafka_s3.converters.port.RecordConverter`."""
        key, value = (part.convert(records) for part in self._parts)
        # Of a record with two reasons, one is enough: that of its value.
        reasons = {i.row: i for i in (*key.invalid, *value.invalid)}
        groups = []
        for pair, rows in _rows_by_pair(key.schemas, value.schemas, np.flatnonzero(key.valid & value.valid)):
            index = self._index(pair)
            pair_records = records if len(rows) == records.num_rows else records.take(int64_array(rows))
            fields = self._fields(pair)
            columns = [
                key.taken(pair[0], rows),
                value.taken(pair[1], rows),
                *self._places(pair_records),
            ]
            row_type = [arrow_field(f.name, f.type) for f in fields]
            struct = cast("Array", pa.StructArray.from_arrays(columns, fields=row_type))
            groups.append(TypedGroup(index, rows, struct, self._datums(struct, index)))
        return TypedValues(groups, [reasons[row] for row in sorted(reasons)])

    def _datums(self, values: Array, index: int) -> Callable[[], Array]:
        return lambda: encode_datums(values, self.schemas[index].node)

    def _places(self, records: pa.RecordBatch) -> list[Array]:
        """Headers, topic, partition, offset and timestamp."""
        rows = records.num_rows
        names = [
            None,
            buffer(np.arange(rows + 1, dtype=np.int32) * len(self._topic)),
            pa.py_buffer(self._topic * rows),
        ]
        numbers = [None, buffer(np.full(rows, self._partition(), np.int32))]
        return [
            envelope_headers(records),
            cast("Array", pa.Array.from_buffers(pa.string(), rows, names)),
            cast("Array", pa.Array.from_buffers(pa.int32(), rows, numbers)),
            records.column("offset"),
            envelope_timestamps(records),
        ]

    def _index(self, pair: tuple[int, int]) -> int:
        if pair not in self._indices:
            fields = self._fields(pair)
            node = Record("kafka_s3.Envelope", fields)
            name = ", ".join(
                f"{part.part} of {part.converter.schemas[index].name}"
                for part, index in zip(self._parts, pair, strict=True)
                if index != _ABSENT
            )
            text = "" if is_recursive(node) else node_text(node)
            self._indices[pair] = len(self.schemas)
            versions, connect = self._of_value(pair[1])
            unknown = frozenset(part.part for part, index in zip(self._parts, pair, strict=True) if index == _ABSENT)
            self.schemas.append(ValueSchema(f"the envelope ({name})", node, text, versions, connect, unknown))
        return self._indices[pair]

    def _of_value(self, index: int) -> tuple[Mapping[str, int], str]:
        """Versions and name of the envelope: those of the value's schema, since it is the values that evolve."""
        if index == _ABSENT:
            return _BEFORE_ALL, "null"
        schema = self._parts[1].converter.schemas[index]
        return schema.versions, schema.connect_name

    def _fields(self, pair: tuple[int, int]) -> tuple[Field, ...]:
        key, value = (
            NULL if index == _ABSENT else _nullable(part.converter.schemas[index].node)
            for part, index in zip(self._parts, pair, strict=True)
        )
        return (
            Field("key", key),
            Field("value", value),
            Field("headers", ArrayOf(_HEADER_OF_ENVELOPE)),
            Field("topic", Primitive("string")),
            Field("partition", Primitive("int")),
            Field("offset", Primitive("long")),
            Field("timestamp", _nullable(Primitive("long", "timestamp-millis"))),
        )


def _nullable(node: Node) -> Node:
    if node == NULL or (isinstance(node, Union) and NULL in node.branches):
        return node
    return Union((NULL, *node.branches)) if isinstance(node, Union) else Union((NULL, node))


def _rows_by_pair(keys: Int64Array, values: Int64Array, rows: Int64Array) -> list[tuple[tuple[int, int], Int64Array]]:
    """Rows by the schemas of key and value, in the order of the first row of each."""
    if not len(rows):
        return []
    pairs = np.stack((keys[rows], values[rows]), axis=1)
    if (pairs == pairs[0]).all():
        return [((int(pairs[0, 0]), int(pairs[0, 1])), rows)]
    distinct, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    return [((int(distinct[i, 0]), int(distinct[i, 1])), rows[inverse.reshape(-1) == i]) for i in np.argsort(first)]
