"""The metrics of a topic: the one list of them, and those that the log and Kafka give at any time.

``docs/metrics.md``, the dashboard and the alert rules are checked against the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.batch.topic_summary import current_summary
from airflow_provider_kafka_s3.documents.offsets import Ranges
from airflow_provider_kafka_s3.inspect.status import topic_status

__all__ = ["METRICS", "PREFIX", "Metric", "prometheus_text", "topic_gauges"]

PREFIX: Final = "kafka_s3"
"""Of the names of all metrics."""

Kind = Literal["counter", "gauge", "timing"]


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: behind the prefix; it ends in the unit.
        kind: ``counter``: what a task did, sent when it ends; ``gauge``: the state of a topic, from the log or from
            Kafka; ``timing``: seconds of a part of a task.
        text: what it is.
        labels: that it has.
        is_total: whether a gauge can only grow, so that it is a counter in Prometheus.
        is_printed: whether :func:`topic_gauges` has it.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ("pipeline", "topic")
    is_total: bool = False
    is_printed: bool = False


METRICS: Final[tuple[Metric, ...]] = (
    Metric("landed_batches", "counter", "batches that the run has landed"),
    Metric("landed_records", "counter", "records in the data objects of these batches"),
    Metric("landed_bytes", "counter", "bytes of the objects of these batches"),
    Metric("landed_objects", "counter", "objects of these batches"),
    Metric("landed_tombstones", "counter", "null values without an object of values in these batches"),
    Metric("landed_dead_letters", "counter", "dead letters in these batches"),
    Metric("skipped_offsets", "counter", "offsets that were gone from Kafka and are recorded as lost"),
    Metric("verified_objects", "counter", "objects that a run with the action verify or restore has read"),
    Metric("missing_objects", "counter", "objects that such a run has not found"),
    Metric("restored_objects", "counter", "objects that such a run has written again"),
    Metric("replayed_records", "gauge", "records that a replay has sent to Kafka, by all its tries"),
    Metric("table_records", "counter", "records that were added to a table of Iceberg"),
    Metric("table_objects", "counter", "objects that were added to it"),
    Metric("failures", "counter", "tasks that failed, by kind: terminal or transient", ("pipeline", "kind")),
    Metric("retries", "counter", "tries of tasks behind the first one", ("pipeline",)),
    Metric("plan_seconds", "timing", "until the first Spark job of a run, or its end", ("pipeline",)),
    Metric("spark_seconds", "timing", "of the Spark jobs of a run", ("pipeline",)),
    Metric("commit_seconds", "timing", "of the rest of a run: commits and checks", ("pipeline",)),
    Metric("up", "gauge", "1: the state of the topic could be read; 0: it could not", is_printed=True),
    Metric("lag_offsets", "gauge", "offsets that an incremental run would land now", is_printed=True),
    Metric("gone_offsets", "gauge", "offsets of these that Kafka no longer has", is_printed=True),
    Metric("held_back_offsets", "gauge", "offsets behind an open transaction", is_printed=True),
    Metric("gap_offsets", "gauge", "offsets between landed ones that no run has landed", is_printed=True),
    Metric("lost_offsets", "gauge", "offsets of these that are accepted as lost", is_printed=True),
    Metric("debt_offsets", "gauge", "offsets of abandoned batches that no run has landed since", is_printed=True),
    Metric("open_batches", "gauge", "batches that are planned or decided, and not complete", is_printed=True),
    Metric(
        "newest_record_age_seconds", "gauge", "time since the timestamp of the newest landed record", is_printed=True
    ),
    Metric("small_objects", "gauge", "objects of batches with less than 16 MiB an object on average", is_printed=True),
    Metric("batches_total", "gauge", "batches that were ever landed", is_total=True, is_printed=True),
    Metric("records_total", "gauge", "records that were ever landed", is_total=True, is_printed=True),
    Metric("bytes_total", "gauge", "bytes of objects that were ever landed", is_total=True, is_printed=True),
    Metric("objects_total", "gauge", "objects that were ever landed", is_total=True, is_printed=True),
    Metric("dead_letters_total", "gauge", "dead letters that were ever landed", is_total=True, is_printed=True),
)
"""All metrics, in the order of their documentation."""


def topic_gauges(
    topic_log: TopicLog, source: Source | None, *, now: float, isolation: Isolation = "read_committed"
) -> dict[str, float]:
    """The gauges of a topic by their names; nothing is written. Empty: the topic was never landed.

    Args:
        topic_log: the control documents of the topic.
        source: Kafka; None: those that need it are left out.
        now: seconds since the epoch.
        isolation: isolation level of the end offsets.

    Raises:
        TerminalError: documents cannot be trusted, or Kafka or the store refuses a request.
        TransientError: try again later.
    """
    status = topic_status(topic_log, source, last=0, isolation=isolation)
    if status is None:
        return {}
    gauges: dict[str, float] = {"up": 1}
    for name, field in (("lag", "lag"), ("gone", "gone"), ("held_back", "held_back")):
        counts = [getattr(partition, field) for partition in status.partitions]
        if known := [number for number in counts if number is not None]:
            gauges[f"{name}_offsets"] = sum(known)
    for name, field in (("gap", "gaps"), ("lost", "lost"), ("debt", "debt")):
        gauges[f"{name}_offsets"] = sum(_size(getattr(partition, field)) for partition in status.partitions)
    gauges["open_batches"] = len(status.open)
    activity = current_summary(topic_log, status.marker).activity
    if activity.newest is not None:
        gauges["newest_record_age_seconds"] = max(0.0, now - activity.newest / 1000)
    gauges["small_objects"] = activity.small_objects
    for name, number in (
        ("batches", activity.batches),
        ("records", activity.records),
        ("bytes", activity.size),
        ("objects", activity.objects),
        ("dead_letters", activity.dead_letters),
    ):
        gauges[f"{name}_total"] = number
    return gauges


def _size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)


def prometheus_text(topics: Iterable[tuple[Mapping[str, str], Mapping[str, float]]]) -> str:
    """Gauges in the text format of Prometheus, version 0.0.4.

    Args:
        topics: of each topic its labels, and its gauges by their names.
    """
    return "".join(f"{line}\n" for line in _lines([*topics]))


def _lines(topics: list[tuple[Mapping[str, str], Mapping[str, float]]]) -> Iterator[str]:
    for metric in METRICS:
        samples = [(labels, gauges[metric.name]) for labels, gauges in topics if metric.name in gauges]
        if not samples:
            continue
        name = f"{PREFIX}_{metric.name}"
        yield f"# HELP {name} {metric.text}"
        yield f"# TYPE {name} {'counter' if metric.is_total else 'gauge'}"
        for labels, number in samples:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{name}{{{pairs}}} {number:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
