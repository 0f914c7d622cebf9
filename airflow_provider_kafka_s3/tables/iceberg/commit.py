"""Commits batches to an Iceberg table, each once, whoever races and whatever answer is lost.

A property of the table is the number of the last batch that is in. A commit of the batches behind it is staged only on
a table whose property is that number, and has the property, the files and new columns together. It is sent once. After
any error the table is loaded again, and the property decides whether the commit landed.

What makes this safe is the snapshot on which a commit was staged: the catalog refuses the commit once another snapshot
is there. No catalog compares the property itself. So batches without files make a snapshot, too. The commit of
pyiceberg itself is not used: it takes the new head without looking at the property, and its clean-up deletes manifest
lists of commits whose answer was lost (``docs/design/tables.md``).
"""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
)

from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import CatalogUnavailableError, ConfigurationError, TableRolledBackError
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.tables.iceberg.catalog import error_text, is_lost_race, is_terminal

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

__all__ = ["PREFIX", "Change", "commit", "known_losses", "last_batch", "losses_property", "property_of", "stage"]

log = logging.getLogger(__name__)

_UNKNOWN: Final = 3
"""Commits without a good answer after which a call ends; lost races do not count."""

PREFIX: Final = "kafka-s3.batch/"
"""Of the names of properties with the last batch of a topic."""

_LOSSES: Final = "kafka-s3.lost/"
"""Of the names of properties with the number of a topic's objects that were accepted as lost, and removed."""


def property_of(bucket: str, address: TopicAddress) -> str:
    """The property with the last batch of a topic: unambiguous, whatever dots and slashes its names have."""
    parts = (bucket, address.topics_dir, address.pipeline, address.topic)
    return PREFIX + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def losses_property(name: str) -> str:
    """The property with the number of accepted losses that the table is free of, by that with the last batch."""
    return _LOSSES + name.removeprefix(PREFIX)


@dataclass(frozen=True)
class Change:
    """What a commit does.

    Attributes:
        name: the property.
        after: its value before.
        last: its value behind: the number of the last batch that is in.
        schema: the columns of the table behind it.
        files: that are added.
        removed: files that are removed.
        losses: number of accepted losses of the topic that the table is free of.
        properties: more properties to set.
        expired: ids of snapshots to expire; their files stay.
    """

    name: str
    after: int
    last: int
    schema: Schema
    files: Sequence[DataFile]
    removed: Sequence[DataFile] = ()
    losses: int = 0
    properties: Sequence[tuple[str, str]] = ()
    expired: Sequence[int] = ()


def last_batch(table: Table, name: str) -> int:
    """The last batch of a topic that is in a table; 0: none is.

    Raises:
        ConfigurationError: somebody has set the property to something else.
        TableRolledBackError: the table was set back to an earlier snapshot.
    """
    number = table.properties.get(name, "0")
    if not number.isdecimal():
        raise ConfigurationError(
            f"table {'.'.join(table.name())}: its property {name} is {number!r}, and no number of a batch. Nothing was "
            f"changed. Set it to the number in the summary of the newest snapshot that has the property"
        )
    last = int(number)
    noted = _newest(table, name)
    if noted is None:
        line = ancestors_of(table.current_snapshot(), table.metadata)
        # A table without a snapshot, one whose snapshots were expired, or one that was set back to before all batches.
        ids = {snapshot.snapshot_id for snapshot in line}
        beside = (one for one in table.snapshots() if one.snapshot_id not in ids)
        noted = 0 if any(_noted(snapshot, name) == last for snapshot in beside) else last
    if noted != last:
        raise TableRolledBackError(
            f"table {'.'.join(table.name())}: its property {name} has batches up to {last}, its newest "
            f"snapshot with them {noted}, so it was set back to an earlier snapshot. Nothing was changed. Roll it "
            f"forward again; or, if the batches behind {noted} are to be added once more, set the property to {noted}"
        )
    return last


def known_losses(table: Table, name: str) -> int:
    """How many objects of a topic that were accepted as lost the table is free of, by its newest snapshot."""
    return _newest(table, losses_property(name)) or 0


def _newest(table: Table, name: str) -> int | None:
    """The number by the newest snapshot of the main branch that has it; None: none has."""
    line = ancestors_of(table.current_snapshot(), table.metadata)
    return next((number for number in (_noted(snapshot, name) for snapshot in line) if number is not None), None)


def _noted(snapshot: Snapshot, name: str) -> int | None:
    """The number in the summary of a snapshot; None: it has none."""
    number = None if snapshot.summary is None else snapshot.summary.additional_properties.get(name)
    return None if number is None else int(number)


def stage(table: Table, change: Change) -> Transaction:
    """Write the manifests of a commit; nothing refers to them before it is sent."""
    assert last_batch(table, change.name) == change.after, "the change is for the table as it is"
    transaction = table.transaction()
    if change.schema != table.schema():
        _stage_schema(table, transaction, change.schema)
    numbers = {change.name: str(change.last), losses_property(change.name): str(change.losses)}
    transaction.set_properties({**numbers, **dict(change.properties)})
    # Of all topics of the table, so that the newest snapshot shows whether it was set back; and not those of their
    # properties, since a commit of one topic would hide that another one was set back.
    others = {name: _newest(table, name) for name in table.properties if name.startswith((PREFIX, _LOSSES))}
    noted = {name: str(number) for name, number in others.items() if number is not None}
    update = transaction.update_snapshot(snapshot_properties={**noted, **numbers})
    if change.removed:
        with update.overwrite() as overwrite:
            for removed in change.removed:
                overwrite.delete_data_file(removed)
            for added in change.files:
                overwrite.append_data_file(added)
    else:
        # Of many commits readers would have as many manifests.
        with update.merge_append() as append:
            for added in change.files:
                append.append_data_file(added)
    if change.expired:
        transaction._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [*change.expired]}),))
    return transaction


def _stage_schema(table: Table, transaction: Transaction, schema: Schema) -> None:
    """Set columns with the ids that they have in objects; pyiceberg's own update gives new ones."""
    known = next((one.schema_id for one in table.schemas().values() if one == schema), None)
    requirement = AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id})
    if known is not None:
        transaction._apply((SetCurrentSchemaUpdate.model_validate({"schema-id": known}),), (requirement,))
        return
    number = max(table.schemas()) + 1
    added = Schema(*schema.fields, schema_id=number, identifier_field_ids=schema.identifier_field_ids)
    transaction._apply(
        (AddSchemaUpdate(schema=added), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})), (requirement,)
    )


def commit(
    load: Callable[[], Table],
    name: str,
    make: Callable[[Table], Change],
    *,
    retrier: Retrier,
    is_done: Callable[[Table], bool],
) -> tuple[Table, bool]:
    """Send a change until a fresh look at the table shows that it is needed no more.

    Args:
        load: loads the table anew.
        name: the property.
        make: the change for a table as it is.
        retrier: waits between tries.
        is_done: whether the table needs the change no more, whoever made it.

    Returns:
        The table as it is then, and whether a commit of this call is in it.

    Raises:
        CatalogUnavailableError: it is not known whether the last try landed. A later call goes on.
    """
    sent: dict[int, Transaction] = {}
    unknown = 0

    def attempt() -> Table:
        nonlocal unknown
        table = load()
        if is_done(table):
            return table
        transaction = stage(table, make(table))
        sent[transaction._snapshot_producers[-1]._snapshot_id] = transaction
        try:
            _send(table, transaction)
        except Exception as e:  # refused, not carried out, or carried out: the next look shows which
            if is_terminal(e):
                raise
            unknown += not is_lost_race(e)
            error = CatalogUnavailableError(
                f"table {'.'.join(table.name())}: it is not known whether a commit landed "
                f"({type(e).__name__}: {error_text(e)}). The next run looks first, and goes on"
            )
            error.repeatable = unknown < _UNKNOWN
            raise error from e
        return load()

    try:
        table = retrier.call(attempt, what=f"commit of {name}")
    except Exception:
        # Also behind a refusal: an earlier try may have landed.
        if not sent or not is_done(table := load()):
            raise
    landed = {snapshot.snapshot_id for snapshot in table.snapshots()} & sent.keys()
    _sweep(table, [transaction for number, transaction in sent.items() if number not in landed])
    return table, bool(landed)


def _send(table: Table, transaction: Transaction) -> None:
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    table._do_commit(updates=transaction._updates, requirements=(*transaction._requirements, same_table))


def _sweep(table: Table, failed: Sequence[Transaction]) -> None:
    """Delete what attempts have left that can land no more, since the head has moved on."""
    if not failed:
        return  # reading the manifest lists of all snapshots takes time
    try:
        used = {
            path
            for snapshot in table.snapshots()
            for path in (snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io)))
        }
        # Another table may have the name now.
        here = [one for one in failed if one._table.metadata.table_uuid == table.metadata.table_uuid]
        producers: list[Any] = [producer for attempt in here for producer in attempt._snapshot_producers]
        head = table.metadata.current_snapshot_id
        # On the head on which it was staged, an attempt that is on its way can still land.
        for producer in (producer for producer in producers if producer._parent_snapshot_id != head):
            for path in {*producer._written_manifests, *producer._written_manifest_lists} - used:
                table.io.delete(path)
    except Exception as e:  # noqa: BLE001 - the batches are in; a manifest that nothing refers to does no harm
        log.warning("table %s: manifests of attempts that did not land are left: %s", ".".join(table.name()), e)
