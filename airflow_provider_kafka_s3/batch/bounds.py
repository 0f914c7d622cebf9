"""What a run asks for, by time or by offsets, held against what the topic's log holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_kafka_s3.batch.planning import Window
from airflow_provider_kafka_s3.batch.requests import RequestedWindow
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["explicit_start", "window_of"]


def explicit_start(
    source: Source, topic: str, start: Mapping[int, int], partitions: Sequence[int], isolation: Isolation
) -> dict[int, int]:
    """Explicit starting offsets, if they name every partition and lie within the log.

    Raises:
        ConfigurationError: they do not; says what the log has.
    """
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


def window_of(source: Source, topic: str, window: RequestedWindow, ends: Mapping[int, int]) -> Window:
    """A window as offsets, cut at the end of what may be read.

    Args:
        source: Kafka.
        topic: whose partitions.
        window: what was asked for.
        ends: per partition of the topic one past the last offset that may be read.

    Raises:
        ConfigurationError: explicit offsets name a partition that the topic does not have, or reach past its end.
    """
    if isinstance(window, Mapping):
        _refuse_offsets_outside(source, topic, window, ends)
        return Window(
            starts={p: start for p, (start, _) in window.items()}, ends={p: e for p, (_, e) in window.items()}
        )
    partitions = tuple(ends)
    starts = source.at_timestamp(topic, partitions, window[0])
    stops = source.at_timestamp(topic, partitions, window[1])
    # Both are cut at the end of what may be read: a timestamp can point into an open transaction.
    return Window(
        starts={p: None if (at := starts.get(p)) is None else min(at, ends[p]) for p in partitions},
        ends={p: ends[p] if (at := stops.get(p)) is None else min(at, ends[p]) for p in partitions},
    )


def _refuse_offsets_outside(
    source: Source, topic: str, window: Mapping[int, tuple[int, int]], ends: Mapping[int, int]
) -> None:
    if not (wrong := [p for p, (_, end) in sorted(window.items()) if p not in ends or end > ends[p]]):
        return
    asked = ", ".join(f"{p}: [{window[p][0]}, {window[p][1]})" for p in wrong)
    earliest = source.earliest(topic, tuple(ends))
    has = ", ".join(f"{p}: [{earliest[p]}, {end})" for p, end in sorted(ends.items()))
    raise ConfigurationError(
        f"the window of topic {topic!r} asks for offsets {asked}, which the log does not have: it holds {has} (up to "
        f"the first open transaction, if isolation is read_committed). Nothing was planned. Give offsets within these"
    )
