"""What the statements of Hive and Athena share: external tables with the SerDe of each format."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from airflow_provider_kafka_s3.config import AvroContainer, Csv, JsonLines, Parquet
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.tables.ddl.dialect import Dialect, Remark
from airflow_provider_kafka_s3.tables.ddl.model import DOCUMENT, Column, Folder, LandedTable, TableName
from airflow_provider_kafka_s3.tables.ddl.type_names import NoTypeError, TypeNames

__all__ = [
    "HiveStatement",
    "HiveTypes",
    "TableParts",
    "as_documents",
    "avro_columns",
    "csv_columns",
    "hive_text",
    "legal_name",
    "without_folders",
]

_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_UNLIKE_NAME: Final = re.compile(r"[^A-Za-z0-9_]")


class HiveTypes(TypeNames):
    """The types of Hive and Athena."""

    simple: ClassVar[Mapping[str, str]] = {
        "bool": "boolean",
        "int32": "int",
        "int64": "bigint",
        "float": "float",
        "double": "double",
        "string": "string",
        "document": "string",
        "binary": "binary",
        "date": "date",
        "timestamp": "timestamp",
        "local timestamp": "timestamp",
    }

    @override
    def checked(self, name: str, path: str) -> str:
        if _NAME.fullmatch(name) is None:
            raise NoTypeError(
                f"{path} has a field {name!r}, and those of {self.engine} have letters, digits and _ only"
            )
        return name.lower()

    @override
    def struct(self, fields: Sequence[tuple[str, str]]) -> str:
        return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in fields)}>"

    @override
    def list(self, item: str) -> str:
        return f"array<{item}>"

    @override
    def map(self, key: str, item: str) -> str:
        return f"map<{key}, {item}>"


@dataclass
class TableParts:
    """The parts of a statement.

    Attributes:
        columns: those of the files.
        storage: SerDe and file format.
        properties: of the table.
    """

    columns: Sequence[Column]
    storage: str
    properties: dict[str, str] = field(default_factory=dict)


class HiveStatement(Dialect):
    """An external table.

    Attributes:
        json_storage: SerDe and file format of JSON lines.
        example: how a query gets a field of a document.
        file_name: the hidden column with the name of a file.
        scheme: of locations.
    """

    quote = "`"
    scheme: ClassVar[str] = "s3"
    is_lower = True
    json_storage: ClassVar[str]
    example: ClassVar[str]
    file_name: ClassVar[str]

    @override
    def statements(self, table: LandedTable, called: TableName, remark: Remark) -> Sequence[str]:
        self.require_lines(table)
        self.require_one_schema(table)
        parts = self.parts(table, remark)
        folders = () if table.has_plain_folders else table.folders
        if table.has_plain_folders:
            remark("Not all folders are name=value, so none is a column.")
        folders = tuple(self._with_legal_name(folder, remark) for folder in folders)
        columns = without_folders(self, table, parts.columns, folders, remark)
        columns = [column for column in columns if self._has_legal_name(column, remark)]
        typed = self.typed(table, columns, remark)
        if any(column.name != column.name.lower() for column, _ in typed):
            remark(f"Names are lower case in {self.engine}.")
        if table.has_index:
            remark(f"An index beside each object is a row, too: leave it out by {self.file_name} LIKE '%.gz'.")
        name = self.named(table, called)
        lines = ",\n".join(f"  {self.quoted(column.name)} {kind}" for column, kind in typed)
        create = f"CREATE EXTERNAL TABLE {name} (\n{lines}\n)"
        if folders:
            by = ", ".join(f"{self.quoted(folder.name)} string" for folder in folders)
            create += f"\nPARTITIONED BY ({by})"
        create += f"\n{parts.storage}\nLOCATION {hive_text(table.location(self.scheme))}"
        properties = {**parts.properties, **self.properties(table, folders, remark)}
        if properties:
            pairs = ",\n".join(f"  {hive_text(key)} = {hive_text(value)}" for key, value in properties.items())
            create += f"\nTBLPROPERTIES (\n{pairs}\n)"
        return [create, *self.more(table, name, folders, remark)]

    @abstractmethod
    def properties(self, table: LandedTable, folders: Sequence[Folder], remark: Remark) -> dict[str, str]:
        """Properties of the table, for its folders."""

    @abstractmethod
    def more(self, table: LandedTable, name: str, folders: Sequence[Folder], remark: Remark) -> Sequence[str]:
        """More statements."""

    def parts(self, table: LandedTable, remark: Remark) -> TableParts:
        """SerDe, columns and properties for the format of the objects."""
        if table.shape == "documents":
            return as_documents(table, remark, "STORED AS TEXTFILE", self.example)
        match table.layout.record_format:
            case Parquet():
                return TableParts(table.columns, "STORED AS PARQUET")
            case AvroContainer():
                return self._avro(table, remark)
            case JsonLines():
                return TableParts(table.columns, self.json_storage)
            case Csv() as settings:
                return self._csv(table, settings, remark)
        remark(r"A value ends at a character \x01, and a value \N is null.")
        return TableParts(table.columns, "STORED AS TEXTFILE")

    def _avro(self, table: LandedTable, remark: Remark) -> TableParts:
        schema = json.loads(table.avro_schema)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            self.refuse(table, "values are no records, which AvroSerDe needs")
        # The schema that Hive gets has to have exactly the columns of the table.
        typed = self.typed(table, avro_columns(table, remark), remark)
        columns = [column for column, _ in typed if self._has_legal_name(column, remark)]
        names = {column.name for column in columns}
        folders = set() if table.has_plain_folders else {folder.name.lower() for folder in table.folders}
        kept = [f for f in schema["fields"] if f["name"] in names and f["name"].lower() not in folders]
        literal = json.dumps({**schema, "fields": kept}, ensure_ascii=False)
        if len(kept) < len(schema["fields"]) and _refers(schema["fields"], kept):
            self.refuse(table, "a column that is left out declares a type of another one, so no schema is without it")
        storage = (
            "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.avro.AvroSerDe'\nWITH SERDEPROPERTIES (\n"
            f"  'avro.schema.literal' = {hive_text(literal)}\n)\nSTORED AS AVRO"
        )
        return TableParts(columns, storage)

    def _csv(self, table: LandedTable, settings: Csv, remark: Remark) -> TableParts:
        remark(
            "OpenCSVSerde has texts only: cast them. It ends a record at each line break, also inside of quotes, takes "
            f"a backslash for an escape, and has the text {settings.null!r} for null."
        )
        storage = (
            "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'\nWITH SERDEPROPERTIES (\n"
            f"  'separatorChar' = {hive_text(settings.separator)},\n  'quoteChar' = '\"'\n)\nSTORED AS TEXTFILE"
        )
        header = {"skip.header.line.count": "1"} if settings.header else {}
        columns = [
            Column(_UNLIKE_NAME.sub("_", column.name), column.type, column.remarks) for column in csv_columns(table)
        ]
        if columns != csv_columns(table):
            remark("Names of columns have _ for other characters than letters, digits and _.")
        if len({column.name.lower() for column in columns}) < len(columns):
            self.refuse(table, "names of its columns differ only in characters that names of columns may not have")
        return TableParts(columns, storage, header)

    def _with_legal_name(self, folder: Folder, remark: Remark) -> Folder:
        """The folder as a column; its raw name is that of keys."""
        legal = legal_name(folder.name)
        if legal != folder.name.lower():
            remark(f"The folder `{folder.name}` is the column `{legal}`: others have letters, digits and _ only.")
        return replace(folder, name=legal)

    def _has_legal_name(self, column: Column, remark: Remark) -> bool:
        if _NAME.fullmatch(column.name) is not None:
            return True
        remark(
            f"`{column.name}` has other characters than letters, digits and _, which names of columns in {self.engine} "
            f"may not have: the column is left out."
        )
        return False


def legal_name(folder: str) -> str:
    """The name of the column of a folder: others have letters, digits and _ only."""
    return _UNLIKE_NAME.sub("_", folder).lower()


def without_folders(
    dialect: Dialect, table: LandedTable, columns: Sequence[Column], folders: Sequence[Folder], remark: Remark
) -> list[Column]:
    """The columns of files, in a dialect in which a folder is a column, and no two columns have one name."""
    names = {folder.name.lower(): folder for folder in folders}
    kept = []
    for column in columns:
        folder = names.get(column.name.lower())
        if folder is None:
            kept.append(column)
        elif table.is_csv:
            kept.append(Column(f"{column.name}_field", column.type, column.remarks))
            remark(f"`{column.name}` of the records is `{column.name}_field`, as there is a folder of this name.")
        elif folder.is_exact:
            remark(f"`{column.name}` is the folder of this name, which has the same values.")
        else:
            remark(
                f"`{column.name}` is the folder of this name: {dialect.engine} cannot show the value of the record "
                f"beside it, which may differ."
            )
    return kept


def avro_columns(table: LandedTable, remark: Remark) -> list[Column]:
    """The columns of Avro in the engines that take the schema of the newest file for all of them."""
    names = [f["name"] for f in json.loads(table.avro_schema).get("fields", ())]
    columns = []
    for column in table.columns:
        if column.name not in names:
            remark(f"`{column.name}` is not in the schema of the newest object: the column is left out.")
        elif column.name in table.unions:
            remark(f"`{column.name}` has a union of several types of Avro: the column is left out.")
        else:
            columns.append(Column(column.name, _avro_type(column.type), column.remarks))
    # In the order of the schema, which Hive takes for that of the columns.
    return sorted(columns, key=lambda column: names.index(column.name))


def csv_columns(table: LandedTable) -> list[Column]:
    """The columns of CSV for readers that have texts only."""
    return [Column(column.name, pa.string(), column.remarks) for column in table.columns]


def as_documents(table: LandedTable, remark: Remark, storage: str, example: str) -> TableParts:
    """A column with the whole documents."""
    why = "Documents have no schema in the log" if table.shape == "documents" else "A part of it may be any JSON"
    remark(f"{why}, so each document is a text, `value`: {example}.")
    return TableParts([Column("value", DOCUMENT)], storage)


def hive_text(text: str) -> str:
    """A literal of Hive."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return "'" + escaped.replace("\x01", "\\u0001") + "'"


def _avro_type(kind: Any) -> Any:
    """The type that Hive's reader of Avro has: of the logical types of times it has dates and milliseconds."""
    types = pa.types
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(one.name, _avro_type(one.type)) for one in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(_avro_type(kind.value_type))
    if isinstance(kind, pa.MapType):
        return pa.map_(kind.key_type, _avro_type(kind.item_type))
    if types.is_time32(kind):
        return pa.int32()
    is_other = types.is_timestamp(kind) and (kind.unit != "ms" or kind.tz is None)
    return pa.int64() if types.is_time64(kind) or is_other else kind


def _refers(fields: Sequence[Any], kept: Sequence[Any]) -> bool:
    """Whether a kept field uses a type that is declared in one that is left out."""
    declared = {name for f in fields if f not in kept for name in _declared(f["type"])}
    return bool(declared & {name for f in kept for name in _used(f["type"])})


def _declared(schema: Any) -> set[str]:
    """The names, without namespaces, of types that a part of a schema declares."""
    if isinstance(schema, list):
        return {name for branch in schema for name in _declared(branch)}
    if not isinstance(schema, dict):
        return set()
    names = {str(schema["name"]).rpartition(".")[2]} if "name" in schema else set()
    inner = [schema.get(key) for key in ("type", "items", "values")] + [f["type"] for f in schema.get("fields", ())]
    return names | {name for part in inner for name in _declared(part)}


def _used(schema: Any) -> set[str]:
    """The names, without namespaces, that a part of a schema uses for its types."""
    if isinstance(schema, str):
        return {schema.rpartition(".")[2]}
    if isinstance(schema, list):
        return {name for branch in schema for name in _used(branch)}
    if not isinstance(schema, dict):
        return set()
    inner = [schema.get(key) for key in ("type", "items", "values")] + [f["type"] for f in schema.get("fields", ())]
    return {name for part in inner for name in _used(part)}
