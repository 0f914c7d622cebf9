"""What the pages show: the state of topics, and what to do where something is wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.layout_changes import last_layout_period
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import indexed_batches
from airflow_provider_kafka_s3.batch.topic_summary import current_summary
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import builtins
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.offsets import Ranges
from airflow_provider_kafka_s3.documents.planner import PlannerTask
from airflow_provider_kafka_s3.documents.topic_summary import Activity, TopicSummary
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, message_of
from airflow_provider_kafka_s3.inspect.compaction import MANY_OBJECTS, compaction_task
from airflow_provider_kafka_s3.inspect.status import BatchStatus, TopicStatus, resolved_status
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.dead_letter_reasons import DeadLetterReasons, newest_dead_letters
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.ui.places import Place
from airflow_provider_kafka_s3.ui.texts import moment

__all__ = [
    "BatchTimes",
    "BatchView",
    "ListedBatch",
    "State",
    "TopicRow",
    "TopicView",
    "batch_view",
    "topic_rows",
    "topic_view",
]

State = Literal["needs a person", "behind", "unknown", "well"]

_ORDER: Final[Mapping[State, int]] = {"needs a person": 0, "behind": 1, "unknown": 2, "well": 3}
_TROUBLE: Final = ("needs a person", "behind")
_TOPICS: Final = 64
"""Topics that are read at the same time."""
_IN_FULL: Final = 50
"""Topics with trouble whose logs a list reads, for what a summary does not have: open batches."""
_DAY: Final = dt.timedelta(days=1)
_LAST: Final = 20
"""Batches that the page of a topic lists."""
_CALENDAR_DAYS: Final = 371
"""Days of the calendar: 53 weeks."""


@dataclass(frozen=True)
class TopicRow:
    """A topic in the list of all.

    Attributes:
        place: number of its place.
        where: name of the place.
        pipeline: its name.
        topic: its name; empty: the place itself could not be read.
        state: see :data:`State`.
        reason: why it is not well.
        remedy: the command that helps.
        lag: offsets that an incremental run would land; None: unknown.
        no_lag: why there is no lag.
        batches: number of resolved batches.
        records: of the batches whose newest record is of the last 24 hours.
        size: bytes of these batches.
        last_batch: number of the last committed batch; 0: there is none.
        landed_by: try, host and time of the last batch.
        newest: timestamp of the newest landed record.
        small: whether the objects of the last batch are small.
        dag: id of the DAG that planned the last batch; empty: unknown.
    """

    place: int
    where: str
    pipeline: str
    topic: str
    state: State
    reason: str = ""
    remedy: str = ""
    lag: int | None = None
    no_lag: str = ""
    batches: int = 0
    records: int = 0
    size: int = 0
    last_batch: int = 0
    landed_by: str = ""
    newest: dt.datetime | None = None
    small: bool = False
    dag: str = ""


@dataclass(frozen=True)
class ListedBatch:
    """A batch in the list of the latest ones.

    Attributes:
        batch: its number.
        state: see :class:`~airflow_provider_kafka_s3.inspect.status.BatchStatus`.
        records: number of records in its data objects.
        objects: number of its objects.
        size: bytes of these.
        dead_letters: number of dead letters.
        planned_by: try, host and time.
        reason: why it was abandoned, and by whom.
        task: the Airflow task that planned it; None: unknown.
        times: see :class:`BatchTimes`.
        expired: number of its objects that were deleted on purpose, or will be.
    """

    batch: int
    state: str
    records: int
    objects: int
    size: int
    dead_letters: int
    planned_by: str
    reason: str
    task: PlannerTask | None
    times: BatchTimes
    expired: int = 0


@dataclass(frozen=True)
class BatchTimes:
    """How far a batch was behind its records: by their timestamps, and the clocks of those who wrote its documents.

    Attributes:
        planned: when it was planned; None: unknown.
        decided: when its objects were decided; None: they are not, or it is unknown.
        newest: timestamp of its newest record; None: unknown.
    """

    planned: dt.datetime | None
    decided: dt.datetime | None
    newest: dt.datetime | None

    @property
    def waited(self) -> float | None:
        """Seconds that the newest record waited for the plan; None: unknown."""
        if self.planned is None or self.newest is None:
            return None
        return max(0.0, (self.planned - self.newest).total_seconds())

    @property
    def took(self) -> float | None:
        """Seconds from the plan to the decision; None: unknown, or it is undecided."""
        if self.planned is None or self.decided is None:
            return None
        return max(0.0, (self.decided - self.planned).total_seconds())

    @property
    def lag(self) -> float | None:
        """Age of the newest record in seconds when the batch was landed; None: unknown."""
        return None if self.waited is None or self.took is None else self.waited + self.took


@dataclass(frozen=True)
class TopicView:
    """The page of a topic.

    Attributes:
        row: as in the list.
        status: of the topic; None: nothing is landed.
        activity: sums over all batches.
        last: the latest batches, ascending.
        expired: per Kafka partition the offsets of batches all of whose objects were deleted on purpose, or will be.
        days: records and bytes of each day, by the newest record of each batch, ascending and without holes.
        dead_letters: the reasons of the newest dead letters.
        letters_command: prints the statement of a table of all dead letters.
        layout: of the newest batch, as its plan has it.
        layout_since: number of the first batch since which it holds.
        layout_changes: settings in which the layout before it differs; empty: there is none.
        compaction: the task that makes few large objects of many small ones; empty: there are few, or there is none.
    """

    row: TopicRow
    status: TopicStatus | None = None
    activity: Activity = field(default_factory=Activity)
    last: tuple[ListedBatch, ...] = ()
    expired: Mapping[int, Ranges] = field(default_factory=dict)
    days: tuple[tuple[dt.date, int, int], ...] = ()
    dead_letters: DeadLetterReasons = field(default_factory=DeadLetterReasons)
    letters_command: str = ""
    layout: Mapping[str, Any] = field(default_factory=dict)
    layout_since: int = 0
    layout_changes: tuple[str, ...] = ()
    compaction: str = ""


@dataclass(frozen=True)
class BatchView:
    """The page of a batch.

    Attributes:
        place: number of the place of its topic.
        pipeline: name of its pipeline.
        topic: name of its topic.
        batch: its number.
        planned_by: try, host and time.
        task: the Airflow task that planned it; None: unknown.
        times: see :class:`BatchTimes`.
        claim: its offsets: partition, first one, and one past the last one of each range.
        plan: as JSON.
        manifest: as JSON; None: it is undecided.
        urls: of objects for a browser, by their keys; empty: their store has none.
        expired: keys of objects that were deleted on purpose, or will be.
    """

    place: int
    pipeline: str
    topic: str
    batch: int
    planned_by: str
    task: PlannerTask | None
    times: BatchTimes
    claim: tuple[tuple[int, int, int], ...]
    plan: Mapping[str, Any]
    manifest: Mapping[str, Any] | None
    urls: Mapping[str, str]
    expired: tuple[str, ...]


def topic_rows(places: Mapping[int, Place], now: dt.datetime) -> list[TopicRow]:
    """All topics, by trouble. What cannot be read hides nothing else.

    Args:
        places: by their numbers.
        now: the time.
    """
    known: list[tuple[_Topic, TopicSummary | None]] = []
    rows: list[TopicRow] = []
    for number, place in places.items():
        try:
            topics, problems = place.topics()
            known += [(_Topic(number, place, address, now), summary) for address, summary in topics]
            rows += [TopicRow(number, place.name, "", "", "unknown", problem) for problem in problems]
        except KafkaS3Error as e:
            rows.append(TopicRow(number, place.name, "", "", "unknown", message_of(e)))

    def row_of(topic: _Topic, summary: TopicSummary | None) -> TopicRow:
        return topic.by_log().row if summary is None else topic.by_summary(summary)

    by_summary = in_threads(lambda each: (each[0], row_of(*each)), known, threads=_TOPICS)
    rows += [row for _, row in by_summary if row.state not in _TROUBLE]
    troubled = sorted(((topic, row) for topic, row in by_summary if row.state in _TROUBLE), key=lambda t: _rank(t[1]))
    rows += in_threads(lambda each: each[0].by_log().row, troubled[:_IN_FULL], threads=_TOPICS)
    rows += [row for _, row in troubled[_IN_FULL:]]
    return sorted(rows, key=_rank)


def _rank(row: TopicRow) -> tuple[int, int, str, str]:
    return _ORDER[row.state], -(row.lag or 0), row.pipeline, row.topic


def topic_view(number: int, place: Place, pipeline: str, topic: str, now: dt.datetime) -> TopicView:
    """The page of a topic.

    Raises:
        ConfigurationError: there is no such topic.
        KafkaS3Error: the log cannot be read.
    """
    place.open(pipeline, topic).require_begun()
    address = TopicAddress(topics_dir=place.topics_dir, pipeline=pipeline, topic=topic)
    look = _Topic(number, place, address, now).by_log(last=_LAST)
    if look.known is None:
        return TopicView(look.row)
    log, status, activity = look.known
    # The log has their documents, which it drops when it reads all batches.
    last = in_threads(lambda batch: _listed(log, batch), status.last, threads=_LAST)
    batches = [*indexed_batches(log, status.marker)]
    period = last_layout_period(log, batches)
    compaction: str | None = None
    if period is not None and look.row.small and activity.small_objects >= MANY_OBJECTS:
        compaction = compaction_task(log.bucket, address, period.layout)
    with_letters = (batch.batch for batch in reversed(batches) if batch.dead_letters)
    return TopicView(
        row=look.row,
        status=status,
        activity=activity,
        last=tuple(last),
        expired=dict(Snapshot(log).coverage.expired(status.generation).items()) if status.expired else {},
        days=_days(batches),
        dead_letters=newest_dead_letters(log, with_letters),
        letters_command=log.remedies.dead_letters().strip("`"),
        layout={} if period is None else builtins(period.layout),
        layout_since=0 if period is None else period.first,
        layout_changes=() if period is None else period.changes,
        compaction=compaction or "",
    )


def batch_view(number: int, place: Place, pipeline: str, topic: str, batch: int) -> BatchView:
    """The page of a batch.

    Raises:
        ConfigurationError: there is no such topic or batch.
        KafkaS3Error: the log cannot be read.
    """
    opened = place.open(pipeline, topic)
    opened.require_begun()
    log = opened.log
    plan = log.read_plan(batch) if batch else None
    if plan is None:
        raise ConfigurationError(f"topic {topic!r} of pipeline {pipeline!r} has no batch {batch}")
    manifest = log.read_manifest(batch)
    objects = () if manifest is None else manifest.objects
    expired = expired_objects(log)
    browser_url = place.connected.browser_url
    return BatchView(
        place=number,
        pipeline=pipeline,
        topic=topic,
        batch=batch,
        planned_by=log.planned_by(batch),
        task=log.planner(batch)[1],
        times=_times(log, batch),
        claim=tuple((partition, *ends) for partition, ranges in plan.claim.items() for ends in ranges),
        plan=builtins(plan),
        manifest=None if manifest is None else builtins(manifest),
        urls={} if browser_url is None else {entry.key: browser_url(entry.key) for entry in objects},
        expired=tuple(entry.key for entry in objects if expired.has(batch, entry)),
    )


def _listed(log: TopicLog, batch: BatchStatus) -> ListedBatch:
    return ListedBatch(
        batch=batch.batch,
        state=batch.state,
        records=batch.records,
        objects=batch.objects,
        size=batch.size,
        dead_letters=batch.dead_letters,
        planned_by=batch.planned_by,
        reason=batch.reason,
        task=log.planner(batch.batch)[1],
        times=_times(log, batch.batch),
        expired=batch.expired,
    )


def _times(log: TopicLog, batch: int) -> BatchTimes:
    planned, decided = log.times(batch)
    manifest = log.read_manifest(batch)
    newest = max((entry.max_timestamp for entry in manifest.objects), default=-1) if manifest is not None else -1
    return BatchTimes(planned, decided, moment(newest))


class _Look(NamedTuple):
    """What the log shows of a topic: its row; and the log, its status and its sums if it has landed something."""

    row: TopicRow
    known: tuple[TopicLog, TopicStatus, Activity] | None = None


@dataclass(frozen=True)
class _Topic:
    """A topic that is to be shown.

    Attributes:
        number: of its place.
        place: where it is.
        address: of it.
        now: the time.
    """

    number: int
    place: Place
    address: TopicAddress
    now: dt.datetime

    def by_log(self, last: int = 1) -> _Look:
        """Its row, and its status with some of the last batches."""
        try:
            opened = self.place.open(self.address.pipeline, self.address.topic)
            status, no_lag = self.place.with_kafka(lambda use_kafka: opened.status(last=last, use_kafka=use_kafka))
            if status is None:
                return _Look(self._row("behind", "nothing is landed: its first run has ended before a batch"))
            summary = current_summary(opened.log, status.marker)
            row = self._known_row(opened, status, summary, no_lag)
            return _Look(row, (opened.log, status, summary.activity))
        except KafkaS3Error as e:
            return _Look(self._row("unknown", message_of(e)))

    def by_summary(self, summary: TopicSummary) -> TopicRow:
        """Its row without a request to the bucket: open batches are not seen."""
        try:
            opened = self.place.open(self.address.pipeline, self.address.topic)
            status, no_lag = self.place.with_kafka(
                lambda use_kafka: resolved_status(opened.log, summary.marker, opened.source if use_kafka else None)
            )
            return self._known_row(opened, status, summary, no_lag)
        except KafkaS3Error as e:
            return self._row("unknown", message_of(e))

    def _row(self, state: State, reason: str) -> TopicRow:
        return TopicRow(self.number, self.place.name, self.address.pipeline, self.address.topic, state, reason)

    def _known_row(self, opened: TopicPipeline, status: TopicStatus, summary: TopicSummary, no_lag: str) -> TopicRow:
        last, newest = summary.last, summary.activity.newest
        state, reason, remedy = _judgement(opened, status, 0 if last is None else last.claimed)
        records, size = summary.activity.since(int((self.now - _DAY).timestamp() * 1000))
        return replace(
            self._row(state, reason),
            remedy=remedy.strip("`"),
            lag=status.lag,
            no_lag=no_lag,
            batches=status.batches,
            records=records,
            size=size,
            last_batch=0 if last is None else last.batch,
            landed_by="" if last is None else last.planned_by,
            newest=moment(newest),
            small=last is not None and last.is_small,
            dag="" if last is None else last.dag_id,
        )


def _judgement(opened: TopicPipeline, status: TopicStatus, claimed: int) -> tuple[State, str, str]:
    """The state of a topic, why, and the command that helps.

    Args:
        opened: the topic.
        status: of the topic.
        claimed: number of offsets of its last committed batch.
    """
    remedies = opened.log.remedies
    gone = sum(partition.gone or 0 for partition in status.partitions)
    held_back = sum(partition.held_back or 0 for partition in status.partitions)
    if status.recreated:
        return "needs a person", "the topic was deleted and created again", remedies.reset()
    if gone:
        return "needs a person", f"Kafka has deleted {count(gone, 'offset')} that were not landed", remedies.status()
    if any(partition.debt for partition in status.partitions):
        return "behind", "offsets of an abandoned batch are to be landed again", remedies.recover()
    if held_back:
        return "behind", f"an open transaction holds back {count(held_back, 'offset')}", ""
    if status.open:
        return "behind", f"{count(len(status.open), 'batch')} open, planned by {status.open[0].planned_by}", ""
    largest = max(claimed, *(batch.offsets.count for batch in status.last), 0)
    if status.lag and status.lag > largest:
        return "behind", f"{count(status.lag, 'offset')} wait, more than the last batches had", ""
    return "well", "", ""


def _days(batches: list[IndexedBatch]) -> tuple[tuple[dt.date, int, int], ...]:
    days: dict[dt.date, tuple[int, int]] = {}
    for batch in batches:
        if batch.status == "commit" and (newest := moment(batch.max_timestamp)) is not None:
            day = newest.date()
            records, size = days.get(day, (0, 0))
            days[day] = (records + batch.records, size + batch.size)
    if not days:
        return ()
    last = max(days)
    shown = [last - dt.timedelta(days=n) for n in range(min((last - min(days)).days, _CALENDAR_DAYS - 1), -1, -1)]
    return tuple((day, *days.get(day, (0, 0))) for day in shown)
