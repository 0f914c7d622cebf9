"""The converter of Avro values with the header of a schema registry: a zero byte, the schema's id in four bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents, int64_array
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.schemas.avro import is_recursive, parse_schema, schema_text

__all__ = ["HEADER_SIZE", "AvroRegistryConverter", "rows_by_id", "schema_ids"]

HEADER_SIZE: Final = 5
_MAGIC: Final = 0
_CORRECT: Final = "correct the producer, or use errors='dead_letter' to set such records aside"


class AvroRegistryConverter:
    """Avro values whose schemas are in a registry.

    Args:
        schemas: by id.
    """

    def __init__(self, schemas: SchemaSource) -> None:
        self.schemas: list[ValueSchema] = []
        self._source = schemas
        self._decoders: dict[int, tuple[int, AvroDecoder] | str] = {}

    def convert(self, values: Array, *, decode: bool) -> TypedValues:
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        ids, has_header = schema_ids(values)
        invalid = [
            Invalid(
                int(row),
                "the value does not begin with the header of a schema registry: a zero byte and the id of a schema",
                _CORRECT,
            )
            for row in np.flatnonzero(~has_header)
        ]
        groups = []
        for schema_id, rows in rows_by_id(ids, has_header):
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                invalid += [Invalid(int(row), decoder, _CORRECT) for row in rows]
                continue
            index, avro = decoder
            every = len(rows) == len(values)
            part = values if every else values.take(int64_array(rows))
            if decode and is_recursive(self.schemas[index].node):
                raise ConfigurationError(
                    f"{self.schemas[index].name} is recursive, so its values have no columns; use format='avro'"
                )
            decoded = avro.decode(part, HEADER_SIZE) if decode else None
            bad = decoded.bad if decoded is not None else avro.check(part, HEADER_SIZE)
            column = None if decoded is None else decoded.values
            if not bad.any():
                groups.append(TypedGroup(index, rows, column, partial(_without_header, part)))
                continue
            reason = f"the value is not Avro of {self.schemas[index].name}"
            invalid += [Invalid(int(row), reason, _CORRECT) for row in rows[bad]]
            if not bad.all():
                good = int64_array(np.flatnonzero(~bad))
                rest = None if column is None else column.take(good)
                groups.append(TypedGroup(index, rows[~bad], rest, partial(_without_header, part.take(good))))
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _decoder(self, schema_id: int) -> tuple[int, AvroDecoder] | str:
        """Index of the schema and its decoder; or why its records are invalid."""
        found = self._decoders.get(schema_id)
        if found is None:
            try:
                found = self._make_decoder(schema_id)
            except RecordError as e:
                found = str(e)
            self._decoders[schema_id] = found
        return found

    def _make_decoder(self, schema_id: int) -> tuple[int, AvroDecoder] | str:
        registered = self._source.schema(schema_id)
        if registered.type != "AVRO":
            return f"schema {schema_id} of the registry is one of {registered.type}, not of Avro"
        references = [reference.text for reference in registered.references]
        try:
            node = parse_schema(registered.text, references)
            text = schema_text(registered.text, references)
        except ConfigurationError as e:
            return f"schema {schema_id} of the registry cannot be used: {e}"
        self.schemas.append(ValueSchema(f"schema {schema_id}", node, text))
        return len(self.schemas) - 1, AvroDecoder(node)


def schema_ids(values: Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """The id in each header, and whether there is a header."""
    at = bounds(values)
    ids = np.zeros(len(values), np.int64)
    has_header = np.diff(at) >= HEADER_SIZE
    if not has_header.any():
        return ids, np.zeros(len(values), np.bool_)
    body = np.frombuffer(contents(values), np.uint8)
    starts = at[:-1][has_header] - at[0]
    # The number that begins at each byte.
    numbers = np.ndarray((len(body) - 3,), ">u4", body.data, strides=(1,))
    ids[has_header] = numbers[starts + 1]
    has_header[has_header] = body[starts] == _MAGIC
    return ids, has_header


def rows_by_id(ids: Int64Array, has_header: npt.NDArray[np.bool_]) -> Iterator[tuple[int, Int64Array]]:
    """Rows by the id of their schema, in the order of the first row of each."""
    if has_header.all() and len(ids) and (ids == ids[0]).all():
        yield int(ids[0]), np.arange(len(ids))
        return
    rows = np.flatnonzero(has_header)
    found, first = np.unique(ids[rows], return_index=True)
    for schema_id in found[np.argsort(first)]:
        yield int(schema_id), rows[ids[rows] == schema_id]


def _without_header(values: Array) -> Array:
    """The datums of values with a header, as array of the same type."""
    at, rows = bounds(values), len(values)
    # Headers and datums by turns, as values of one array: their selection copies each datum at once.
    large = pa.types.is_large_binary(values.type)
    parts = np.empty(2 * rows + 1, np.int64 if large else np.int32)
    parts[::2] = at
    parts[1::2] = at[:-1] + HEADER_SIZE
    buffers = [None, pa.py_buffer(parts.data), values.buffers()[2]]
    both = cast("Array", pa.Array.from_buffers(values.type, 2 * rows, buffers))
    return both.take(int64_array(np.arange(1, 2 * rows, 2, dtype=np.int64)))
