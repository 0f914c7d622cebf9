"""How a run ended: the task's XCom, and the one error it fails with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_kafka_s3.exceptions import TerminalError, message_of

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.requests import TopicResult, Verification
    from airflow_provider_kafka_s3.operators.windows import Resolved

__all__ = ["failure", "to_xcom"]


def to_xcom(results: Mapping[str, TopicResult], resolved: Resolved) -> dict[str, Any]:
    """What the task returns; JSON, and nothing secret. ``docs/xcom.md`` tells of every field.

    ::

        {"status": "ok",            # "empty" if there was nothing to do for any topic
         "mode": "resume",          # or "verify" or "restore"
         "window": {"source": "data interval", "start": "2026-01-01T00:00:00+00:00", "end": "2026-01-02T…"},
                                    # or {"source": "conf", "offsets": {"orders": {"0": [0, 100]}}}, or null
         "topics": {"orders": {
             "status": "ok",        # or "empty"
             "batches": [{"batch": 7, "manifest": "s3://…/0000000007.manifest.json", "planned_here": true,
                          "objects": 12, "records": 40000, "size": 5242880, "offsets": {"0": [[100, 150]]}}],
             "records": 40000, "objects": 12, "size": 5242880,
             "shared": false,       # whether another run planned some of the batches
             "skipped": {},         # offsets that are recorded as lost
             "verified": 0,         # objects that a repeated run looked at and found
             "wrote": true,         # whether this try wrote anything to the bucket
             "verification": null}},  # of "verify" and "restore": {"objects": 12, "size": 5242880, "missing": [],
                                    # "restored": [], "accepted": [], "uncovered": {}}
         "batches": 1, "records": 40000, "objects": 12, "size": 5242880, "wrote": true}

    ``size`` is in bytes as stored. A batch that covers the targets of two runs is reported by both.
    """
    topics = {topic: _topic(result) for topic, result in sorted(results.items())}
    return {
        "mode": resolved.mode,
        "window": resolved.to_xcom(),
        "status": "ok" if any(t["status"] == "ok" for t in topics.values()) else "empty",
        "topics": topics,
        "batches": sum(len(t["batches"]) for t in topics.values()),
        **{name: sum(t[name] for t in topics.values()) for name in ("records", "objects", "size")},
        "wrote": any(t["wrote"] for t in topics.values()),
    }


def _topic(result: TopicResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "batches": [
            {
                "batch": b.batch,
                "manifest": b.manifest,
                "planned_here": b.mine,
                "objects": b.objects,
                "records": b.records,
                "size": b.size,
                "offsets": b.offsets.to_wire(),
            }
            for b in result.batches
        ],
        "records": sum(b.records for b in result.batches),
        "objects": sum(b.objects for b in result.batches),
        "size": sum(b.size for b in result.batches),
        "shared": result.shared,
        "skipped": result.skipped.to_wire(),
        "verified": result.verified,
        "wrote": result.wrote,
        "verification": None if result.verification is None else _verification(result.verification),
    }


def _verification(found: Verification) -> dict[str, Any]:
    return {
        "objects": found.objects,
        "size": found.size,
        "missing": list(found.missing),
        "restored": list(found.restored),
        "accepted": list(found.accepted),
        "uncovered": found.uncovered.to_wire(),
    }


def failure(errors: Mapping[str, Exception], done: Mapping[str, object]) -> tuple[str, bool, BaseException]:
    """What a task fails with when topics failed.

    Args:
        errors: per topic.
        done: the topics that did not fail.

    Returns:
        The message, naming each topic; whether trying again cannot help any of them; the cause.
    """
    topics_of: dict[str, list[str]] = {}
    for topic, error in sorted(errors.items()):
        text = f"{type(error).__name__}: {message_of(error)}"
        topics_of.setdefault(text, []).append(repr(topic))
    lines = [f"topic{'s' * (len(topics) > 1)} {', '.join(topics)}: {text}" for text, topics in topics_of.items()]
    if done:
        lines.append(f"done, and committed for good: {', '.join(map(repr, sorted(done)))}")
    causes = [error for _, error in sorted(errors.items())]
    cause: BaseException = causes[0] if len(causes) == 1 else ExceptionGroup("topics failed", causes)
    return "\n".join(lines), all(isinstance(e, TerminalError) for e in causes), cause
