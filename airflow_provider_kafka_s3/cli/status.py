"""The command ``kafka-s3 status``."""

from __future__ import annotations

from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, count, ranges, size, table
from airflow_provider_kafka_s3.inspect.status import BatchStatus, TopicStatus, topic_status
from airflow_provider_kafka_s3.parallel import in_threads

__all__ = ["status"]

_TOPICS: Final = 8
"""That are looked at at the same time."""


def status(access: Access) -> Answer:
    """How far topics are landed."""
    source = access.source if access.has_kafka else None
    lines: list[str] = []
    found = []
    logs = access.topic_logs()
    looks = in_threads(lambda log: topic_status(log, source, last=access.said.last), logs, threads=_TOPICS)
    for topic_log, told in zip(logs, looks, strict=True):
        if told is None:
            lines.append(f"{topic_log.pipeline} / {topic_log.topic}: nothing was ever landed")
        else:
            found.append(told)
            lines += _status_lines(told)
        lines.append("")
    if not lines:
        lines.append(f"nothing is landed under {access.store.url(access.topics_dir)}")
    wrong = any(told.recreated or any(p.gone for p in told.partitions) for told in found)
    data = {"topics": [told.to_json() for told in found]}
    return Answer(data, lines[:-1] if lines[-1] == "" else lines, FINDINGS if wrong else OK)


def _status_lines(told: TopicStatus) -> list[str]:
    lag = "" if told.lag is None else f", lag {told.lag:,} offsets"
    resets = f", {count(told.generation, 'reset')}" if told.generation else ""
    lines = [f"{told.pipeline} / {told.topic}: {told.batches:,} batches resolved{resets}{lag}"]
    if told.recreated:
        lines.append(
            f"  the topic was created again: stored {told.topic_id}, live {told.live_topic_id}; see kafka-s3 reset"
        )
    head = ("partition", "stored", "log start", "log end", "lag", "gone", "gaps", "lost", "debt", "open")
    lines += _indented(
        table(
            head,
            [
                (
                    p.partition,
                    p.stored,
                    p.log_start,
                    p.log_end,
                    p.lag,
                    p.gone,
                    *map(ranges, (p.gaps, p.lost, p.debt, p.open)),
                )
                for p in told.partitions
            ],
        )
    )
    if told.open:
        lines.append("  open batches:")
        rows = [
            (b.batch, b.state, b.offsets.count, "tail" if b.tail else "history", b.run, b.planned_by) for b in told.open
        ]
        lines += _indented(table(("batch", "state", "offsets", "kind", "run", "planned by"), rows), 4)
    closed = [b for b in told.last if b not in told.open]
    if closed:
        lines.append("  last batches:")
        lines += _indented(table(("batch", "state", "objects", "records", "size", "planned by"), map(_row, closed)), 4)
    return lines


def _row(b: BatchStatus) -> tuple[object, ...]:
    return (b.batch, b.state, b.objects, b.records, size(b.size), b.reason or b.planned_by)


def _indented(lines: list[str], by: int = 2) -> list[str]:
    return [" " * by + line for line in lines]
