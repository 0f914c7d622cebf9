"""The objects that a record is part of: that of its value or of the whole record, and those beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import (
    Array,
    Bools,
    Int64Array,
    Scattered,
    int64_array,
    valid_rows,
    validity_buffer,
)
from airflow_provider_kafka_s3.config import OnNull
from airflow_provider_kafka_s3.converters.columns import buffer
from airflow_provider_kafka_s3.converters.field_values import DocumentFields, FieldValues
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Payload, Prepared, RecordFormat, Rejected, Rows
from airflow_provider_kafka_s3.schemas.evolution import SchemaVersion
from airflow_provider_kafka_s3.schemas.nodes import NULL

__all__ = ["MAIN", "PartFormats", "PreparedParts"]

MAIN: Final = ""
"""Name of the part that all other objects are beside."""

_ABSENT: Final = -1
_NONE: Final = SchemaVersion(NULL, None)


@dataclass(frozen=True)
class _Part:
    """A part of prepared records; ``rows``: of each record in the part, -1 for none; None: the same rows."""

    prepared: Prepared
    rows: Int64Array | None = None

    def take(self, rows: Rows, schema: int | None) -> Payload:
        if self.rows is not None:
            within = self.rows[rows.indices if isinstance(rows, Scattered) else rows]
            first, last = int(within[0]), int(within[-1])
            rows = slice(first, last + 1) if last - first + 1 == len(within) else within
        return self.prepared.take(rows, schema)

    def of_field(self, field: FieldValues) -> FieldValues:
        """A field of the part as that of the records."""
        if self.rows is None:
            return field
        return FieldValues(self.of_rows(field.codes, len(field.values)), [*field.values, None])

    def of_rows(self, values: Int64Array, absent: int) -> Int64Array:
        """Numbers of the part as numbers of the records."""
        return values if self.rows is None else np.append(values, absent)[self.rows]


@dataclass(frozen=True)
class PreparedParts:
    """The records of a batch that can be written.

    Attributes:
        records: the records that will be written.
        sizes: bytes of each in its main object before compression; for a tombstone, those of its key.
        ignored: number of null values that were left out.
        rejected: the records that cannot be written, in the order of their rows.
        schemas: what records of one object have in common, see :meth:`PartFormats.open`; None: nothing.
        tombstones: whether each record is only in the objects beside the main one; None: no record is.
        fields: of the values, for partitioners; parallel to ``records``, and any value for a tombstone.
        versions: what ``schemas`` are the indices of, see :class:`~airflow_provider_kafka_s3.formats.port.Prepared`.
        field_paths: of the values of the main object, see the same.
    """

    records: pa.RecordBatch
    sizes: Int64Array
    ignored: int
    rejected: Sequence[Rejected]
    schemas: Int64Array | None
    tombstones: npt.NDArray[np.bool_] | None
    fields: Mapping[str, FieldValues]
    versions: Sequence[SchemaVersion]
    field_paths: Collection[str]
    parts: Mapping[str, _Part] = field(repr=False)
    combinations: Sequence[Mapping[str, int]] | None = field(repr=False)

    def take(self, part: str, rows: Rows, schema: int | None) -> Payload:
        """The payload of some rows of a part.

        Args:
            part: its name.
            rows: all with the same schema.
            schema: this schema.
        """
        return self.parts[part].take(rows, _schema_of(self.combinations, part, schema))


class PartFormats:
    """The formats of all objects that a record is part of.

    Args:
        main: of the object that every record has but tombstones.
        siblings: of the objects beside it, by what their names have before the extension.
        on_null: what a null value does: with ``write``, its record is only in the siblings.
        document_fields: names of the fields that partitioners need, of values that are JSON documents which the main
            format does not read itself.
        nulls: per part of the records, which of its bytes stand for null.
    """

    def __init__(
        self,
        main: RecordFormat,
        siblings: Mapping[str, RecordFormat] | None = None,
        on_null: OnNull = "fail",
        document_fields: Sequence[str] = (),
        nulls: Mapping[Literal["key", "value"], Callable[[Array], Bools]] | None = None,
    ) -> None:
        self._nulls = nulls or {}
        self._document_fields = document_fields
        self._documents = DocumentFields([name.split(".") for name in document_fields])
        self._formats = {MAIN: main, **(siblings or {})}
        self._on_null = on_null
        self._combinations: list[dict[str, int]] | None = None
        self._versions: list[SchemaVersion] = []
        self._indices: dict[tuple[int, ...], int] = {}

    def names(self, *, tombstones: bool) -> Iterable[str]:
        """The parts that an object of records, or of tombstones, consists of."""
        return [name for name in self._formats if name != MAIN or not tombstones]

    def open(self, part: str, key: str, schema: int | None) -> ObjectWriter:
        """Begin an object.

        Args:
            part: which one.
            key: of the object.
            schema: the number that its records have in :attr:`PreparedParts.schemas`.
        """
        return self._formats[part].open(key, _schema_of(self._combinations, part, schema))

    def prepare(self, batch: pa.RecordBatch) -> PreparedParts:
        """Check the records of a batch of one Kafka partition, and encode those that can be written."""
        for part, nulls in self._nulls.items():
            batch = _with_nulls(batch, part, nulls(batch.column(part)))
        if len(self._formats) == 1:
            main = self._formats[MAIN].prepare(batch)
            return PreparedParts(
                records=main.records,
                sizes=main.sizes,
                ignored=main.ignored,
                rejected=main.rejected,
                schemas=main.schemas,
                tombstones=None,
                fields=self._fields(main.records, _Part(main)),
                versions=main.versions,
                field_paths=main.field_paths,
                parts={MAIN: _Part(main)},
                combinations=None,
            )
        null = ~valid_rows(batch.column("value"))
        if self._on_null == "ignore" and null.any():
            # The key of a record that is left out may be invalid.
            kept = np.flatnonzero(~null)
            prepared = self._prepare(batch.take(int64_array(kept)), null[kept])
            rejected = [replace(r, row=int(kept[r.row])) for r in prepared.rejected]
            return replace(prepared, ignored=int(null.sum()), rejected=rejected)
        return self._prepare(batch, null)

    def _prepare(self, batch: pa.RecordBatch, null: npt.NDArray[np.bool_]) -> PreparedParts:
        prepared = {name: record_format.prepare(batch) for name, record_format in self._formats.items()}
        # Of a record with several reasons, one is enough: that of its value.
        rejected = {r.row: r for name in reversed(prepared) for r in prepared[name].rejected}
        good = np.ones(batch.num_rows, np.bool_)
        good[list(rejected)] = False
        rows = np.flatnonzero(good)
        parts = {name: _Part(p, _rows_in(p, null & (name == MAIN), rows)) for name, p in prepared.items()}
        tombstones = null[rows] if null[rows].any() else None
        sizes = parts[MAIN].of_rows(prepared[MAIN].sizes, 0)
        if tombstones is not None:
            beside = next(name for name in parts if name != MAIN)
            sizes = np.where(tombstones, parts[beside].of_rows(prepared[beside].sizes, 0), sizes)
        records = batch if len(rows) == batch.num_rows else batch.take(int64_array(rows))
        return PreparedParts(
            records=records,
            sizes=sizes,
            ignored=0,
            rejected=[rejected[row] for row in sorted(rejected)],
            schemas=self._schemas(parts, prepared[MAIN].versions),
            tombstones=tombstones,
            fields=self._fields(records, parts[MAIN]),
            versions=prepared[MAIN].versions if self._combinations is None else self._versions,
            field_paths=prepared[MAIN].field_paths,
            parts=parts,
            combinations=self._combinations,
        )

    def _fields(self, records: pa.RecordBatch, main: _Part) -> Mapping[str, FieldValues]:
        if self._document_fields:
            fields = self._documents.read(records.column("value"))
            return dict(zip(self._document_fields, fields, strict=True))
        return {name: main.of_field(values) for name, values in main.prepared.fields.items()}

    def _schemas(self, parts: Mapping[str, _Part], versions: Sequence[SchemaVersion]) -> Int64Array | None:
        """What records of one object have in common: the schema of the only part with schemas, or those of all."""
        typed = {n: p.of_rows(p.prepared.schemas, _ABSENT) for n, p in parts.items() if p.prepared.schemas is not None}
        if not typed.keys() - {MAIN}:
            return typed.get(MAIN)
        self._combinations = self._combinations if self._combinations is not None else []
        columns = np.stack([*typed.values()], axis=1)
        if not len(columns):
            return np.zeros(0, np.int64)
        distinct, first, inverse = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        numbers = np.zeros(len(distinct), np.int64)
        for i in np.argsort(first):
            combination = tuple(distinct[i].tolist())
            if combination not in self._indices:
                self._indices[combination] = len(self._combinations)
                self._combinations.append(dict(zip(typed, combination, strict=True)))
                of_value = self._combinations[-1].get(MAIN, _ABSENT)
                self._versions.append(versions[of_value] if versions and of_value != _ABSENT else _NONE)
            numbers[i] = self._indices[combination]
        return numbers[inverse.reshape(-1)]


def _with_nulls(batch: pa.RecordBatch, part: str, nulls: Bools) -> pa.RecordBatch:
    """The records with null in the place of some keys or values."""
    if not nulls.any():
        return batch
    column = batch.column(part)
    valid = validity_buffer(valid_rows(column) & ~nulls)
    rows = cast("pa.Int64Array", pa.Array.from_buffers(pa.int64(), len(nulls), [valid, buffer(np.arange(len(nulls)))]))
    index = batch.schema.get_field_index(part)
    return batch.set_column(index, batch.schema.field(index), column.take(rows))


def _schema_of(combinations: Sequence[Mapping[str, int]] | None, part: str, schema: int | None) -> int | None:
    if combinations is None or schema is None:
        return schema if part == MAIN else None
    return combinations[schema].get(part)


def _rows_in(prepared: Prepared, without: npt.NDArray[np.bool_], rows: Int64Array) -> Int64Array | None:
    """The row of each record in a part, which has neither the records ``without`` it nor its rejected ones."""
    there = ~without
    there[[r.row for r in prepared.rejected]] = False
    if len(rows) == int(there.sum()) and there[rows].all():
        return None
    return np.where(there, np.cumsum(there) - 1, _ABSENT)[rows]
