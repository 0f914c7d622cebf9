"""How the table of a topic is made and filled."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from msgspec import Meta

from airflow_provider_kafka_s3.config.values import Value
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["PARTITION", "TableSettings"]

PARTITION: Final = re.compile(r"(hour|day|identity)\((.+)\)")
"""A partition: how it is made, and the column that it is made from."""


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
