"""The command ``kafka-s3 verify``."""

from __future__ import annotations

import argparse
import uuid
from typing import Any, Final

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command, add_given, add_unproven
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, count, error_json, size
from airflow_provider_kafka_s3.documents.notation import parse_offsets
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    ForeignObjectError,
    MissingObjectError,
)
from airflow_provider_kafka_s3.pipeline import TopicPipeline

__all__ = ["COMMANDS", "verify"]


def verify(access: Access) -> Answer:
    """Read objects back; restore missing objects with ``--restore``."""
    arguments = access.arguments
    topics = access.landed_topics()
    if (arguments.batch or arguments.offsets) and len(topics) != 1:
        raise ConfigurationError("--batch and --offsets apply to one topic; name it by --pipeline and --topic")
    reports: dict[str, Any] = {}
    lines: list[Line] = []
    code = OK
    for topic in topics:
        report, line, damaged = _verify(access, topic)
        reports[topic.log.topic] = report
        lines.append(Line(line, "bad" if damaged else "good"))
        code = FINDINGS if damaged else code
    return Answer({"topics": reports}, lines or ["nothing is landed yet"], code)


def _verify(access: Access, topic: TopicPipeline) -> tuple[dict[str, Any], str, bool]:
    log = topic.log
    window = _window(access, topic)
    request = RunRequest(
        run=f"operator:verify:{uuid.uuid4()}",
        offsets="incremental" if window is None else "data_interval",
        window=window,
        layout=log.last_layout(log.view().next),
        starting="earliest",
        action="restore" if access.arguments.restore and not access.arguments.dry_run else "verify",
    )
    try:
        result = topic.run(request).advance()
    except (MissingObjectError, ForeignObjectError, BatchLossError) as e:
        return {"status": "damaged", "error": error_json(e)}, f"{log.topic}: {e}", True
    if not isinstance(result, TopicResult) or result.verification is None:
        raise TypeError("a verification plans nothing")
    verified = result.verification
    report = {
        "status": result.status,
        "batches": [b.batch for b in result.batches],
        "objects": verified.objects,
        "size": verified.size,
        "restored": list(verified.restored),
        "accepted": list(verified.accepted),
        "given": list(verified.given),
        "expired": verified.expired,
        "uncovered": verified.uncovered.to_json(),
    }
    restored = f", {count(len(verified.restored), 'object')} written again" if verified.restored else ""
    accepted = f", {count(len(verified.accepted), 'object')} accepted as lost" if verified.accepted else ""
    of_tables = f", {count(len(verified.given), 'object')} gone that a table owns" if verified.given else ""
    expired = f", {count(verified.expired, 'object')} expired" if verified.expired else ""
    intact = f"{count(verified.objects, 'object')} intact, {size(verified.size)} read"
    return (
        report,
        f"{log.topic}: {intact}{restored}{accepted}{of_tables}{expired}",
        False,
    )


def _window(access: Access, topic: TopicPipeline) -> dict[int, tuple[int, int]] | None:
    """The offsets to verify, as one range per partition; None: all landed offsets."""
    arguments = access.arguments
    if not arguments.batch and not arguments.offsets:
        return None
    offsets = parse_offsets(arguments.offsets) if arguments.offsets else NO_OFFSETS
    for batch in arguments.batch or ():
        plan, _ = topic.log.require_plan(batch)
        if plan.generation != topic.log.view().marker.generation:
            raise ConfigurationError(
                f"batch {batch} of topic {topic.log.topic!r} was landed before the topic was reset; its offsets are "
                f"those of another generation"
            )
        offsets |= plan.claim
    return {p: (ranges[0][0], ranges[-1][1]) for p, ranges in Offsets(dict(offsets.items())).items()}


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, action="append", help="only this batch; repeatable")
    parser.add_argument("--offsets", help="only these offsets, as PARTITION:START-END[,…], the end excluded")
    parser.add_argument(
        "--restore",
        action="store_true",
        help="write missing objects again from Kafka, or from the pipeline that they were read from",
    )
    add_unproven(parser)
    add_given(parser)


COMMANDS: Final = (
    Command(
        name="verify",
        run=verify,
        summary="Read objects back and compare them with their manifests.",
        examples=(
            "--bucket lake --pipeline orders",
            "--bucket lake --pipeline orders --topic orders --offsets 0:0-3 --restore",
        ),
        findings="objects are damaged or missing",
        topics="many",
        add_options=_add_options,
    ),
)
