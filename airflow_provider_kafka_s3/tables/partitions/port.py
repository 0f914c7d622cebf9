"""A table whose partitions are in a catalog."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

__all__ = ["PartitionedTable", "TableDescription", "Values"]

Values: TypeAlias = tuple[str, ...]
"""Those of a partition, in the order of the table's partition keys."""


@dataclass(frozen=True)
class TableDescription:
    """What a catalog has of a table.

    Attributes:
        partition_keys: names of the columns of its partitions, in order.
        location: URL of its folder.
    """

    partition_keys: tuple[str, ...]
    location: str


class PartitionedTable(ABC):
    """A table in a catalog. Every method may be repeated.

    Each raises an AccessDeniedError, a ConfigurationError or a TransientError.

    Attributes:
        dialect: of ``kafka-s3 ddl``, whose statement makes such a table.
        catalog: where the table is, for people.
    """

    dialect: ClassVar[str]
    catalog: ClassVar[str]

    def __init__(self, table: str) -> None:
        """Name a table.

        Args:
            table: its database and its name, such as ``lake.orders``; catalogs have them in lower case.
        """
        self.database, _, self.name = table.lower().partition(".")

    @property
    def where(self) -> str:
        """The table, for people."""
        return f"{self.database}.{self.name} in {self.catalog}"

    @abstractmethod
    def describe(self) -> TableDescription | None:
        """What the catalog has of the table; None: there is no such table."""

    @abstractmethod
    def existing(self, partitions: Sequence[Values]) -> dict[Values, str]:
        """The locations of those of the partitions that the table has."""

    @abstractmethod
    def add(self, partitions: Mapping[Values, str]) -> dict[Values, str]:
        """Add partitions, each with the properties of the table; those that the table has are left alone.

        Args:
            partitions: up to 100, with their locations.

        Returns:
            Those that the catalog does not take, with the reason.
        """
