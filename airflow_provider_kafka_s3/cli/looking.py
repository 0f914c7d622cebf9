"""The commands that look: ``status`` and ``verify``."""

from __future__ import annotations

import uuid
from typing import Any, Final

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.encode import object_builder
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.run import TopicRun
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, count, ranges, size, table
from airflow_provider_kafka_s3.documents.notation import parse_offsets
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    ForeignObjectError,
    MissingObjectError,
)
from airflow_provider_kafka_s3.inspect.status import BatchStatus, TopicStatus, topic_status
from airflow_provider_kafka_s3.parallel import in_threads

__all__ = ["status", "verify"]

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


def verify(access: Access) -> Answer:
    """Read objects back; restore what is missing, if asked."""
    said = access.said
    logs = access.topic_logs()
    if (said.batch or said.offsets) and len(logs) != 1:
        raise ConfigurationError("--batch and --offsets are those of one topic; name it by --pipeline and --topic")
    topics: dict[str, Any] = {}
    lines, code = [], OK
    for topic_log in logs:
        access.require_landed(topic_log)
        told, line, wrong = _verify(access, topic_log)
        topics[topic_log.topic] = told
        lines.append(line)
        code = FINDINGS if wrong else code
    return Answer({"topics": topics}, lines or ["nothing is landed there"], code)


def _verify(access: Access, topic_log: TopicLog) -> tuple[dict[str, Any], str, bool]:
    committer = Committer(topic_log, access.source, object_builder(access.store))
    window = _window(access, topic_log)
    request = RunRequest(
        run=f"operator:verify:{uuid.uuid4()}",
        mode="incremental" if window is None else "data_interval",
        window=window,
        layout=topic_log.last_layout(topic_log.view().next),
        starting="earliest",
        purpose="restore" if access.said.restore and not access.said.dry_run else "verify",
    )
    try:
        result = TopicRun(committer, request).advance()
    except (MissingObjectError, ForeignObjectError, BatchLossError) as e:
        return {"status": "damaged", "error": type(e).__name__, "message": str(e)}, f"{topic_log.topic}: {e}", True
    if not isinstance(result, TopicResult) or result.verification is None:
        raise TypeError("a verification plans nothing")
    found = result.verification
    told = {
        "status": result.status,
        "batches": [b.batch for b in result.batches],
        "objects": found.objects,
        "size": found.size,
        "restored": list(found.restored),
        "accepted": list(found.accepted),
        "uncovered": found.uncovered.to_wire(),
    }
    restored = f", {count(len(found.restored), 'object')} written again" if found.restored else ""
    accepted = f", {count(len(found.accepted), 'object')} accepted as lost" if found.accepted else ""
    return (
        told,
        f"{topic_log.topic}: {count(found.objects, 'object')} intact, {size(found.size)} read{restored}{accepted}",
        False,
    )


def _window(access: Access, topic_log: TopicLog) -> dict[int, tuple[int, int]] | None:
    """What of a topic to look at, as one range per partition; None: all that is landed."""
    said = access.said
    if not said.batch and not said.offsets:
        return None
    offsets = parse_offsets(said.offsets) if said.offsets else NO_OFFSETS
    for batch in said.batch or ():
        plan, _ = topic_log.require_plan(batch)
        if plan.generation != topic_log.view().marker.generation:
            raise ConfigurationError(
                f"batch {batch} of topic {topic_log.topic!r} was landed before the topic was reset; its offsets mean "
                f"something else now"
            )
        offsets |= plan.claim
    return {p: (found[0][0], found[-1][1]) for p, found in Offsets(dict(offsets.items())).items()}
