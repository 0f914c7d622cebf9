"""The folders of a table: names, and the values that each may have, from the layout and from the keys of objects."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from airflow_provider_kafka_s3.config import (
    ByField,
    ByPartition,
    Csv,
    Daily,
    Envelope,
    Hourly,
    Layout,
    TimePattern,
)
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.tables.ddl.model import Column, Folder, FolderValues, Numbers, Texts
from airflow_provider_kafka_s3.tables.ddl.time_folders import time_folders

__all__ = ["folder_parts", "table_folders"]


def folder_parts(data_object: SnapshotObject) -> tuple[str | None, ...]:
    """The raw name of each folder of the partitioner; None for one without ``name=``."""
    parts = data_object.folders.split(data_object.layout.naming.directory_delim)
    return tuple(part.partition("=")[0] if "=" in part[1:] else None for part in parts)


def table_folders(
    layout: Layout, parts: Sequence[str | None], objects: Iterable[SnapshotObject], columns: Iterable[Column]
) -> tuple[Folder, ...]:
    """The folders ``name=value``.

    Args:
        layout: of the objects.
        parts: as of :func:`folder_parts`.
        objects: with these parts.
        columns: of the objects.
    """
    fields = {column.name.lower(): column for column in columns}
    known: dict[str, set[str]] = {}
    for data_object in objects:
        for name, value in data_object.columns.items():
            known.setdefault(name, set()).add(value)
    by_name = _values(layout, known)
    folders = []
    for raw in parts:
        if raw is None:
            continue
        name = urllib.parse.unquote(raw)
        field = fields.get(name.lower())
        exact = field is not None and _is_exact(layout, name, field)
        values = by_name.get(name, Texts())
        is_number = isinstance(values, Numbers) and _are_numbers(layout, known.get(name, set()))
        folders.append(Folder(name, raw, values, field, exact, is_number))
    return tuple(folders)


def _values(layout: Layout, known: Mapping[str, set[str]]) -> dict[str, FolderValues]:
    """By the names of folders; those of keys, and of most fields, may have any text."""
    values: dict[str, FolderValues] = {}
    lower = layout.naming.lowercase_paths
    for link in layout.partitioners:
        if isinstance(link, ByPartition):
            numbers = [int(text) for text in known.get("partition", ())]
            values["partition"] = Numbers(0, max(numbers, default=0), 0, "partitions that are added to the topic")
        if isinstance(link, Daily | Hourly | TimePattern):
            for folder in time_folders(link, layout.naming.directory_delim):
                if folder.name is not None:
                    name = folder.name.lower() if lower else folder.name
                    texts = {text for text in known.get(name, ()) if text not in (NULL_FOLDER, layout.on_bad_timestamp)}
                    values[name] = folder.values(link, texts, lower=lower)
    return values


def _are_numbers(layout: Layout, texts: set[str]) -> bool:
    """Whether folders of numbers have no other names, such as one for records without a time."""
    others = {text for text in texts if not text.isdigit()}
    return layout.on_bad_timestamp in ("fail", NULL_FOLDER) and others <= {NULL_FOLDER}


def _is_exact(layout: Layout, name: str, field: Column) -> bool:
    """Whether a folder has each value of a field as a whole number, so that both are the same column."""
    if isinstance(layout.format, Csv) or layout.naming.kafka_connect_names:
        return False
    if isinstance(layout.content, Envelope):
        return name == field.name == "partition" and any(isinstance(link, ByPartition) for link in layout.partitioners)
    links = [link for link in layout.partitioners if isinstance(link, ByField)]
    is_field = name == field.name and any(name in link.names for link in links)
    return is_field and pa.types.is_integer(field.type) and not field.remarks
