"""The conditions of the sensors: lag behind the topic, and the end of a window. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.batch.held_back import held_back, log_held_back
from airflow_provider_kafka_s3.batch.incarnation import refuse_shorter_log, require_topic_id
from airflow_provider_kafka_s3.batch.planning import incremental_target
from airflow_provider_kafka_s3.batch.source import Isolation, Source, pipeline_source
from airflow_provider_kafka_s3.batch.window_offsets import is_future
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.log import TopicLog

__all__ = ["WindowState", "lag", "window_state"]


def lag(log: TopicLog, source: Source, isolation: Isolation) -> int:
    """Number of offsets that an incremental run would land now.

    It counts offsets, not records: transaction markers and compacted records have offsets as well. Offsets that
    retention deleted before they were landed count, so that a run starts and reports them. A topic without stored
    offsets counts as a whole. Offsets behind an open transaction do not count; they are logged.

    Args:
        log: the control documents of the topic.
        source: the cluster.
        isolation: isolation level of the run that will read them.

    Raises:
        TerminalError: a run would fail as well: there is no such topic, it was created again, …
        TransientError: try again later.
    """
    topic = log.topic
    partitions = source.describe(topic).partitions
    ends = source.ends(topic, partitions, isolation)
    view = log.view() if log.read_marker() is not None else None
    held = held_back(source, topic, ends, isolation)
    log_held_back(topic, held, NO_OFFSETS if view is None else view.marker.covered)
    if view is None or view.open_reset is not None:
        # The first run, or the one that completes the reset, starts at the first offset in Kafka.
        starts = source.earliest(topic, partitions)
        return sum(max(0, ends[p] - starts[p]) for p in partitions)
    require_topic_id(source, log, view.topic_id, cluster_id=view.marker.cluster_id)
    refuse_shorter_log(source, topic, view.marker, ends)
    landed = pipeline_source(source)
    return incremental_target(view, ends, None if landed is None else landed.readable(topic)).count


@dataclass(frozen=True)
class WindowState:
    """The partitions of a topic by their state at the end of a window.

    Attributes:
        passed: partitions with a record from after the window, all of whose earlier records can be read.
        quiet: partitions without such a record, when the time to wait for one is over.
        open: all others.
    """

    passed: tuple[int, ...]
    quiet: tuple[int, ...]
    open: tuple[int, ...]

    @property
    def closed(self) -> bool:
        """Whether no partition is open."""
        return not self.open


def window_state(
    source: Source, topic: str, end: int, *, isolation: Isolation, overdue: bool, now_ms: int
) -> WindowState:
    """Check which partitions of a topic have passed the end of a window.

    Args:
        source: the cluster.
        topic: name of the topic.
        end: end of the window in epoch milliseconds, excluded.
        isolation: isolation level of the run that will read the window: with ``read_committed`` an open transaction
            that may hold records of the window keeps a partition open.
        overdue: whether a partition without a record from after the window counts as quiet by now.
        now_ms: the current time, in milliseconds since the epoch. A record from the future does not close a window.

    Raises:
        TerminalError: there is no such topic, or access is denied.
        TransientError: try again later.
    """
    partitions = source.describe(topic).partitions
    young = source.at_timestamp(topic, partitions, end)
    # Requested after the timestamps: offsets that were readable then are readable now.
    readable = source.ends(topic, partitions, isolation)
    written = readable if isolation == "read_uncommitted" else source.ends(topic, partitions, "read_uncommitted")
    passed, quiet, still_open = [], [], []
    for partition in partitions:
        first = young[partition]
        if first is not None and is_future(first, now_ms):
            first = None
        if first is not None and readable[partition] >= first.offset:
            passed.append(partition)
        elif first is None and overdue and readable[partition] == written[partition]:
            quiet.append(partition)
        else:
            still_open.append(partition)
    return WindowState(tuple(passed), tuple(quiet), tuple(still_open))
