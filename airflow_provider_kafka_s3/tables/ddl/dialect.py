"""What every dialect has: the one door to the statements of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, NoReturn, TypeAlias

import pyarrow as pa

from airflow_provider_kafka_s3.config import RawBytes
from airflow_provider_kafka_s3.config.tables import legal_table_name
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.schemas.arrow_fields import names_alike
from airflow_provider_kafka_s3.tables.ddl.model import Column, LandedTable, Script, TableName
from airflow_provider_kafka_s3.tables.ddl.type_names import NoTypeError, TypeNames

__all__ = ["Dialect", "Remark"]

Remark: TypeAlias = Callable[[str], None]
"""Takes what is not exact, for people."""

_WAY_OUT: Final = (
    "Read the objects by a snapshot of airflow_provider_kafka_s3.reading: arrow_batches, spark_frame, or the list of "
    "snapshot.urls()"
)


class Dialect(ABC):
    """The statements of one engine.

    Attributes:
        name: of the option ``--dialect``.
        engine: its name, for messages.
        types: of its columns.
        quote: around names.
        is_lower: whether names are lower case.
        reads_shared_folders: whether it can leave out the objects of other topics in the same folders.
        reads_siblings: whether it can leave out objects of keys and headers.
    """

    name: ClassVar[str]
    engine: ClassVar[str]
    types: ClassVar[TypeNames]
    quote: ClassVar[str] = '"'
    is_lower: ClassVar[bool] = False
    reads_shared_folders: ClassVar[bool] = False
    reads_siblings: ClassVar[bool] = False

    def script(self, table: LandedTable, called: TableName | None = None) -> Script:
        """The statements that make a table.

        Args:
            table: what it has.
            called: its name.

        Raises:
            ConfigurationError: the engine cannot read the objects as a table; with the way out.
        """
        self._require_folders(table)
        self._require_names(table)
        remarks = [*table.remarks]
        statements = self.statements(table, called or TableName(), remarks.append)
        return Script(tuple(dict.fromkeys(remarks)), tuple(statements))

    @abstractmethod
    def statements(self, table: LandedTable, called: TableName, remark: Remark) -> Sequence[str]:
        """The statements, without their ends.

        Args:
            table: what it has, in folders that the dialect can read, without names that differ in case only.
            called: its name.
            remark: takes what is not exact.

        Raises:
            ConfigurationError: see :meth:`script`.
        """

    # -- what dialects share ------------------------------------------------------------------------------------------

    def refuse(self, table: LandedTable, why: str, way_out: str = _WAY_OUT) -> NoReturn:
        """Raise the error that the engine cannot read the objects.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"{self.engine} cannot have a table of topic {table.topic!r} of pipeline {table.pipeline!r}, in the format "
            f"{type(table.layout.format).__name__}: {why}. {way_out}"
        )

    def quoted(self, name: str) -> str:
        """A name that may be any text."""
        name = name.lower() if self.is_lower else name
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def named(self, table: LandedTable, called: TableName) -> str:
        """The name of the table, with its database."""
        name = called.table or legal_table_name(table.topic + table.ending)
        databases = called.database.split(".") if called.database else []
        return ".".join(map(self.quoted, (*databases, name)))

    def typed(self, table: LandedTable, columns: Iterable[Column], remark: Remark) -> list[tuple[Column, str]]:
        """Columns with the names of their types; those that have none are left out, or texts in CSV."""
        typed = []
        for column in columns:
            try:
                kind = self.types.of(column.type, f"`{column.name}`")
            except NoTypeError as e:
                if not table.is_csv:
                    remark(f"{e}: the column is left out.")
                    continue
                remark(f"{e}: the column is text.")
                kind = self.types.of(pa.string(), column.name)
            typed.append((column, kind))
            for text in column.remarks:
                remark(f"{text}.")
        if not typed:
            self.refuse(table, "none of its columns has a type in this engine")
        return typed

    def require_lines(self, table: LandedTable) -> None:
        """Refuse raw bytes whose records are no lines."""
        settings = table.layout.record_format
        if isinstance(settings, RawBytes) and settings.separator != "\n":
            self.refuse(table, f"records end in {settings.separator!r}, and it reads lines")

    def require_one_schema(self, table: LandedTable) -> None:
        """Refuse CSV of several schemas, of an engine that finds columns by their position."""
        if table.is_csv and table.schemas > 1:
            self.refuse(
                table, f"its objects have columns of {table.schemas} schemas, and {self.engine} finds them by position"
            )

    def _require_folders(self, table: LandedTable) -> None:
        delim = table.layout.naming.directory_delim
        if delim != "/":
            self.refuse(table, f"directory_delim={delim!r} puts the objects of all topics into one folder")
        if keys.shares_folder(table.layout) and not self.reads_shared_folders:
            self.refuse(table, "its folders of days have the objects of all topics (naming='deviantart')")
        if table.has_siblings and not self.reads_siblings:
            self.refuse(
                table,
                f"objects of keys or headers lie beside those of values (content='siblings'), and {self.engine} reads "
                f"every file of a folder",
                f"Land the topic with content='envelope', or use --dialect duckdb or spark. {_WAY_OUT}",
            )

    def _require_names(self, table: LandedTable) -> None:
        names = [folder.name for folder in table.folders]
        alike = [*names_alike(pa.field(column.name, column.type) for column in table.columns)]
        alike += names_alike(pa.field(name, pa.string()) for name in names)
        if alike:
            self.refuse(table, f"names that differ in case only are one to {self.engine}: {', '.join(alike)}", _RENAME)


_RENAME: Final = f"Rename one of them before Kafka. {_WAY_OUT}"
