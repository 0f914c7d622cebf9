"""The command ``kafka-s3 repair``: build the marker again from the log.

It may be repeated, and may run at the same time as any run of the pipeline.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
from collections.abc import Sequence
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import FAILED, FINDINGS, OK, Answer, count, size
from airflow_provider_kafka_s3.documents.notation import format_batches, parse_batches
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.maintenance import repair as marker_repair
from airflow_provider_kafka_s3.times import parse_time

__all__ = ["COMMANDS", "repair"]


def repair(access: Access) -> Answer:
    """Build the marker again."""
    arguments = access.arguments
    pipeline = access.topic_pipeline(arguments.topic)
    start, cluster_id = _start(access)
    if arguments.batches and not arguments.gone_before:
        raise ConfigurationError("--batches selects the batches of --gone-before; give both")
    rule = marker_repair.GoneRule(
        before=parse_time("--gone-before ", arguments.gone_before).timestamp() if arguments.gone_before else None,
        batches=parse_batches(arguments.batches) if arguments.batches else None,
        restore=arguments.restore_gone,
        reason=arguments.reason,
        operator=arguments.operator,
    )
    done = pipeline.repair(
        start=start,
        cluster_id=cluster_id,
        rule=rule,
        every_document=arguments.every_document,
        dry_run=arguments.dry_run,
    )
    written = {name: documents.written for name, documents in done.derived.items() if documents.written}
    verdict = {
        "right": "the marker agrees with the log" + ("" if done.recorded or written else "; nothing was changed"),
        "missing": "the marker was missing",
        "corrupt": "the marker was corrupt",
        "wrong": "the marker did not agree with the log",
    }[done.was]
    if done.was != "right" and not done.ambiguous:
        verdict += "; it would be written" if arguments.dry_run else "; it is written again"
    lines = [verdict]
    if done.ambiguous:
        lines += _choice(access, pipeline.log, done)
    else:
        would = "would be" if arguments.dry_run else "are"
        lines += [f"{_amount(done.recorded)} {would} recorded as gone for good"] if done.recorded else []
        outcome = "to be written" if arguments.dry_run else "written"
        lines += [f"{name}: {count(number, 'document')} {outcome} again" for name, number in written.items()]
        for name, documents in done.derived.items():
            lines += [f"{name}: {which} skipped: {why}" for which, why in documents.skipped.items()]
        lines += [f"covered: {done.marker.covered}", *(f"batch {n} stays open: {w}" for n, w in done.open.items())]
    code = FINDINGS if any(documents.skipped for documents in done.derived.values()) else OK
    if done.ambiguous:
        code = FINDINGS if arguments.dry_run else FAILED
    return Answer(
        {
            "was": done.was,
            "written": done.written,
            "covered": done.marker.covered.to_json(),
            "lost": done.marker.lost.to_json(),
            "debt": done.marker.debt.to_json(),
            "open": {str(n): why for n, why in done.open.items()},
            "unsure": {str(gone.batch): list(gone.keys) for gone in done.ambiguous},
            "recorded": {str(gone.batch): list(gone.keys) for gone in done.recorded},
            "indexes": done.indexes,
            "skipped_indexes": dict(done.skipped_indexes),
            "derived": {
                name: {"written": documents.written, "skipped": dict(documents.skipped)}
                for name, documents in done.derived.items()
            },
            "dry_run": arguments.dry_run,
        },
        lines,
        code,
    )


def _choice(access: Access, topic_log: TopicLog, done: marker_repair.Repaired) -> list[str]:
    """The decision that a person has to make before the marker is built, and the command for each choice.

    The commands name the batches, so that a later loss is a decision of its own.
    """
    arguments, unsure = access.arguments, done.ambiguous
    known = [gone.decided for gone in unsure if gone.decided is not None]
    first, last = math.floor(min(known, default=0)), math.floor(max(known, default=0))
    latest = math.floor(max((gone.decided for gone in done.recorded if gone.decided is not None), default=0))
    again = ("--starting-offsets", arguments.starting_offsets) if arguments.starting_offsets else ()
    decided = [gone.batch for gone in done.recorded]
    older = ("--gone-before", arguments.gone_before, "--batches", format_batches(decided)) if decided else ()
    everything = format_batches([*decided, *(gone.batch for gone in unsure)])
    stay = topic_log.remedies.repair(*again, "--gone-before", _when(max(last, latest) + 1), "--batches", everything)
    restore = topic_log.remedies.repair(*again, *older, "--restore-gone")
    return [
        (
            f"{_amount(unsure)} are gone, and their uploads too: they were never completed, or were deleted since, and "
            f"no document records which. The batches were decided from {_when(first)} to {_when(last)}. Nothing was "
            f"changed. Choose, for all of them"
        ),
        f"they were deleted, and stay gone (with an earlier time, only those of batches decided before it): {stay}",
        f"they are written again from their records, by the next run over them or a recover: {restore}",
    ]


def _amount(found: Sequence[marker_repair.Gone]) -> str:
    """Numbers of objects, records, bytes and batches."""
    objects = [entry for gone in found for entry in gone.objects]
    return (
        f"{count(len(objects), 'object')} ({count(sum(e.records for e in objects), 'record')}, "
        f"{size(sum(e.size for e in objects))}) of {count(len(found), 'batch')}"
    )


def _when(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _start(access: Access) -> tuple[dict[int, int], str]:
    """First offsets of partitions without batches, and the cluster's id."""
    starting, topic = access.arguments.starting_offsets, access.arguments.topic
    if starting not in (None, "earliest", "latest"):
        pairs = [part.partition(":") for part in starting.split(",")]
        if not all(len(n) < 20 and n.isascii() and n.isdigit() for p, _, o in pairs for n in (p, o)):
            raise ConfigurationError(
                f"--starting-offsets {starting!r}: use earliest, latest, or PARTITION:OFFSET with commas between"
            )
        return {int(p): int(o) for p, _, o in pairs}, ""
    if starting is None and not access.has_kafka:
        return {}, ""
    info = access.source.describe(topic)
    if starting == "latest":
        return access.source.ends(topic, info.partitions, "read_committed"), info.cluster_id or ""
    return access.source.earliest(topic, info.partitions), info.cluster_id or ""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--starting-offsets",
        metavar="OFFSETS",
        help="first offsets of partitions, if there is no batch with a plan that has them: earliest, latest or "
        "PARTITION:OFFSET[,…] (default: earliest if a Kafka cluster is named, else 0)",
    )
    parser.add_argument(
        "--gone-before",
        metavar="TIME",
        help="accept missing objects of batches decided before this time, such as 2026-01-01T00:00:00Z, as lost",
    )
    parser.add_argument("--batches", metavar="NUMBERS", help="batches of --gone-before, such as 2,5-7 (default: all)")
    parser.add_argument("--restore-gone", action="store_true", help="let the next run write missing objects again")
    parser.add_argument(
        "--every-document",
        action="store_true",
        help="read all plans and manifests, and compare the index of the log with them",
    )


COMMANDS: Final = (
    Command(
        name="repair",
        run=repair,
        summary="Build the marker again from the log.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --dry-run",
            "--bucket lake --pipeline orders --topic orders --every-document",
        ),
        findings="indexes are skipped, or a dry run shows that a decision is needed",
        is_signed=True,
        add_options=_add_options,
    ),
)
