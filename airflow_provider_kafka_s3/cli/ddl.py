"""The command ``kafka-s3 ddl``."""

from __future__ import annotations

import argparse
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import Answer
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["COMMANDS", "ddl"]

_DIALECTS: Final = ("athena", "trino", "spark", "duckdb", "hive")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dialect", required=True, choices=_DIALECTS, help="engine that the statements are for")
    parser.add_argument("--table", metavar="NAME", help="name of the table (default: that of the topic)")
    parser.add_argument(
        "--dead-letters", action="store_true", help="a table of the dead letters of the topic, TOPIC_dead_letters"
    )
    parser.add_argument(
        "--database", metavar="NAME", help="database of the table, or CATALOG.SCHEMA (default: that of the session)"
    )
    parser.add_argument(
        "--last",
        type=int,
        metavar="N",
        help="look at the objects of the last N batches only, for their columns and folders (default: of all)",
    )


def ddl(access: Access) -> Answer:
    """Print the statements that make a table of a topic in an engine."""
    from airflow_provider_kafka_s3.reading.snapshot import Snapshot
    from airflow_provider_kafka_s3.tables.ddl import DIALECTS, TableName, dead_letters_table, landed_table

    arguments = access.arguments
    if arguments.last is not None and arguments.last < 1:
        raise ConfigurationError(f"--last {arguments.last} must be a positive number")
    snapshot = Snapshot(access.landed_topic().log)
    if arguments.last is not None:
        snapshot = snapshot.changes(max(0, snapshot.batch - arguments.last))
    called = TableName(arguments.table, arguments.database)
    table = dead_letters_table(snapshot) if arguments.dead_letters else landed_table(snapshot)
    script = DIALECTS[arguments.dialect].script(table, called)
    data = {"dialect": arguments.dialect, "statements": [*script.statements], "remarks": [*script.remarks]}
    return Answer(data, script.text.splitlines())


COMMANDS: Final = (
    Command(
        name="ddl",
        run=ddl,
        summary="Print the statements that make a table of a topic in Athena, Trino, Spark, DuckDB or Hive.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --dialect athena --database lake",
            "--bucket lake --pipeline orders --topic orders --dialect duckdb --table new_orders --last 10",
        ),
        has_dry_run=False,
        add_options=_add_options,
    ),
)
