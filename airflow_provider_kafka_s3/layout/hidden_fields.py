"""Finds the fields of landed values that engines do not show, since a folder, or another field, has their name."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from typing import Final

import msgspec

from airflow_provider_kafka_s3.config import ByField, ByPartition, Envelope, Layout
from airflow_provider_kafka_s3.messages import few

__all__ = ["HiddenFields", "folder_names", "hidden_fields"]

_KEPT: Final = 20
"""Fields of each kind that are kept."""


class HiddenFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of values that some engines do not show, although the objects have them.

    Attributes:
        behind_folders: those that are called like a folder ``name=value``, whose value engines show in their place.
        alike: those whose names, or paths, differ in case only from another one.
    """

    behind_folders: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()

    def __or__(self, other: HiddenFields) -> HiddenFields:
        """Those of both."""
        return HiddenFields(_some({*self.behind_folders, *other.behind_folders}), _some({*self.alike, *other.alike}))

    def findings(self) -> dict[str, str]:
        """What engines do with the fields, each with what avoids it; empty if all are shown."""
        remedies = {}
        if self.behind_folders:
            flaw = (
                f"folders have the names of the fields {few(self.behind_folders)}: DuckDB, Spark, Hive, Athena and "
                f"Trino show the value of the folder in place of the field"
            )
            remedies[flaw] = (
                "use a partitioner whose folders have other names, such as a TimePattern with "
                "path_format=\"'landed_year'=YYYY\"; or read without folders (hive_partitioning = false of DuckDB), or "
                "by spark_frame of this package"
            )
        if self.alike:
            flaw = (
                f"the names of the fields {few(self.alike)} differ in case only: Spark refuses the objects, and Hive, "
                f"Athena and Trino show one of these fields, or fail"
            )
            remedies[flaw] = "rename one of them before Kafka, or set spark.sql.caseSensitive to true where Spark reads"
        return remedies


def hidden_fields(layout: Layout, folders: Iterable[str], fields: Iterable[str]) -> HiddenFields:
    """The fields of some values that engines do not show.

    A field of ``ByField`` is shown: its folder has its value. So are the fields ``partition`` and ``topic`` of
    envelopes.

    Args:
        layout: of the objects.
        folders: names of their folders ``name=value``, see :func:`folder_names`.
        fields: of their values; those of nested records as a path with dots.
    """
    same = {name for link in layout.partitioners if isinstance(link, ByField) for name in link.names}
    if isinstance(layout.content, Envelope):
        same |= {"topic"} | ({"partition"} if any(isinstance(p, ByPartition) for p in layout.partitioners) else set())
    named, by_name = {name.lower() for name in folders}, dict[str, set[str]]()
    for field in fields:
        by_name.setdefault(field.lower(), set()).add(field)
    return HiddenFields(
        _some(field for name in named & by_name.keys() for field in by_name[name] - same),
        _some(field for alike in by_name.values() if len(alike) > 1 for field in alike),
    )


def folder_names(key: str) -> set[str]:
    """The names of the folders ``name=value`` of a key, without their escapes."""
    return {urllib.parse.unquote(part.partition("=")[0]) for part in key.split("/")[:-1] if "=" in part}


def _some(fields: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(fields, key=lambda field: (field.lower(), field))[:_KEPT])
