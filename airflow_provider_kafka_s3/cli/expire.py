"""The command ``kafka-s3 expire``: delete objects that are no longer needed.

It may be repeated, and may run at the same time as any run of the pipeline.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, count, size
from airflow_provider_kafka_s3.cli.table import add_catalog, open_table
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.config.tables import TableSettings
from airflow_provider_kafka_s3.documents.notation import format_batches
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.maintenance.expiry_rule import (
    DEFAULT_GRACE,
    DEFAULT_LEAST_AGE,
    Expired,
    ExpiryGuard,
    ExpiryRule,
)
from airflow_provider_kafka_s3.messages import printable
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_elsewhere import landed_elsewhere

__all__ = ["COMMANDS", "expire"]

_DAY: Final = 86_400.0


def expire(access: Access) -> Answer:
    """Record which objects are no longer needed, and delete those that were recorded long enough ago."""
    arguments, topic = access.arguments, access.landed_topic()
    if arguments.withdraw:
        return _withdraw(access, topic)
    landed_in = None
    if (arguments.landed_in is None) != (arguments.landed_in_topics_dir is None):
        raise ConfigurationError("--landed-in and --landed-in-topics-dir name a pipeline together; give both")
    if arguments.landed_in is not None:
        landed_in = Landed(pipeline=arguments.landed_in, topics_dir=arguments.landed_in_topics_dir)
    rule = ExpiryRule(
        older_than=None if arguments.older_than is None else arguments.older_than * _DAY,
        landed_in=landed_in,
        least_age=arguments.least_age * _DAY,
        grace=arguments.grace * _DAY,
        tables=frozenset((*arguments.table, *arguments.unsafe_without_table)),
        reason=arguments.reason,
        operator=arguments.operator,
    )
    others = landed_elsewhere(topic, verify=arguments.verify, unsafe_fewer_parts=arguments.unsafe_fewer_parts)
    with contextlib.ExitStack() as catalogs:
        guards = list[ExpiryGuard]()
        for name in arguments.table:
            from airflow_provider_kafka_s3.tables.iceberg.table_files import TableFiles

            topic_table = open_table(access, topic, name, TableSettings())
            catalogs.enter_context(topic_table.catalog)
            guards.append(TableFiles(topic_table))
        done = topic.expire(rule, landed_in=others, guards=guards, dry_run=arguments.dry_run)
    return _answer(access, done)


def _withdraw(access: Access, topic: TopicPipeline) -> Answer:
    """Take back what is recorded, and is not deleted yet."""
    if access.arguments.dry_run:
        raise ConfigurationError("--withdraw has no dry run: status has what is not deleted yet")
    taken, left = topic.withdraw_expiry()
    lines: list[str | Line] = [f"{count(taken, 'object')} are needed again"]
    if left:
        lines.append(Line(f"{count(left, 'object')} stay expired: their deletion has begun", "warning"))
    return Answer({"withdrawn": taken, "left": left}, lines, FINDINGS if left else OK)


def _answer(access: Access, done: Expired) -> Answer:
    is_dry = access.arguments.dry_run
    will = "would be" if is_dry else "are"
    of_batches = f"{count(done.recorded, 'object')} of {count(done.batches, 'batch')}, {size(done.recorded_size)}"
    lines: list[str | Line] = [f"{of_batches}, {will} recorded as no longer needed"]
    absent = f", {count(done.absent, 'object')} gone already" if done.absent else ""
    deleted = f"{count(done.deleted, 'object')}, {size(done.deleted_size)}"
    lines.append(f"{deleted}, recorded earlier would be deleted" if is_dry else f"{deleted}, deleted{absent}")
    delete_from = None
    if done.delete_from is not None:
        delete_from = dt.datetime.fromtimestamp(done.delete_from, dt.UTC).isoformat(timespec="seconds")
        lines.append(
            f"{count(done.waiting, 'object')} recorded and not deleted yet, {size(done.waiting_size)}: run the command "
            f"again after {delete_from}"
        )
    for why, batches in done.kept.items():
        lines.append(Line(f"objects of batches {format_batches(batches)} are kept: {why}", "warning"))
    for key, why in done.named.items():
        lines.append(Line(f"not deleted: {access.store.url(key)}: {printable(why)}", "bad"))
    if done.refused > len(done.named):
        lines.append(Line(f"not deleted, in all: {count(done.refused, 'object')}", "bad"))
    data = {
        "batches": done.batches,
        "recorded": done.recorded,
        "recorded_size": done.recorded_size,
        "deleted": done.deleted,
        "deleted_size": done.deleted_size,
        "absent": done.absent,
        "kept": {why: list(batches) for why, batches in done.kept.items()},
        "refused": done.refused,
        "named": done.named,
        "waiting": done.waiting,
        "waiting_size": done.waiting_size,
        "delete_from": delete_from,
        "dry_run": is_dry,
    }
    return Answer(data, lines, FINDINGS if done.kept or done.refused else OK)


def _add_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which objects (--older-than, --landed-in, or both)")
    which.add_argument(
        "--older-than",
        type=float,
        metavar="DAYS",
        help="those whose records are all older, and those of batches that were landed earlier",
    )
    which.add_argument(
        "--landed-in", metavar="PIPELINE", help="those whose records this pipeline in the same bucket has landed, too"
    )
    which.add_argument(
        "--landed-in-topics-dir", metavar="PREFIX", help="its prefix, which is another one than that of the topic"
    )
    which.add_argument(
        "--least-age",
        type=float,
        metavar="DAYS",
        default=DEFAULT_LEAST_AGE / _DAY,
        help="only batches that were landed before (default: %(default)s)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        metavar="DAYS",
        default=DEFAULT_GRACE / _DAY,
        help="time between the record and the deletion, longer than any reader or run takes (default: %(default)s)",
    )
    parser.add_argument(
        "--withdraw",
        action="store_true",
        help="take back what is recorded as no longer needed, as far as its deletion has not begun, and do "
        "nothing else",
    )
    parser.add_argument(
        "--verify", action="store_true", help="with --landed-in: read its objects back before anything is deleted"
    )
    parser.add_argument(
        "--unsafe-fewer-parts",
        action="store_true",
        help="with --landed-in: also if it does not keep all of each record, such as its key, or the bytes of its "
        "value: you know that you do not need them",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="table of Iceberg that has objects of the topic: what it still has is not deleted; repeatable",
    )
    add_catalog(parser)
    parser.add_argument(
        "--unsafe-without-table",
        action="append",
        default=[],
        metavar="NAME",
        help="delete without a look at this table of the topic: you know that it is gone; repeatable",
    )


COMMANDS: Final = (
    Command(
        name="expire",
        run=expire,
        summary="Delete objects that are no longer needed; the log has first that they are gone on purpose.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --older-than 90 --dry-run",
            "--bucket lake --pipeline orders --topic orders --landed-in orders-daily --landed-in-topics-dir history",
        ),
        findings="objects are kept, or not deleted",
        is_signed=True,
        add_options=_add_options,
    ),
)
