"""The command ``kafka-s3 table``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.cli.access import Access, read_settings
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.defaults import default_of
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line
from airflow_provider_kafka_s3.cli.stored_connections import read_connection
from airflow_provider_kafka_s3.config.tables import TABLE_OF_DATABASE, TableSettings
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.tables.installed import require_iceberg

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.pipeline import TopicPipeline
    from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable
    from airflow_provider_kafka_s3.tables.partitions import PartitionedTable

__all__ = ["COMMANDS", "add_catalog", "open_table", "table"]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=(*_ACTIONS, _SYNC),
        help="of a table of Iceberg: add: the complete batches that the table lacks, each once; status: how far it is; "
        "check: compare its files with the log; of one of Glue or Hive: sync: add the partitions that it lacks",
    )
    parser.add_argument("--table", required=True, help="name of the table, such as lake.orders")
    add_catalog(parser)
    parser.add_argument(
        "--partition-by",
        action="append",
        default=[],
        metavar="HOW(COLUMN)",
        help="partition of a new table: hour(column), day(column) or identity(column); repeatable",
    )
    parser.add_argument(
        "--owned-by",
        choices=("pipeline", "table"),
        default="pipeline",
        help="who may delete the objects of a new table (default: %(default)s)",
    )
    parser.add_argument("--location", metavar="URL", help="folder of a new table's metadata (default: the catalog's)")
    parser.add_argument(
        "--repair", action="store_true", help="with check: add objects that are missing, remove those accepted as lost"
    )
    parser.add_argument(
        "--unsafe-rows-are-absent",
        action="store_true",
        help="with --repair: add missing objects although other files of the table may have their rows: you know that "
        "they do not",
    )
    sync = parser.add_argument_group("sync (--glue or --hive-conn-id)")
    sync.add_argument("--glue", action="store_true", help="the table is in the Glue Data Catalog")
    sync.add_argument(
        "--glue-conn-id", metavar="ID", help="Airflow connection of type aws to Glue (default: that of the bucket)"
    )
    sync.add_argument("--glue-region", metavar="REGION", help="region of the catalog (default: the connection's)")
    sync.add_argument("--glue-catalog-id", metavar="ID", help="id of the catalog (default: that of the account)")
    sync.add_argument("--hive-conn-id", metavar="ID", help="Airflow connection of type hive_metastore")
    sync.add_argument(
        "--last", type=int, metavar="N", help="look at the objects of the last N batches only (default: of all)"
    )


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Add the options for a catalog of Iceberg."""
    parser.add_argument(
        "--iceberg-conn-id",
        metavar="ID",
        help="Airflow connection of type iceberg of the catalog [KAFKA_S3_ICEBERG_CONN_ID]",
    )
    parser.add_argument(
        "--catalog-config", metavar="FILE", help="JSON file of pyiceberg's properties of the catalog, with secrets"
    )


def table(access: Access) -> Answer:
    """Add the batches of a topic to a table of Iceberg, or its folders to one of Glue or Hive; or compare the two."""
    if access.arguments.action == _SYNC:
        return _sync(access)
    arguments = access.arguments
    settings = TableSettings(
        partition_by=tuple(arguments.partition_by),
        owned_by=arguments.owned_by,
        location=arguments.location,
        # The operator has the setting; a command that expired what it keeps would be a surprise.
        keep_snapshots=None,
    )
    topic_table = open_table(access, access.landed_topic(), arguments.table, settings)
    with topic_table.catalog:
        return _ACTIONS[arguments.action](access, topic_table)


def open_table(access: Access, topic: TopicPipeline, name: str, settings: TableSettings) -> TopicTable:
    """A table of Iceberg and the topic whose objects it has; the caller closes its catalog."""
    require_iceberg()
    from airflow_provider_kafka_s3.tables.iceberg.catalog import open_catalog, with_files
    from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable

    called, properties = _catalog(access.arguments)
    catalog = open_catalog(called, with_files(properties, *access.s3_access))
    return TopicTable(catalog, name, topic.log, settings)


def _catalog(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """What the catalog is called in messages, and its properties."""
    if arguments.catalog_config and arguments.iceberg_conn_id:
        raise ConfigurationError("--iceberg-conn-id and --catalog-config are given; use one of them")
    if arguments.catalog_config:
        return arguments.catalog_config, read_settings("--catalog-config", arguments.catalog_config)
    connection = arguments.iceberg_conn_id or default_of("iceberg_conn_id")
    if not connection:
        raise ConfigurationError("no catalog is named; use --iceberg-conn-id or --catalog-config")
    from airflow_provider_kafka_s3.airflow import connections

    return connection, read_connection(connection, connections.catalog_properties, "iceberg_conn_id")


def _add(access: Access, topic_table: TopicTable) -> Answer:
    if access.arguments.dry_run:
        return _status(access, topic_table)
    added = topic_table.add()
    text = "no batch was added"
    if added.commits:
        text = f"{count(added.files, 'object')} with {count(added.records, 'record')} added"
        text += f" by {count(added.commits, 'commit')}"
    if added.removed:
        text += f", {count(added.removed, 'object')} removed that had been accepted as lost"
    return Answer(
        {
            "table": added.table,
            "first": added.first,
            "last": added.last,
            "files": added.files,
            "records": added.records,
            "commits": added.commits,
            "removed": added.removed,
            "snapshot": added.snapshot,
        },
        [f"table {added.table}: {text}; batches up to {added.last} are in"],
    )


def _status(access: Access, topic_table: TopicTable) -> Answer:
    del access
    status = topic_table.status()
    behind = status.complete - status.last
    line = f"table {status.table}: batches up to {status.last} of {status.complete} are in"
    if not status.exists:
        line = f"table {status.table}: there is none yet; {count(status.complete, 'batch')} would be added"
    return Answer(
        {
            "table": status.table,
            "exists": status.exists,
            "last": status.last,
            "complete": status.complete,
            "behind": behind,
            "snapshot": status.snapshot,
            "snapshots": status.snapshots,
        },
        [line],
    )


def _check(access: Access, topic_table: TopicTable) -> Answer:
    arguments = access.arguments
    difference = topic_table.check(
        repair=arguments.repair and not arguments.dry_run, unsafe_rows_are_absent=arguments.unsafe_rows_are_absent
    )
    lists = {
        "missing": difference.missing,
        "accepted as lost": difference.lost,
        "of no batch": difference.unknown,
        "more than once": difference.twice,
    }
    files, records = count(difference.files, "object"), count(difference.records, "record")
    lines: list[str | Line] = [
        f"table {difference.table}: {files} with {records} of batches up to {difference.batches}"
    ]
    if difference.rewritten:
        lines.append(f"  {count(len(difference.rewritten), 'object')} rewritten: other files have as many rows")
    lines += [Line(f"  {what}: {url}", "warning") for what, urls in lists.items() for url in urls]
    repairs = {"added": difference.added, "removed": difference.removed}
    lines += [Line(f"  {what}: {url}", "good") for what, urls in repairs.items() for url in urls]
    return Answer(
        {
            "table": difference.table,
            "batches": difference.batches,
            "files": difference.files,
            "records": difference.records,
            "missing": [*difference.missing],
            "rewritten": [*difference.rewritten],
            "lost": [*difference.lost],
            "unknown": [*difference.unknown],
            "twice": [*difference.twice],
            "added": [*difference.added],
            "removed": [*difference.removed],
        },
        lines,
        FINDINGS if any(lists.values()) else OK,
    )


def _sync(access: Access) -> Answer:
    from airflow_provider_kafka_s3.tables.partitions import sync_partitions

    arguments = access.arguments
    if arguments.last is not None and arguments.last < 1:
        raise ConfigurationError(f"--last {arguments.last} must be a positive number")
    partitioned = _partitioned(access)
    synced = sync_partitions(access.landed_topic().log, partitioned, last=arguments.last, dry_run=arguments.dry_run)
    would = "would be " if arguments.dry_run else ""
    added, differing = count(len(synced.added), "partition"), f"{len(synced.differing):,} at another place"
    lines: list[str | Line] = [f"table {synced.table}: {added} {would}added, {synced.equal:,} equal, {differing}"]
    lines += [Line(f"  added: {name}", "good") for name in synced.added]
    lines += [
        Line(f"  at another place: {each.partition}: {each.location}, its objects are in {each.expected}", "warning")
        for each in synced.differing
    ]
    if synced.others:
        lines.append(f"  {count(synced.others, 'object')} of other folders are in no partition of the table")
    return Answer(
        {
            "table": synced.table,
            "added": [*synced.added],
            "equal": synced.equal,
            "differing": [dataclasses.asdict(each) for each in synced.differing],
            "others": synced.others,
        },
        lines,
        FINDINGS if synced.differing else OK,
    )


def _partitioned(access: Access) -> PartitionedTable:
    """The table of Glue or Hive."""
    arguments = access.arguments
    if arguments.glue == bool(arguments.hive_conn_id):
        raise ConfigurationError("sync needs the catalog of the table; use one of --glue and --hive-conn-id")
    if not TABLE_OF_DATABASE.fullmatch(arguments.table):
        raise ConfigurationError(f"--table {arguments.table} must be database and name, such as lake.orders")
    from airflow_provider_kafka_s3.airflow import connections

    if arguments.hive_conn_id:
        from airflow_provider_kafka_s3.tables.partitions.hive import HivePartitions

        metastore = read_connection(arguments.hive_conn_id, connections.metastore_access, "hive_conn_id")
        return HivePartitions(metastore, arguments.table, retrier=access.retrier)
    from airflow_provider_kafka_s3.storage.clients import make_glue_client
    from airflow_provider_kafka_s3.tables.partitions.glue import GluePartitions

    client = make_glue_client(*access.glue_access(arguments.glue_conn_id, arguments.glue_region))
    return GluePartitions(client, arguments.table, catalog_id=arguments.glue_catalog_id, retrier=access.retrier)


_SYNC: Final = "sync"
_ACTIONS: Final[dict[str, Callable[[Access, Any], Answer]]] = {"add": _add, "status": _status, "check": _check}

COMMANDS: Final = (
    Command(
        name="table",
        run=table,
        summary="Add the batches of a topic to a table of Iceberg, each once, or its folders to one of Glue or Hive.",
        examples=(
            "status --bucket lake --pipeline orders --topic orders --table lake.orders --catalog-config catalog.json",
            "add --bucket lake --pipeline orders --topic orders --table lake.o --catalog-config catalog.json --dry-run",
        ),
        findings="the table differs from the log",
        add_options=_add_options,
    ),
)
