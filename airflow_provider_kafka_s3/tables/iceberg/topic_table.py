"""The Iceberg table of a topic: it follows the log, batch by batch, and never the bucket's listing."""

from __future__ import annotations

import bisect
import datetime as dt
import logging
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AddPartitionSpecUpdate, AddSchemaUpdate, TableUpdate
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

from airflow_provider_kafka_s3.batch.given_away import begin_table, give_to_table, remember_table
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.config.tables import PARTITION, TableSettings
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import below
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.progress import progress
from airflow_provider_kafka_s3.reading.snapshot import Losses, Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject, snapshot_objects
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.tables.iceberg.catalog import catalog_errors
from airflow_provider_kafka_s3.tables.iceberg.columns import (
    FileColumns,
    Path,
    columns_of_file,
    merged_schema,
    require_free_ids,
)
from airflow_provider_kafka_s3.tables.iceberg.commit import (
    PREFIX,
    Change,
    commit,
    known_losses,
    last_batch,
    property_of,
)
from airflow_provider_kafka_s3.tables.iceberg.data_files import Footer, data_file, read_footers
from airflow_provider_kafka_s3.tables.iceberg.partitions import keeping, not_kept_apart

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

__all__ = ["Added", "Difference", "TableStatus", "TopicTable"]

log = logging.getLogger(__name__)

_BATCHES: Final = 500
"""Batches of a commit at most."""

_TRANSFORMS: Final[dict[str, Transform[Any, Any]]] = {
    "hour": HourTransform(),
    "day": DayTransform(),
    "identity": IdentityTransform(),
}

_FORMAT: Final = 2
"""Version of the format of tables that pyiceberg writes."""

_OWNED_BY: Final = "kafka-s3.owned-by"
"""The property of a table with the owner of its files; it is set when the table is made."""

_STEP: Final = 50
"""Batches whose documents are read before the files of a commit are counted again."""

_RACES: Final = RetryPolicy(max_retries=30, base=0.05, cap=5.0)
"""A commit that others come before is tried again soon, and often."""


@dataclass(frozen=True)
class Added:
    """What was added to a table.

    Attributes:
        table: its name.
        first: the first batch that was added; above ``last``: none was.
        last: the last batch that is in.
        files: objects that were added.
        records: of them.
        commits: number of commits.
        removed: objects that were removed, since they were accepted as lost.
        snapshot: id of the table's current snapshot; None: there is none.
        location: URL of the table's folder; None: there is no table.
        schema: of the table.
    """

    table: str
    first: int
    last: int
    files: int = 0
    records: int = 0
    commits: int = 0
    removed: int = 0
    snapshot: int | None = None
    location: str | None = None
    schema: Schema | None = field(default=None, repr=False)

    def and_more(self, objects: Sequence[SnapshotObject]) -> Added:
        """This, and the objects of one more commit."""
        return replace(
            self,
            files=self.files + len(objects),
            records=self.records + sum(one.records for one in objects),
            commits=self.commits + 1,
        )


@dataclass(frozen=True)
class TableStatus:
    """How far a table is behind the log.

    Attributes:
        table: its name.
        exists: whether there is a table.
        last: the last batch that is in.
        complete: the last complete batch of the log.
        snapshot: id of the table's current snapshot.
        snapshots: number of its snapshots.
    """

    table: str
    exists: bool
    last: int
    complete: int
    snapshot: int | None = None
    snapshots: int = 0


@dataclass(frozen=True)
class Difference:
    """What a table has otherwise than the log.

    Attributes:
        table: its name.
        batches: the last batch that was compared.
        files: objects of the topic in the table.
        records: of them.
        missing: URLs of committed objects that the table lacks.
        rewritten: URLs of objects that the table lacks, while its other files have as many rows as all of them: an
            engine has rewritten them. Empty if the table has several topics: nobody knows then whose the rows are.
        lost: URLs of objects in the table that were accepted as lost.
        unknown: URLs of objects in the table, beside the topic's, that no batch has.
        others: number of files in the table that are objects of no topic that it has.
        twice: URLs of objects that the table has more than once.
        added: URLs of missing objects that a repair has added.
        removed: URLs of lost objects that a repair has removed.
    """

    table: str
    batches: int
    files: int
    records: int
    missing: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    others: int = 0
    twice: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass
class TopicTable:
    """A table of a catalog, and the topic whose objects it has.

    Attributes:
        catalog: with the table.
        table: its name, such as ``lake.orders``.
        log: of the topic.
        settings: of the table.
        retrier: waits between commits that others came before.
    """

    catalog: Catalog
    table: str
    log: TopicLog
    settings: TableSettings = field(default_factory=TableSettings)
    retrier: Retrier = field(default_factory=lambda: Retrier(_RACES))

    @property
    def name(self) -> str:
        """The property of the table with the last batch that is in."""
        return property_of(self.log.bucket, self.log.address)

    def add(self) -> Added:
        """Add the complete batches that the table lacks, each once; the table is created with the first objects.

        Objects that were accepted as lost since their batch was added are removed before, in one commit.

        Raises:
            ConfigurationError: the objects, their columns or the table do not go together; landing is not affected.
            TableRolledBackError: the table was set back to an earlier snapshot.
            CatalogUnavailableError: the catalog gave no usable answer; a later call goes on.
        """
        table = self._load()
        last = self._last(table)
        # Not before the table: other processes add what is landed meanwhile.
        snapshot = Snapshot(self.log)
        if last > snapshot.batch:
            raise ConfigurationError(
                f"table {self.table} has batches up to {last} of topic {self.log.topic!r} by its property {self.name}, "
                f"and the log has {snapshot.batch}. Nothing was added. Is it the log of another pipeline? If the log "
                f"was begun anew, use another table"
            )
        added = Added(self.table, last + 1, last)
        losses = 0
        if table is not None:
            # A process that committed may have ended before it recorded it.
            self._give(table, last)
            remember_table(self.log, self.table)
            table, losses, removed = self._without_losses(table, snapshot.losses(last))
            added = replace(added, commits=int(removed > 0), removed=removed)
        with progress(f"table {self.table}: add", total=max(snapshot.batch - last, 0), unit="batch") as advance:
            changes: Snapshot | None = None
            while last < snapshot.batch:
                if changes is None:
                    changes = snapshot.changes(last)
                    numbers = changes.select_batches()
                numbers = numbers[bisect.bisect_right(numbers, last) :]
                end, objects = self._next_batches(changes, numbers)
                if table is None:
                    if not objects:
                        break
                    table = self._create(objects)
                table, is_ours = self._commit(last, end, objects, losses)
                if is_ours:
                    added = added.and_more(objects)
                now = self._last(table)
                self._give(table, now)
                advance(now - last)
                last = now
                log.info("table %s: batches up to %d of %d are in", self.table, last, snapshot.batch)
        added = replace(added, last=last)
        if table is None:
            return added
        head = table.metadata.current_snapshot_id
        return replace(added, snapshot=head, location=table.location(), schema=table.schema())

    def status(self) -> TableStatus:
        """How far the table is behind the log; nothing is changed."""
        complete = Snapshot(self.log).batch
        table = self._load()
        if table is None:
            return TableStatus(self.table, exists=False, last=0, complete=complete)
        return TableStatus(
            self.table,
            exists=True,
            last=last_batch(table, self.name),
            complete=complete,
            snapshot=table.metadata.current_snapshot_id,
            snapshots=len(table.metadata.snapshots),
        )

    def check(self, *, repair: bool = False, unsafe_rows_are_absent: bool = False) -> Difference:
        """Compare the files of the table with the log, up to the last batch that is in.

        Args:
            repair: add objects that are missing and remove those that were accepted as lost, in one commit.
            unsafe_rows_are_absent: add missing objects although the table has other files, which may have their rows:
                you know that they do not.

        Raises:
            ConfigurationError: there is no table; or other files may have the rows of missing objects.
        """
        table = self._require()
        difference, missing = self._compare(table)
        if difference.rewritten and not unsafe_rows_are_absent:
            missing = []
        if not repair or not (missing or difference.lost):
            return difference
        if missing and difference.others and not unsafe_rows_are_absent and not difference.lost:
            raise ConfigurationError(
                f"table {self.table} lacks {count(len(missing), 'object')} of the topic, and has "
                f"{count(difference.others, 'file')} of others. If the objects were rewritten (compacted), these have "
                f"their rows, and a repair would add them twice. Nothing was changed. If they have not, repair with "
                f"unsafe_rows_are_absent"
            )
        if difference.others and not unsafe_rows_are_absent:
            missing = []
        self._repair(read_footers(self.log.store, missing), {*difference.lost})
        now, _ = self._compare(self._require())
        absent = {*now.missing, *now.rewritten}
        done = tuple(one.url for one in missing if one.url not in absent)
        return replace(now, added=done, removed=difference.lost)

    def _repair(self, missing: Sequence[Footer], lost: Set[str], losses: int | None = None) -> tuple[Table, bool]:
        """Add objects and remove others in one commit; the table behind it, and whether it is ours.

        Args:
            missing: footers of the objects to add.
            lost: URLs of the objects to remove.
            losses: number of accepted losses that the table is then free of; None: as many as before.
        """
        footers = {footer.snapshot_object.url: footer for footer in missing}

        def change(current: Table) -> Change:
            last = last_batch(current, self.name)
            files = {file.file_path: file for file in self._files(current)}
            absent = [footer for url, footer in footers.items() if url not in files]
            removed = [files[url] for url in lost & files.keys()]
            return self._change(current, last, last, absent, losses=losses, removed=removed)

        def is_done(current: Table) -> bool:
            present = {file.file_path for file in self._files(current)}
            return not (footers.keys() - present or lost & present)

        with catalog_errors(f"table {self.table}"):
            return commit(self._require, self.name, change, retrier=self.retrier, is_done=is_done)

    def _without_losses(self, table: Table, losses: Losses) -> tuple[Table, int, int]:
        """The table without objects that were accepted as lost or have expired; and how many were removed.

        The files of the table are read only if there are losses that it is not known to be free of.

        Returns:
            The table, the number of losses that it is free of, and that of removed objects.
        """
        if losses.number == known_losses(table, self.name):
            return table, losses.number, 0
        present = losses.urls() & {file.file_path for file in self._files(table)}
        if not present:
            return table, losses.number, 0
        table, is_ours = self._repair((), present, losses.number)
        log.info(
            "table %s: objects that were accepted as lost or have expired are removed: %s",
            self.table,
            few(sorted(present)),
        )
        return table, losses.number, len(present) if is_ours else 0

    # -- batches ------------------------------------------------------------------------------------------------------

    def _next_batches(self, changes: Snapshot, numbers: Sequence[int]) -> tuple[int, list[SnapshotObject]]:
        """The last batch of the next commit, and the objects of its batches, which are the first of these."""
        objects: list[SnapshotObject] = []
        for start in range(0, len(numbers), _STEP):
            step = numbers[start : start + _STEP]
            for number, of_batch in _by_batch(changes.objects(batches=step), step):
                # Without an object there may be no table yet, and nothing is too much.
                too_many = len(objects) + len(of_batch) > self.settings.files_per_commit
                if objects and (too_many or start >= _BATCHES):
                    return number - 1, objects
                objects += of_batch
        # Batches without objects, such as those of a reset, are between the others and behind the last.
        return changes.batch, objects

    def _commit(self, after: int, end: int, objects: Sequence[SnapshotObject], losses: int) -> tuple[Table, bool]:
        """Commit batches; the table behind it, and whether one of these commits landed.

        Another process may have added some of the batches before: then the next commit is of the rest.
        """
        footers = read_footers(self.log.store, objects)
        with catalog_errors(f"table {self.table}"):
            return commit(
                self._require,
                self.name,
                lambda table: self._change(table, after, end, footers, losses=losses),
                retrier=self.retrier,
                is_done=lambda table: last_batch(table, self.name) != after,
            )

    def _last(self, table: Table | None) -> int:
        return 0 if table is None else last_batch(table, self.name)

    def _give(self, table: Table, last: int) -> None:
        """Record in the log that a table which owns its files has the batches up to a number."""
        if table.properties.get(_OWNED_BY) == "table":
            give_to_table(self.log, self.table, last)

    def _change(
        self,
        table: Table,
        after: int,
        last: int,
        footers: Sequence[Footer],
        *,
        losses: int | None,
        removed: Sequence[DataFile] = (),
    ) -> Change:
        schema, columns, properties = self._with_columns(table, footers)
        metadata = table.metadata.model_copy(
            update={"schemas": [schema.model_copy(update={"schema_id": 0})], "current_schema_id": 0}
        )
        return Change(
            self.name,
            after,
            last,
            schema,
            [data_file(footer, of_file, metadata) for footer, of_file in zip(footers, columns, strict=True)],
            removed,
            known_losses(table, self.name) if losses is None else losses,
            properties,
            self._expired(table),
        )

    def _with_columns(
        self, table: Table, footers: Sequence[Footer]
    ) -> tuple[Schema, list[FileColumns], list[tuple[str, str]]]:
        """The columns of the table with those of objects; the columns of each object; properties to set."""
        mapping = table.name_mapping()
        by_name = mapping or create_mapping_from_schema(table.schema())
        known = dict(_paths_of(by_name.root, ()))
        columns = [self._columns(footer, known.get) for footer in footers]
        schema = table.schema()
        for footer, of_file in zip(footers, columns, strict=True):
            where = f"table {self.table}, object {footer.snapshot_object.url}"
            schema = merged_schema(schema, of_file.schema, where)
        require_free_ids(table.schemas().values(), schema, f"table {self.table}")
        if all(of_file.has_ids for of_file in columns) and mapping is None:
            return schema, columns, []
        names = create_mapping_from_schema(schema).root
        for of_file in columns:
            # The names in an object without ids, which may be those from before a column was renamed.
            names = names if of_file.has_ids else _extended(names, create_mapping_from_schema(of_file.schema).root)
        extended = NameMapping(_extended(by_name.root, names))
        if mapping is not None and extended == mapping:
            return schema, columns, []
        return schema, columns, [(TableProperties.DEFAULT_NAME_MAPPING, extended.model_dump_json())]

    def _columns(self, footer: Footer, known: Callable[[Path], int | None]) -> FileColumns:
        return columns_of_file(footer.schema, footer.snapshot_object.url, known)

    def _expired(self, table: Table) -> list[int]:
        """Ids of snapshots that are not kept; those of branches and tags are.

        Where a table owns its files, an engine expires them, which then deletes files that no snapshot has.
        """
        if self.settings.keep_snapshots is None or table.properties.get("gc.enabled") != "false":
            return []
        oldest = dt.datetime.now(dt.UTC) - dt.timedelta(hours=self.settings.keep_snapshots_hours)
        line = [*ancestors_of(table.current_snapshot(), table.metadata)]
        of_refs = {ref.snapshot_id for ref in table.metadata.refs.values()}
        # The commit that expires them adds one.
        return [
            one.snapshot_id
            for one in line[max(self.settings.keep_snapshots - 1, 0) :]
            if one.timestamp_ms < oldest.timestamp() * 1000 and one.snapshot_id not in of_refs
        ]

    # -- the table ----------------------------------------------------------------------------------------------------

    def _load(self) -> Table | None:
        with catalog_errors(f"table {self.table}"):
            try:
                return self.catalog.load_table(self.table)
            except NoSuchTableError:
                return None

    def _require(self) -> Table:
        table = self._load()
        if table is None:
            raise ConfigurationError(
                f"there is no table {self.table}. Nothing was changed. It is created when the first objects of topic "
                f"{self.log.topic!r} are added"
            )
        if table.metadata.format_version > _FORMAT:
            raise ConfigurationError(
                f"table {self.table} has the format version {table.metadata.format_version}, and pyiceberg writes up "
                f"to {_FORMAT}. Nothing was changed. Use another table"
            )
        return table

    def _create(self, objects: Sequence[SnapshotObject]) -> Table:
        """Create the table with the columns of the first object, unless another process was faster."""
        # Before objects are read: those that an earlier table of this name has deleted are missing from now on.
        begin_table(self.log, self.table)
        first = read_footers(self.log.store, objects[:1])[0]
        columns = self._columns(first, lambda _: None).schema
        properties = {
            "format-version": "2",
            "commit.manifest-merge.enabled": "true",
            "gc.enabled": str(self.settings.owned_by == "table").lower(),
            # Each commit writes a file of all metadata; the hundred before are kept, the catalog's default.
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            _OWNED_BY: self.settings.owned_by,
        }
        spec = self._spec(columns, objects[-1].layout)
        with catalog_errors(f"table {self.table}"):
            try:
                transaction = self.catalog.create_table_transaction(
                    self.table, columns, location=self.settings.location, partition_spec=spec, properties=properties
                )
                # The library has given the columns new ids.
                transaction._updates = tuple(_with_own_ids(update, columns, spec) for update in transaction._updates)
                transaction.commit_transaction()
            except Exception:
                if (table := self._load()) is not None:
                    return table
                raise
        log.info("table %s was created", self.table)
        return self._require()

    def _spec(self, columns: Schema, layout: Layout) -> PartitionSpec:
        fields = []
        for number, text in enumerate(self.settings.partition_by, start=1000):
            parts = PARTITION.fullmatch(text)
            assert parts is not None, "the settings are checked"
            kind, name = parts.groups()
            if name not in {column.name for column in columns.fields}:
                raise ConfigurationError(
                    f"partition_by={text!r}: the objects have no column {name!r}, but "
                    f"{', '.join(column.name for column in columns.fields)}. Nothing was created"
                )
            field, transform = columns.find_field(name), _TRANSFORMS[kind]
            if not transform.can_transform(field.field_type):
                raise ConfigurationError(
                    f"partition_by={text!r}: the column is of the type {field.field_type}, of which Iceberg makes no "
                    f"{kind}. Nothing was created. Use another column, or identity({name})"
                )
            if not_kept_apart(layout, transform, name):
                log.warning(
                    "table %s: partition_by=%r: an object with records of two partitions will be refused. %s",
                    self.table,
                    text,
                    keeping(layout, transform, name),
                )
            alias = name if kind == "identity" else f"{name}_{kind}"
            fields.append(PartitionField(field.field_id, number, transform, alias))
        return PartitionSpec(*fields)

    def require(self) -> Table:
        """The table, which has objects of the topic or has had some.

        Raises:
            ConfigurationError: there is no table, or it has nothing of the topic.
        """
        table = self._require()
        if self.name not in table.properties:
            raise ConfigurationError(
                f"table {self.table} of this catalog has no property {self.name}, so it has nothing of topic "
                f"{self.log.topic!r}. Nothing was changed. Name the catalog of the table that has it"
            )
        return table

    def urls(self) -> frozenset[str]:
        """URLs of all files of the table, also of those that only a branch or a tag has.

        Raises:
            ConfigurationError: as of :meth:`require`.
        """
        table = self.require()
        snapshots = {None, *(ref.snapshot_id for ref in table.metadata.refs.values())}
        with catalog_errors(f"table {self.table}"):
            return frozenset(
                task.file.file_path for one in snapshots for task in table.scan(snapshot_id=one).plan_files()
            )

    def _files(self, table: Table) -> list[DataFile]:
        with catalog_errors(f"table {self.table}"):
            return [task.file for task in table.scan().plan_files()]

    def _compare(self, table: Table) -> tuple[Difference, list[SnapshotObject]]:
        last = last_batch(table, self.name)
        snapshot = Snapshot(self.log, at=last)
        objects: dict[str, SnapshotObject] = {}
        lost: set[str] = set()
        for plan, decision, gone in snapshot.documents(snapshot.select_batches()):
            objects |= {one.url: one for one in snapshot_objects(self.log, plan, decision, gone)}
            lost |= {self.log.store.url(key) for key in gone}
        lost |= snapshot.losses(last).urls()
        listed = self._files(table)
        times = Counter(file.file_path for file in listed)
        files = {file.file_path: file for file in listed}
        folder = self.log.store.url(_folder(self.log.address.topics_dir, self.log.topic))
        others_folders = tuple(_folders_of_properties(table))
        ours = [file for url, file in files.items() if url in objects]
        others = files.keys() - objects.keys() - lost
        missing = [one for url, one in objects.items() if url not in files]
        elsewhere = [files[url] for url in others if not url.startswith(others_folders)]
        is_rewritten = len(others_folders) == 1 and (
            0 < sum(file.record_count for file in elsewhere) == sum(one.records for one in missing)
        )
        urls = tuple(one.url for one in missing)
        return (
            Difference(
                self.table,
                last,
                len(ours),
                sum(file.record_count for file in ours),
                missing=() if is_rewritten else urls,
                rewritten=urls if is_rewritten else (),
                lost=tuple(sorted(files.keys() & lost)),
                unknown=tuple(sorted(url for url in others if url.startswith(folder))),
                others=len(elsewhere),
                twice=tuple(sorted(url for url, number in times.items() if number > 1 and url in objects)),
            ),
            missing,
        )


def _by_batch(objects: Sequence[SnapshotObject], numbers: Sequence[int]) -> Iterator[tuple[int, list[SnapshotObject]]]:
    by_number: dict[int, list[SnapshotObject]] = {number: [] for number in numbers}
    for snapshot_object in objects:
        by_number[snapshot_object.batch].append(snapshot_object)
    yield from by_number.items()


def _folder(topics_dir: str, topic: str) -> str:
    return f"{below(topics_dir)}{topic}/"


def _folders_of_properties(table: Table) -> Iterator[str]:
    """URLs of the folders of all topics that a table has."""
    for name in table.properties:
        if name.startswith(PREFIX):
            bucket, topics_dir, _, topic = map(urllib.parse.unquote, name.removeprefix(PREFIX).split("/"))
            yield f"s3://{bucket}/{_folder(topics_dir, topic)}"


def _with_own_ids(update: TableUpdate, columns: Schema, spec: PartitionSpec) -> TableUpdate:
    match update:
        case AddSchemaUpdate():
            return AddSchemaUpdate(schema=Schema(*columns.fields, schema_id=0))
        case AddPartitionSpecUpdate():
            return AddPartitionSpecUpdate(spec=spec)
    return update


def _paths_of(fields: Sequence[MappedField], outer: Path) -> Iterator[tuple[Path, int]]:
    for mapped in fields:
        for name in mapped.names:
            if mapped.field_id is not None:
                yield (*outer, name), mapped.field_id
            yield from _paths_of(mapped.fields, (*outer, name))


def _extended(old: Sequence[MappedField], new: Sequence[MappedField]) -> list[MappedField]:
    """The fields of a mapping with the names and fields of another one."""
    known = {one.field_id: one for one in new}
    extended = [
        one
        if (other := known.pop(one.field_id, None)) is None
        else one.model_copy(
            update={
                "names": [*dict.fromkeys((*one.names, *other.names))],
                "fields": _extended(one.fields, other.fields),
            }
        )
        for one in old
    ]
    return [*extended, *known.values()]
