"""DuckDB: a view over a pattern of names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from airflow_provider_kafka_s3.config import AvroContainer, CompressionName, Csv, JsonLines, Parquet
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Decimal, Fixed, Primitive, nodes_in, record_of
from airflow_provider_kafka_s3.tables.ddl.dialect import Dialect, Remark
from airflow_provider_kafka_s3.tables.ddl.model import Folder, LandedTable, TableName
from airflow_provider_kafka_s3.tables.ddl.type_names import TypeNames

__all__ = ["DuckDb"]

_PATTERN: Final = re.compile(r"[\\\[\]*?]")
"""Characters of its patterns."""

_AVRO_CODECS: Final = ("null", "deflate", "snappy")


class _Types(TypeNames):
    engine = "DuckDB"
    decimal = "DECIMAL"
    simple: ClassVar[Mapping[str, str]] = {
        "bool": "BOOLEAN",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "document": "JSON",
        "null": "JSON",
        "binary": "BLOB",
        "date": "DATE",
        "time": "TIME",
        "timestamp": "TIMESTAMPTZ",
        "local timestamp": "TIMESTAMP",
    }

    @override
    def struct(self, fields: Sequence[tuple[str, str]]) -> str:
        return f"STRUCT({', '.join(f'{_quoted(name)} {kind}' for name, kind in fields)})"

    @override
    def list(self, item: str) -> str:
        return f"{item}[]"

    @override
    def map(self, key: str, item: str) -> str:
        return f"MAP({key}, {item})"


class DuckDb(Dialect):
    """A view: DuckDB has no tables over files."""

    name = "duckdb"
    engine = "DuckDB"
    types = _Types()
    reads_shared_folders = True
    reads_siblings = True

    @override
    def statements(self, table: LandedTable, called: TableName, remark: Remark) -> Sequence[str]:
        self._require_readable(table)
        conflicts = [folder for folder in table.folders if folder.field is not None and not folder.is_exact]
        options: dict[str, str] = {}
        if conflicts:
            names = ", ".join(f"`{folder.name}`" for folder in conflicts)
            remark(f"{names} has the values of the records: folders of the same name are not shown.")
            shown = [self._from_name(folder) for folder in table.folders if folder.field is None]
            options = {"hive_partitioning": "false", **({"filename": "true"} if shown else {})}
        elif table.folders:
            types = {folder.name: self._type(folder) for folder in table.folders}
            options = {"hive_partitioning": "true", "hive_types": _struct(types)}
            shown = [self.quoted(folder.name) for folder in table.folders if folder.field is None]
        else:
            if table.parts:
                remark("The folders are no name=value, so they are no columns.")
            options, shown = {"hive_partitioning": "false"}, []
        reader, settings, columns = self._reader(table, remark)
        arguments = ",\n    ".join(
            (self._files(table), *(f"{name} = {value}" for name, value in {**settings, **options}.items()))
        )
        selected = ",\n    ".join((*columns, *shown))
        remark(
            "A bucket needs the extension httpfs (INSTALL httpfs) and a secret: CREATE SECRET (TYPE s3, PROVIDER "
            "credential_chain, REGION '…')."
        )
        return [
            f"CREATE VIEW {self.named(table, called)} AS\nSELECT\n    {selected}\nFROM {reader}(\n    {arguments}\n)"
        ]

    def _require_readable(self, table: LandedTable) -> None:
        compression: CompressionName = getattr(table.layout.format, "compression", "none")
        if table.shape == "bytes":
            self.refuse(table, "it has no reader of raw bytes by lines")
        if not isinstance(table.layout.format, Parquet) and compression == "bzip2":
            self.refuse(table, "it reads no bzip2")
        if not table.file_ends:
            self.refuse(
                table,
                "names of file_name_template do not end in a number, so the objects beside those of values cannot be "
                "told from them by a pattern",
            )

    def _reader(self, table: LandedTable, remark: Remark) -> tuple[str, dict[str, str], list[str]]:
        """The function that reads files, its arguments, and the columns to select from it."""
        if table.shape == "documents":
            remark("Documents have no schema in the log, so each is the JSON in `value`: value->>'$.field'.")
            return "read_ndjson_objects", {}, ['"json" AS "value"']
        typed = {column.name: kind for column, kind in self.typed(table, table.columns, remark)}
        names, by_name = [self.quoted(name) for name in typed], {"union_by_name": "true"}
        match table.layout.record_format:
            case JsonLines():
                return "read_json", {"format": "'newline_delimited'", "columns": _struct(typed)}, names
            case Csv() as settings:
                return "read_csv", self._csv(table, settings, _struct(typed)), names
            case AvroContainer():
                is_record = self._require_avro(table, remark)
                return "read_avro", {}, names if is_record else ['"avro_schema" AS "value"']
        return "read_parquet", by_name, names

    def _require_avro(self, table: LandedTable, remark: Remark) -> bool:
        """Refuse what ``read_avro`` of DuckDB 1.5 does not read, say what it shows otherwise; whether it has fields."""
        codec = getattr(table.layout.record_format, "codec", "null")
        if codec not in _AVRO_CODECS:
            self.refuse(table, f"read_avro reads no {codec}")
        if table.schemas > 1:
            self.refuse(table, f"its objects have columns of {table.schemas} schemas, and read_avro takes one")
        remark("Avro needs the extension avro: INSTALL avro.")
        schema = parse_schema(table.avro_schema)
        record = record_of(schema)
        parts = [("value", schema)] if record is None else [(field.name, field.type) for field in record.fields]
        for name, node in ((name, node) for name, part in parts for node in nodes_in(part)):
            match node:
                case Primitive(logical="local-timestamp-micros" as kind) | Fixed(logical="duration" as kind):
                    self.refuse(table, f"`{name}` has the type {kind}, and read_avro reads no file with one")
                case Primitive(logical="timestamp-millis" | "timestamp-micros"):
                    remark(f"`{name}` has times of UTC as TIMESTAMP: … AT TIME ZONE 'UTC'.")
                case Primitive(logical=Decimal(scale=scale)):
                    remark(f"`{name}` has the unscaled number of a decimal of scale {scale} as a BLOB.")
        return record is not None

    def _csv(self, table: LandedTable, settings: Csv, types: str) -> dict[str, str]:
        if table.schemas > 1 and not settings.header:
            self.require_one_schema(table)
        options = {"types": types, "union_by_name": "true"} if table.schemas > 1 else {"columns": types}
        return {
            "header": str(settings.header).lower(),
            "delim": _text(settings.separator),
            "quote": "'\"'",
            "escape": "'\"'",
            "nullstr": _text(settings.null),
            "allow_quoted_nulls": "false",
            **options,
        }

    def _files(self, table: LandedTable) -> str:
        """Patterns of all objects of values: of whole paths, since dead letters are below the same folder."""
        folders = "".join("*/" if raw is None else f"{_escaped(raw)}=*/" for raw in table.parts)
        start = _escaped(table.location())
        patterns = [_text(f"{start}{folders}{ends}") for ends in table.file_ends]
        return patterns[0] if len(patterns) == 1 else f"[{', '.join(patterns)}]"

    def _type(self, folder: Folder) -> str:
        if folder.field is not None:
            return self.types.of(folder.field.type, folder.name)
        return "INTEGER" if folder.is_number else "VARCHAR"

    def _from_name(self, folder: Folder) -> str:
        """A folder, from the name of the file."""
        pattern = _text(f"/{re.escape(folder.raw)}=([^/]*)/")
        value = f"nullif(url_decode(regexp_extract(filename, {pattern}, 1)), '{NULL_FOLDER}')"
        return f"{value}::{self._type(folder)} AS {self.quoted(folder.name)}"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _text(text: str) -> str:
    """A text; a control character, as a separator may be, is no part of a literal."""
    literal = "'" + text.replace("'", "''") + "'"
    return literal if text.isprintable() else f"chr({ord(text)})"


def _struct(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in types.items()) + "}"


def _escaped(text: str) -> str:
    return _PATTERN.sub(lambda character: f"[{character[0]}]", text)
