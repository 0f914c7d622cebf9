"""What a sensor waits for: records beyond the stored offsets, and the end of a window. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.batch.incarnation import refuse_shorter_log, require_topic_id
from airflow_provider_kafka_s3.batch.planning import incremental_target
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.batch.window_offsets import is_future

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.log import TopicLog

__all__ = ["WindowState", "lag", "window_state"]


def lag(log: TopicLog, source: Source, isolation: Isolation) -> int:
    """How many offsets an incremental run would land now.

    Offsets and not records: transaction markers and what compaction removed have offsets, too. What retention deleted
    before it was landed counts, so that a run begins and tells of it. A topic without stored offsets counts as a whole.

    Args:
        log: of the topic.
        source: the cluster.
        isolation: of the run that will read them.

    Raises:
        TerminalError: a run would fail as well: there is no such topic, it is another one than was landed, …
        TransientError: ask again later.
    """
    topic = log.topic
    partitions = source.describe(topic).partitions
    ends = source.ends(topic, partitions, isolation)
    view = log.view() if log.read_marker() is not None else None
    if view is None or view.open_reset is not None:
        # The first run, or the one that carries out the reset, begins with what is there.
        starts = source.earliest(topic, partitions)
        return sum(max(0, ends[p] - starts[p]) for p in partitions)
    require_topic_id(source, log, view.topic_id, cluster_id=view.marker.cluster_id)
    refuse_shorter_log(source, topic, view.marker, ends)
    return incremental_target(view, ends).count


@dataclass(frozen=True)
class WindowState:
    """How far the partitions of a topic are, as their numbers.

    Attributes:
        passed: they hold a record from after the window, and all before it can be read.
        quiet: they hold none, and the time to wait for one is over.
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
    """Which partitions of a topic have passed the end of a window.

    Args:
        source: the cluster.
        topic: name of the topic.
        end: of the window, in epoch milliseconds; the first moment that is not in it.
        isolation: of the run that will read the window: with ``read_committed`` a transaction that is still open and
            may hold records of the window keeps a partition open.
        overdue: whether a partition without a younger record counts as quiet by now.
        now_ms: the time, in milliseconds since the epoch. A record of the future does not show that time has passed.

    Raises:
        TerminalError: there is no such topic, or it cannot be asked.
        TransientError: ask again later.
    """
    partitions = source.describe(topic).partitions
    young = source.at_timestamp(topic, partitions, end)
    # Asked after the timestamps: what was readable then is readable now.
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
