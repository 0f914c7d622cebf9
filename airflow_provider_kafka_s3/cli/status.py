"""The command ``kafka-s3 status``."""

from __future__ import annotations

import argparse
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command, add_topics_dir
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, Style, Table, count, ranges, size
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.documents.manifest import NO_UNKNOWN_FIELDS
from airflow_provider_kafka_s3.documents.topic_summary import SMALL_OBJECT
from airflow_provider_kafka_s3.inspect.status import BatchStatus, TopicStatus
from airflow_provider_kafka_s3.parallel import in_threads

__all__ = ["COMMANDS", "list_topics", "status"]

_SHOWN: Final = 60
"""Characters of the name of a field."""
_BATCHES_A_DAY: Final = 24
"""Batches of a topic that is landed each hour, for a day; objects of fewer are no burden."""
_TOPICS: Final = 8
"""Topics that are read at the same time."""
_STYLES: Final[Mapping[str, Style]] = {
    "gone": "bad",
    **dict.fromkeys(("gaps", "lost", "debt", "dead letters", "unknown fields"), "warning"),
}


def status(access: Access) -> Answer:
    """Status of topics: landed offsets, open batches, lag."""
    lines: list[str | Line | Table] = []
    landed, nothing = [], []
    topics = access.topic_pipelines()
    states = in_threads(
        lambda topic: topic.status(last=access.arguments.last, use_kafka=access.has_kafka), topics, threads=_TOPICS
    )
    for topic, state in zip(topics, states, strict=True):
        if state is None:
            nothing.append({"pipeline": topic.log.pipeline, "topic": topic.log.topic})
            lines.append(
                f"{topic.log.pipeline} / {topic.log.topic}: nothing is landed: its first run has ended before a batch"
            )
        else:
            landed.append(state)
            lines += _status_lines(state, topic.log.remedies.reset())
        lines.append("")
    wrong = any(state.recreated or any(p.gone for p in state.partitions) for state in landed)
    data = {"topics": [state.to_json() for state in landed], "nothing_landed": nothing}
    return Answer(data, lines[:-1], FINDINGS if wrong else OK)


def list_topics(access: Access) -> Answer:
    """The pipelines and their topics; markers are read, and nothing else."""
    topics = access.known_topics()
    markers = in_threads(lambda topic: topic.log.read_marker(), topics, threads=_TOPICS)
    rows = [
        (topic.log.pipeline, topic.log.topic, 0 if marker is None else sum(len(range(*r)) for r in marker[0].resolved))
        for topic, marker in zip(topics, markers, strict=True)
    ]
    head = ("pipeline", "topic", "batches")
    lines = [Table(head, rows) if rows else f"there is no pipeline below {access.store.url(access.topics_dir)}"]
    return Answer({"topics": [dict(zip(head, row, strict=True)) for row in rows]}, lines)


def _status_lines(state: TopicStatus, reset: str) -> list[str | Line | Table]:
    lag = "" if state.lag is None else f", lag {count(state.lag, 'offset')}"
    resets = f", {count(state.generation, 'reset')}" if state.generation else ""
    lines: list[str | Line | Table] = [
        f"{state.pipeline} / {state.topic}: {count(state.batches, 'batch')} resolved{resets}{lag}"
    ]
    if state.recreated:
        ids = f"stored {state.topic_id}, live {state.live_topic_id}"
        lines.append(Line(f"  the topic was created again: {ids}. To land the new one: {reset}", "bad"))
    head = ("partition", "stored", "log start", "log end", "lag", "gone", "gaps", "lost", "debt", "open")
    partitions = [
        (p.partition, p.stored, p.log_start, p.log_end, p.lag, p.gone, *map(ranges, (p.gaps, p.lost, p.debt, p.open)))
        for p in state.partitions
    ]
    lines.append(Table(head, partitions, indent=2, styles=_STYLES))
    lines += [
        f"  partition {p.partition}: an open transaction holds back {count(p.held_back, 'offset')}, from offset "
        f"{p.log_end} on"
        for p in state.partitions
        if p.held_back
    ]
    lines += [
        f"  objects of batches up to {last} are given to table {printable(table, shown=_SHOWN)}, which may delete them"
        for table, last in state.tables.items()
    ]
    if state.expired or state.expiring:
        waiting = f"; {count(state.expiring, 'object')} not deleted yet" if state.expiring else ""
        lines.append(f"  {count(state.expired, 'batch')} expired{waiting}")
    if state.open:
        lines.append("  open batches:")
        rows = [
            (b.batch, b.state, b.offsets.count, "tail" if b.tail else "history", b.run, b.planned_by)
            for b in state.open
        ]
        lines.append(Table(("batch", "state", "offsets", "kind", "run", "planned by"), rows, indent=4))
    closed = [b for b in state.last if b not in state.open]
    if closed:
        lines.append("  last batches:")
        lines.append(_batches(closed))
    if state.batches >= _BATCHES_A_DAY and closed and 0 < closed[-1].size < closed[-1].objects * SMALL_OBJECT:
        average = size(closed[-1].size // closed[-1].objects)
        lines.append(
            f"  objects of the last batch have {average} on average. A pipeline with source=Landed(pipeline="
            f"{state.pipeline!r}, …) makes few large ones of them: docs/compaction.md"
        )
    if names := functools.reduce(operator.or_, (b.unknown_fields for b in closed), NO_UNKNOWN_FIELDS).names:
        newest = ", ".join(printable(name, shown=_SHOWN) for name in reversed(names))
        lines.append(f"  fields that the schema does not have, the newest first: {newest}")
    return lines


def _batches(batches: Sequence[BatchStatus]) -> Table:
    columns: dict[str, list[object]] = {
        "batch": [b.batch for b in batches],
        "state": [b.state for b in batches],
        "objects": [b.objects for b in batches],
        "records": [b.records for b in batches],
    }
    # Most topics have none.
    rare = {
        "tombstones": [b.tombstones for b in batches],
        "ignored": [b.ignored for b in batches],
        "dead letters": [b.dead_letters for b in batches],
        "unknown fields": [b.unknown_fields.records for b in batches],
        "expired": [b.expired for b in batches],
    }
    columns |= {name: [*counts] for name, counts in rare.items() if any(counts)}
    columns |= {"size": [size(b.size) for b in batches], "planned by": [b.reason or b.planned_by for b in batches]}
    return Table(tuple(columns), [*zip(*columns.values(), strict=True)], indent=4, styles=_STYLES)


def _add_last(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--last", type=int, default=5, metavar="N", help="show the last N batches (default: %(default)s)"
    )


def _add_prefix(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(topic=None)
    add_topics_dir(parser)
    parser.add_argument("--pipeline", help="only topics of this pipeline")


COMMANDS: Final = (
    Command(
        name="status",
        run=status,
        summary="Show landed offsets, open batches and lag of topics.",
        examples=(
            "--bucket lake --bootstrap-server broker:9092",
            "--bucket lake --pipeline orders --topic orders --last 20 --json",
        ),
        findings="records are gone, or a topic was created again",
        topics="many",
        has_dry_run=False,
        add_options=_add_last,
    ),
    Command(
        name="list",
        run=list_topics,
        summary="List the pipelines below a prefix, and their topics.",
        examples=(
            "--bucket lake",
            "--bucket lake --pipeline orders --json",
        ),
        topics=None,
        add_options=_add_prefix,
    ),
)
