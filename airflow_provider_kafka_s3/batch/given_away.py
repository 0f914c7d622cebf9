"""Objects that a topic has given to a table, whose engines may delete them.

A table with ``owned_by="table"`` has a document in the log. It is written behind each commit of the table, so an object
that is gone counts as given away only if the table has had it. All else that is gone is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import corrupt, decode, encode, printable, write_stamp
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.owning_table import OwningTable
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, UnknownOutcomeError
from airflow_provider_kafka_s3.layout.keys import dead_letters_prefix, sibling_of_key

__all__ = ["GivenAway", "begin_table", "give_to_table", "owning_tables", "remember_table", "rows_in_table"]

_SWAPS: Final = 5
"""Compare-and-swaps of the document; one that is lost to another process is followed by an answer."""


def owning_tables(log: TopicLog) -> tuple[OwningTable, ...]:
    """The tables of a topic, with the objects that they own, by their names; a listing, and a request for each.

    Raises:
        ControlError: a document cannot be trusted.
    """
    keys = [info.key for info in log.store.walk(addresses.tables_prefix(log.prefix))]
    return tuple(stored[0] for key in keys if (stored := _read(log, key)) is not None)


def give_to_table(log: TopicLog, table: str, last: int) -> None:
    """Record that a table has the batches up to a number, and may delete their objects; it never goes back."""
    _record(log, OwningTable(topic=log.topic, table=table, last=last), may_go_back=False)


def begin_table(log: TopicLog, table: str) -> None:
    """Record that a table which is about to be made owns no objects yet, whatever one of its name had before.

    So the log names all of its tables, also those that never own an object: what they have is not deleted.
    """
    _record(log, OwningTable(topic=log.topic, table=table, last=0), may_go_back=True)


def remember_table(log: TopicLog, table: str) -> None:
    """Record that a topic has a table, unless the log has it: an earlier version may have made it."""
    if _read(log, addresses.table_key(log.prefix, table)) is None:
        begin_table(log, table)


def rows_in_table(table: str) -> str:
    """The sentences about an object that was given to a table."""
    return f"It was given to table {printable(table)}, whose engines may have deleted it. Read its rows from this table"


class GivenAway:
    """The objects of a topic that it has given to tables; the documents are read when the first object is gone."""

    def __init__(self, log: TopicLog) -> None:
        """Nothing is read yet.

        Args:
            log: the control documents of the topic.
        """
        self._log = log

    @functools.cached_property
    def owners(self) -> tuple[OwningTable, ...]:
        """All tables of the topic, also those that own no object."""
        return owning_tables(self._log)

    def tables(self, plan: Plan, gone: Iterable[ObjectEntry]) -> Mapping[str, str]:
        """The table that each object was given to, by its key; objects that were given to none are left out.

        Args:
            plan: of their batch.
            gone: objects that are gone, and not accepted as lost.
        """
        return {entry.key: table for entry in gone if (table := self.table(plan, entry.key)) is not None}

    def table(self, plan: Plan, key: str) -> str | None:
        """The table that an object was given to; None: to none."""
        layout = plan.layout
        if layout is None or key.startswith(dead_letters_prefix(layout, plan.topic)) or sibling_of_key(layout, key):
            return None
        return self.table_of_batch(plan.batch)

    def table_of_batch(self, batch: int) -> str | None:
        """The table that the objects of values of a batch were given to; None: to none."""
        return next((owner.table for owner in self.owners if batch <= owner.last), None)


def _read(log: TopicLog, key: str) -> tuple[OwningTable, str] | None:
    stored = log.store.get(key)
    if stored is None:
        return None
    where = log.store.url(key)
    owner, _ = decode(OwningTable, stored.body, where)
    try:
        expected = addresses.table_key(log.prefix, owner.table)
    except ConfigurationError as e:
        raise corrupt(where, str(e)) from e
    if owner.topic != log.topic or expected != key:
        raise corrupt(where, f"it is of table {owner.table!r} and topic {owner.topic!r}")
    return owner, stored.etag


def _record(log: TopicLog, owner: OwningTable, *, may_go_back: bool) -> None:
    key = addresses.table_key(log.prefix, owner.table)
    for _ in range(_SWAPS):
        stored = _read(log, key)
        if stored is not None and (stored[0] == owner or (stored[0].last >= owner.last and not may_go_back)):
            return
        body = encode(owner, write_stamp(), log.store.url(key))
        if stored is None:
            log.store.create(key, body)
        else:
            log.store.replace(key, body, stored[1])
    raise UnknownOutcomeError(
        f"topic {log.topic!r}: the document of table {owner.table} could not be replaced: the store gave no usable "
        f"answer {_SWAPS} times. Nothing is lost; try again: {log.store.url(key)}"
    )
