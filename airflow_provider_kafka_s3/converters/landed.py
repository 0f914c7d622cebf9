"""The converter of values that another pipeline has decoded: their columns, and their schema."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.schemas.arrow_nodes import node_of_columns
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.avro_text import node_text

__all__ = ["LandedValuesConverter", "as_datums", "datum_schema"]

_AVRO: Final = b"kafka_s3.avro"
_COLUMNS: Final = b"kafka_s3.columns"
_NAME: Final = "the schema of a file of the source"
_NO_SCHEMA: Final = (
    "it was a dead letter of the pipeline that it was landed from, so it has no columns; its reason is there"
)
_REMEDY: Final = "use errors='dead_letter' to set such records aside here, too"


def datum_schema(*, columns: pa.Schema | None = None, avro: str | None = None) -> dict[bytes, bytes]:
    """Metadata of batches whose values are Avro datums: the schema of these.

    Args:
        columns: of the values.
        avro: the schema of a file of Avro, in place of columns.
    """
    if avro is not None:
        return {_AVRO: avro.encode()}
    assert columns is not None, "one of the two is given"
    return {_COLUMNS: columns.serialize().to_pybytes()}


def as_datums(values: pa.RecordBatch, metadata: Mapping[bytes, bytes]) -> Array:
    """Values as datums.

    Args:
        values: their columns.
        metadata: with the schema of these, see :func:`datum_schema`.
    """
    column = pa.StructArray.from_arrays(values.columns, fields=[*values.schema])
    return encode_datums(cast("Array", column), _schema(metadata).node)


class LandedValuesConverter:
    """Values that are Avro datums, with their schema in the metadata of each batch."""

    def __init__(self) -> None:
        self.schemas: list[ValueSchema] = []
        self._decoders: dict[ValueSchema, AvroDecoder] = {}

    def convert(self, records: pa.RecordBatch, *, decode: bool) -> TypedValues:
        """See :class:`~airflow_provider_kafka_s3.converters.port.RecordConverter`."""
        metadata = records.schema.metadata or {}
        if not metadata.keys() & {_AVRO, _COLUMNS}:
            return TypedValues((), [Invalid(row, _NO_SCHEMA, _REMEDY) for row in range(records.num_rows)])
        schema = _schema(metadata)
        if schema not in self.schemas:
            self.schemas.append(schema)
            self._decoders[schema] = AvroDecoder(schema.node)
        values: Array = records.column("value")
        decoded = self._decoders[schema].decode(values, 0).values if decode else None
        return TypedValues(
            [TypedGroup(self.schemas.index(schema), np.arange(len(values)), decoded, lambda: values)], ()
        )


def _schema(metadata: Mapping[bytes, bytes]) -> ValueSchema:
    return _of_avro(metadata[_AVRO]) if _AVRO in metadata else _of_columns(metadata[_COLUMNS])


@functools.lru_cache(maxsize=256)
def _of_avro(text: bytes) -> ValueSchema:
    return ValueSchema(_NAME, parse_schema(text.decode()), text.decode())


@functools.lru_cache(maxsize=256)
def _of_columns(columns: bytes) -> ValueSchema:
    node = node_of_columns(pa.ipc.read_schema(pa.py_buffer(columns)))
    return ValueSchema(_NAME, node, node_text(node))
