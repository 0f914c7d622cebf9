"""Status of a topic, for people: its coverage, its open batches and their planners, its latest batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_provider_kafka_s3.batch.expiry import current_expiry
from airflow_provider_kafka_s3.batch.given_away import owning_tables
from airflow_provider_kafka_s3.batch.held_back import held_back
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.planning import incremental_target
from airflow_provider_kafka_s3.batch.source import Isolation, Source, pipeline_source
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.manifest import NO_UNKNOWN_FIELDS, Manifest, UnknownFields
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets, Ranges, subtract
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.parallel import in_threads

__all__ = ["BatchStatus", "PartitionStatus", "TopicStatus", "resolved_status", "topic_status"]


@dataclass(frozen=True)
class BatchStatus:
    """One batch.

    Attributes:
        batch: its number.
        state: ``planned``: undecided; ``decided``: to be committed, not complete; ``committed``: complete;
            ``abandoned``; ``reset``.
        run: key of the run that planned it.
        planned_by: try, host and time of the plan.
        tail: whether it continues from the end of the claimed offsets, rather than filling history.
        offsets: claimed offsets.
        objects: number of objects of a commit.
        records: number of records in the data objects of a commit.
        tombstones: number of these whose value is null and that have no object of values.
        ignored: number of null values that were left out.
        dead_letters: number of records in its objects of dead letters.
        size: bytes of a commit.
        unknown_fields: what records have beside their declared schema, which its JSON has as well: the number of
            records, and the last names in the order of their appearance.
        reason: why it was abandoned, and by whom.
        expired: number of its objects that were deleted on purpose, or will be.
    """

    batch: int
    state: Literal["planned", "decided", "committed", "abandoned", "reset"]
    run: str
    planned_by: str
    tail: bool
    offsets: Offsets
    objects: int
    records: int
    tombstones: int
    ignored: int
    dead_letters: int
    size: int
    unknown_fields: UnknownFields
    reason: str
    expired: int = 0


@dataclass(frozen=True)
class PartitionStatus:
    """One Kafka partition.

    Attributes:
        partition: its number.
        stored: one past the highest committed offset; None if there is none.
        gaps: offsets between covered, owed or claimed ones that are none of these: history that no run landed.
        lost: accepted gaps.
        debt: offsets that abandoned batches claimed and no batch has covered since.
        open: offsets that open batches claim.
        log_start: first offset that Kafka still has; None without Kafka.
        log_end: one past the last readable offset; None without Kafka.
        lag: number of offsets that an incremental run would land; None without Kafka.
        gone: number of these that Kafka no longer has; None without Kafka.
        held_back: number of offsets from ``log_end`` on that an open transaction holds back; None without Kafka.
    """

    partition: int
    stored: int | None
    gaps: Ranges
    lost: Ranges
    debt: Ranges
    open: Ranges
    log_start: int | None = None
    log_end: int | None = None
    lag: int | None = None
    gone: int | None = None
    held_back: int | None = None


@dataclass(frozen=True)
class TopicStatus:
    """One topic of a pipeline.

    Attributes:
        pipeline: its name.
        topic: its name.
        generation: number of resets.
        topic_id: incarnation that the stored offsets belong to.
        live_topic_id: id of the topic in Kafka; None without Kafka, or if it has no topic ids.
        batches: number of resolved batches.
        open: batches that are not resolved.
        last: the latest batches, open or not, ascending.
        partitions: see :class:`PartitionStatus`.
        marker: that it is of.
        tables: the last batch whose objects are given to a table, by its name.
        expired: number of batches whose objects were deleted on purpose, or will be.
        expiring: number of objects that will be deleted, and are not yet.
    """

    pipeline: str
    topic: str
    generation: int
    topic_id: str
    live_topic_id: str | None
    batches: int
    open: tuple[BatchStatus, ...]
    last: tuple[BatchStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    marker: Marker
    tables: Mapping[str, int] = field(default_factory=dict)
    expired: int = 0
    expiring: int = 0

    @property
    def recreated(self) -> bool:
        """Whether the live topic is not the landed one."""
        return bool(self.topic_id and self.live_topic_id and self.topic_id != self.live_topic_id)

    @property
    def lag(self) -> int | None:
        """Lag of all partitions."""
        lags = [p.lag for p in self.partitions if p.lag is not None]
        return sum(lags) if lags else None

    def to_json(self) -> dict[str, Any]:
        """The status as plain JSON values; ranges are ``[start, end]``, the end excluded."""
        return {
            "pipeline": self.pipeline,
            "topic": self.topic,
            "generation": self.generation,
            "topic_id": self.topic_id,
            "live_topic_id": self.live_topic_id,
            "recreated": self.recreated,
            "batches": self.batches,
            "lag": self.lag,
            "open": [_batch_json(b) for b in self.open],
            "last": [_batch_json(b) for b in self.last],
            "partitions": [{**vars(p)} for p in self.partitions],
            "tables": {**self.tables},
            "expired": self.expired,
            "expiring": self.expiring,
        }


def _batch_json(batch: BatchStatus) -> dict[str, Any]:
    unknown = batch.unknown_fields
    return {
        **vars(batch),
        "offsets": batch.offsets.to_json(),
        "unknown_fields": {"records": unknown.records, "names": [*unknown.names]},
    }


def topic_status(
    topic_log: TopicLog, source: Source | None, *, last: int = 10, isolation: Isolation = "read_committed"
) -> TopicStatus | None:
    """Status of a topic; None if it was never landed. Nothing is written.

    Args:
        topic_log: the control documents of the topic.
        source: Kafka, for the lag; None: no lag.
        last: number of the latest batches to read; each may have a large manifest.
        isolation: isolation level of the end offsets.

    Raises:
        TerminalError: documents cannot be trusted, or Kafka or the store refuses a request.
        TransientError: try again later.
    """
    stored = topic_log.read_marker()
    if stored is None and topic_log.read_plan(1) is None:
        return None
    view = topic_log.view(stored)
    numbers = sorted({*view.open_plans, *range(max(1, view.next - last), view.next)})
    expiry = current_expiry(topic_log)
    expired = expiry.objects
    described = {
        b.batch: b for b in in_threads(lambda n: _batch(topic_log, view.marker, n, expired), numbers, threads=16)
    }
    return replace(
        _of_view(topic_log, view, source, isolation),
        open=tuple(described[n] for n in sorted(view.open_plans)),
        last=tuple(described[n] for n in numbers if n >= view.next - last),
        tables={owner.table: owner.last for owner in owning_tables(topic_log) if owner.last},
        expired=sum(end - first for first, end in expired.batches),
        expiring=sum(one.number for one in expiry.waiting),
    )


def resolved_status(topic_log: TopicLog, marker: Marker, source: Source | None) -> TopicStatus:
    """Status of the resolved batches of a topic: nothing of its open ones, and none of its batches; reads no document.

    Args:
        topic_log: the control documents of the topic.
        marker: of the topic.
        source: Kafka, for the lag; None: no lag.

    Raises:
        KafkaS3Error: Kafka refuses a request, or gives no answer.
    """
    view = View(marker=marker, etag="", open_plans={}, next=marker.last_resolved + 1)
    return _of_view(topic_log, view, source, "read_committed")


def _of_view(topic_log: TopicLog, view: View, source: Source | None, isolation: Isolation) -> TopicStatus:
    live, partitions = _partitions(topic_log, view, source, isolation)
    return TopicStatus(
        pipeline=topic_log.pipeline,
        topic=topic_log.topic,
        generation=view.marker.generation,
        topic_id=view.topic_id,
        live_topic_id=live,
        batches=sum(end - start for start, end in view.marker.resolved),
        open=(),
        last=(),
        partitions=partitions,
        marker=view.marker,
    )


def _batch(topic_log: TopicLog, marker: Marker, batch: int, expired: ExpiredObjects) -> BatchStatus:
    plan, _ = topic_log.require_plan(batch)
    planned_by = topic_log.planned_by(batch)
    decision = topic_log.read_manifest(batch)
    return BatchStatus(
        batch=batch,
        state=_state(plan, decision, resolved=marker.is_resolved(batch)),
        run=plan.run,
        planned_by=planned_by,
        tail=plan.tail,
        offsets=plan.claim,
        objects=0 if decision is None else len(decision.objects),
        records=0 if decision is None else decision.records,
        tombstones=0 if decision is None else decision.tombstones,
        ignored=0 if decision is None else decision.ignored,
        dead_letters=0 if decision is None else decision.dead_letters,
        size=0 if decision is None else decision.size,
        unknown_fields=NO_UNKNOWN_FIELDS if decision is None else decision.unknown_fields,
        reason="" if decision is None or decision.reason is None else f"{decision.reason} ({decision.operator})",
        expired=0 if decision is None else sum(expired.has(batch, entry) for entry in decision.objects),
    )


def _state(
    plan: Plan, decision: Manifest | None, *, resolved: bool
) -> Literal["planned", "decided", "committed", "abandoned", "reset"]:
    if plan.type == "reset":
        return "reset"
    if decision is None:
        return "planned"
    if decision.status == "commit":
        return "committed" if resolved else "decided"
    return decision.status


def _partitions(
    topic_log: TopicLog, view: View, source: Source | None, isolation: Isolation
) -> tuple[str | None, tuple[PartitionStatus, ...]]:
    marker, claims = view.marker, view.claims
    # Each is made of all partitions.
    covered, lost, debt = marker.covered, marker.lost, marker.debt
    known = covered | debt | claims
    live: str | None = None
    earliest: dict[int, int] = {}
    ends: dict[int, int] = {}
    held, readable = NO_OFFSETS, None
    if source is not None:
        info = source.describe(topic_log.topic)
        live = info.topic_id
        # Offsets of another incarnation cannot be compared.
        if not view.topic_id or live == view.topic_id:
            earliest = source.earliest(topic_log.topic, info.partitions)
            ends = source.ends(topic_log.topic, info.partitions, isolation)
            landed = pipeline_source(source)
            if landed is None:
                held = held_back(source, topic_log.topic, ends, isolation)
            else:
                readable = landed.readable(topic_log.topic)
    behind = incremental_target(view, ends, readable)
    gone = behind & Offsets({p: [(0, start)] for p, start in earliest.items()})
    partitions = [
        PartitionStatus(
            partition=p,
            stored=covered.end(p),
            gaps=subtract(((known[p][0][0], known[p][-1][1]),), known[p]) if known[p] else (),
            lost=lost[p],
            debt=debt[p],
            open=claims[p],
            log_start=earliest.get(p),
            log_end=ends.get(p),
            lag=_size(behind[p]) if p in ends else None,
            gone=_size(gone[p]) if p in ends else None,
            held_back=_size(held[p]) if p in ends else None,
        )
        for p in sorted({*known, *marker.start, *ends})
    ]
    return live, tuple(partitions)


def _size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)
