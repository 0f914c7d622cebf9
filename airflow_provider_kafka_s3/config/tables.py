"""How the table of a topic is made and filled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from airflow_provider_kafka_s3.config.values import TAG, Value, make_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "PARTITION",
    "TABLE_OF_DATABASE",
    "GlueTable",
    "HiveTable",
    "MetastoreSettings",
    "PartitionsIn",
    "TableSettings",
    "legal_table_name",
    "parse_partitions_in",
    "table_of_topic",
    "tables_of_topics",
]

PARTITION: Final = re.compile(r"(hour|day|identity)\(([^\s()](?:[^()]*[^\s()])?)\)")
"""A partition: how it is made, and the column that it is made from."""

_UNLIKE_NAME: Final = re.compile("[^A-Za-z0-9_]")

TABLE_OF_DATABASE: Final = re.compile(r"[^.]+\.[^.]+")
"""A database and the name of a table in it."""

TableOfDatabase = Annotated[str, Meta(pattern=f"^{TABLE_OF_DATABASE.pattern}$", examples=["lake.{topic}"])]


class GlueTable(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="glue"):
    """A table of the Glue Data Catalog that gets a partition for each new folder.

    Attributes:
        table: database and name of the table of each topic; ``{topic}`` in it is the name of the topic, with ``_`` for
            other characters than letters, digits and ``_``.
        aws_conn_id: connection of type ``aws`` to Glue; None: that of the operator.
        region: of the catalog; None: that of the connection.
        catalog_id: of the catalog; None: that of the account.
    """

    table: TableOfDatabase
    aws_conn_id: str | None = None
    region: str | None = None
    catalog_id: str | None = None


class HiveTable(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="hive"):
    """A table of a Hive metastore that gets a partition for each new folder.

    Attributes:
        table: database and name of the table of each topic; ``{topic}`` in it is the name of the topic, with ``_`` for
            other characters than letters, digits and ``_``.
        hive_conn_id: connection of type ``hive_metastore``.
    """

    table: TableOfDatabase
    hive_conn_id: str = "metastore_default"


class MetastoreSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a Hive metastore is reached.

    Attributes:
        hosts: addresses of the same metastore, of which the first one that answers is used.
        port: of all of them.
        user: who acts; None: the user of the metastore.
        timeout: seconds to wait for a connection, and for an answer.
    """

    hosts: tuple[str, ...]
    port: int = 9083
    user: str | None = None
    timeout: Annotated[float, Meta(gt=0, description="seconds")] = 60.0


PartitionsIn: TypeAlias = GlueTable | HiveTable
_PARTITIONED: Final[tuple[type[PartitionsIn], ...]] = get_args(PartitionsIn)


def parse_partitions_in(given: PartitionsIn | Mapping[str, Any] | None) -> PartitionsIn | None:
    """A table that gets partitions, a mapping of its ``kind`` and its fields, or None.

    Raises:
        ConfigurationError: it is anything else.
    """
    return None if given is None else make_value("partitions_in", _PARTITIONED, given)


def table_of_topic(table: str, topic: str) -> str:
    """The table of a topic: ``{topic}`` in ``table`` is :func:`legal_table_name`."""
    return table.replace("{topic}", legal_table_name(topic))


def legal_table_name(topic: str) -> str:
    """The name of a topic, with ``_`` for characters that names of tables may not have."""
    return _UNLIKE_NAME.sub("_", topic)


def tables_of_topics(table: str, topics: Sequence[str]) -> dict[str, str]:
    """The table of each topic, see :func:`table_of_topic`.

    Raises:
        ConfigurationError: two topics have one table although ``table`` tells topics apart.
    """
    tables = {topic: table_of_topic(table, topic) for topic in topics}
    by_table: dict[str, str] = {}
    for topic, name in tables.items():
        if (other := by_table.setdefault(name, topic)) != topic and "{topic}" in table:
            raise ConfigurationError(
                f"topics {other!r} and {topic!r} have one table by table={table!r}: {name}. Use a task for each"
            )
    return tables


class TableSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the table of a topic is made and filled.

    Attributes:
        partition_by: partitions of a new table: ``hour(column)``, ``day(column)`` or ``identity(column)``. Each object
            must be inside of one partition; the footer of each is compared.
        owned_by: who may delete the objects: ``pipeline``, by its own commands alone, or also ``table``: whoever
            expires snapshots, rewrites files or drops the table with its files. Takes effect when the table is made.
        location: URL of the folder of a new table's metadata; None: the catalog chooses it.
        files_per_commit: objects of a commit, about; a batch is never divided.
        keep_snapshots: newest snapshots that are kept; None: all. Commits take longer with the number of snapshots.
        keep_snapshots_hours: age up to which others are kept, too.
    """

    partition_by: tuple[str, ...] = ()
    owned_by: Literal["pipeline", "table"] = "pipeline"
    location: str | None = None
    files_per_commit: Annotated[int, Meta(ge=1, description="objects")] = 1000
    keep_snapshots: Annotated[int, Meta(ge=1, description="snapshots")] | None = 100
    keep_snapshots_hours: Annotated[float, Meta(ge=0, description="hours")] = 24.0

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        for text in self.partition_by:
            if not PARTITION.fullmatch(text):
                raise ConfigurationError(
                    f"partition_by={text!r} is not known; use hour(column), day(column) or identity(column)"
                )
        if twice := [text for text in self.partition_by if self.partition_by.count(text) > 1]:
            raise ConfigurationError(f"partition_by has {twice[0]!r} twice; name it once")
