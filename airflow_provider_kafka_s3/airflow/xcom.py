"""Result of a run: the XCom and the summary of the task, or the error that fails it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.documents.manifest import NO_UNKNOWN_FIELDS
from airflow_provider_kafka_s3.exceptions import TerminalError, message_of
from airflow_provider_kafka_s3.messages import count, few, printable, size

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.run_window import RunWindow
    from airflow_provider_kafka_s3.batch.request import BatchSummary, TopicResult, Verification

__all__ = ["failure", "summary", "to_xcom"]

_STATES: Final = {
    "restored": "of these written again",
    "missing": "missing",
    "accepted": "missing, accepted as lost",
    "given": "gone, given to a table",
}

_NAMES: Final = 5
"""Unknown fields that the summary names."""
_SHOWN: Final = 60
"""Characters of such a name."""
_MOST_LISTED: Final = 100
"""Batches, and keys of each state, that the XCom of ``verify`` and ``restore`` lists: a topic may have any number."""


def to_xcom(results: Mapping[str, TopicResult], resolved: RunWindow) -> dict[str, Any]:
    """The XCom of the task; JSON, and nothing secret. ``docs/xcom.md`` describes every field.

    ::

        {"status": "ok",            # "empty" if there was nothing to do for any topic
         "action": "land",         # or "verify" or "restore"
         "window": {"source": "data interval", "start": "2026-01-01T00:00:00+00:00", "end": "2026-01-02T…"},
                                    # or {"source": "conf", "offsets": {"orders": {"0": [0, 100]}}}, or null
         "topics": {"orders": {
             "status": "ok",        # or "empty"
             "batches": [{"batch": 7, "manifest": "s3://…/0000000007.manifest.json", "planned_here": true,
                          "landed_here": true, "objects": 12, "records": 40000, "tombstones": 0, "ignored": 0,
                          "dead_letters": 0, "size": 5242880,
                          "offsets": {"0": [[100, 150]]}}],
                                    # of "verify" and "restore" the last 100; the numbers of all:
             "batch_ranges": [[7, 7]],
             "records": 40000, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 12, "size": 5242880,
                                    # of the batches that this run decided:
             "landed": {"batches": 1, "records": 40000, "tombstones": 0, "ignored": 0, "dead_letters": 0,
                        "objects": 12, "size": 5242880},
             "unknown_fields": {"records": 0, "landed": 0, "names": []},  # beside the declared schema
             "shared": false,       # whether another run planned some of the batches
             "skipped": {},         # offsets recorded as lost
             "verified": 0,         # objects that a repeated run checked and found
             "wrote": true,         # whether this try wrote anything to the bucket
             "held_back": {},       # offsets behind an open transaction, which a later run lands
             "verification": null}},  # of "verify" and "restore": {"objects": 12, "size": 5242880, "missing": [],
                                    # "restored": [], "accepted": [], "given": [], "uncovered": {},
                                    # "counts": {"missing": 0, "restored": 0, "accepted": 0, "given": 0}}
         "batches": 1, "records": 40000, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 12,
         "size": 5242880,
         "landed": {"batches": 1, "records": 40000, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 12,
                    "size": 5242880},
         "unknown_fields": {"records": 0, "landed": 0, "names": []},
         "wrote": true}

    ``size`` is in bytes as stored. A batch that covers the targets of two runs is in the XComs of both, and in
    ``landed`` of one.
    """
    topics = {topic: _topic(result) for topic, result in sorted(results.items())}
    return {
        "action": resolved.action,
        "window": resolved.to_xcom(),
        "status": "ok" if any(t["status"] == "ok" for t in topics.values()) else "empty",
        "topics": topics,
        **_counts(b for result in results.values() for b in result.batches),
        "landed": _counts(b for result in results.values() for b in result.batches if b.landed),
        "unknown_fields": _unknown_fields([b for _, result in sorted(results.items()) for b in result.batches]),
        "wrote": any(t["wrote"] for t in topics.values()),
    }


def _topic(result: TopicResult) -> dict[str, Any]:
    verification = result.verification
    return {
        "status": result.status,
        **_counts(result.batches),
        "batch_ranges": _ranges(sorted(b.batch for b in result.batches)),
        "batches": [
            {
                "batch": b.batch,
                "manifest": b.manifest,
                "planned_here": b.mine,
                "landed_here": b.landed,
                "objects": b.objects,
                "records": b.records,
                "tombstones": b.tombstones,
                "ignored": b.ignored,
                "dead_letters": b.dead_letters,
                "size": b.size,
                "offsets": b.offsets.to_json(),
            }
            for b in (result.batches if verification is None else result.batches[-_MOST_LISTED:])
        ],
        "landed": _counts(b for b in result.batches if b.landed),
        "unknown_fields": _unknown_fields(result.batches),
        "shared": result.shared,
        "skipped": result.skipped.to_json(),
        "verified": result.verified,
        "wrote": result.wrote,
        "held_back": result.held_back.to_json(),
        "verification": None if verification is None else _verification(verification),
    }


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as ``[first, last]``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def _counts(batches: Iterable[BatchSummary]) -> dict[str, int]:
    counted = list(batches)
    names = ("records", "tombstones", "ignored", "dead_letters", "objects", "size")
    return {"batches": len(counted), **{name: sum(getattr(b, name) for b in counted) for name in names}}


def _unknown_fields(batches: Sequence[BatchSummary]) -> dict[str, Any]:
    """What records have beside their declared schema; the names that appeared first are first."""
    together = functools.reduce(operator.or_, (b.unknown_fields for b in batches), NO_UNKNOWN_FIELDS)
    landed = sum(b.unknown_fields.records for b in batches if b.landed)
    return {"records": together.records, "landed": landed, "names": [*together.names]}


def summary(results: Iterable[TopicResult]) -> str:
    """Summary of the results of one topic or of several, as a line of the log."""
    results = list(results)
    inspected = [verification for result in results if (verification := result.verification) is not None]
    if inspected:
        return _inspected(inspected)
    batches = [b for result in results for b in result.batches]
    landed, verified = _counts(b for b in batches if b.landed), sum(result.verified for result in results)
    skipped = sum(result.skipped.count for result in results)
    parts: list[str] = []
    if not any(result.wrote for result in results):
        if not batches and not skipped:
            return "; ".join(["nothing to land, nothing written", *_held_back(results)])
        checked = f": {count(verified, 'object')} checked" if batches else ""
        parts.append(f"already landed{checked}, nothing written")
    elif landed["batches"]:
        parts.append(
            f"{count(landed['batches'], 'batch')}, {count(landed['records'], 'record')} in "
            f"{count(landed['objects'], 'object')} ({size(landed['size'])}) landed"
        )
        if landed["tombstones"]:
            parts.append(f"{count(landed['tombstones'], 'tombstone')} among the records")
        if landed["ignored"]:
            parts.append(f"{count(landed['ignored'], 'null value')} ignored")
        if landed["dead_letters"]:
            parts.append(f"{count(landed['dead_letters'], 'dead letter')} below _dead_letters")
        unknown = _unknown_fields([b for b in batches if b.landed])
        if unknown["records"]:
            names = few([printable(name, shown=_SHOWN) for name in reversed(unknown["names"])], most=_NAMES)
            parts.append(f"{count(unknown['records'], 'record')} with unknown fields (the newest: {names})")
    if any(result.wrote for result in results) and (others := len(batches) - landed["batches"]):
        parts.append(f"{count(others, 'batch')} landed by other runs")
    if skipped:
        parts.append(f"{count(skipped, 'offset')} recorded as lost")
    parts = parts or ["nothing to land; only control documents written"]
    return "; ".join(parts + _held_back(results))


def _held_back(results: Iterable[TopicResult]) -> list[str]:
    number = sum(result.held_back.count for result in results)
    return [f"{count(number, 'offset')} behind open transactions"] if number else []


def _inspected(inspected: Sequence[Verification]) -> str:
    intact = sum(v.objects for v in inspected)
    parts = [f"{count(intact, 'object')} ({size(sum(v.size for v in inspected))}) as committed"]
    for name, state in _STATES.items():
        number = sum(len(getattr(v, name)) for v in inspected)
        parts += [f"{count(number, 'object')} {state}"] if number else []
    if uncovered := sum(v.uncovered.count for v in inspected):
        parts.append(f"{count(uncovered, 'offset')} of the window not landed")
    return "; ".join(parts)


def _verification(found: Verification) -> dict[str, Any]:
    return {
        "objects": found.objects,
        "size": found.size,
        **{name: list(getattr(found, name))[:_MOST_LISTED] for name in _STATES},
        "counts": {name: len(getattr(found, name)) for name in _STATES},
        "uncovered": found.uncovered.to_json(),
    }


def failure(errors: Mapping[str, Exception], done: Mapping[str, object]) -> tuple[str, bool, BaseException]:
    """The error of a task of which topics failed.

    Args:
        errors: the error of each failed topic.
        done: the other topics.

    Returns:
        The message, with a line for each error that ends with its topics and its kind; whether a retry cannot succeed
        for any of them; the cause.
    """
    topics_of: dict[tuple[str, str], list[str]] = {}
    for topic, error in sorted(errors.items()):
        topics_of.setdefault((message_of(error), type(error).__name__), []).append(topic)
    # The message comes first: Airflow's UI shows the beginning of the first line.
    lines = [
        f"{text} [topic{'s' * (len(topics) > 1)} {', '.join(map(repr, topics))}: {kind}]"
        for (text, kind), topics in topics_of.items()
    ]
    if done:
        lines.append(f"done, and committed for good: {', '.join(map(repr, sorted(done)))}")
    causes = [error for _, error in sorted(errors.items())]
    cause: BaseException = causes[0] if len(causes) == 1 else ExceptionGroup("topics failed", causes)
    return "\n".join(lines), all(isinstance(e, TerminalError) for e in causes), cause
