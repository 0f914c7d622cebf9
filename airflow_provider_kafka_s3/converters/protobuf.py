"""The converter of Protobuf values with the header of a schema registry.

The header is a zero byte, the id of the schema in four bytes, and the indexes of the message in its file: their number
and each of them as varints with zigzag encoding; a single zero byte stands for the first message.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents, int64_array
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.converters.protobuf_decode import ProtobufDecoder
from airflow_provider_kafka_s3.converters.registered import MadeOfSchemas, Unusable
from airflow_provider_kafka_s3.converters.registry_header import HEADER_SIZE, REMEDY, rows_by_schema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaSource
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.proto_file import ProtoFile
from airflow_provider_kafka_s3.schemas.protobuf import Mapping, message_at, parse_protobuf

__all__ = ["ProtobufRegistryConverter"]

_DEEPEST: Final = 100
_FEW_HEADERS: Final = 32

_Indexes = tuple[int, ...]


@dataclass(frozen=True)
class _File:
    """The file of a schema, and the versions of the schema by subject."""

    parsed: ProtoFile
    versions: MappingOf[str, int]


@dataclass(frozen=True)
class _Message:
    """A message of a schema: index of its schema, and what decodes it."""

    index: int
    decoder: ProtobufDecoder


class ProtobufRegistryConverter:
    """Protobuf values whose schemas are in a registry.

    Args:
        schemas: by id.
        mapping: as which types the values are landed.
    """

    def __init__(self, schemas: SchemaSource, mapping: Mapping) -> None:
        self.schemas: list[ValueSchema] = []
        self._mapping = mapping
        self._files = MadeOfSchemas(schemas, "PROTOBUF", _file)
        self._messages: dict[tuple[int, _Indexes], _Message] = {}

    def convert(self, values: Array, *, decode: bool) -> TypedValues:
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        by_schema, invalid = rows_by_schema(values)
        groups: list[TypedGroup] = []
        for schema_id, rows in by_schema:
            file = self._files.of(schema_id)
            if isinstance(file, Unusable):
                invalid += file.records(rows)
                continue
            by_message, without = _rows_by_message(values, rows)
            reason = f"the value does not have the indexes of a message behind the id of schema {schema_id}"
            invalid += [Invalid(row, reason, REMEDY) for row in without]
            for indexes, (message_rows, starts) in by_message.items():
                message = self._message(schema_id, file, indexes)
                if isinstance(message, str):
                    invalid += [Invalid(int(row), message, REMEDY) for row in message_rows]
                    continue
                part = values if len(message_rows) == len(values) else values.take(int64_array(message_rows))
                group, wrong = self._decoded(message, part, message_rows, starts)
                invalid += wrong
                if group is not None:
                    groups.append(group if decode else replace(group, values=None))
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _decoded(
        self, message: _Message, values: Array, rows: Int64Array, starts: Int64Array
    ) -> tuple[TypedGroup | None, list[Invalid]]:
        """The valid values of one message, and those that are not."""
        decoded = message.decoder.decode(values, starts)
        schema = self.schemas[message.index]
        column, bad = decoded.values, decoded.bad
        invalid = []
        if bad.any():
            for place in np.flatnonzero(bad).tolist():
                why = decoded.reasons.get(place, "its bytes are no such message")
                invalid.append(Invalid(int(rows[place]), f"the value is not the {schema.name}: {why}", REMEDY))
            column, rows = column.take(int64_array(np.flatnonzero(~bad))), rows[~bad]
        if not len(rows):
            return None, invalid
        return TypedGroup(message.index, rows, column, partial(encode_datums, column, schema.node)), invalid

    def _message(self, schema_id: int, file: _File, indexes: _Indexes) -> _Message | str:
        """A message of a schema; or why its records are invalid.

        Raises:
            ConfigurationError: its values have no columns.
        """
        cached = self._messages.get((schema_id, indexes))
        if cached is None:
            message = message_at(file.parsed, indexes)
            if message is None:
                # Not kept: any bytes may be behind the id.
                return f"schema {schema_id} of the registry has no message of the index in the value's header"
            name = f"message {message.full_name} of schema {schema_id}"
            try:
                node = self._mapping.node(message)
                decoder = ProtobufDecoder(message, self._mapping, node)
            except ConfigurationError as e:
                where = self._files.address(schema_id)
                raise ConfigurationError(f"{name} cannot be landed: {e}; the schema is that of {where}") from None
            self.schemas.append(ValueSchema(name, node, node_text(node), file.versions))
            cached = self._messages[schema_id, indexes] = _Message(len(self.schemas) - 1, decoder)
        return cached


def _file(registered: RegisteredSchema) -> _File:
    parsed = parse_protobuf(registered.text, [reference.text for reference in registered.references])
    return _File(parsed, registered.versions)


def _rows_by_message(
    values: Array, rows: Int64Array
) -> tuple[dict[_Indexes, tuple[Int64Array, Int64Array]], list[int]]:
    """Rows and sizes of their headers by the indexes of their message, and the rows without indexes."""
    offsets, body = bounds(values), contents(values)
    begin, end = offsets[:-1][rows] - offsets[0] + HEADER_SIZE, offsets[1:][rows] - offsets[0]
    data = np.frombuffer(body, np.uint8)
    by_indexes: dict[_Indexes, list[tuple[Int64Array, int]]] = {}
    without = []
    left = np.arange(len(rows))
    while left.size:
        first = int(left[0])
        read = _indexes(body, int(begin[first]), int(end[first]))
        if read is None:
            without.append(int(rows[first]))
            left = left[1:]
            continue
        indexes, size = read
        if len(by_indexes) > _FEW_HEADERS:
            # Most values have the same few headers. The headers of so many are garbage, and read one by one.
            by_indexes.setdefault(indexes, []).append((left[:1], size))
            left = left[1:]
            continue
        starts = begin[left]
        same = starts + size <= end[left]
        for place in range(size):
            same &= data.take(starts + place, mode="clip") == data[begin[first] + place]
        by_indexes.setdefault(indexes, []).append((left[same], size))
        left = left[~same]
    return {indexes: _joined(rows, parts) for indexes, parts in by_indexes.items()}, without


def _joined(rows: Int64Array, parts: list[tuple[Int64Array, int]]) -> tuple[Int64Array, Int64Array]:
    """Rows, ascending, and sizes of their headers."""
    places = np.concatenate([part_rows for part_rows, _ in parts])
    sizes = np.concatenate([np.full(len(part_rows), HEADER_SIZE + size) for part_rows, size in parts])
    order = np.argsort(places, kind="stable")
    return rows[places[order]], sizes[order]


def _indexes(body: memoryview, at: int, end: int) -> tuple[_Indexes, int] | None:
    """The indexes of a message, and their bytes; None if there are none."""
    count, position = _zigzag(body, at, end)
    if count == 0:
        return (0,), 1
    if not 0 < count <= _DEEPEST:
        return None
    indexes = []
    for _ in range(count):
        index, position = _zigzag(body, position, end)
        if index < 0:
            return None
        indexes.append(index)
    return tuple(indexes), position - at


def _zigzag(body: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number of at most 32 bits, and the position behind it; -1 if there is none."""
    number = 0
    for place in range(min(5, end - at)):
        byte = body[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + place + 1
    return -1, at
