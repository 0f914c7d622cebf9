"""Sends metrics of tasks by Airflow's own ``Stats``: StatsD, Datadog or OpenTelemetry, as Airflow is configured.

Nothing here fails a task: what cannot be sent or read is logged at DEBUG. Without a backend nothing is read either.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import (  # noqa: TID253 - light, and loaded
    AirflowFailException,
    AirflowSkipException,
    conf,
)

from airflow_provider_kafka_s3.inspect.metrics import METRICS, PREFIX, topic_gauges

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext

__all__ = ["Stopwatch", "TaskMetrics", "task_metrics"]

log = logging.getLogger(__name__)

_LANDED: Final = {
    "batches": "landed_batches",
    "records": "landed_records",
    "size": "landed_bytes",
    "objects": "landed_objects",
    "tombstones": "landed_tombstones",
    "dead_letters": "landed_dead_letters",
}
"""The counters of what a run has landed, by the fields of its XCom."""

_CHECKED: Final = ("missing", "restored")
_BACKENDS: Final = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""Settings of Airflow's section ``metrics``, each of which turns a backend on."""

_WITH_TAGS: Final = ("statsd_datadog_enabled", "otel_on", "statsd_influxdb_enabled")
"""Settings with which tags are sent."""

_KINDS: Final = {metric.name: metric.kind for metric in METRICS}
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")


class Stopwatch:
    """Seconds of the parts of a run, which follow each other and may repeat."""

    def __init__(self, part: str) -> None:
        """Start with a part."""
        self.seconds: dict[str, float] = {}
        self._part, self._since = part, time.monotonic()

    def turn(self, part: str) -> None:
        """End the current part, and start another one."""
        now = time.monotonic()
        self.seconds[self._part] = self.seconds.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now


class TaskMetrics:
    """The metrics of a task of a pipeline.

    Attributes:
        pipeline: its name, a label of all.
        is_on: whether Airflow has a backend.
    """

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.is_on = any(_is_set(name) for name in _BACKENDS)
        self._has_tags = any(_is_set(name) for name in _WITH_TAGS)

    def send(self, name: str, number: float, **labels: str) -> None:
        """Send a metric of the list.

        Args:
            name: of the metric, without prefix.
            number: added to a counter; the value of a gauge; the seconds of a timing.
            labels: besides the pipeline. Plain StatsD has none, so they are parts of the name there.
        """
        if not self.is_on:
            return
        from airflow.providers.common.compat.sdk import Stats

        tags = {"pipeline": self.pipeline, **labels}
        flat = ".".join((PREFIX, name, *(_UNUSUAL.sub("_", text) for text in tags.values())))
        stat = f"{PREFIX}.{name}" if self._has_tags else flat
        try:
            match _KINDS[name]:
                case "counter":
                    Stats.incr(stat, int(number), tags=tags)
                case "gauge":
                    Stats.gauge(stat, number, tags=tags)
                case "timing":
                    Stats.timing(stat, number * 1000, tags=tags)
        except Exception:
            log.debug("metric %s was not sent", stat, exc_info=True)

    def landed(self, returned: Mapping[str, Any]) -> None:
        """Send what a run has landed, checked and skipped, of each topic.

        A try that wrote nothing sends nothing as landed: an earlier one has, unless it was killed before.

        Args:
            returned: the XCom of the task, see :func:`airflow_provider_kafka_s3.airflow.xcom.to_xcom`.
        """
        for topic, result in returned["topics"].items():
            for field, name in _LANDED.items():
                if result["wrote"] and (number := result["landed"][field]):
                    self.send(name, number, topic=topic)
            if skipped := sum(end - start for ranges in result["skipped"].values() for start, end in ranges):
                self.send("skipped_offsets", skipped, topic=topic)
            if (verification := result["verification"]) is not None:
                self.send("verified_objects", verification["objects"], topic=topic)
                for state in _CHECKED:
                    self.send(f"{state}_objects", verification["counts"][state], topic=topic)

    def gauges(self, run: RunContext, topics: Iterable[str]) -> None:
        """Send the state of topics behind a run; the log and Kafka are read for it if there is a backend.

        Args:
            run: of the task.
            topics: those that succeeded, so that the log and Kafka have just answered.
        """
        if not self.is_on:
            return
        for topic in topics:
            topic_run = run.runs[topic]
            try:
                gauges = topic_gauges(
                    topic_run.log, topic_run.source, now=time.time(), isolation=topic_run.request.isolation
                )
            except Exception:
                log.debug("the metrics of topic %s could not be read", topic, exc_info=True)
                continue
            for name, number in gauges.items():
                self.send(name, number, topic=topic)

    def timings(self, stopwatch: Stopwatch) -> None:
        """Send the seconds of the parts of a run."""
        for part, seconds in stopwatch.seconds.items():
            self.send(f"{part}_seconds", seconds)


@contextlib.contextmanager
def task_metrics(context: Context, pipeline: str) -> Iterator[TaskMetrics]:
    """The metrics of a task: retries and failures are counted.

    Args:
        context: of the task.
        pipeline: its pipeline.
    """
    metrics = TaskMetrics(pipeline)
    if getattr(context.get("ti"), "try_number", 1) > 1:
        metrics.send("retries", 1)
    try:
        yield metrics
    except AirflowSkipException:
        raise
    except Exception as e:
        metrics.send("failures", 1, kind="terminal" if isinstance(e, AirflowFailException) else "transient")
        raise


def _is_set(name: str) -> bool:
    return bool(conf.getboolean("metrics", name, fallback=False))
