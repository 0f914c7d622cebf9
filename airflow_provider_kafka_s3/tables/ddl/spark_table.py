"""Spark: a table of a catalog, read by Spark's own source of the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from airflow_provider_kafka_s3.config import AvroContainer
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.tables.ddl.dialect import Dialect, Remark
from airflow_provider_kafka_s3.tables.ddl.model import Column, Folder, LandedTable, TableName
from airflow_provider_kafka_s3.tables.ddl.type_names import TypeNames

__all__ = ["Spark"]

_LINES: Final[Mapping[str, str]] = {"lineSep": "\n"}
"""By default a carriage return ends a line, too."""


class _Types(TypeNames):
    engine = "Spark"
    decimal = "DECIMAL"
    simple: ClassVar[Mapping[str, str]] = {
        "bool": "BOOLEAN",
        "int32": "INT",
        "int64": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "STRING",
        "document": "STRING",
        "binary": "BINARY",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "local timestamp": "TIMESTAMP_NTZ",
    }

    @override
    def struct(self, fields: Sequence[tuple[str, str]]) -> str:
        return f"STRUCT<{', '.join(f'{_quoted(name)}: {kind}' for name, kind in fields)}>"

    @override
    def list(self, item: str) -> str:
        return f"ARRAY<{item}>"

    @override
    def map(self, key: str, item: str) -> str:
        return f"MAP<{key}, {item}>"


class Spark(Dialect):
    """A partitioned table; one without partitions where folders cannot be, or where other files have to be left out."""

    name = "spark"
    engine = "Spark"
    types = _Types()
    quote = "`"
    reads_siblings = True

    @override
    def statements(self, table: LandedTable, called: TableName, remark: Remark) -> Sequence[str]:
        self.require_lines(table)
        self.require_one_schema(table)
        source, options = self._source(table, remark)
        folders = self._folders(table, options, remark)
        exact = {folder.field.name for folder in folders if folder.field is not None}
        columns = [column for column in self._columns(table, remark) if column.name not in exact]
        lines = [f"  {self.quoted(column.name)} {kind}" for column, kind in self.typed(table, columns, remark)]
        lines += [f"  {self.quoted(folder.name)} {self._type(folder)}" for folder in folders]
        name = self.named(table, called)
        create = f"CREATE TABLE {name} (\n{_joined(lines)}\n)\nUSING {source}"
        if options:
            create += (
                f"\nOPTIONS (\n{_joined([f'  {_text(key)} = {_text(value)}' for key, value in options.items()])}\n)"
            )
        if folders:
            create += f"\nPARTITIONED BY ({', '.join(self.quoted(folder.name) for folder in folders)})"
        create += f"\nLOCATION {_text(table.location('s3a'))}"
        remark("s3a:// needs the jar hadoop-aws, another file system has another scheme.")
        if not folders:
            remark(f"New objects are listed again by REFRESH TABLE {name}.")
            return [create]
        remark("New folders are found by MSCK REPAIR TABLE: run it again when there are some.")
        return [create, f"MSCK REPAIR TABLE {name}"]

    def _source(self, table: LandedTable, remark: Remark) -> tuple[str, dict[str, str]]:
        if table.shape == "documents":
            remark(
                "Documents have no schema in the log, so each is a text, `value`: get_json_object(value, '$.field')."
            )
            return "text", {**_LINES}
        source = format_reader(table.layout.format).spark_source
        if source is None:
            self.refuse(table, "it has no source for them")
        options = {**source.options}
        if source.name in ("json", "csv"):
            # Spark's default is null for a value that has not the type of the column.
            options["mode"] = "FAILFAST"
        if source.name == "text":
            remark("Bytes that are not UTF-8 are replaced in texts.")
        if isinstance(table.layout.format, AvroContainer):
            remark("USING avro needs the jar spark-avro.")
        if any(extension.endswith(".br.parquet") for extension in table.extensions):
            remark("Files .br.parquet need a codec of Brotli, which Spark does not come with.")
        if any(extension.endswith(".zst") for extension in table.extensions):
            remark("Files .zst of lines need Hadoop's native library of Zstandard.")
        return source.name, options

    def _columns(self, table: LandedTable, remark: Remark) -> list[Column]:
        for name in sorted(table.unions):
            remark(f"`{name}` has a union of several types of Avro: the column is left out.")
        return [column for column in table.columns if column.name not in table.unions]

    def _folders(self, table: LandedTable, options: dict[str, str], remark: Remark) -> tuple[Folder, ...]:
        """The folders that are columns; options are added that read the objects of a table without any."""
        reasons = []
        if table.has_plain_folders:
            reasons.append("not all of them are name=value")
        hidden = [folder.name for folder in table.folders if folder.field is not None and not folder.is_exact]
        if hidden:
            reasons.append(f"`{'`, `'.join(hidden)}` is a field as well, and Spark would show the folder in its place")
        if table.has_siblings or table.has_index:
            if not table.file_ends:
                self.refuse(table, "names of file_name_template do not end in a number, so no pattern has them alone")
            options["pathGlobFilter"] = f"{{{','.join(table.file_ends)}}}"
            reasons.append("Spark leaves out other files, those beside objects of values, only in such a table")
        if not reasons:
            return table.folders
        options["recursiveFileLookup"] = "true"
        remark(f"Folders are no columns: {', and '.join(reasons)}. Queries have the path as _metadata.file_path.")
        return ()

    def _type(self, folder: Folder) -> str:
        if folder.field is not None:
            return self.types.of(folder.field.type, folder.name)
        return "INT" if folder.is_number else "STRING"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _joined(lines: Sequence[str]) -> str:
    return ",\n".join(lines)


def _text(text: str) -> str:
    """A literal with the escapes of Spark."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return "'" + escaped.replace("\x01", "\\u0001") + "'"
