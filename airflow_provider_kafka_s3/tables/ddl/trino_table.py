"""Trino: an external table of the Hive connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from airflow_provider_kafka_s3.config import AvroContainer, Csv, JsonLines, Parquet
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.tables.ddl.dialect import Dialect, Remark
from airflow_provider_kafka_s3.tables.ddl.hive_statement import (
    TableParts,
    as_documents,
    avro_columns,
    csv_columns,
    without_folders,
)
from airflow_provider_kafka_s3.tables.ddl.model import Column, LandedTable, TableName, has_documents
from airflow_provider_kafka_s3.tables.ddl.type_names import TypeNames

__all__ = ["Trino"]


class _Types(TypeNames):
    engine = "Trino"
    simple: ClassVar[Mapping[str, str]] = {
        "bool": "boolean",
        "int32": "integer",
        "int64": "bigint",
        "float": "real",
        "double": "double",
        "string": "varchar",
        "document": "varchar",
        "binary": "varbinary",
        "date": "date",
        "timestamp": "timestamp(3)",
        "local timestamp": "timestamp(3)",
    }

    @override
    def struct(self, fields: Sequence[tuple[str, str]]) -> str:
        return f"row({', '.join(f'{_quoted(name)} {kind}' for name, kind in fields)})"

    @override
    def list(self, item: str) -> str:
        return f"array({item})"

    @override
    def map(self, key: str, item: str) -> str:
        return f"map({key}, {item})"


class Trino(Dialect):
    """Partitions are in the catalog; a procedure registers new folders."""

    name = "trino"
    engine = "Trino"
    types = _Types()
    is_lower = True

    @override
    def statements(self, table: LandedTable, called: TableName, remark: Remark) -> Sequence[str]:
        self.require_lines(table)
        self.require_one_schema(table)
        parts = self._parts(table, remark)
        folders = () if table.has_plain_folders else table.folders
        columns = without_folders(self, table, parts.columns, folders, remark)
        typed = self.typed(table, columns, remark)
        self._remark_on(table, [column for column, _ in typed], remark)
        lines = [f"  {self.quoted(column.name)} {kind}" for column, kind in typed]
        lines += [f"  {self.quoted(folder.name)} varchar" for folder in folders]
        properties = {"format": _text(parts.storage), "external_location": _text(table.location()), **parts.properties}
        if folders:
            names = ", ".join(_text(folder.name.lower()) for folder in folders)
            properties["partitioned_by"] = f"ARRAY[{names}]"
        joined = ",\n".join(f"  {key} = {value}" for key, value in properties.items())
        columns_of_table = ",\n".join(lines)
        create = f"CREATE TABLE {self.named(table, called)} (\n{columns_of_table}\n)\nWITH (\n{joined}\n)"
        if not folders:
            return [create]
        return [create, *self._register(table, called, remark)]

    def _parts(self, table: LandedTable, remark: Remark) -> TableParts:
        example = "json_extract_scalar(value, '$.field')"
        match table.layout.record_format:
            case JsonLines() if table.shape == "documents" or has_documents(table.columns):
                return as_documents(table, remark, "TEXTFILE", example)
            case JsonLines():
                return TableParts(table.columns, "JSON")
            case Parquet():
                return TableParts(table.columns, "PARQUET")
            case AvroContainer():
                return TableParts(avro_columns(table, remark), "AVRO")
            case Csv() as settings:
                return self._csv(table, settings, remark)
        remark(r"A value ends at a character \x01, and a value \N is null.")
        return TableParts(table.columns, "TEXTFILE")

    def _csv(self, table: LandedTable, settings: Csv, remark: Remark) -> TableParts:
        remark(
            f"CSV has texts only: cast them. A record ends at each line break, also inside of quotes, a backslash is "
            f"an escape, and null is the text {settings.null!r}."
        )
        properties = {"csv_separator": _text(settings.separator), "csv_quote": "'\"'"}
        if settings.header:
            properties["skip_header_line_count"] = "1"
        return TableParts(csv_columns(table), "CSV", properties)

    def _remark_on(self, table: LandedTable, columns: Sequence[Column], remark: Remark) -> None:
        if any(column.name != column.name.lower() for column in columns):
            remark("Names are lower case in Trino.")
        if table.has_plain_folders:
            remark("Not all folders are name=value, so none is a column. Trino needs hive.recursive-directories=true.")
        if table.has_index:
            remark("""An index beside each object is a row, too: leave it out by "$path" LIKE '%.gz'.""")
        if any(pa.types.is_timestamp(column.type) and column.type.unit == "us" for column in columns):
            remark("Timestamps have milliseconds, unless hive.timestamp-precision says otherwise.")

    def _register(self, table: LandedTable, called: TableName, remark: Remark) -> Sequence[str]:
        """The statement that registers the folders."""
        remark("New folders are registered by sync_partition_metadata: call it again when there are some.")
        catalog, _, schema = (called.database or "").rpartition(".")
        if not schema:
            remark("With --database CATALOG.SCHEMA the call is printed as well.")
            return ()
        procedure = ".".join([*([self.quoted(catalog)] if catalog else []), "system", "sync_partition_metadata"])
        name = self.named(table, TableName(called.table)).strip('"').replace('""', '"')
        arguments = {"schema_name": schema.lower(), "table_name": name, "mode": "ADD"}
        texts = [f"{key} => {_text(value)}" for key, value in arguments.items()]
        if any(folder.raw != folder.raw.lower() for folder in table.folders):
            texts.append("case_sensitive => false")
        return [f"CALL {procedure}({', '.join(texts)})"]


def _quoted(name: str) -> str:
    doubled = name.lower().replace('"', '""')
    return f'"{doubled}"'


def _text(text: str) -> str:
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return "U&'" + "".join(f"\\{ord(character):04X}" for character in text) + "'"
