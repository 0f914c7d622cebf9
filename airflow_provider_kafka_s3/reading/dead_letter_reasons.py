"""Why the newest dead letters of a topic could not be written: a look at the ends of a few objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, message_of
from airflow_provider_kafka_s3.messages import printable
from airflow_provider_kafka_s3.parallel import Parallel, growing_blocks, in_threads
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["DeadLetterReason", "DeadLetterReasons", "newest_dead_letters"]

_LETTERS: Final = 200
"""Dead letters that are read."""
_OBJECTS: Final = 16
"""Objects that are read."""
_BYTES: Final = 256 * 1024
"""Bytes at the end of an object that are read."""
_SECONDS: Final = 3.0
"""Time after which no other document or object is begun."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class DeadLetterReason:
    """Dead letters with the same reason, and where the newest one of them is.

    Attributes:
        letters: number of them.
        stage: what failed, such as ``value``.
        reason: the cause.
        batch: number of the batch.
        partition: Kafka partition of the record.
        offset: its offset.
        timestamp: its timestamp in milliseconds since the epoch; None: it has none.
    """

    letters: int
    stage: str
    reason: str
    batch: int
    partition: int
    offset: int
    timestamp: int | None


@dataclass(frozen=True)
class DeadLetterReasons:
    """The reasons of the newest dead letters.

    Attributes:
        letters: number of dead letters that were read.
        reasons: the most frequent one first.
        problem: why others could not be read; empty: nothing failed.
    """

    letters: int = 0
    reasons: tuple[DeadLetterReason, ...] = ()
    problem: str = ""


class _Letter(msgspec.Struct):
    partition: int
    offset: int
    timestamp: int | None
    stage: str
    reason: str


def newest_dead_letters(
    topic_log: TopicLog,
    batches: Iterable[int],
    *,
    parallel: Parallel = in_threads,
    monotonic: Callable[[], float] = time.monotonic,
) -> DeadLetterReasons:
    """Count the reasons of the newest dead letters: of some hundred, at the ends of a few objects, for some seconds.

    What cannot be read is no error, but a problem that the result names.

    Args:
        topic_log: the control documents of the topic.
        batches: committed ones that have dead letters, the newest first.
        parallel: runs requests at once.
        monotonic: clock in seconds.
    """
    end = monotonic() + _SECONDS
    problems: list[str] = []
    objects: list[tuple[CommittedObjects, ObjectEntry]] = []

    def in_time(read: Callable[[T], list[R]]) -> Callable[[T], list[R]]:
        def attempt(item: T) -> list[R]:
            try:
                return read(item) if monotonic() < end else []
            except KafkaS3Error as e:
                problems.append(message_of(e))
                return []

        return attempt

    for block in growing_blocks(batches, most=_OBJECTS):
        for of_batch in parallel(in_time(lambda batch: _objects(topic_log, batch)), block):
            objects += of_batch
        if len(objects) >= _OBJECTS or monotonic() >= end:
            break
    reasons: dict[tuple[str, str], DeadLetterReason] = {}
    letters = 0
    read = parallel(in_time(lambda item: _letters(*item)), objects[:_OBJECTS])
    for (of, _), lines in zip(objects, read, strict=False):
        for letter in lines[: _LETTERS - letters]:
            letters += 1
            reason = reasons.setdefault((letter.stage, letter.reason), _reason(of.plan.batch, letter))
            reasons[letter.stage, letter.reason] = replace(reason, letters=reason.letters + 1)
    by_letters = sorted(reasons.values(), key=lambda reason: -reason.letters)
    return DeadLetterReasons(letters, tuple(by_letters), problems[0] if problems else "")


def _objects(topic_log: TopicLog, batch: int) -> list[tuple[CommittedObjects, ObjectEntry]]:
    """The objects of dead letters of a batch, that with the newest record first."""
    plan, _ = topic_log.require_plan(batch)
    decision, _ = topic_log.require_decision(batch)
    objects = CommittedObjects(topic_log, plan, decision)
    entries = [entry for entry in objects.of_records() if objects.is_dead_letters(entry)]
    return [(objects, entry) for entry in sorted(entries, key=lambda entry: -entry.max_timestamp)]


def _reason(batch: int, letter: _Letter) -> DeadLetterReason:
    return DeadLetterReason(
        letters=0,
        stage=printable(letter.stage),
        reason=printable(letter.reason),
        batch=batch,
        partition=letter.partition,
        offset=letter.offset,
        timestamp=letter.timestamp,
    )


def _letters(objects: CommittedObjects, entry: ObjectEntry) -> list[_Letter]:
    """The last dead letters of an object, the last one first."""
    if entry.size <= _BYTES:
        lines = objects.get(entry).splitlines()
    else:
        # The first line is not whole; there is no other one behind it if a record is that large.
        lines = objects.get(entry, entry.size - _BYTES, entry.size).splitlines()[1:]
    try:
        return [decode_struct(line, _Letter) for line in lines[: -_LETTERS - 1 : -1]]
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        raise objects.unreadable(entry, f"a line is no dead letter ({e})") from e
