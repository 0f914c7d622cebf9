"""What a table over the objects of a topic has, whatever the engine is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pyarrow as pa

from airflow_provider_kafka_s3.config import Csv, DeviantArtNaming, Layout, Naming
from airflow_provider_kafka_s3.config.file_names import parse_file_name_template
from airflow_provider_kafka_s3.schemas.arrow_fields import parts_of

if TYPE_CHECKING:
    from pyarrow import DataType

__all__ = [
    "DOCUMENT",
    "Choices",
    "Column",
    "Dates",
    "Folder",
    "FolderValues",
    "LandedTable",
    "Numbers",
    "Script",
    "Shape",
    "TableName",
    "Texts",
    "has_documents",
]

DOCUMENT: Final = pa.large_string()
"""The type of columns whose values are JSON of any shape; schemas of values have no large strings."""

Shape: TypeAlias = Literal["columns", "documents", "bytes"]
"""Of rows: fields with types; JSON documents of which no schema is known; lines of bytes."""


@dataclass(frozen=True)
class Column:
    """A column of the objects.

    Attributes:
        name: as the objects have it.
        type: of its values in the objects, which is not always that of the records: see ``remarks``.
        remarks: what its numbers and texts stand for.
    """

    name: str
    type: DataType
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Numbers:
    """A folder of whole numbers.

    Attributes:
        low: the lowest one.
        high: the highest one.
        digits: with how many, at least, they are written; 0: as they are.
        grows: what may exceed the highest one later, for people; empty: nothing can.
    """

    low: int
    high: int
    digits: int = 0
    grows: str = ""


@dataclass(frozen=True)
class Dates:
    """A folder of days or times.

    Attributes:
        format: in the letters of Java.
        first: the first one that is known, as text.
        interval: between two of them, in units.
        unit: such as ``DAYS``.
        is_utc: whether they are those of UTC.
    """

    format: str
    first: str
    interval: int
    unit: str
    is_utc: bool


@dataclass(frozen=True)
class Choices:
    """A folder of some texts."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """A folder of any texts."""


FolderValues: TypeAlias = Numbers | Dates | Choices | Texts


@dataclass(frozen=True)
class Folder:
    """A folder ``name=value``, which engines show as a column.

    Attributes:
        name: of the column.
        raw: the name as keys have it.
        values: which it may have.
        field: the column of the objects that has the same name, in any case; None: there is none.
        is_exact: whether the folder has each value of that column unchanged.
        is_number: whether it has whole numbers only, besides the name for null.
    """

    name: str
    raw: str
    values: FolderValues
    field: Column | None = None
    is_exact: bool = False
    is_number: bool = False


@dataclass(frozen=True, kw_only=True)
class LandedTable:
    """The objects of a topic as a table.

    Attributes:
        topic: its name.
        ending: what the name of the table has behind that of the topic.
        pipeline: that lands it.
        batch: number of the last batch that was looked at.
        bucket: name of the bucket.
        prefix: of the objects, up to the folders of the partitioner.
        layout: of the newest objects.
        shape: of rows.
        columns: of the objects, in the order that those of CSV have.
        parts: the raw name of each folder behind the prefix, in order; None: it is no ``name=value``.
        folders: those that are ``name=value``.
        schemas: number of different schemas of the objects; 0: unknown.
        avro_schema: of the newest Avro file, as text.
        unions: names of the columns that are, or have in them, unions of several types in Avro files.
        extensions: what the keys of objects end in.
        has_siblings: whether objects of keys or headers are in the folders of those of values.
        has_index: whether objects have indices beside them.
        remarks: for people, whatever the engine is.
    """

    topic: str
    ending: str = ""
    pipeline: str
    batch: int
    bucket: str
    prefix: str
    layout: Layout
    shape: Shape
    columns: tuple[Column, ...]
    parts: tuple[str | None, ...]
    folders: tuple[Folder, ...]
    extensions: tuple[str, ...]
    schemas: int = 0
    avro_schema: str = ""
    unions: frozenset[str] = frozenset()
    has_siblings: bool = False
    has_index: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def has_plain_folders(self) -> bool:
        """Whether some folders are no columns of Hive's."""
        return None in self.parts

    @property
    def is_csv(self) -> bool:
        """Whether columns are found by their position, or by a header."""
        return isinstance(self.layout.format, Csv)

    @property
    def file_ends(self) -> tuple[str, ...]:
        """Patterns of the names of objects of values, without those of the objects beside them.

        They are those of DuckDB and of Hadoop alike. Names end in an offset, a Kafka partition or a generation, unless
        a template says otherwise; those of the objects beside them have a word before the extension.
        """
        naming, start = self.layout.naming, "*[0-9]"
        if isinstance(naming, DeviantArtNaming):
            start = f"{self.topic}-{'[0-9]' * 5}-{'[0-9]' * 12}"
        elif isinstance(naming, Naming) and naming.file_name_template is not None:
            last = parse_file_name_template(naming.file_name_template)[-1]
            if isinstance(last, str) or last.name == "topic":
                if self.has_siblings or self.has_index:
                    return ()
                start = "*"
        return tuple(f"{start}{extension}" for extension in self.extensions)

    def location(self, scheme: str = "s3") -> str:
        """The URL of the folder of the topic."""
        return f"{scheme}://{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class TableName:
    """What a table is called.

    Attributes:
        table: its name; None: that of the topic, as far as the dialect allows it.
        database: that it is in; a catalog may be before it, with a dot between them. None: the current one.
    """

    table: str | None = None
    database: str | None = None


@dataclass(frozen=True)
class Script:
    """Statements that can be pasted.

    Attributes:
        remarks: what is not exact; they are comments before the statements.
        statements: the one that makes the table, and those that it needs to show its rows.
    """

    remarks: tuple[str, ...]
    statements: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it; a remark is in one line, whatever names it has."""
        comments = "".join(f"-- {' '.join(remark.split())}\n" for remark in self.remarks)
        return comments + "".join(f"{statement};\n" for statement in self.statements)


def has_documents(columns: Iterable[Column]) -> bool:
    """Whether some columns are JSON of any shape, or have it in them."""
    return any(_has_document(column.type) for column in columns)


def _has_document(kind: DataType) -> bool:
    return kind == DOCUMENT or any(_has_document(part.type) for part in parts_of(kind))
