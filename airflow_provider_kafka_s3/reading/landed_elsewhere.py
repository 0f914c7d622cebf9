"""Whether another pipeline has what a batch has, so that the objects of the batch may be deleted."""

from __future__ import annotations

import bisect
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from airflow_provider_kafka_s3.batch.coverage import covering_downward
from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Landed, Layout
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, MissingObjectError
from airflow_provider_kafka_s3.maintenance.expiry_rule import CommittedBatch, ExpiryGuard
from airflow_provider_kafka_s3.messages import few, printable
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.pipeline import TopicPipeline, open_topic
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.records import PartName, kept_parts

__all__ = ["LandedElsewhere", "landed_elsewhere"]


@dataclass(frozen=True)
class _Span:
    """A slice of a batch, and the records that its manifest has of it.

    Attributes:
        batch: its number.
        place: Kafka partition, first offset and end.
        records: number of records in its objects, dead letters and null values among them.
        accepted: number of these in objects that were accepted as lost.
        dead_letters: number of these that are dead letters.
        ignored: number of null values that were left out.
        layout: of the batch.
        reads_objects: whether they were read from objects of another pipeline, and not from Kafka.
        why_lost: why the batch does not have all of its objects; empty: it has.
    """

    batch: int
    place: tuple[int, int, int]
    records: int
    accepted: int
    dead_letters: int
    ignored: int
    layout: Layout
    reads_objects: bool
    why_lost: str = ""

    def has_some_of(self, offsets: Offsets) -> bool:
        """Whether some of these offsets are its own."""
        partition, start, end = self.place
        ranges = offsets[partition]
        before = bisect.bisect_left(ranges, end, key=lambda bounds: bounds[0]) - 1
        return before >= 0 and ranges[before][1] > start


@dataclass
class _Side:
    """Slices of one pipeline that were looked at; each document is read once.

    Attributes:
        log: of the topic.
        generation: of the slices.
        marker: of the topic.
        spans: the slices, by batch.
        known: offsets whose batches were looked for.
    """

    log: TopicLog
    generation: int
    marker: Marker
    spans: dict[int, list[_Span]] = field(default_factory=dict)
    known: Offsets = NO_OFFSETS

    def missing(self, offsets: Offsets) -> Iterator[CommittedBatch]:
        """The batches of offsets that were not looked at yet, by their documents, one at a time."""
        wanted = offsets & self.marker.covered_in(self.generation)
        left = wanted - self.known
        self.known |= wanted
        if not left:
            return
        for covering in covering_downward(self.log, left, generation=self.generation, marker=self.marker):
            if covering.plan.batch not in self.spans:
                yield covering.plan, covering.decision
            self.log.forget(covering.plan.batch)

    def around(self, offsets: Offsets) -> Offsets:
        """The offsets of all slices that have some of these."""
        return Offsets.of(span.place for span in self.all() if span.has_some_of(offsets))

    def all(self) -> Iterator[_Span]:
        """All slices."""
        for spans in self.spans.values():
            yield from spans


class LandedElsewhere(ExpiryGuard):
    """Keeps batches whose records another pipeline does not have, or has not all of each.

    Offsets and numbers of records are compared, slice by slice; slices that one of the two has joined, together. Every
    object of the other pipeline's batches must be there. What its layout does not keep of a record, such as its key or
    the bytes of its value, is missing.

    Args:
        log: of the batches.
        other: the topic in the other pipeline.
        verify: read the objects of the other pipeline back before anything is deleted.
        unsafe_fewer_parts: also where the other pipeline does not keep all parts of each record.
    """

    def __init__(
        self, log: TopicLog, other: TopicPipeline, *, verify: bool = False, unsafe_fewer_parts: bool = False
    ) -> None:
        if log.address.topics_dir == other.log.address.topics_dir:
            raise ConfigurationError(
                f"topic {log.topic!r}: the pipeline that has landed it elsewhere has another topics_dir than "
                f"{log.topics_dir!r}, since a topic has one pipeline below a prefix. Nothing was changed. Name the "
                f"topics_dir of the other one"
            )
        self._log = log
        self._other = other
        self._verify = verify
        self._unsafe_fewer_parts = unsafe_fewer_parts
        self._name = f"pipeline {other.log.pipeline!r} below {other.log.topics_dir!r}"
        # Of the other pipeline, read for each call.
        self._expired, self._given_away = ExpiredObjects(), GivenAway(other.log)
        # By the incarnation of the topic.
        self._sides: dict[str, tuple[_Side, _Side]] = {}

    @override
    def kept(self, batches: Sequence[CommittedBatch], *, final: bool) -> Mapping[int, str]:
        kept: dict[int, str] = {}
        other = self._other.log
        self._expired, self._given_away = expired_objects(other), GivenAway(other)
        of_topic: dict[str, list[CommittedBatch]] = {}
        for plan, decision in batches:
            of_topic.setdefault(plan.topic_id, []).append((plan, decision))
        for topic_id, committed in of_topic.items():
            sides = self._sides_of(topic_id, committed[0][0].generation)
            if isinstance(sides, str):
                kept |= dict.fromkeys((plan.batch for plan, _ in committed), sides)
            else:
                kept |= self._kept_of(committed, *sides, final=final)
        return kept

    def _sides_of(self, topic_id: str, generation: int) -> tuple[_Side, _Side] | str:
        """Both pipelines in an incarnation of the topic; why not."""
        if topic_id not in self._sides:
            stored = self._other.log.read_marker()
            if stored is None:
                return f"{self._name} has not begun to land the topic"
            ids = [closed.topic_id for closed in stored[0].history] + [stored[0].topic_id]
            if topic_id not in ids:
                return f"{self._name} has landed no such incarnation of the topic"
            theirs = len(ids) - 1 - ids[::-1].index(topic_id)
            own, _ = self._log.require_marker()
            self._sides[topic_id] = (
                _Side(self._log, generation, own),
                _Side(self._other.log, theirs, stored[0]),
            )
        return self._sides[topic_id]

    def _kept_of(self, batches: Sequence[CommittedBatch], ours: _Side, theirs: _Side, *, final: bool) -> dict[int, str]:
        for plan, decision in batches:
            if plan.batch not in ours.spans:
                ours.spans[plan.batch] = [*_spans(ours.log, plan, decision, ours.log.amended_keys(plan.batch)[0])]
        claimed = Offsets.of(span.place for plan, _ in batches for span in ours.spans[plan.batch])
        # Slices of the other pipeline may reach further than these, and so on.
        wanted = claimed
        while True:
            for plan, decision in theirs.missing(wanted):
                theirs.spans[plan.batch] = [*self._spans_of_other(plan, decision, final=final)]
            reached = theirs.around(wanted)
            for plan, decision in ours.missing(reached):
                ours.spans[plan.batch] = [*_spans(ours.log, plan, decision, ours.log.amended_keys(plan.batch)[0])]
            further = ours.around(reached) | reached
            if further <= wanted:
                break
            wanted |= further
        numbers = {plan.batch for plan, _ in batches}
        kept: dict[int, str] = {}
        for of_us, of_them in _together(ours.all(), theirs.all()):
            if numbers.isdisjoint(span.batch for span in of_us):
                continue
            if (why := self._difference(of_us, of_them)) is not None:
                kept |= dict.fromkeys((span.batch for span in of_us if span.records), why)
        return {batch: why for batch, why in kept.items() if batch in numbers}

    def _spans_of_other(self, plan: Plan, decision: Manifest, *, final: bool) -> Iterator[_Span]:
        """The slices of a batch of the other pipeline, and whether all of its objects are there."""
        log, committer = self._other.log, self._other.committer
        lost, why = log.amended_keys(plan.batch)[0], ""
        if (table := self._given_away.table_of_batch(plan.batch)) is not None:
            why = f"has given its objects to table {printable(table)}, whose engines may have deleted them"
        elif any(entry.key in lost or self._expired.has(plan.batch, entry) for entry in decision.objects):
            why = "has lost or deleted objects that have these records"
        else:
            try:
                if not all(committer.objects.are_intact(plan, decision.objects)):
                    why = "lacks objects that have these records"
                elif final and self._verify:
                    self._read_back(plan)
            except (MissingObjectError, ForeignObjectError):
                why = "has other objects in place of those that have these records: verify it"
        yield from _spans(log, plan, decision, lost, why)

    def _read_back(self, plan: Plan) -> None:
        log = self._other.log
        request = RunRequest(
            run=f"operator:expire:{uuid.uuid4()}",
            offsets="data_interval",
            window={p: (ranges[0][0], ranges[-1][1]) for p, ranges in plan.claim.items()},
            layout=plan.layout or log.last_layout(plan.batch),
            starting="earliest",
            action="verify",
        )
        self._other.run(request).advance()

    def _difference(self, ours: Sequence[_Span], theirs: Sequence[_Span]) -> str | None:
        """Why slices that overlap each other are kept; None: the other pipeline has all of their records."""
        if not sum(span.records for span in ours):
            return None
        has = Offsets.of(span.place for span in theirs)
        if Offsets.of(span.place for span in ours if span.records) - has:
            return f"{self._name} has not landed all of their offsets"
        if Offsets.of(span.place for span in theirs if span.records) - Offsets.of(span.place for span in ours):
            return f"{self._name} has them together with offsets that are not landed here yet"
        if why := next((span.why_lost for span in theirs if span.why_lost), ""):
            return f"{self._name} {why}"
        records, ignored = sum(span.records for span in theirs), sum(span.ignored for span in theirs)
        most = sum(span.records + span.ignored for span in ours)
        least = sum(span.records - span.accepted for span in ours)
        left_out = 0 if any(span.reads_objects for span in theirs) else sum(span.ignored for span in ours)
        if not least <= records <= most or ignored > left_out:
            return f"{self._name} has another number of records at the same offsets"
        return None if self._unsafe_fewer_parts else self._fewer_parts(ours, theirs)

    def _fewer_parts(self, ours: Sequence[_Span], theirs: Sequence[_Span]) -> str | None:
        missing = {part: why for span in theirs for part, why in _missing(span.layout).items()}
        fewer = [
            f"the {part} ({why})"
            for part, why in missing.items()
            if any(part not in _missing(span.layout) for span in ours)
        ]
        if missing and sum(span.dead_letters for span in ours) != sum(span.dead_letters for span in theirs):
            fewer.append("what dead letters keep beside the value")
        return f"{self._name} does not keep all of each record as they do: {few(fewer)}" if fewer else None


def landed_elsewhere(
    topic: TopicPipeline, *, verify: bool = False, unsafe_fewer_parts: bool = False
) -> Callable[[Landed], LandedElsewhere]:
    """Gives the guard for each pipeline in the same bucket.

    Args:
        topic: whose objects may be deleted.
        verify: see :class:`LandedElsewhere`.
        unsafe_fewer_parts: see there.
    """

    def guard(landed: Landed) -> LandedElsewhere:
        log = topic.log
        address = TopicAddress(topics_dir=landed.topics_dir, pipeline=landed.pipeline, topic=log.topic)
        other = open_topic(log.store, address, topic.source, connection_options=log.remedies.connection_options)
        return LandedElsewhere(log, other, verify=verify, unsafe_fewer_parts=unsafe_fewer_parts)

    return guard


def _spans(log: TopicLog, plan: Plan, decision: Manifest, lost: frozenset[str], why_lost: str = "") -> Iterator[_Span]:
    """The slices of a batch."""
    objects = CommittedObjects(log, plan, decision)
    records, accepted, dead = ([0] * len(plan.slices) for _ in range(3))
    for entry in objects.of_records():
        is_lost, is_dead = entry.key in lost, objects.is_dead_letters(entry)
        for part in entry.by_slice:
            records[part.id] += part.records
            accepted[part.id] += part.records * is_lost
            dead[part.id] += part.records * is_dead
    ignored = {result.id: result.ignored for result in decision.slices}
    for s in plan.slices:
        yield _Span(
            batch=plan.batch,
            place=(s.partition, s.start, s.end),
            records=records[s.id],
            accepted=accepted[s.id],
            dead_letters=dead[s.id],
            ignored=ignored[s.id],
            layout=objects.layout,
            reads_objects=plan.source is not UNSET,
            why_lost=why_lost,
        )


@functools.lru_cache(maxsize=64)
def _missing(layout: Layout) -> Mapping[PartName, str]:
    return kept_parts(layout).missing


def _together(ours: Iterable[_Span], theirs: Iterable[_Span]) -> Iterator[tuple[list[_Span], list[_Span]]]:
    """Slices of both that overlap each other, directly or by others."""
    sides = [(span.place, side, span) for side, spans in enumerate((ours, theirs)) for span in spans]
    group: tuple[list[_Span], list[_Span]] = ([], [])
    partition = end = -1
    for place, side, span in sorted(sides, key=lambda one: one[:2]):
        if any(group) and not (place[0] == partition and place[1] < end):
            yield group
            group = ([], [])
        end = place[2] if place[0] != partition else max(end, place[2])
        partition = place[0]
        group[side].append(span)
    if any(group):
        yield group
