"""The rule by which a table gets the partitions of a topic: add what is missing, leave alone what is there.

It keeps no state. It looks at the objects of some batches, derives their folders and compares these with the catalog.
So what a process did not add is added by the next one that looks at the same batches.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.messages import count, few, printable
from airflow_provider_kafka_s3.progress import progress
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject, snapshot_objects
from airflow_provider_kafka_s3.tables.ddl.folders import folder_parts
from airflow_provider_kafka_s3.tables.ddl.hive_statement import legal_name
from airflow_provider_kafka_s3.tables.ddl.time_folders import time_folders
from airflow_provider_kafka_s3.tables.partitions.port import PartitionedTable, TableDescription, Values

__all__ = ["LOOK_BACK", "Differing", "Synced", "require_named_folders", "sync_partitions"]

LOOK_BACK: Final = 4
"""Resolved batches that a run looks at beside its own, the last ones."""

_IN_A_REQUEST: Final = 100
_SCHEMES: Final = ("s3", "s3a", "s3n")
"""All of one file system: a table has the scheme that its engine supports."""


@dataclass(frozen=True)
class Differing:
    """A partition that the table has at another place.

    Attributes:
        partition: such as ``country=NO/day=01``.
        location: that the catalog has.
        expected: that its objects have.
    """

    partition: str
    location: str
    expected: str


@dataclass(frozen=True)
class Synced:
    """What was done, or would be.

    Attributes:
        table: database, name and catalog.
        added: partitions that the table lacked, such as ``country=NO/day=01``.
        equal: number of partitions that the table had.
        differing: those that it has at another place, which are left alone.
        others: number of objects in no partition of the table, such as those of an earlier layout.
    """

    table: str
    added: tuple[str, ...]
    equal: int
    differing: tuple[Differing, ...]
    others: int


def sync_partitions(
    log: TopicLog,
    table: PartitionedTable,
    *,
    batches: Iterable[int] = (),
    last: int | None = None,
    dry_run: bool = False,
) -> Synced:
    """Add the partitions that a table lacks.

    Args:
        log: the control documents of the topic.
        table: its table.
        batches: numbers of complete batches whose objects are looked at.
        last: number of the last complete batches that are looked at, too; None: all.
        dry_run: add nothing.

    Raises:
        ConfigurationError: there is no such table, its partition keys are not the folders of the newest objects, or
            the catalog does not take a partition.
        AccessDeniedError: the catalog refuses the credentials or the action.
        TransientError: the catalog gave no usable answer.
        ControlError: a document of the log is gone or cannot be trusted.
    """
    description = table.describe()
    if description is None:
        raise ConfigurationError(
            f"topic {log.topic!r}: there is no table {table.where}. Nothing was changed. Make it by the statement of "
            f"{log.remedies.ddl(table.dialect, table.database, table.name)}, or correct its name"
        )
    folders = _Folders(log, table, description)
    for data_object in _objects(log, batches, last):
        folders.add(data_object)
    wanted, others = folders.wanted()
    existing = table.existing([*wanted])
    missing = {values: location for values, location in wanted.items() if values not in existing}
    if missing and not dry_run:
        refused: dict[Values, str] = {}
        for first in range(0, len(missing), _IN_A_REQUEST):
            refused |= table.add(dict(itertools.islice(missing.items(), first, first + _IN_A_REQUEST)))
        # Another process may have added some of them, also with another location.
        existing |= table.existing([*missing])
        if absent := [values for values in missing if values not in existing]:
            reasons = [f"{folders.name(values)} ({refused.get(values, 'it is gone again')})" for values in absent]
            raise ConfigurationError(
                f"topic {log.topic!r}: {table.where} lacks {count(len(absent), 'partition')} of "
                f"{len(wanted):,}: {few(reasons, most=3)}"
            )
    different = {
        values: Differing(folders.name(values), existing[values], location)
        for values, location in wanted.items()
        if values in existing and not _is_same(existing[values], location)
    }
    added = tuple(folders.name(values) for values in missing if values not in different)
    equal = len(wanted) - len(added) - len(different)
    return Synced(table.where, added, equal, tuple(different.values()), others)


def require_named_folders(layout: Layout) -> None:
    """Raise ConfigurationError for a layout of which it is known that its folders are not all ``name=value``."""
    naming = layout.naming
    problem = None
    if naming.directory_delim != "/":
        problem = f"directory_delim={naming.directory_delim!r} makes no folders"
    elif keys.shares_folder(layout):
        problem = "topics share folders with naming='deviantart'"
    elif layout.by_time is not None:
        bare = [one for one in time_folders(layout.by_time, "/") if one.name is None]
        problem = "path_format has folders without a name" if bare else None
    if problem is not None:
        raise ConfigurationError(
            f"partitions_in needs folders name=value of the topic alone, and {problem}. Remove partitions_in, or "
            f"change the layout"
        )


def _objects(log: TopicLog, batches: Iterable[int], last: int | None) -> Iterator[SnapshotObject]:
    """The objects, in the order of batches; those of one batch are kept at a time."""
    snapshot = Snapshot(log)
    numbers = snapshot.select_batches(batches={*batches, *itertools.islice(snapshot.complete_batches(), last)})
    with progress(f"topic {log.topic}: folders", total=len(numbers), unit="batch") as advance:
        for plan, decision, lost in snapshot.documents(numbers):
            yield from snapshot_objects(log, plan, decision, lost)
            advance(1)


class _Folders:
    """The folders of objects, as partitions of a table."""

    def __init__(self, log: TopicLog, table: PartitionedTable, description: TableDescription) -> None:
        self._log = log
        self._table = table
        self._keys = description.partition_keys
        self._scheme = description.location.partition("://")[0]
        self._objects: Counter[tuple[Values, str]] = Counter()
        self._others = 0
        # The first object of the last batch that has any, and whether one of this batch fits the table.
        self._newest: SnapshotObject | None = None
        self._fits = False
        if self._scheme not in _SCHEMES:
            raise ConfigurationError(
                f"topic {log.topic!r}: {table.where} is at {description.location!r}, which is not in S3. Nothing was "
                f"changed. Name the table of the topic"
            )

    def add(self, data_object: SnapshotObject) -> None:
        """Note the folder of an object."""
        values = self._values(data_object)
        if self._newest is None or self._newest.batch < data_object.batch:
            self._newest, self._fits = data_object, False
        self._fits = self._fits or values is not None
        if values is None:
            self._others += 1
            return
        prefix = f"{keys.data_prefix(data_object.layout, data_object.topic)}{data_object.folders}/"
        place = self._log.store.url(prefix).partition("://")[2]
        # Behind an earlier place of the same values.
        number = self._objects.pop(entry := (values, f"{self._scheme}://{place}"), 0)
        self._objects[entry] = number + 1

    def wanted(self) -> tuple[dict[Values, str], int]:
        """The locations of partitions, and the number of objects in none of them.

        Raises:
            ConfigurationError: the partition keys of the table are not the folders of any object of the last batch.
        """
        if self._newest is not None and not self._fits:
            raise ConfigurationError(
                f"topic {self._log.topic!r}: {self._table.where} has the partition keys "
                f"{few(self._keys) or '(none)'}, and its newest objects are in folders "
                f"{printable(self._newest.folders)}. Nothing was changed. Make a table of these folders by the "
                f"statement of {self._log.remedies.ddl(self._table.dialect, self._table.database, self._table.name)}"
            )
        # Of several places of the same values the last one, which is the newest, is the partition.
        wanted = dict(self._objects.keys())
        elsewhere = sum(number for (values, place), number in self._objects.items() if wanted[values] != place)
        return wanted, self._others + elsewhere

    def name(self, values: Values) -> str:
        """A partition, for people."""
        return "/".join(f"{key}={printable(value)}" for key, value in zip(self._keys, values, strict=True))

    def _values(self, data_object: SnapshotObject) -> Values | None:
        """The values of an object's folders; None if these are not the partition keys of the table."""
        layout, parts = data_object.layout, folder_parts(data_object)
        columns = {legal_name(name): value for name, value in data_object.columns.items()}
        is_whole = None not in parts and len(columns) == len(parts)
        if not is_whole or layout.naming.directory_delim != "/" or keys.shares_folder(layout):
            return None
        return tuple(columns[key] for key in self._keys) if columns.keys() == {*self._keys} else None


def _is_same(location: str, other: str) -> bool:
    return _place(location) == _place(other)


def _place(location: str) -> str:
    scheme, _, place = location.partition("://")
    return (place if scheme in _SCHEMES else location).rstrip("/")
