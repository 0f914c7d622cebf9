"""Resolves the requested window of a run, by time or by offsets, to offsets of the topic's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from airflow_provider_kafka_s3.batch.planning import OffsetWindow
from airflow_provider_kafka_s3.batch.request import OnFutureTimestamp, RequestedWindow, RunRequest
from airflow_provider_kafka_s3.batch.source import Isolation, Source, TimedOffset
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.times import time_text

__all__ = ["is_future", "pipeline_start", "window_of"]

_MAX_CLOCK_SKEW: Final = 3_600_000
"""Milliseconds that a record's timestamp may be ahead of this machine's clock. Brokers from Kafka 4.0 on refuse records
further ahead (``message.timestamp.after.max.ms``)."""


def is_future(found: TimedOffset, now_ms: int) -> bool:
    """Whether the timestamp of a record is in the future.

    Kafka resolves a time to the first record that is not older. Such a record is the result for every later time, so
    nothing can be concluded about the records after it.

    Args:
        found: result of a lookup by time.
        now_ms: the current time, in milliseconds since the epoch.
    """
    return found.timestamp > now_ms + _MAX_CLOCK_SKEW


def pipeline_start(source: Source, topic: str, request: RunRequest, partitions: Sequence[int]) -> dict[int, int]:
    """Start offsets of a topic that has no marker yet, per partition.

    Args:
        source: Kafka.
        topic: its name.
        request: of the first run: its starting offsets, or its window if it has none, determine the start.
        partitions: of the topic.

    Raises:
        ConfigurationError: explicit offsets are outside the log.
    """
    if request.starting == "earliest":
        return source.earliest(topic, partitions)
    if request.starting == "latest":
        return source.ends(topic, partitions, request.isolation)
    if request.starting is not None:
        return _explicit_start(source, topic, request.starting, partitions, request.isolation)
    assert request.window is not None, "checked by the request"
    return _window_start(source, topic, request.window, partitions, request.isolation)


def _explicit_start(
    source: Source, topic: str, start: Mapping[int, int], partitions: Sequence[int], isolation: Isolation
) -> dict[int, int]:
    """Explicit starting offsets, if they name every partition and are within the log."""
    earliest = source.earliest(topic, partitions)
    ends = source.ends(topic, partitions, isolation)
    if set(start) != set(partitions):
        raise ConfigurationError(
            f"starting_offsets of topic {topic!r} name partitions {sorted(start)}, the topic has "
            f"{sorted(partitions)}; give an offset for each of them"
        )
    for partition, offset in start.items():
        if not earliest[partition] <= offset <= ends[partition]:
            raise ConfigurationError(
                f"starting_offsets of topic {topic!r}: offset {offset} of partition {partition} is not within "
                f"the log, which goes from {earliest[partition]} to {ends[partition]}"
            )
    return dict(start)


def _window_start(
    source: Source, topic: str, window: RequestedWindow, partitions: Sequence[int], isolation: Isolation
) -> dict[int, int]:
    """Start offsets of a pipeline whose first run has a window and no starting offsets: the start of the window.

    A partition whose records are all older than the window, or that a window of offsets does not name, starts at its
    current end: a late record has a higher offset.
    """
    ends = source.ends(topic, partitions, isolation)
    if isinstance(window, Mapping):
        _refuse_offsets_outside(source, topic, window, ends)
        earliest = source.earliest(topic, partitions)
        return {p: max(window[p][0], earliest[p]) if p in window else end for p, end in ends.items()}
    return _first_of(source, topic, window[0], ends)


def window_of(
    source: Source,
    topic: str,
    window: RequestedWindow,
    ends: Mapping[int, int],
    *,
    now_ms: int,
    on_future_timestamp: OnFutureTimestamp,
) -> OffsetWindow:
    """Resolve a window to offsets, up to the last readable offset.

    Args:
        source: Kafka.
        topic: name of the topic.
        window: the requested window.
        ends: per partition of the topic one past the last readable offset.
        now_ms: the current time, in milliseconds since the epoch.
        on_future_timestamp: policy for a window of time whose end is hidden by a record from the future: an error
            (``fail``), or read to the current end (``read_to_end``).

    Raises:
        ConfigurationError: explicit offsets name a partition that the topic does not have, or exceed its end.
        RecordError: a record from the future hides the end of the window.
    """
    if isinstance(window, Mapping):
        _refuse_offsets_outside(source, topic, window, ends)
        return OffsetWindow(
            starts={p: start for p, (start, _) in window.items()}, ends={p: e for p, (_, e) in window.items()}
        )
    start, end = window
    starts = _first_of(source, topic, start, ends)
    # A window that is still open reaches to the current end.
    stops = source.at_timestamp(topic, tuple(ends), end) if end <= now_ms + _MAX_CLOCK_SKEW else {}
    hidden = {p: found for p, found in stops.items() if found is not None and is_future(found, now_ms)}
    if hidden and on_future_timestamp == "fail":
        raise _hidden_end(topic, hidden)
    known = {p: found.offset for p, found in stops.items() if found is not None and p not in hidden}
    return OffsetWindow(starts=starts, ends={p: min(known.get(p, last), last) for p, last in ends.items()})


def _first_of(source: Source, topic: str, at: int, ends: Mapping[int, int]) -> dict[int, int]:
    """Per partition the first offset that is not older; the partition's end where there is none.

    It is at most the end of the readable offsets: a timestamp can point into an open transaction.
    """
    positions = source.at_timestamp(topic, tuple(ends), at)
    return {p: last if (first := positions.get(p)) is None else min(first.offset, last) for p, last in ends.items()}


def _hidden_end(topic: str, hidden: Mapping[int, TimedOffset]) -> RecordError:
    partition, first = min(hidden.items())
    others = [
        f"; partition {p}, offset {found.offset}, {time_text(found.timestamp)}"
        for p, found in sorted(hidden.items())[1:]
    ]
    return RecordError(
        f"topic {topic!r} has a record from the future: partition {partition}, offset {first.offset}, timestamp "
        f"{time_text(first.timestamp)}{''.join(others)}. Kafka resolves a time to the first record that is not older, "
        f"so every later window would end at this record, and the records after it would be left out silently. "
        f"Nothing was planned. Read such windows to the current end with on_future_timestamp='read_to_end'; land the "
        f"topic with offsets='incremental'; or give this run its offsets explicitly, with the conf "
        f'{{"kafka_s3": {{"offsets": {{"{topic}": {{"{partition}": [start, end]}}}}}}}}'
    )


def _refuse_offsets_outside(
    source: Source, topic: str, window: Mapping[int, tuple[int, int]], ends: Mapping[int, int]
) -> None:
    if not (wrong := [p for p, (_, end) in sorted(window.items()) if p not in ends or end > ends[p]]):
        return
    requested = ", ".join(f"{p}: [{window[p][0]}, {window[p][1]})" for p in wrong)
    earliest = source.earliest(topic, tuple(ends))
    available = ", ".join(f"{p}: [{earliest[p]}, {end})" for p, end in sorted(ends.items()))
    raise ConfigurationError(
        f"the window of topic {topic!r} has offsets {requested}, which the log does not have: it holds {available} (up "
        f"to the first open transaction, if isolation is read_committed). Nothing was planned. Give offsets within "
        f"these"
    )
